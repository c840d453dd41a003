from __future__ import annotations

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.store import chunk
from headwater.store.chunk import Chunk, Pieces, distinct
from headwater.store.entry import Entry
from headwater.store.intake import RETAIN, Intake
from tests.store.messages import NOON, contents, numbered

rows = st.lists(st.binary(max_size=5), max_size=12)
entries = st.lists(contents(), max_size=12).map(numbered)


def indices(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, count - 1), max_size=15) if count else st.just([])


def assert_is(chunk: Chunk, expected: list[Entry]) -> None:
    """Its columns are of one length and of the types that are promised, and hold these messages."""
    assert list(chunk.entries()) == expected
    assert len(chunk) == len(expected)
    columns = (chunk.position, chunk.time, chunk.arrival, chunk.value, chunk.flags, chunk.topic, chunk.publisher)
    assert [column.dtype.name for column in columns] == [
        *("int64", "int64", "int64", "float64", "uint8", "int32", "int32")
    ]
    assert {len(column) for column in columns} == {len(expected)}
    for each in (chunk.payload, *chunk.optional.values()):
        assert each.offsets.dtype == numpy.int64
        assert len(each.offsets) == len(expected) + 1
        assert (each.offsets[0], each.offsets[-1]) == (0, len(each.data))


@given(st.lists(st.integers(0, 12) | st.integers(0, 1_000_000), max_size=12))
def test_numbers_that_occur(numbers: list[int]) -> None:
    used, places = distinct(numpy.array(numbers, numpy.int32))
    assert used.tolist() == sorted(set(numbers))
    assert [int(used[place]) for place in places] == numbers
    assert places.dtype == numpy.int32


# ---- pieces --------------------------------------------------------------------------------------------------------


@given(rows)
@settings(deadline=None)
def test_pieces_are_their_rows(rows: list[bytes]) -> None:
    pieces = Pieces.of(rows)
    assert pieces.rows() == rows
    assert [pieces[index] for index in range(len(rows))] == rows
    assert pieces.data == b"".join(rows)


@given(rows, st.booleans(), st.data())
def test_pieces_by_index(rows: list[bytes], many: bool, data: st.DataObject) -> None:
    choice = data.draw(indices(len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(chunk, "MANY", 0)
            patch.setattr(chunk, "FEW", 3)
        taken = Pieces.of(rows).take(numpy.array(choice, numpy.intp))
    assert taken.rows() == [rows[index] for index in choice]
    assert taken.data == b"".join(taken.rows())


@given(rows, st.data())
def test_pieces_from_a_row_to_another(rows: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    part = Pieces.of(rows).slice(start, end)
    assert part.rows() == rows[start:end]
    assert part.data == b"".join(rows[start:end])
    assert part.slice(0, end - start).rows() == rows[start:end]


@given(st.lists(rows, max_size=5))
def test_pieces_one_behind_the_other(parts: list[list[bytes]]) -> None:
    assert Pieces.joined([Pieces.of(part) for part in parts]).rows() == [row for part in parts for row in part]


# ---- chunks --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(entries)
@example([])
def test_messages_become_columns_and_come_back(entries: list[Entry]) -> None:
    chunk = Chunk.of(entries)
    assert_is(chunk, entries)
    assert len(set(chunk.names)) == len(chunk.names)
    assert ("properties" in chunk.optional) is any(entry.properties for entry in entries)


def test_a_value_that_is_not_a_number_is_none() -> None:
    entry = Entry(1, "a", b"", 0, False, "", 0, 0, float("nan"))
    assert list(Chunk.of([entry]).entries()) == [entry._replace(value=None)]


@settings(deadline=None)
@given(entries, st.data())
def test_by_index(entries: list[Entry], data: st.DataObject) -> None:
    choice = data.draw(indices(len(entries)))
    chunk = Chunk.of(entries).take(numpy.array(choice, numpy.intp))
    assert_is(chunk, [entries[index] for index in choice])


@settings(deadline=None)
@given(entries, st.data())
def test_from_one_to_another(entries: list[Entry], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(entries)))
    end = data.draw(st.integers(start, len(entries) + 3))
    assert_is(Chunk.of(entries).slice(start, end), entries[start:end])


@settings(deadline=None)
@given(entries, st.sets(st.integers(0, 12)))
def test_one_behind_the_other(entries: list[Entry], cuts: set[int]) -> None:
    """Of parts with the same names, each with publishers of its own, as a store's are."""
    names = sorted({entry.topic for entry in entries})
    bounds = sorted({0, len(entries), *(cut for cut in cuts if cut < len(entries))})
    chunks = []
    for start, end in zip(bounds, [*bounds[1:], len(entries)], strict=True):
        chunk = Chunk.of(entries[start:end])
        chunk.topic = numpy.array([names.index(chunk.names[topic]) for topic in chunk.topic], numpy.int32)
        chunk.names = names
        chunks.append(chunk)
    joined = Chunk.joined(chunks)
    assert_is(joined, entries)
    assert ("properties" in joined.optional) is any(entry.properties for entry in entries)
    assert len(set(joined.publishers)) == len(joined.publishers)


def test_one_alone_is_itself() -> None:
    chunk = Chunk.of(numbered([Entry(0, "a", b"x", 0, False, "device", 0, 0, None)]))
    assert Chunk.joined([chunk]) is chunk
    assert chunk.slice(0, 1) is chunk.slice(0, 9) is chunk


def test_names_may_grow_afterwards() -> None:
    entries = numbered([Entry(0, topic, b"", 0, False, "device", 0, 0, None) for topic in "ab"])
    names = ["a", "b"]
    chunk = Chunk.of(entries)
    chunk.names = names
    names.append("c")
    assert_is(chunk, entries)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_flags(qos: int, retain: bool) -> None:
    entry = Entry(1, "a", b"", qos, retain, "", 0, 0, None)
    [again] = Chunk.of([entry]).entries()
    assert (again.qos, again.retain) == (qos, retain)
    assert again.retain is retain


def test_messages_as_they_came() -> None:
    intake = Intake(7)
    intake.take(b"a", b"1", RETAIN | 1, "one", NOON)
    intake.take(b"b", b"x", 2, "two", NOON + 1, {"properties": b'{"user":[]}'})
    intake.take(b"a", b"3", 0, "one", NOON + 2)
    taken = intake.hand_over()
    assert taken is not None
    topics = numpy.array([0, 1, 0], numpy.int32)
    made = Chunk.taken(taken, topics, ["a", "b"], [10, 20, 30], [1.0, float("nan"), 3.0])
    assert list(made.entries()) == [
        Entry(7, "a", b"1", 1, True, "one", 10, NOON, 1.0),
        Entry(8, "b", b"x", 2, False, "two", 20, NOON + 1, None, b'{"user":[]}'),
        Entry(9, "a", b"3", 0, False, "one", 30, NOON + 2, 3.0),
    ]
