"""Each make as a parameter; one that the machine lacks skips by its name."""

from __future__ import annotations

import pytest

from headwater.fleet.process import BrokerError
from headwater_lab.makes.nodes import MAKES, Make


@pytest.fixture(params=MAKES, ids=lambda make: make.name)
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return there(found)


def there(make: Make) -> Make:
    try:
        make.needs()
    except BrokerError as problem:
        pytest.skip(f"{make.name}: {problem}")
    return make
