from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.store.memory import MemoryStore
from headwater.store.store import Store
from tests.store.kinds import MEMORY, Kind
from tests.store.messages import MICROSECONDS
from tests.store.rest.served import Served, serving

KINDS = [MEMORY, Kind("disk, blocks of 7", 7)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind: Kind = request.param
    store = kind.open(tmp_path / "store", id="s1", extraction=MICROSECONDS)
    yield store
    store.close()


@pytest.fixture
def served(store: Store) -> Iterator[Served]:
    with serving(store) as served:
        yield served


@pytest.fixture(scope="module")
def lasting() -> Iterator[Served]:
    with serving(MemoryStore("s1", MICROSECONDS)) as served:
        yield served


@pytest.fixture
def quick(lasting: Served) -> Served:
    """A server that a module's tests share, with a store in memory of each test's own: making one takes a while."""
    lasting.use(MemoryStore("s1", MICROSECONDS))
    return lasting
