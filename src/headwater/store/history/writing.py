"""A block of messages as an object of history (rows.py says how it is laid out), and how it is known to be one."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.objects import PlaceError
from headwater.store.arrow import record_batch
from headwater.store.chunk import Chunk, distinct
from headwater.store.history.manifest import Catalog, Entry
from headwater.store.history.rows import Wanted, rows_of

GROUP: Final = 16_384
"""Rows of a row group."""
LEVEL: Final = 3
DELTAS: Final = dict.fromkeys(("position", "time", "arrival"), "DELTA_BINARY_PACKED")
BOUNDED: Final = ["position", "topic", "time", "arrival", "value"]
"""Columns whose least and largest are written."""


class Unequal(Exception):
    """What was read back is not what was written."""


def written(chunk: Chunk) -> bytes:
    """The messages of a chunk as Parquet."""
    return packed(record_batch(chunk.take(_by_topic(chunk))))


def packed(rows: pa.RecordBatch) -> bytes:
    """Rows that are in the order of topics as Parquet."""
    sink = pa.BufferOutputStream()
    writing: dict[str, Any] = {"compression": "zstd", "compression_level": LEVEL, "row_group_size": GROUP}
    writing |= {
        "write_page_checksum": True,
        "use_dictionary": ["topic", "publisher"],
        "column_encoding": DELTAS,
        "write_statistics": BOUNDED,
    }
    pq.write_table(pa.Table.from_batches([rows]), sink, **writing)
    return bytes(sink.getvalue())


def stored(catalog: Catalog, entry: Entry, content: bytes) -> Entry:
    """The entry of an object that is in its place from now on, and was read from there. Raises PlaceError."""
    checksum = sha256(content).hexdigest()
    name = catalog.object_name(entry.first, entry.end, checksum)
    catalog.place.put(name, content)
    if sha256(catalog.place.get(name).data).hexdigest() != checksum:
        raise PlaceError(f"{catalog.place.url}/{name} does not read as it was written")
    return entry._replace(name=name, size=len(content), checksum=checksum)


def check_same(content: bytes, chunk: Chunk, entry: Entry) -> None:
    """That an object has the messages of the chunk, all columns of them. Raises Unequal."""
    found, expected = rows_of(pa.py_buffer(content), entry, Wanted()), record_batch(chunk)
    if found.num_rows != entry.rows or _plain(found) != _plain(expected):
        raise Unequal(f"the messages {entry.first} to {entry.end - 1} do not read from Parquet as they were written")


def _plain(rows: pa.RecordBatch) -> list[Any]:
    return [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in rows.columns]


def _by_topic(chunk: Chunk) -> Any:
    """Rows in the order of topics' names as bytes, and of positions."""
    used, places = distinct(chunk.topic)
    names = [chunk.names[number].encode() for number in used.tolist()]
    rank = numpy.empty(len(names), numpy.int32)
    rank[sorted(range(len(names)), key=names.__getitem__)] = numpy.arange(len(names))
    return numpy.argsort(rank[places], kind="stable")
