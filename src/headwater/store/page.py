"""Messages as bytes on disk: what is synced for a commit, and the pages of a block, have this one form.

    kind (1) | what is there (1) | rows (4) | first position (8) | bytes of each part (4 each) | parts

The parts are columns, one behind the other. Positions and times are written as differences, since those of one topic
are much alike; numbers of eight bytes are written plane by plane (all first bytes, all second bytes …), so that bytes
that mean the same stand together, which zstd likes. A record of a commit is not compressed: it does not stay for long,
and its publishers wait for it.

What is there: whether it is compressed and has topics; and the bits of optional columns (columns.py), each of which is
one part, lengths before data. That of properties has a place among the others, empty if there are none; any further
ones follow behind, in the order of their declaration, and only if they are there.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy
import zstandard
from numpy.typing import NDArray

from headwater.disk.errors import StorageError
from headwater.store.chunk import Chunk, Floats, Indices, Integers, Pieces, distinct
from headwater.store.columns import OPTIONAL

KIND: Final = 1
COMPRESSED: Final = 1
TOPICS: Final = 2
"""Topics are written beside each message; in a page they follow from the block's index."""
PROPERTIES: Final = 4
FURTHER: Final = tuple(each for each in OPTIONAL if each.bit != PROPERTIES)

LEVEL: Final = 3
SEPARATOR: Final = "\0"
"""Between publishers; MQTT does not allow it in a client id."""

_threads: Final = threading.local()
_HEAD: Final = struct.Struct("<BBIq")
_PARTS: Final = 11


def encode(chunk: Chunk, first: int, *, topics: bool, compress: bool) -> bytes:
    """`first` is near all positions; publishers that no message has are left out."""
    rows = len(chunk)
    used, publisher = distinct(chunk.publisher)
    publishers = SEPARATOR.join([chunk.publishers[index] for index in used.tolist()])
    flags = (COMPRESSED if compress else 0) | (TOPICS if topics else 0)
    optional = chunk.optional
    for column in OPTIONAL:
        flags |= column.bit if column.name in optional else 0
    parts = [
        _planes(_differences(chunk.position - first)),
        _planes(_differences(chunk.time)),
        _planes(_differences(chunk.arrival)),
        _planes(chunk.value),
        chunk.flags.tobytes(),
        publisher.astype(numpy.uint32).tobytes(),
        publishers.encode("utf-8", "surrogatepass"),
        _lengths(chunk.payload),
        chunk.payload.data,
        _optional(optional["properties"]) if "properties" in optional else b"",
        chunk.topic.astype(numpy.uint32).tobytes() if topics else b"",
        *(_optional(optional[each.name]) for each in FURTHER if each.name in optional),
    ]
    body = b"".join(parts)
    head = _HEAD.pack(KIND, flags, rows, first) + struct.pack(f"<{len(parts)}I", *map(len, parts))
    return head + (zstandard.compress(body, LEVEL) if compress else body)


def decode(record: bytes, names: Sequence[str], topic: Indices | None, start: int = 0, end: int | None = None) -> Chunk:
    """The rows from `start` to before `end`, or all. `topic` are the topics of these rows if the record does not have
    them, as that of a page. Raises StorageError if it is not a record."""
    try:
        kind, flags, rows, first = _HEAD.unpack_from(record)
        if kind != KIND:
            raise ValueError(f"kind {kind}")
        parts = _PARTS + sum(1 for each in FURTHER if flags & each.bit)
        sizes = struct.unpack_from(f"<{parts}I", record, _HEAD.size)
        body = record[_HEAD.size + 4 * parts :]
        if flags & COMPRESSED:
            body = decompressed(body, sum(sizes))
        if len(body) != sum(sizes):
            raise ValueError("a wrong length")
        return _decoded(_Columns(body, sizes, rows, start, rows if end is None else end), flags, first, names, topic)
    except (ValueError, struct.error, zstandard.ZstdError, MemoryError) as error:
        raise StorageError(f"a record of messages is damaged ({error}); restore a backup") from None


def rows_in(record: bytes) -> int:
    """Messages of a record."""
    try:
        rows: int = _HEAD.unpack_from(record)[2]
    except struct.error as error:
        raise StorageError(f"a record of messages is damaged ({error}); restore a backup") from None
    return rows


