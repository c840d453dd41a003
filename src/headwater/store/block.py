"""Blocks: some hundred thousand messages that follow each other, laid out so that those of one topic are together.

Theory. Messages come in the order of time, all topics mixed; most questions are about few topics. A block holds its
messages in the order of topics, and those of one topic in the order of positions, cut into pages of about 32 KB that
are compressed each by itself. Its index says in which rows each topic is, in which rows each page begins, and between
which times and values the messages of a page are. So a question about one topic and an hour reads one page of each
block of that hour, one about everything reads the pages in turn and puts the rows back into the order of positions;
and since the messages of one device are much alike, they compress three times better side by side.

This is the grouping by key of a log-structured merge tree with one level: blocks are made once, never merged, and
removed from the front.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy
import zstandard
from numpy.typing import NDArray

from headwater.disk.errors import StorageError
from headwater.store.chunk import Chunk, Floats, Indices, Integers
from headwater.store.page import decode, decompressed, encode, rows_in
from headwater.store.query import Query

PAGE: Final = 32 * 1024
"""Bytes of a page, more or less, before it is compressed. A message is never divided."""
ROW: Final = 40
"""Bytes of a message besides its payload and properties."""
LEVEL: Final = 3

_SUMMARY: Final = struct.Struct("<qqqqddqqqI")
_INDEX: Final = struct.Struct("<II")


class Summary(NamedTuple):
    """What is known of a block without looking into it. `low` and `high` are NaN if no message has a value."""

    first: int
    end: int
    """The position behind the last."""
    earliest: int
    latest: int
    low: float
    high: float
    newest: int
    """The last arrival."""
    size: int
    """Bytes on disk."""
    payload_size: int
    pages: int

    def pack(self) -> bytes:
        return _SUMMARY.pack(*self)

    @staticmethod
    def unpack(record: bytes) -> Summary:
        try:
            return Summary(*_SUMMARY.unpack(record))
        except struct.error as error:
            raise _damaged(error) from None

    def may_have(self, query: Query) -> bool:
        """Whether some message could meet the query, as far as times, values and positions go."""
        return not (
            (query.after is not None and self.end <= query.after + 1)
            or (query.before is not None and self.first >= query.before)
            or (query.start is not None and self.latest < query.start)
            or (query.end is not None and self.earliest >= query.end)
            or (query.low is not None and not self.high >= query.low)
            or (query.high is not None and not self.low <= query.high)
        )

    def left_of(self, query: Query) -> Query:
        """The query without the conditions that all messages of the block meet."""
        after, before, start, end = query.after, query.before, query.start, query.end
        return query._replace(
            after=None if after is not None and after < self.first else after,
            before=None if before is not None and before >= self.end else before,
            start=None if start is not None and start <= self.earliest else start,
            end=None if end is not None and end > self.latest else end,
        )


class TopicExtent(NamedTuple):
    """Of the topics of a block, in the order of their numbers: how many messages, first and last, and their times."""

    topic: Integers
    messages: Integers
    first: Integers
    last: Integers
    first_time: Integers
    last_time: Integers

    def pack(self) -> bytes:
        return zstandard.compress(b"".join(numpy.diff(column, prepend=0).tobytes() for column in self), LEVEL)

    @staticmethod
    def unpack(record: bytes) -> TopicExtent:
        try:
            content = numpy.frombuffer(_decompressed(record), numpy.int64).reshape(6, -1)
        except ValueError as error:
            raise _damaged(error) from None
        return TopicExtent(*(numpy.cumsum(column) for column in content))

    def without(self, counted: Indices) -> TopicExtent:
        """The same but for first messages that are counted already, one topic for each. Of topics that some of these
        are of, `first` still is the first of all."""
        found, counts = numpy.unique(counted, return_counts=True)
        at = numpy.searchsorted(self.topic, found)
        if len(at) and (at[-1] >= len(self.topic) or (self.topic[at] != found).any()):
            raise _damaged("topics that it has not")
        messages = self.messages.copy()
        messages[at] -= counts
        if (messages < 0).any():
            raise _damaged("fewer messages than there were")
        left = messages > 0
        return TopicExtent(*(column[left] for column in self._replace(messages=messages)))


class Index:
    """Where in a block the messages of a topic are: topic `topics[i]` has rows `starts[i]` up to `starts[i + 1]`."""

    def __init__(
        self,
        topics: Indices,
        starts: Indices,
        pages: Indices,
        times: tuple[Integers, Integers],
        values: tuple[Floats, Floats],
    ) -> None:
        self.topics = topics
        self.starts = starts
        self.pages = pages
        """The first row of each page, and behind the last one the number of rows."""
        self.earliest, self.latest = times
        self.low, self.high = values

    @property
    def size(self) -> int:
        return self.topics.nbytes + self.starts.nbytes + self.pages.nbytes + 4 * self.earliest.nbytes

    def pack(self) -> bytes:
        content: list[NDArray[Any]] = [
            numpy.diff(self.topics, prepend=0).astype(numpy.int32),
            numpy.diff(self.starts).astype(numpy.uint32),
            numpy.diff(self.pages).astype(numpy.uint32),
            *(self.earliest, self.latest, self.low, self.high),
        ]
        head = _INDEX.pack(len(self.topics), len(self.pages) - 1)
        return head + zstandard.compress(b"".join(column.tobytes() for column in content), LEVEL)

    @staticmethod
    def unpack(record: bytes) -> Index:
        try:
            topics, pages = _INDEX.unpack_from(record)
        except struct.error as error:
            raise _damaged(error) from None
        content = _decompressed(record[_INDEX.size :])
        if len(content) != 8 * topics + 36 * pages:
            raise _damaged("a wrong length")
        at = 0

        def column(kind: Any, count: int) -> NDArray[Any]:
            nonlocal at
            found = numpy.frombuffer(content, kind, count, at)
            at += found.nbytes
            return found

        numbers = numpy.cumsum(column(numpy.int32, topics), dtype=numpy.int32)
        starts = _starts(column(numpy.uint32, topics))
        firsts = _starts(column(numpy.uint32, pages))
        if starts[-1] != firsts[-1]:
            raise _damaged("pages of other topics")
        times = column(numpy.int64, pages), column(numpy.int64, pages)
        return Index(numbers, starts, firsts, times, (column(numpy.float64, pages), column(numpy.float64, pages)))

    def topics_of(self, start: int, end: int) -> Indices:
        """Of each of these rows."""
        return self.topics[self.starts.searchsorted(numpy.arange(start, end), "right") - 1]

    def rows_of(self, wanted: Indices) -> list[tuple[int, int]]:
        """Where the messages of topics are, whose numbers are in order; ranges that touch are one."""
        at = numpy.searchsorted(self.topics, wanted)
        inside = at < len(self.topics)
        found = at[inside][self.topics[at[inside]] == wanted[inside]]
        ranges: list[tuple[int, int]] = []
        for start, end in zip(self.starts[found].tolist(), self.starts[found + 1].tolist(), strict=True):
            if ranges and ranges[-1][1] == start:
                ranges[-1] = ranges[-1][0], end
            else:
                ranges.append((start, end))
        return ranges

    def may_have(self, page: int, query: Query) -> bool:
        return not (
            (query.start is not None and self.latest[page] < query.start)
            or (query.end is not None and self.earliest[page] >= query.end)
            or (query.low is not None and not self.high[page] >= query.low)
            or (query.high is not None and not self.low[page] <= query.high)
        )


class Image(NamedTuple):
    """A block as it goes to disk."""

    summary: Summary
    places: bytes
    """The index."""
    extent: TopicExtent
    pages: list[bytes]


def sealed(chunk: Chunk) -> Image:
    """The block of messages that follow each other."""
    first = int(chunk.position[0])
    ordered = chunk.take(numpy.argsort(chunk.topic, kind="stable"))
    extent, starts = extent_of(ordered)
    bounds = _page_bounds(ordered)
    pages: list[bytes] = []
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        pages.append(encode(ordered.slice(start, end), first, topics=False, compress=True))
    low, high = _bounds(ordered.value, bounds)
    index = Index(
        extent.topic.astype(numpy.int32),
        numpy.append(starts, len(chunk)).astype(numpy.int32),
        bounds.astype(numpy.int32),
        (numpy.minimum.reduceat(ordered.time, bounds[:-1]), numpy.maximum.reduceat(ordered.time, bounds[:-1])),
        (low, high),
    ).pack()
    summary = Summary(
        *(first, int(chunk.position[-1]) + 1, int(chunk.time.min()), int(chunk.time.max())),
        *(float(numpy.fmin.reduce(chunk.value)), float(numpy.fmax.reduce(chunk.value)), int(chunk.arrival.max())),
        *(sum(map(len, pages)) + len(index), len(chunk.payload.data), len(pages)),
    )
    return Image(summary, index, extent, pages)


def extent_of(ordered: Chunk) -> tuple[TopicExtent, Integers]:
    """Of messages in the order of a block: of their topics, and in which row each topic begins."""
    topics, starts, counts = numpy.unique(ordered.topic, return_index=True, return_counts=True)
    lasts = starts + counts - 1
    extent = TopicExtent(
        *(topics.astype(numpy.int64), counts, ordered.position[starts], ordered.position[lasts]),
        *(ordered.time[starts], ordered.time[lasts]),
    )
    return extent, starts


def chosen(chunk: Chunk, query: Query, wanted: Indices | None) -> Chunk:
    """The messages of a chunk that meet a query; `wanted` are the topics, in order, None if all."""
    tests = query.met_by(chunk)
    if wanted is not None:
        tests.append(numpy.isin(chunk.topic, wanted))
    if not tests:
        return chunk
    meets = reduce(numpy.logical_and, tests)
    return chunk if meets.all() else chunk.take(numpy.flatnonzero(meets))


def between(chunk: Chunk, query: Query) -> tuple[Chunk, Query]:
    """Of messages in the order of positions those that `after` and `before` leave, without moving any; and the query
    without these two."""
    start = 0 if query.after is None else int(chunk.position.searchsorted(query.after, "right"))
    end = len(chunk) if query.before is None else int(chunk.position.searchsorted(query.before, "left"))
    return chunk.slice(start, max(start, end)), query._replace(after=None, before=None)


def in_order(chunk: Chunk) -> Chunk:
    """The messages in the order of positions."""
    position = chunk.position
    if (position[1:] > position[:-1]).all():
        return chunk
    first = int(position.min())
    span = int(position.max()) - first + 1
    if span > 2 * len(chunk):
        return chunk.take(numpy.argsort(position, kind="stable"))
    rows = numpy.full(span, -1, numpy.intp)  # no two have one position, so each has a place of its own
    rows[position - first] = numpy.arange(len(chunk))
    return chunk.take(rows[rows >= 0])


def page_chunk(
    record: bytes, names: Sequence[str], index: Index, page: int, start: int = 0, end: int | None = None
) -> Chunk:
    """The rows of a page from `start` to before `end`, or all."""
    first = int(index.pages[page])
    if rows_in(record) != int(index.pages[page + 1]) - first:
        raise StorageError("a page does not fit the index of its block; restore a backup")
    behind = int(index.pages[page + 1]) if end is None else first + end
    return decode(record, names, index.topics_of(first + start, behind), start, end)


def _page_bounds(chunk: Chunk) -> Integers:
    sizes = numpy.diff(chunk.payload.offsets) + ROW
    for pieces in chunk.optional.values():
        sizes += numpy.diff(pieces.offsets)
    page = (numpy.cumsum(sizes) - sizes) // PAGE
    starts = numpy.flatnonzero(numpy.diff(page, prepend=-1))
    return numpy.append(starts, len(chunk))


def _bounds(values: Floats, bounds: Integers) -> tuple[Floats, Floats]:
    return numpy.fmin.reduceat(values, bounds[:-1]), numpy.fmax.reduceat(values, bounds[:-1])


def _starts(lengths: NDArray[numpy.uint32]) -> Indices:
    starts = numpy.zeros(len(lengths) + 1, numpy.int32)
    numpy.cumsum(lengths, out=starts[1:])
    return starts


def _decompressed(record: bytes) -> bytes:
    try:
        return decompressed(record)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _damaged(error) from None


def _damaged(why: Exception | str) -> StorageError:
    return StorageError(f"an index of messages is damaged ({why}); restore a backup")
