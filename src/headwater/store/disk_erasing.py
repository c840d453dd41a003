"""Erasing from a store on disk: a few blocks by each call, each of them at once.

What is still in the log is put into a block first. A block, its index, the extents of its topics and the record of what
was erased change in one write: who is killed finds the block as it was, or without these messages. Then old files are
merged with the new, so that the bytes are gone, too, when a call returns.

Followers (following.py) count what is in blocks and keep what they have read; the number of blocks that were changed,
ever, tells them to look again.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy

from headwater.disk.crash_points import crash_point
from headwater.routing.topics import check_filter
from headwater.store.block import Summary, TopicExtent
from headwater.store.chunk import Chunk, Indices
from headwater.store.disk_reading import DiskReading
from headwater.store.erasing import (
    CHANGED_BLOCKS,
    LOOKED_AT_BLOCKS,
    Doomed,
    Erased,
    Rewritten,
    joined,
    pack_ranges,
    ranges_of,
    rewritten,
    unpack_ranges,
)
from headwater.store.shelf import BLOCK, ERASED, ERASURES, EXTENT, INDEX, page_key, position_key, topic_key

NONE: Final = numpy.zeros(0, numpy.int64)


class DiskErasing(DiskReading):
    erasures: int
    """Blocks that were changed, ever."""
    _sealing: threading.Lock
    """Held by the one who makes, changes or removes blocks."""
    _coming: set[int]
    """The topics of what is being written."""

    def seal(self, everything: bool = False) -> int:
        raise NotImplementedError

    def erase(self, doomed: Doomed) -> Erased:
        if doomed.filter is not None:
            check_filter(doomed.filter, len(doomed.filter) + 1)
        end = self.next
        if self._tail_has(doomed):
            self.seal(everything=True)
        found = self._erase_some(doomed, end)
        if found.messages:
            self.tell_watchers()
        return found

    def _tail_has(self, doomed: Doomed) -> bool:
        with self._lock:
            parts = self._tail.parts
        wanted = self._wanted(doomed)
        return any(bool(doomed.among(part.chunk, wanted).any()) for part in parts)

    def _wanted(self, doomed: Doomed) -> Indices | None:
        return None if doomed.filter is None else self._topics.matching(doomed.filter, None)

    def _erase_some(self, doomed: Doomed, end: int) -> Erased:
        """Of blocks that begin before `end`."""
        gone, looked, position = 0, 0, doomed.after
        changed: list[Summary] = []
        with self._sealing:
            with self._lock:
                blocks = [each for each in self._blocks if each.first < end and each.end > doomed.after + 1]
            wanted = self._wanted(doomed)
            for block in blocks:
                if looked == LOOKED_AT_BLOCKS or len(changed) == CHANGED_BLOCKS:
                    break
                position = block.end - 1
                if not doomed.may_be_in(block.first, block.end):
                    continue
                looked += 1
                messages = self._erase_in(block, doomed, wanted)
                if messages:
                    changed.append(block)
                gone += messages
            else:
                position = max(position, end - 1)
        if changed:
            self._shelf.sync()
            self._shelf.merge_files(changed[0].first, changed[-1].end)
        return Erased(gone, position, position < min(end - 1, doomed.last))

    def _erase_in(self, block: Summary, doomed: Doomed, wanted: Indices | None) -> int:
        names = self._topics.names
        index = self._shelved.index(block)
        if wanted is not None and not index.rows_of(wanted):
            return 0
        new = rewritten(block, index, self._shelved.records(block), names, lambda chunk: doomed.among(chunk, wanted))
        if new is None:
            return 0
        crash_point("store-before-erase")
        self._put(block, new)
        crash_point("store-after-erase")
        return len(new.gone)

    def _put(self, block: Summary, new: Rewritten) -> None:
        first = block.first
        known = self._shelf.get(position_key(ERASED, first))
        ranges = joined([] if known is None else unpack_ranges(known), ranges_of(new.gone.position))
        with self._lock:
            # With the lock, as in retention: a topic that comes again has another number.
            self._uncount(new.gone)
            unused = self._topics.unused({int(number) for number in numpy.unique(new.gone.topic)} - self._coming)
            self._shelf.write(
                [
                    (position_key(BLOCK, first), new.summary.pack()),
                    (position_key(INDEX, first), new.places),
                    (position_key(EXTENT, first), new.extent.pack()),
                    (position_key(ERASED, first), pack_ranges(ranges)),
                    (ERASURES, str(self.erasures + 1).encode()),
                ],
                [topic_key(number) for number in unused],
                [(page_key(first, at), page) for at, page in new.pages.items()],
            )
            self.erasures += 1
            self._blocks = [new.summary if each.first == first else each for each in self._blocks]
            self._shelved.forget_changed(block)
            self._find_last(new)
            self._topics.drop(unused)

    def _uncount(self, gone: Chunk) -> None:
        topics, counts = numpy.unique(gone.topic, return_counts=True)
        self._topics.remove_extent(TopicExtent(topics.astype(numpy.int64), counts, *[NONE] * 4))
        self._topics.begins(topics, numpy.zeros_like(topics), numpy.zeros_like(topics))  # to be found when it is asked

    def _find_last(self, new: Rewritten) -> None:
        """Of topics whose last message is gone: which is the last now. With the lock."""
        table = self._topics
        topics = numpy.unique(new.gone.topic)
        topics = topics[table.messages[topics] > 0]
        stale = topics[numpy.isin(table.last[topics], new.gone.position)]
        for block in reversed(self._blocks):
            if not len(stale):
                return
            if block.first > new.summary.first:
                continue
            extent = self._shelved.extent(block)
            here = numpy.isin(extent.topic, stale)
            table.ends(extent.topic[here], extent.last[here], extent.last_time[here])
            stale = stale[~numpy.isin(stale, extent.topic)]
