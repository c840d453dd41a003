from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import running


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of our broker, in a process of its own."""
    with running("headwater", tmp_path_factory.mktemp("broker")) as port:
        yield port
