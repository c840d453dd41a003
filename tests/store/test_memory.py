"""What is the memory store's alone; what all stores promise is in tests/contract/test_stores*.py."""

from __future__ import annotations

from headwater.store.memory import CHUNK, MemoryStore
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.store import Trimmed
from tests.store.messages import NOON, SECOND, Writer, positions


def test_messages_are_removed_one_by_one() -> None:
    store = MemoryStore(retention=Retention(age=10 * SECOND))
    writer = Writer(store)
    for second in range(20):
        writer.take("a", b"xyz", publisher="p", arrival=NOON + second * SECOND)
    writer.sync()
    assert store.trim(NOON + 10 * SECOND) == Trimmed(1, 0, 0, None)
    assert store.trim(NOON + 10 * SECOND + 1) == Trimmed(2, 1, 5, None)
    assert store.trim(NOON + 25 * SECOND) == Trimmed(16, 14, 70, None)
    assert positions(store) == list(range(16, 21))
    assert store.statistics().size == 25


def test_as_few_are_removed_as_can_be() -> None:
    store = MemoryStore(retention=Retention(size=50))
    writer = Writer(store)
    for _ in range(20):
        writer.take("a", b"xyz", publisher="p")
    writer.sync()
    assert store.trim(0) == Trimmed(11, 10, 50, None)
    assert store.trim(0) == Trimmed(11, 0, 0, None)


def test_chunks_have_a_size() -> None:
    store = MemoryStore()
    Writer(store).write(*"a" * (2 * CHUNK + 1))
    assert [len(chunk) for chunk in store.select(Query())] == [CHUNK, CHUNK, 1]


def test_closing_syncs() -> None:
    store = MemoryStore()
    writer = Writer(store)
    writer.take("a")
    writer.append()
    store.close()
    assert positions(store) == [1]
