"""Chunks as Arrow: every column, no name that does not occur, one stream."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.store.arrow import COMPRESSIONS, StreamWriter, record_batch
from headwater.store.arrow_schema import PLAIN, SCHEMA
from headwater.store.chunk import Chunk
from headwater.store.entry import EARLIEST, LATEST, Entry, microseconds
from tests.store.messages import contents, numbered

pa.scalar(0, pa.timestamp("us", "UTC")).as_py()  # loads pandas, where it is, and no test has to wait for that


def entries_of(batch: pa.RecordBatch | pa.Table) -> list[Entry]:
    return [
        Entry(
            *(row["position"], row["topic"], row["payload"], row["qos"], row["retain"], row["publisher"]),
            *(
                microseconds(row["time"]),
                microseconds(row["arrival"]),
                row["value"],
                (row["properties"] or "").encode(),
            ),
        )
        for row in batch.to_pylist()
    ]


@given(st.lists(contents(), max_size=30).map(numbered))
def test_a_batch_has_what_the_chunk_has(entries: list[Entry]) -> None:
    batch = record_batch(Chunk.of(entries))
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    assert entries_of(batch) == entries
    assert batch.column("value").null_count == sum(entry.value is None for entry in entries)
    assert batch.column("properties").null_count == sum(not entry.properties for entry in entries)


@given(st.lists(contents(), min_size=1, max_size=30).map(numbered), st.data())
def test_of_a_part_of_a_chunk(entries: list[Entry], data: st.DataObject) -> None:
    """Whose arrays begin in the middle of others."""
    start = data.draw(st.integers(0, len(entries)))
    end = data.draw(st.integers(start, len(entries)))
    assert entries_of(record_batch(Chunk.of(entries).slice(start, end))) == entries[start:end]
    every_second = numpy.arange(0, len(entries), 2)
    assert entries_of(record_batch(Chunk.of(entries).take(every_second))) == entries[::2]


def test_only_names_that_occur() -> None:
    chunk = Chunk.of(
        numbered([Entry(0, "b", b"", 0, False, "p", 0, 0, None), Entry(0, "d", b"", 0, False, "p", 0, 0, 1.0)])
    )
    chunk.names = ["a", "b", "c", "d", "e"]
    chunk.topic = numpy.array([3, 1], numpy.int32)
    topic = record_batch(chunk).column("topic")
    assert topic.to_pylist() == ["d", "b"]
    assert topic.dictionary.to_pylist() == ["b", "d"]


def test_the_ends_of_time() -> None:
    entries = numbered([Entry(0, "a", b"", 2, True, "", time, 0, None) for time in (EARLIEST, -1, 0, LATEST)])
    assert entries_of(record_batch(Chunk.of(entries))) == entries


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_a_stream_of_batches_with_names_of_their_own(compression: str | None) -> None:
    writer = StreamWriter(compression)
    pieces = []
    everything = []
    for index in range(4):
        some = [Entry(0, f"t/{index}/{row}", b"x" * row, 1, False, f"p{index}", 0, 0, row / 2) for row in range(200)]
        entries = numbered(some, index * 200 + 1)
        everything += entries
        pieces += writer.write(Chunk.of(entries))
    pieces += writer.end()
    assert entries_of(pa.ipc.open_stream(b"".join(pieces)).read_all()) == everything


def test_an_empty_stream_has_its_schema() -> None:
    table = pa.ipc.open_stream(b"".join(StreamWriter().end())).read_all()
    assert table.num_rows == 0 and table.schema.equals(SCHEMA)


def test_the_plain_schema_has_no_dictionaries() -> None:
    assert PLAIN.names == SCHEMA.names
    assert not any(pa.types.is_dictionary(field.type) for field in PLAIN)
    assert PLAIN.field("topic").type == pa.string() and not PLAIN.field("topic").nullable


def test_it_is_loaded_only_where_arrow_is_asked_for() -> None:
    code = "import sys, headwater.store.rest.serving; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