class _Columns:
    """The rows from `start` to before `end` of a body."""

    def __init__(self, body: bytes, sizes: tuple[int, ...], rows: int, start: int, end: int) -> None:
        eights, fours = 8 * rows, 4 * rows
        if sizes[:6] != (eights, eights, eights, eights, rows, fours) or sizes[7] != fours:
            raise ValueError("columns of unequal length")
        if not 0 <= start < end <= rows:
            raise ValueError("not so many messages")
        self.body = body
        self.starts = [0, *accumulate(sizes)]
        self.rows = rows
        self.start = start
        self.end = end

    def eights(self) -> tuple[Integers, Floats]:
        """Positions, times and arrivals; and values."""
        planes = numpy.frombuffer(self.body, numpy.uint8, 32 * self.rows).reshape(4, 8, self.rows)[:, :, : self.end]
        numbers = numpy.ascontiguousarray(planes.transpose(0, 2, 1)).view(numpy.int64).reshape(4, self.end)
        return numbers[:3].cumsum(1)[:, self.start :], numbers[3, self.start :].view(numpy.float64)

    def numbers(self, part: int, kind: Any) -> NDArray[Any]:
        size = self.end - self.start
        return numpy.frombuffer(self.body, kind, size, self.starts[part] + self.start * numpy.dtype(kind).itemsize)

    def pieces(self, lengths: int, data: int, behind: int) -> Pieces:
        """`lengths`, `data` and `behind` are where in the body they begin, and where the data ends."""
        offsets = numpy.zeros(self.rows + 1, numpy.int64)
        numpy.frombuffer(self.body, numpy.uint32, self.rows, lengths).cumsum(out=offsets[1:])
        if offsets[-1] != behind - data:
            raise ValueError("pieces of a wrong length")
        first, last = int(offsets[self.start]), int(offsets[self.end])
        if self.start:
            offsets -= first
        return Pieces(offsets[self.start : self.end + 1], self.body[data + first : data + last])


def _decoded(columns: _Columns, flags: int, first: int, names: Sequence[str], topic: Indices | None) -> Chunk:
    starts = columns.starts
    optional: dict[str, Pieces] = {}
    further = _PARTS
    for column in OPTIONAL:
        if flags & column.bit:
            part = 9 if column.bit == PROPERTIES else further
            further += part == further
            optional[column.name] = columns.pieces(starts[part], starts[part] + 4 * columns.rows, starts[part + 1])
    if flags & TOPICS:
        topic = columns.numbers(10, numpy.uint32).astype(numpy.int32)
    if topic is None or len(topic) != columns.end - columns.start:
        raise ValueError("no topics")
    publisher = columns.numbers(5, numpy.uint32)
    publishers = columns.body[starts[6] : starts[7]].decode("utf-8", "surrogatepass").split(SEPARATOR)
    if publisher.max() >= len(publishers) or topic.max() >= len(names) or topic.min() < 0:
        raise ValueError("a number that nothing has")
    (position, time, arrival), value = columns.eights()
    return Chunk(
        position + first,
        topic,
        names,
        time,
        arrival,
        value,
        columns.numbers(4, numpy.uint8),
        publisher.astype(numpy.int32),
        publishers,
        columns.pieces(starts[7], starts[8], starts[9]),
        optional,
    )


def decompressed(body: bytes, most: int = 0) -> bytes:
    """Each thread has a decompressor, since making one takes longer than a page does. Raises ZstdError."""
    try:
        own: zstandard.ZstdDecompressor = _threads.decompressor
    except AttributeError:
        own = _threads.decompressor = zstandard.ZstdDecompressor()
    return own.decompress(body, most)


def _differences(column: Integers) -> Integers:
    """As numpy.diff with 0 before the first; that takes five times as long for the few messages of a small commit."""
    found = column.copy()
    found[1:] -= column[:-1]
    return found


def _optional(pieces: Pieces) -> bytes:
    return _lengths(pieces) + pieces.data


def _lengths(pieces: Pieces) -> bytes:
    return (pieces.offsets[1:] - pieces.offsets[:-1]).astype(numpy.uint32).tobytes()


def _planes(column: Integers | Floats) -> bytes:
    return column.view(numpy.uint8).reshape(-1, 8).T.tobytes()
