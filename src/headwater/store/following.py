"""A store that another process writes, for reading: what it says has been synced, and nothing else.

Theory. The one who writes (DiskStore) tells two numbers, `first` and `next`: [first, next) is synced and can be read.
Everything else is in RocksDB, which this process follows as a secondary instance (disk/rocks.py). Before each question
about messages the two numbers are looked at; if they have moved, we catch up and take in what is new:

    messages that were removed   blocks, and what was in the tail, are taken back from the counts of topics
    topics                       those without a record are dropped, new ones get their names
    blocks                       their messages leave the tail; those that were never seen in the tail are counted
    records of the log           from where we are up to `next`, and no further: what is behind is not synced

So whoever has been told that a message is stored finds it here, and nobody finds one that a crash could take back.

To catch up costs half as much processor time for a message as storing it does: RocksDB reads its log again, and we
decode what is in it. Messages that went into a block meanwhile are not decoded, only counted by the block's extents. So
it is done as late as possible: how much there is, and how far readers have come, is asked often (by whoever waits for
messages), and answered without it, from what the writer counts.

A look at a secondary instance may miss some records for a moment. Positions have no gaps, a block says how many pages
it has, and messages name their topics by number, so what is missing is noticed; then we catch up again. What was taken
in by then stays, and each step goes on where the last one ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar

import numpy

from headwater.disk.errors import StorageError
from headwater.store.block import Summary, TopicExtent
from headwater.store.block_reader import BlockReader
from headwater.store.chunk import Chunk, Indices
from headwater.store.disk_reading import DiskReading
from headwater.store.disk_store import CACHE
from headwater.store.erasing import Doomed, Erased
from headwater.store.page import decode
from headwater.store.query import Query
from headwater.store.shelf import (
    BLOCK,
    ERASURES,
    EXTENT,
    LOG,
    LOST,
    NEXT,
    READER,
    TOPIC,
    Before,
    FollowedShelf,
    lost_ranges,
    position_in,
    position_key,
    topic_in,
    topic_key,
)
from headwater.store.store import PositionGone, Reader, Statistics, TopicStatistics
from headwater.store.tail import Part

ATTEMPTS: Final = 60
LONGEST_WAIT: Final = 0.1
"""Seconds between two of them; together they are some five."""
Found = TypeVar("Found")


class Held(NamedTuple):
    """Of a store's statistics, what its writer counts; each figure is as of some moment."""

    topics: int
    size: int
    payload_size: int
    blocks: int
    unsealed: int


class Primary:
    """The one who writes, as far as readers have to do with it. Any thread may ask."""

    @property
    def first(self) -> int:
        raise NotImplementedError

    @property
    def next(self) -> int:
        raise NotImplementedError

    @property
    def reachable(self) -> int:
        """The first position that can be read, here or in object storage."""
        return self.first

    @property
    def erasures(self) -> int:
        """How often a block was changed, ever."""
        raise NotImplementedError

    @property
    def held(self) -> Held:
        raise NotImplementedError

    def erase(self, doomed: Doomed) -> Erased:
        """As `Store.erase`."""
        raise NotImplementedError

    def commit(self, name: str, position: int) -> Reader:
        """As `Store.commit`."""
        raise NotImplementedError

    def forget(self, name: str) -> None:
        """As `Store.forget`."""
        raise NotImplementedError

    def watching(self, wanted: bool) -> None:
        """Whether `FollowingStore.tell_watchers` is to be called when there is more to read."""
        raise NotImplementedError


class _Missing(Exception):
    """Something that must be there is not; the next look will find it."""


class FollowingBlocks(BlockReader):
    """Blocks of which something may be missing for a moment."""

    def __init__(self, shelf: FollowedShelf, store: FollowingStore, cache: int) -> None:
        super().__init__(shelf, store._topics, cache)
        self._followed = shelf
        self._store = store

    def select(self, block: Summary, query: Query, wanted: Indices | None) -> Chunk:
        for attempt in range(ATTEMPTS):
            try:
                return super().select(block, query, wanted)
            except StorageError:
                self._look_again(block, attempt)
        return super().select(block, query, wanted)

    def extent(self, block: Summary) -> TopicExtent:
        for attempt in range(ATTEMPTS):
            try:
                return super().extent(block)
            except StorageError:
                self._look_again(block, attempt)
        return super().extent(block)

    def _look_again(self, block: Summary, attempt: int) -> None:
        if block.end <= max(self._store.first, int(self._followed.get(NEXT) or b"1")):
            raise PositionGone(block.first, max(block.end, self._store.first))
        _wait(attempt)
        self._followed.catch_up()


