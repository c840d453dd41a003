"""A store and its history as one store: what has gone to object storage is read from there.

Theory. [first, next) of such a store begins in object storage. What is behind the blocks that the node has dropped is
the node's, all before it the history's; the node drops a block only when a manifest names it, so each position is in
one of the two when it is asked for. A block that is dropped in the middle of an answer is found in the history then.
Topics and their last messages are those of the node's disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy
import pyarrow as pa

from headwater.disk.errors import StorageError
from headwater.objects import PlaceError
from headwater.routing.topics import check_filter
from headwater.store.chunk import Chunk, Pieces
from headwater.store.columns import OPTIONAL
from headwater.store.erasing import Doomed, Erased, joined
from headwater.store.history.erasing import erase_in_history, erased_in_history, next_in_history
from headwater.store.history.manifest import Conflict
from headwater.store.history.reading import History
from headwater.store.history.rows import Topics, Wanted
from headwater.store.intake import RETAIN
from headwater.store.query import Query, beginning
from headwater.store.store import PositionGone, Reader, Statistics, Store, TopicStatistics

_NOTHING: Final = Chunk.of([])


class TieredStore(Store):
    """`extent` says which positions the manifest of the history names, as far as the node knows: [first, end); (0, 0):
    it does not know yet. What is written, and what keeps, is for the store itself. While object storage is waited for,
    chunks of a selection are empty, so that nobody's thread is held by it."""

    def __init__(self, store: Store, history: History, extent: Callable[[], tuple[int, int]]) -> None:
        self.local = store
        self.history = history
        self._extent = extent
        self.id = store.id

    @property
    def first(self) -> int:
        first, end = self._extent()
        return min(first, self.local.first) if first < end else self.local.first

    @first.setter
    def first(self, value: int) -> None:
        raise NotImplementedError

    @property
    def disk_first(self) -> int:
        return self.local.first

    @property
    def next(self) -> int:
        return self.local.next

    @next.setter
    def next(self, value: int) -> None:
        raise NotImplementedError

    # ---- messages ----------------------------------------------------------------------------------------------

    def select(self, query: Query) -> Iterator[Chunk]:
        if query.filter is not None:
            check_filter(query.filter, len(query.filter) + 1)
        if query.after is not None and query.after + 1 < self.first:
            raise PositionGone(query.after + 1, self.first)
        return self._limited(self._all(query, self.first if query.after is None else query.after + 1), query.limit)

    def _all(self, query: Query, next: int) -> Iterator[Chunk]:
        """From a position on, wherever it is."""
        while True:
            end = self.local.first
            if next < end:
                until = end if query.before is None else min(end, query.before)
                yield from self._old(query._replace(after=next - 1), until)
                next = max(next, until)
            if query.before is not None and next >= query.before:
                return
            try:
                for chunk in self.local.select(query._replace(after=next - 1, limit=None)):
                    yield chunk
                    next = int(chunk.position[-1]) + 1
                return
            except PositionGone:
                if self.local.first <= end:
                    raise

    def _limited(self, chunks: Iterator[Chunk], limit: int | None) -> Iterator[Chunk]:
        left = limit
        for chunk in chunks:
            found = chunk if left is None else chunk.slice(0, left)
            yield found
            if left is not None:
                left -= len(found)
                if left == 0:
                    return

    def _old(self, query: Query, before: int) -> Iterator[Chunk]:
        if query.after is not None and query.after + 1 < self.first:
            raise PositionGone(query.after + 1, self.first)
        try:
            for rows in self.history.in_turns(wanted_by(query), before):
                yield _NOTHING if rows is None else chunk_of(rows)
        except PlaceError as error:
            raise StorageError(str(error)) from None

    # ---- erasing -----------------------------------------------------------------------------------------------

    def erase(self, doomed: Doomed) -> Erased:
        """A few objects at a time, and first what the node's disk has of the same positions: a block that is brought to
        history meanwhile is one without these messages."""
        try:
            last = next_in_history(self.history, doomed)
            if last is None:
                return self.local.erase(doomed)
            part = doomed._replace(last=min(doomed.last, last))
            here, more, after = 0, part.last >= self.local.first, doomed.after
            while more:
                messages, after, more = self.local.erase(part._replace(after=after))
                here += messages
            there = erase_in_history(self.history, part)
        except (PlaceError, Conflict) as error:
            raise StorageError(str(error)) from None
        # What is in both is one message.
        return Erased(max(here, there), part.last, part.last < min(self.next - 1, doomed.last))

    def erased(self, after: int, most: int) -> list[tuple[int, int]]:
        try:
            old = erased_in_history(self.history, after, most, self.local.damaged())
        except PlaceError as error:
            raise StorageError(str(error)) from None
        return joined(old, self.local.erased(after, most))[:most]

    # ---- the store's own -----------------------------------------------------------------------------------------

    def topics(self, filter: str | None = None, may_read: Callable[[str], bool] | None = None) -> list[TopicStatistics]:
        return self.local.topics(filter, may_read)

    def topics_page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[TopicStatistics], str | None]:
        return self.local.topics_page(filter, may_read, after, limit)

    def knows(self, topic: bytes) -> bool:
        return self.local.knows(topic)

    def known_topics(self) -> int:
        return self.local.known_topics()

    def latest(self, topic: str) -> Chunk | None:
        return self.local.latest(topic)

    def statistics(self) -> Statistics:
        return self.local.statistics()._replace(first=self.first)

    def watch(self, tell: Callable[[], None]) -> None:
        self.local.watch(tell)

    def unwatch(self, tell: Callable[[], None]) -> None:
        self.local.unwatch(tell)

    def readers(self) -> list[Reader]:
        return self.local.readers()

    def reader(self, name: str) -> Reader:
        return self.local.reader(name)

    def commit(self, name: str, position: int) -> Reader:
        return self.local.commit(name, position)

    def forget(self, name: str) -> None:
        self.local.forget(name)

    def close(self) -> None:
        self.local.close()


