"""Stored messages as Arrow record batches, made from the columns as they are: no step of Python for each message.

Theory. A chunk's arrays become Arrow's buffers without a copy, except where Arrow has them otherwise: offsets of 32
bits, truth in single bits. `names` is the table of a whole store, of which a chunk uses little, so the topics that
occur are numbered anew. pyarrow is loaded with this module, and this module only where Arrow is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from headwater.store.arrow_schema import SCHEMA, TYPES
from headwater.store.chunk import Chunk, Indices, Pieces, distinct
from headwater.store.columns import COLUMNS, NAMES, Kind

COMPRESSIONS: Final = ("lz4", "zstd")
SMALL: Final = 16 << 10
"""Bytes below which pieces of a stream are put together."""


def record_batch(chunk: Chunk, columns: Sequence[str] = NAMES) -> pa.RecordBatch:
    """The messages of a chunk, whose payloads have less than 2 GB together; `columns` are those that are wanted."""
    size = len(chunk)
    arrays = [array(read(chunk), size) for read, array in map(_COLUMNS.__getitem__, columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(columns))


class StreamWriter:
    """Messages as the pieces of one Arrow stream (`application/vnd.apache.arrow.stream`)."""

    def __init__(self, compression: str | None = None, columns: Sequence[str] = NAMES) -> None:
        """`compression` of the batches' buffers: one of COMPRESSIONS, or none. `columns`: those that are wanted."""
        self._sink = _Sink()
        self._columns = tuple(columns)
        options = pa.ipc.IpcWriteOptions(compression=compression)
        self._writer: Any = pa.ipc.new_stream(self._sink, _schema(columns), options=options)

    def write(self, chunk: Chunk) -> list[bytes | memoryview]:
        """What the stream goes on with, its schema included if this is the beginning."""
        self._writer.write_batch(record_batch(chunk, self._columns))
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


def _schema(columns: Sequence[str]) -> pa.Schema:
    return SCHEMA if columns == NAMES else pa.schema([SCHEMA.field(name) for name in columns])


def _fixed(kind: Kind) -> Callable[[NDArray[Any], int], pa.Array]:
    """An array whose rows have one width, as it is."""
    type = TYPES[kind]

    def made(data: NDArray[Any], size: int) -> pa.Array:
        return pa.Array.from_buffers(type, size, [None, pa.py_buffer(numpy.ascontiguousarray(data))])

    return made


def _truths(data: NDArray[Any], size: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(_bits(data))])


def _numbers(data: NDArray[Any], size: int) -> pa.Array:
    missing = numpy.isnan(data)
    known = pa.py_buffer(_bits(~missing)) if missing.any() else None
    return pa.Array.from_buffers(pa.float64(), size, [known, pa.py_buffer(numpy.ascontiguousarray(data))])


def _names(indexed: tuple[Indices, Sequence[str]], size: int) -> pa.Array:
    indices, names = indexed
    used, numbered = distinct(indices)
    texts = pa.array([names[index] for index in used.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(numbered), texts)


def _bytes(pieces: Pieces, size: int) -> pa.Array:
    return _texts(pa.binary(), pieces, None)


def _documents(pieces: Pieces | None, size: int) -> pa.Array:
    if pieces is None:
        return pa.nulls(size, pa.string())
    return _texts(pa.string(), pieces, pa.py_buffer(_bits(numpy.diff(pieces.offsets) > 0)))


def _texts(type: pa.DataType, pieces: Pieces, known: pa.Buffer | None) -> pa.Array:
    offsets = pa.py_buffer(pieces.offsets.astype(numpy.int32))
    return pa.Array.from_buffers(type, len(pieces.offsets) - 1, [known, offsets, pa.py_buffer(pieces.data)])


def _bits(truth: NDArray[Any]) -> NDArray[numpy.uint8]:
    return numpy.packbits(truth, bitorder="little")


_ARRAYS: Final[dict[Kind, Callable[[Any, int], pa.Array]]] = {
    Kind.WHOLE: _fixed(Kind.WHOLE),
    Kind.SMALL: _fixed(Kind.SMALL),
    Kind.TRUTH: _truths,
    Kind.NUMBER: _numbers,
    Kind.TIME: _fixed(Kind.TIME),
    Kind.NAME: _names,
    Kind.BYTES: _bytes,
    Kind.DOCUMENT: _documents,
}
"""What makes Arrow's array of what `Column.read` gives, and of the number of messages."""
_COLUMNS: Final = {each.name: (each.read, _ARRAYS[each.kind]) for each in COLUMNS}