class FollowingStore(DiskReading):
    """`path` is the folder of the store that `primary` writes, `own` one for RocksDB's log of this process."""

    def __init__(self, path: Path, own: Path, id: str, primary: Primary, cache: int = CACHE) -> None:
        self._primary = primary
        self._seen_erasures = primary.erasures
        self._followed = FollowedShelf(path, own, cache // 2)
        super().__init__(id, self._followed, cache // 2)
        self._shelved = FollowingBlocks(self._followed, self, cache // 2)
        self._following = threading.Lock()
        self._seen_first = self._seen_next = primary.first
        self._seen_reachable = primary.reachable
        try:
            self._lost = lost_ranges(self._followed.get(LOST))
            self._read_readers()
            with self._following:
                self._catch_up()
        except BaseException:
            self._followed.close()
            raise

    # What the primary says counts; who sets these is the base class, once.

    @property
    def first(self) -> int:
        return self._primary.first

    @first.setter
    def first(self, value: int) -> None:
        pass

    @property
    def next(self) -> int:
        return self._primary.next

    @next.setter
    def next(self, value: int) -> None:
        pass

    # ---- following ---------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Take in what is new, if there is something."""
        if self._is_behind():
            with self._following:
                if self._is_behind():
                    self._catch_up()

    def _is_behind(self) -> bool:
        primary = self._primary
        return (
            primary.next > self._seen_next or primary.first > self._seen_first or primary.erasures > self._seen_erasures
        )

    def _asked(self, work: Callable[[], Found]) -> Found:
        """What is found, where messages may be removed in the middle of it, before we are told."""
        while True:
            self.follow()
            try:
                return work()
            except PositionGone:
                with self._following:
                    self._catch_up()

    def _catch_up(self) -> None:
        for attempt in range(ATTEMPTS):
            first, next, erasures = self._primary.first, self._primary.next, self._primary.erasures
            before = self._followed.before()
            self._followed.catch_up()
            try:
                with self._lock:
                    self._take_in(first, next, erasures, before)
                return
            except _Missing:
                _wait(attempt)
        raise StorageError(f"messages before position {next} cannot be found in {self._followed.path}; try again")

    def _take_in(self, first: int, next: int, erasures: int, before: Before) -> None:
        first = max(first, int(self._followed.get(NEXT) or b"1"))
        if first > self._seen_first:
            self._without(first, before)
        for key, name in self._followed.scan_from(TOPIC, topic_key(len(self._topics.names))):
            self._topics.restore(topic_in(key), name)
        self._take_erasures(erasures)
        self._take_blocks()
        for key, record in self._followed.scan_from(LOG, position_key(LOG, self._seen_next)):
            if position_in(key) >= next:
                break
            self._take_record(key, record)
        self._seen_next = self._behind_lost(self._seen_next)
        if self._seen_next < next:
            raise _Missing

    def _without(self, first: int, before: Before) -> None:
        """What was before `first` is gone."""
        gone = [block for block in self._blocks if block.end <= first]
        left_topics: set[int] = set()
        known = True
        for block in gone:
            record = before.get(position_key(EXTENT, block.first))
            if record is None:
                known = False
                break
            extent = TopicExtent.unpack(record)
            self._topics.remove_extent(extent)
            left_topics.update(extent.topic.tolist())
        self._blocks = self._blocks[len(gone) :]
        if gone:
            self._shelved.forget(gone)
        for chunk in self._tail.drop_before(first):  # it was in a block for a moment only
            self._topics.remove(chunk)
            left_topics.update(chunk.topic.tolist())
        if not known:
            left_topics = set(self._topics.numbers.values())
            self._count_again()
        unused = self._topics.unused(left_topics)
        self._topics.drop([number for number in unused if self._followed.get(topic_key(number)) is None])
        self._seen_first = first
        self._seen_next = max(self._seen_next, first)
        self._read_readers()

    def _take_erasures(self, told: int) -> None:
        """Messages were erased from blocks: what is known of blocks is read again, and all is counted again. What they
        were in the tail as has been put into blocks before."""
        if max(told, self._erasures()) == self._seen_erasures:
            return
        self._followed.reopen()
        erasures = self._erasures()
        if erasures < told:
            raise _Missing
        blocks = [Summary.unpack(record) for _, record in self._followed.scan(BLOCK)]
        self._blocks = [each for each in blocks if each.end > self._seen_first]
        self._shelved.forget_changed(*self._blocks)
        if self._blocks:
            self._tail.drop_before(self._blocks[-1].end)
            self._seen_next = max(self._seen_next, self._blocks[-1].end)
        self._count_again()
        known = list(self._topics.numbers.values())
        self._topics.drop([each for each in self._topics.unused(known) if self._followed.get(topic_key(each)) is None])
        self._seen_erasures = erasures

    def _erasures(self) -> int:
        return int(self._followed.get(ERASURES) or b"0")

    def _count_again(self) -> None:
        self._topics.remove_all()
        for block in self._blocks:
            self._topics.add_extent(self._extent(block))  # raises _Missing: begun again
        for part in self._tail.parts:
            self._topics.add(part.chunk)

    def _take_blocks(self) -> None:
        end = self._blocks[-1].end if self._blocks else 0
        for _, record in self._followed.scan_from(BLOCK, position_key(BLOCK, end)):
            block = Summary.unpack(record)
            if block.end <= self._seen_first:
                continue
            if self._blocks and self._behind_lost(self._blocks[-1].end) != block.first:
                raise _Missing
            seen = self._seen_next
            if block.first > self._behind_lost(seen) and self._blocks:
                raise _Missing
            if block.first >= seen:
                self._topics.add_extent(self._extent(block))
            elif block.end > seen:
                self._count_rest(block)
            self._blocks = [*self._blocks, block]
            self._tail.drop_before(block.end)
            self._seen_next = max(seen, block.end)

    def _extent(self, block: Summary) -> TopicExtent:
        try:
            return BlockReader.extent(self._shelved, block)
        except StorageError:
            raise _Missing from None

    def _count_rest(self, block: Summary) -> None:
        """Of a block whose first messages were counted as they came, and are in the tail: their topics are taken from
        there. To read the block would take several times its size, up to 32 MiB."""
        counted = [part.chunk.topic[part.chunk.position < block.end] for part in self._tail.parts]
        try:
            self._topics.add_extent(self._extent(block).without(numpy.concatenate(counted)))
        except StorageError:
            raise _Missing from None

    def _take_record(self, key: bytes, record: bytes) -> None:
        if position_in(key) != self._behind_lost(self._seen_next):
            raise _Missing
        try:
            chunk = decode(record, self._topics.names, None)
        except StorageError:
            raise _Missing from None  # of a topic whose record is missing
        self._tail.add(Part(chunk, [], 0))
        self._topics.add(chunk)
        self._seen_next = position_in(key) + len(chunk)

    def _behind_lost(self, position: int) -> int:
        return next((end for first, end in self._lost if first == position), position)

    def _read_readers(self) -> None:
        self._readers.unlearn()
        for _, record in self._followed.scan(READER):
            self._readers.restore(record)

    # ---- questions ---------------------------------------------------------------------------------------------

    def select(self, query: Query) -> Iterator[Chunk]:
        self.follow()
        return super().select(query)

    def topics(self, filter: str | None = None, may_read: Callable[[str], bool] | None = None) -> list[TopicStatistics]:
        return self._asked(lambda: super(FollowingStore, self).topics(filter, may_read))

    def topics_page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[TopicStatistics], str | None]:
        return self._asked(lambda: super(FollowingStore, self).topics_page(filter, may_read, after, limit))

    def latest(self, topic: str) -> Chunk | None:
        return self._asked(lambda: self._latest(topic))

    def statistics(self) -> Statistics:
        return Statistics(self.id, self.first, self.next, *self._primary.held)

    # ---- readers and watchers ----------------------------------------------------------------------------------

    def readers(self) -> list[Reader]:
        self._follow_retention()
        return super().readers()

    def reader(self, name: str) -> Reader:
        self._follow_retention()
        return super().reader(name)

    def _follow_retention(self) -> None:
        """Nothing else changes readers but what they commit by us."""
        reachable = self._primary.reachable
        if self._primary.first > self._seen_first:
            self.follow()
        elif reachable != self._seen_reachable:  # retention of what is in object storage
            with self._following:
                self._followed.catch_up()
                self._read_readers()
        self._seen_reachable = reachable

    def commit(self, name: str, position: int) -> Reader:
        reader = self._primary.commit(name, position)
        self._readers.learn(reader)
        return reader

    def erase(self, doomed: Doomed) -> Erased:
        found = self._primary.erase(doomed)
        self.follow()
        return found

    def damaged(self) -> list[tuple[int, int]]:
        return self._lost

    def erased(self, after: int, most: int) -> list[tuple[int, int]]:
        self.follow()
        return super().erased(after, most)

    def forget(self, name: str) -> None:
        self._primary.forget(name)
        self._readers.unlearn(name)

    def watch(self, tell: Callable[[], None]) -> None:
        super().watch(tell)
        self._primary.watching(True)

    def unwatch(self, tell: Callable[[], None]) -> None:
        super().unwatch(tell)
        self._primary.watching(bool(self._watchers))

    def close(self) -> None:
        with self._following:
            self._followed.close()

    def _keep_reader(self, name: str, record: bytes | None) -> NoReturn:
        raise StorageError("who follows a store writes nothing")


def _wait(attempt: int) -> None:
    time.sleep(min(LONGEST_WAIT, 0.001 * 2 ** min(attempt, 10)))
