"""Questions in stages find what one question finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.rest import scanning
from headwater.store.rest.scanning import scanned
from headwater.store.retention import Retention
from headwater.store.store import PositionGone
from headwater.store.where import ROWS, SIZE, Where
from tests.store.messages import MICROSECONDS, NOON, SECOND, Writer, contents, found, numbered, queries, read


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "STAGE", 7)
    monkeypatch.setattr(scanning, "TURN", 0.0)


def chunks(store: MemoryStore, query: Query) -> Iterator[Chunk]:
    return (chunk for chunk in scanned(store, query) if chunk is not None)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(contents(), max_size=40).map(numbered), queries(40))
def test_stages_find_what_one_question_finds(short: None, entries: list[Entry], query: Query) -> None:
    store = MemoryStore("s1", MICROSECONDS)
    writer = Writer(store)
    writer.write_entries(entries)
    writer.sync()
    if query.limit == 0:
        query = query._replace(limit=1)
    assert read(chunks(store, query)) == found(store, query)


def test_a_stage_has_an_end_even_if_nothing_is_found(short: None) -> None:
    store = MemoryStore("s1")
    Writer(store).write(*["a"] * 20)
    assert list(scanned(store, Query(filter="b"))) == [None, None]
    assert list(scanned(store, Query(filter="b", after=4, before=18))) == [None]
    assert list(scanned(store, Query(filter="b", after=100))) == []


def test_what_comes_meanwhile_is_not_looked_for(short: None) -> None:
    store = MemoryStore("s1")
    writer = Writer(store)
    writer.write(*["a"] * 20)
    chunks = scanned(store, Query())
    some = [next(chunks)]
    writer.write(*["a"] * 20)
    assert [entry.position for entry in read(each for each in [*some, *chunks] if each is not None)] == [*range(1, 21)]


def test_retention_may_overtake_it(short: None) -> None:
    store = MemoryStore("s1", MICROSECONDS, Retention(age=SECOND))
    Writer(store).write(*["a"] * 20)
    chunks = scanned(store, Query())
    assert next(chunks) is not None
    store.trim(NOON + 10 * SECOND)
    with pytest.raises(PositionGone):
        list(chunks)
    with pytest.raises(PositionGone):
        next(scanned(store, Query(after=0)))


def stage_by_stage(store: MemoryStore, enough: int, turn: float, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    for name, value in (("STAGE", 7), ("TURN", turn), ("ENOUGH", enough)):
        monkeypatch.setattr(scanning, name, value)
    steps = scanned(store, Query(filter="b"))
    return [[] if step is None else step.position.tolist() for step in steps]


def test_what_is_found_in_a_turn_comes_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("s1")
    writer = Writer(store)
    for _ in range(15):
        writer.write("a", "b")
    assert stage_by_stage(store, 1000, 60.0, monkeypatch) == [[*range(2, 31, 2)]]
    assert stage_by_stage(store, 5, 60.0, monkeypatch) == [[2, 4, 6, 8, 10, 12, 14], [16, 18, 20, 22, 24, 26, 28], [30]]
    assert stage_by_stage(store, 1000, 0.0, monkeypatch) == [
        *([2, 4, 6], [], [8, 10, 12, 14], [], [16, 18, 20], [], [22, 24, 26, 28], [], [30])
    ]


def test_what_was_found_before_an_error_comes_before_it() -> None:
    class Failing(MemoryStore):
        def select(self, query: Query) -> Iterator[Chunk]:
            yield from super().select(query)
            raise OSError("no more")

    store = Failing("s1")
    Writer(store).write("a", "a")
    chunks = scanned(store, Query())
    step = next(chunks)
    assert step is not None and len(step) == 2
    with pytest.raises(OSError, match="no more"):
        next(chunks)


def test_a_condition_is_asked_of_a_few_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "TURN", 0.0)
    asked: list[int] = []

    class Counting(Where):
        def of(self, chunk: Chunk) -> Chunk:
            asked.append(len(chunk))
            return super().of(chunk)

    store = MemoryStore("s1", MICROSECONDS)
    writer = Writer(store)
    for number in range(3 * ROWS):
        writer.take("a", b'{"value": %d}' % number)
    writer.take("a", b"x" * (SIZE + 1))
    writer.sync()
    steps = list(scanned(store, Query(where=Counting(f"value = {2 * ROWS + 1}"))))
    assert steps.count(None) >= 2, "others had their turn"
    assert [chunk.payload[0] for chunk in steps if chunk is not None] == [b'{"value": %d}' % (2 * ROWS + 1)]
    assert max(asked) == ROWS
    assert sum(asked) == 3 * ROWS + 1
    found = list(chunks(store, Query(where=Where("value >= 10"), limit=5, after=20)))
    assert [entry.position for entry in read(found)] == [21, 22, 23, 24, 25]
