"""A store as a forward reads it."""

from __future__ import annotations

import pytest

from headwater.edge.forwarding.source import ROWS, Source
from headwater.store.memory import MemoryStore
from headwater.store.retention import Retention
from headwater.store.store import PositionGone
from tests.store.messages import Writer


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("s", retention=Retention(age=1))


def test_parts_follow_each_other_and_end_where_they_should(store: MemoryStore) -> None:
    writer = Writer(store)
    for number in range(3 * ROWS):
        writer.take("even" if number % 2 else "odd")
    writer.append()
    store.sync()
    source = Source(store, "r")
    for filter, count in ((None, 3 * ROWS - 30), ("odd", (3 * ROWS - 30) // 2)):
        parts = list(source.parts(filter, 11, 3 * ROWS - 19))
        found = [entry.position for part in parts for entry in part.entries]
        assert len(found) == count
        assert found == sorted(found) and found[0] == 11
        stops = [part.stop for part in parts]
        assert stops == sorted(stops) and stops[-1] == 3 * ROWS - 19
        assert all(len(part.entries) <= ROWS for part in parts)


def test_what_is_gone(store: MemoryStore) -> None:
    writer = Writer(store)
    for _ in range(5):
        writer.take()
    writer.append()
    store.sync()
    source = Source(store, "r")
    assert source.committed() is None
    source.commit(2)
    assert source.committed() == 2
    store.trim(2**62)
    assert source.first == 3
    with pytest.raises(PositionGone):
        list(source.parts(None, 1, 6))
    entry = source.at(4)
    assert entry is not None and entry.position == 4
    assert source.at(6) is None


def test_messages_here_and_there(store: MemoryStore) -> None:
    writer = Writer(store)
    for _ in range(25_000):
        writer.take()
    writer.append()
    store.sync()
    source = Source(store, "r")
    wanted = [1, 2, 500, 20_000, 20_001, 25_000, 30_000]
    found = source.at_each(wanted)
    assert list(found) == wanted[:-1]
    assert all(entry.position == position for position, entry in found.items())
    assert source.at_each([]) == {}
    store.trim(2**62)
    assert source.at_each(wanted) == {}


def test_which_retained_message_is_replaced(store: MemoryStore) -> None:
    writer = Writer(store)
    for topic, retain in (("a", True), ("a", True), ("a", False), ("b", True)):
        writer.take(topic, retain=retain)
    writer.append()
    store.sync()
    source = Source(store, "r")
    assert [source.is_replaced("a", 1), source.is_replaced("a", 2), source.is_replaced("b", 4)] == [True, False, False]
    writer.take("b", retain=True)
    writer.append()
    store.sync()
    assert source.is_replaced("b", 4)