def wanted_by(query: Query) -> Wanted:
    """What a query asks of history."""
    filter = query.filter
    topics = None if filter is None and query.may_read is None else Topics(filter, query.may_read)
    begin = "" if filter is None else beginning(filter)
    return Wanted(query.after, query.before, query.start, query.end, query.low, query.high, topics, begin)


def chunk_of(rows: pa.RecordBatch) -> Chunk:
    """Messages as a store has them, from Arrow."""
    topic, publisher = rows.column("topic"), rows.column("publisher")
    retain = numpy.asarray(rows.column("retain").to_numpy(zero_copy_only=False), numpy.bool_)
    flags = rows.column("qos").to_numpy().view(numpy.uint8) | (retain * numpy.uint8(RETAIN))
    return Chunk(
        rows.column("position").to_numpy(),
        topic.indices.to_numpy().astype(numpy.int32, copy=False),
        topic.dictionary.to_pylist(),
        rows.column("time").view(pa.int64()).to_numpy(),
        rows.column("arrival").view(pa.int64()).to_numpy(),
        rows.column("value").to_numpy(zero_copy_only=False),
        flags.astype(numpy.uint8, copy=False),
        publisher.indices.to_numpy().astype(numpy.int32, copy=False),
        publisher.dictionary.to_pylist(),
        _pieces(rows.column("payload")),
        {each.name: found for each in OPTIONAL if (found := _document(rows.column(each.name))) is not None},
    )


def _pieces(array: Any) -> Pieces:
    """Of binary or text, none of which is null, or empty where it is."""
    _, offsets, data = array.buffers()
    places = numpy.frombuffer(offsets, numpy.int32)[array.offset : array.offset + len(array) + 1].astype(numpy.int64)
    first, end = int(places[0]), int(places[-1])
    return Pieces(places - first, b"" if data is None else data[first:end].to_pybytes())


def _document(array: Any) -> Pieces | None:
    return None if array.null_count == len(array) else _pieces(array)
