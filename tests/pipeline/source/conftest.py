"""Two stores with positions and nothing else in common. Their servers are the same for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pipeline.source.some_stores import WatchedStore
from tests.store.rest.served import Served, serving


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Served, Served]]:
    with serving(WatchedStore("s1")) as first, serving(WatchedStore("s2")) as second:
        yield first, second


@pytest.fixture
def one(servers: tuple[Served, Served]) -> Served:
    servers[0].use(WatchedStore("s1"))
    return servers[0]


@pytest.fixture
def two(servers: tuple[Served, Served]) -> Served:
    servers[1].use(WatchedStore("s2"))
    return servers[1]


@pytest.fixture
def mortal() -> Iterator[Served]:
    """A server of the store `s3` that a test may stop."""
    with serving(WatchedStore("s3")) as served:
        yield served
