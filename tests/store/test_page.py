"""Messages as bytes: what is read is what was written, and what is damaged is said to be."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.store import page
from headwater.store.chunk import Chunk, Indices
from headwater.store.columns import OPTIONAL, Column, Kind
from headwater.store.entry import Entry
from headwater.store.intake import Intake
from headwater.store.page import decode, encode
from tests.store.messages import NOON, contents, numbered

ENTRY = Entry(1, "a", b"x", 1, False, "device", NOON, NOON, None)
chunks = st.lists(contents(), min_size=1, max_size=12).map(numbered).map(Chunk.of)


@given(chunks, st.booleans(), st.booleans(), st.integers(-3, 3))
@settings(deadline=None)
def test_what_is_read_is_what_was_written(chunk: Chunk, topics: bool, compress: bool, distance: int) -> None:
    record = encode(chunk, 1 + distance, topics=topics, compress=compress)
    found = decode(record, chunk.names, None if topics else chunk.topic)
    assert list(found.entries()) == list(chunk.entries())
    assert found.topic.dtype == numpy.int32 and found.publisher.dtype == numpy.int32


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), min_size=1, max_size=9), st.booleans())
@settings(deadline=None)
def test_further_optional_columns_follow_behind(rows: list[tuple[bytes, bytes]], compress: bool) -> None:
    """As they would be written if one more was declared: nothing else in a record depends on which there are."""
    further = Column("further", Kind.DOCUMENT, lambda chunk: chunk.optional.get("further"), nullable=True, bit=128)
    intake = Intake(1)
    for properties, piece in rows:
        intake.take(b"a", b"x", 0, "", NOON, {"properties": properties, "further": piece})
    taken = intake.hand_over()
    assert taken is not None
    whole = Chunk.taken(taken, numpy.zeros(len(rows), numpy.int32), ["a"], [NOON] * len(rows), [0.0] * len(rows))
    chunk = Chunk.joined([whole.slice(0, 1), whole.take(numpy.arange(1, len(rows)))]) if len(rows) > 1 else whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "FURTHER", (*page.FURTHER, further))
        patch.setattr(page, "OPTIONAL", (*OPTIONAL, further))
        found = decode(encode(chunk, 1, topics=True, compress=compress), ["a"], None)
    assert {name: pieces.rows() for name, pieces in found.optional.items()} == {
        name: column
        for name, column in (("properties", [row[0] for row in rows]), ("further", [row[1] for row in rows]))
        if any(column)
    }
    assert found.payload.rows() == [b"x"] * len(rows)


@given(chunks, st.booleans(), st.booleans(), st.data())
@settings(deadline=None)
def test_some_rows_of_a_record(chunk: Chunk, topics: bool, compress: bool, data: st.DataObject) -> None:
    record = encode(chunk, 1, topics=topics, compress=compress)
    start = data.draw(st.integers(0, len(chunk) - 1))
    end = data.draw(st.integers(start + 1, len(chunk)))
    found = decode(record, chunk.names, None if topics else chunk.topic[start:end], start, end)
    assert list(found.entries()) == list(chunk.entries())[start:end]
    with pytest.raises(StorageError, match="damaged"):
        decode(record, chunk.names, None if topics else chunk.topic, start, len(chunk) + 1)


def test_publishers_that_no_message_has_are_not_written() -> None:
    whole = Chunk.of(numbered([entry._replace(publisher=f"device {n}") for n, entry in enumerate([ENTRY] * 10)]))
    record = encode(whole.slice(4, 6), 1, topics=True, compress=False)
    assert decode(record, whole.names, None).publishers == ["device 4", "device 5"]


@given(chunks, st.booleans(), st.data())
@settings(deadline=None, max_examples=300)
def test_damaged_bytes_are_a_storage_error_or_other_messages(chunk: Chunk, compress: bool, data: st.DataObject) -> None:
    """RocksDB has checksums; this is for what passes them, and must not be worse than wrong messages."""
    record = bytearray(encode(chunk, 1, topics=True, compress=compress))
    place = data.draw(st.integers(0, len(record) - 1))
    record[place] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(bytes(record), chunk.names, None)
    except StorageError as error:
        assert "restore a backup" in str(error)
    else:
        assert len(list(found.entries())) == len(chunk)


@given(chunks, st.booleans(), st.data())
@settings(deadline=None)
def test_a_record_that_ends_too_early_is_damaged(chunk: Chunk, compress: bool, data: st.DataObject) -> None:
    record = encode(chunk, 1, topics=True, compress=compress)
    with pytest.raises(StorageError, match="damaged"):
        decode(record[: data.draw(st.integers(0, len(record) - 1))], chunk.names, None)


@pytest.mark.parametrize("topic", [None, numpy.zeros(2, numpy.int32), numpy.full(1, 7, numpy.int32)])
def test_topics_have_to_be_there(topic: Indices | None) -> None:
    record = encode(Chunk.of(numbered([ENTRY])), 1, topics=False, compress=True)
    with pytest.raises(StorageError, match="damaged"):
        decode(record, ["a"], topic)
