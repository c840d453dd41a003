from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import running


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a running broker; tests choose with `both_brokers`."""
    with running(request.param, tmp_path_factory.mktemp("broker")) as port:
        yield port
