"""What a store on disk is asked: questions, topics, readers. How it is written to is in disk_store.py.

A question is answered from the blocks and the tail as they are at one moment, which nobody changes: lists of blocks and
of parts of the tail are replaced, not changed. What is asked of blocks that retention removes meanwhile ends with
PositionGone.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy

from headwater.routing.topics import check_filter
from headwater.store.block import Summary, between, chosen
from headwater.store.block_reader import BlockReader
from headwater.store.chunk import Chunk, Indices
from headwater.store.erasing import unpack_ranges
from headwater.store.query import Query
from headwater.store.readers import ReadStore
from headwater.store.shelf import ERASED, READER, Shelf, position_key
from headwater.store.store import PositionGone, Statistics, TopicStatistics
from headwater.store.tail import Part, Tail
from headwater.store.topic_table import TopicTable


class DiskReading(ReadStore):
    """`cache` bytes of indexes are kept in memory."""

    def __init__(self, id: str, shelf: Shelf, cache: int) -> None:
        super().__init__(self._keep_reader)
        self.id = id
        self._shelf = shelf
        self._topics = TopicTable()
        self._tail = Tail()
        self._blocks: list[Summary] = []
        self._sealed: tuple[list[Summary], int, int] = [], 0, 0
        """The blocks for which sizes were added up, and what that gave, on disk and of payloads."""
        self._shelved = BlockReader(shelf, self._topics, cache)
        self._lock = threading.Lock()
        """Of tail, blocks and topics, in memory."""

    # ---- reading -----------------------------------------------------------------------------------------------

    def select(self, query: Query) -> Iterator[Chunk]:
        if query.filter is not None:
            check_filter(query.filter, len(query.filter) + 1)
        with self._lock:
            blocks, parts = self._blocks, self._tail.parts
        wanted = self._topics.matching(query.filter, query.may_read)
        # Not before that: of a topic that retention has removed meanwhile, nothing would be found.
        if query.after is not None and query.after + 1 < self.first:
            raise PositionGone(query.after + 1, self.first)
        if wanted is not None and not len(wanted):
            return iter(())
        return self._limited(self._selected(query, wanted, blocks, parts), query.limit)

    def _limited(self, chunks: Iterator[Chunk], limit: int | None) -> Iterator[Chunk]:
        left = limit
        for chunk in chunks:
            if not len(chunk):
                continue
            if left is None:
                yield chunk
                continue
            if left > 0:
                yield chunk.slice(0, left)
            left -= len(chunk)
            if left <= 0:
                return

    def _selected(
        self, query: Query, wanted: Indices | None, blocks: list[Summary], parts: list[Part]
    ) -> Iterator[Chunk]:
        start = 0
        if query.after is not None:
            start = max(0, bisect_right(blocks, query.after + 1, key=lambda block: block.first) - 1)
        for at in range(start, len(blocks)):
            block = blocks[at]
            if query.before is not None and block.first >= query.before:
                return
            if block.may_have(query):
                yield self._shelved.select(block, query, wanted)
        for part in parts:
            chunk = part.chunk
            if query.after is None or int(chunk.position[-1]) > query.after:
                yield chosen(*between(chunk, query), wanted)

    def topics(self, filter: str | None = None, may_read: Callable[[str], bool] | None = None) -> list[TopicStatistics]:
        if filter is not None:
            check_filter(filter, len(filter) + 1)
        wanted = self._topics.matching(filter, may_read)
        if wanted is None:
            wanted = numpy.array(sorted(self._topics.numbers.values()), numpy.int32)
        return self._told(wanted)

    def topics_page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[TopicStatistics], str | None]:
        if filter is not None:
            check_filter(filter, len(filter) + 1)
        names, more = self._topics.page(filter, may_read, after, limit)
        numbers = [self._topics.numbers.get(name.encode()) for name in names]
        found = self._told(numpy.array([each for each in numbers if each is not None], numpy.int32))
        return found, names[-1] if more else None

    def _told(self, wanted: Indices) -> list[TopicStatistics]:
        with self._lock:
            table = self._topics
            wanted = wanted[table.messages[wanted] > 0]
            self._find_first(wanted)
            columns = (table.messages, table.first, table.last, table.first_time, table.last_time)
            copies = [column[wanted] for column in columns]
            names = table.names
        found = zip(wanted.tolist(), *(copy.tolist() for copy in copies), strict=True)
        return sorted(TopicStatistics(names[number], *rest) for number, *rest in found)

    def _find_first(self, topics: Indices) -> None:
        """Those whose first message is gone: find which is first now. With the lock."""
        table = self._topics
        stale = topics[table.first[topics] < self.first]
        for block in self._blocks:
            if not len(stale):
                return
            extent = self._shelved.extent(block)
            here = numpy.isin(extent.topic, stale)
            table.begins(extent.topic[here], extent.first[here], extent.first_time[here])
            stale = topics[table.first[topics] < self.first]
        for part in self._tail.parts:
            if not len(stale):
                return
            chunk = part.chunk
            backwards = numpy.flatnonzero(numpy.isin(chunk.topic, stale))[::-1]
            table.begins(chunk.topic[backwards], chunk.position[backwards], chunk.time[backwards])
            stale = topics[table.first[topics] < self.first]

    def knows(self, topic: bytes) -> bool:
        return topic in self._topics.numbers

    def known_topics(self) -> int:
        return len(self._topics.numbers)

    def latest(self, topic: str) -> Chunk | None:
        while True:
            try:
                return self._latest(topic)
            except PositionGone:  # retention was quicker; there may be a later one
                continue

    def _latest(self, topic: str) -> Chunk | None:
        with self._lock:
            number = self._topics.numbers.get(topic.encode())
            if number is None or self._topics.messages[number] == 0:
                return None
            last = int(self._topics.last[number])
            blocks, parts = self._blocks, self._tail.parts
        wanted = numpy.array([number], numpy.int32)
        for chunk in self._selected(Query(after=last - 1, before=last + 1), wanted, blocks, parts):
            if len(chunk):
                return chunk
        return None

    def erased(self, after: int, most: int) -> list[tuple[int, int]]:
        with self._lock:
            blocks = self._blocks
        at = bisect_right(blocks, after + 1, key=lambda block: block.first) - 1
        first = blocks[at].first if at >= 0 else 0
        found: list[tuple[int, int]] = []
        for _, record in self._shelf.scan_from(ERASED, position_key(ERASED, first)):
            found += [(max(low, after + 1), high) for low, high in unpack_ranges(record) if high > after]
            if len(found) >= most:
                break
        return found[:most]

    def statistics(self) -> Statistics:
        with self._lock:
            blocks, size, payload_size = self._sealed
            if blocks is not self._blocks:
                blocks = self._blocks
                size, payload_size = sum(each.size for each in blocks), sum(each.payload_size for each in blocks)
                self._sealed = blocks, size, payload_size
            tail = self._tail
            return Statistics(
                *(self.id, self.first, self.next, self._topics.used, size + tail.size),
                *(payload_size + tail.payload_size, len(blocks), tail.messages),
            )

    def _keep_reader(self, name: str, record: bytes | None) -> None:
        key = READER + name.encode()
        if record is None:
            self._shelf.write([], [key])
        else:
            self._shelf.write([(key, record)])
        self._shelf.sync()
