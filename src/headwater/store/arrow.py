"""Stored messages as Arrow record batches, made from the columns as they are: no step of Python for each message.

Theory. A chunk's arrays become Arrow's buffers without a copy, except where Arrow has them otherwise: offsets of 32
bits, truth in single bits. `names` is the table of a whole store, of which a chunk uses little, so the topics that
occur are numbered anew. pyarrow is loaded with this module, and this module only where Arrow is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from headwater.store.arrow_schema import SCHEMA, TIME
from headwater.store.chunk import QOS, Chunk, Indices, Pieces, distinct
from headwater.store.intake import RETAIN

COMPRESSIONS: Final = ("lz4", "zstd")
SMALL: Final = 16 << 10
"""Bytes below which pieces of a stream are put together."""


def record_batch(chunk: Chunk) -> pa.RecordBatch:
    """The messages of a chunk, whose payloads have less than 2 GB together."""
    size = len(chunk)
    missing = numpy.isnan(chunk.value)
    columns = [
        _column(pa.int64(), size, chunk.position),
        _names(chunk.topic, chunk.names),
        _texts(pa.binary(), chunk.payload, None),
        _column(pa.int8(), size, (chunk.flags & QOS).astype(numpy.int8)),
        _column(pa.bool_(), size, _bits(chunk.flags & RETAIN)),
        _names(chunk.publisher, chunk.publishers),
        _column(TIME, size, chunk.time),
        _column(TIME, size, chunk.arrival),
        _column(pa.float64(), size, chunk.value, _bits(~missing) if missing.any() else None),
        _properties(chunk.properties, size),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class StreamWriter:
    """Messages as the pieces of one Arrow stream (`application/vnd.apache.arrow.stream`)."""

    def __init__(self, compression: str | None = None, columns: Sequence[str] = tuple(SCHEMA.names)) -> None:
        """`compression` of the batches' buffers: one of COMPRESSIONS, or none. `columns`: those that are wanted."""
        self._sink = _Sink()
        self._columns = list(columns)
        options = pa.ipc.IpcWriteOptions(compression=compression)
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        self._writer: Any = pa.ipc.new_stream(self._sink, schema, options=options)

    def write(self, chunk: Chunk) -> list[bytes | memoryview]:
        """What the stream goes on with, its schema included if this is the beginning."""
        self._writer.write_batch(record_batch(chunk).select(self._columns))
        return self._sink.taken()

    def end(self) -> list[bytes | memoryview]:
        self._writer.close()
        return self._sink.taken()


class _Sink:
    """What Arrow writes to. It gives whole columns as they are, without a copy, and what is between them as bytes."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._small: list[bytes] = []

    def write(self, piece: Any) -> int:
        if len(piece) < SMALL:
            self._small.append(bytes(piece))
        else:
            self._join()
            self._pieces.append(memoryview(piece))
        return len(piece)

    def _join(self) -> None:
        if self._small:
            self._pieces.append(b"".join(self._small))
            self._small = []

    def taken(self) -> list[bytes | memoryview]:
        self._join()
        pieces, self._pieces = self._pieces, []
        return pieces

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


# ---- columns -----------------------------------------------------------------------------------------------------


def _column(kind: pa.DataType, size: int, data: NDArray[Any], validity: NDArray[Any] | None = None) -> pa.Array:
    known = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, size, [known, pa.py_buffer(numpy.ascontiguousarray(data))])


def _bits(truth: NDArray[Any]) -> NDArray[numpy.uint8]:
    return numpy.packbits(truth, bitorder="little")


def _texts(kind: pa.DataType, pieces: Pieces, validity: NDArray[Any] | None) -> pa.Array:
    known = None if validity is None else pa.py_buffer(validity)
    offsets = pa.py_buffer(pieces.offsets.astype(numpy.int32))
    return pa.Array.from_buffers(kind, len(pieces.offsets) - 1, [known, offsets, pa.py_buffer(pieces.data)])


def _names(indices: Indices, names: Sequence[str]) -> pa.Array:
    used, numbered = distinct(indices)
    texts = pa.array([names[index] for index in used.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(numbered), texts)


def _properties(pieces: Pieces | None, size: int) -> pa.Array:
    if pieces is None:
        return pa.nulls(size, pa.string())
    return _texts(pa.string(), pieces, _bits(numpy.diff(pieces.offsets) > 0))
