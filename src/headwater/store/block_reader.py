"""Reading blocks: which of their pages, and what of these.

The indexes of blocks that were asked for last stay in memory, and the last blocks that were read as a whole: who reads
one in small portions comes again, and of two who read neighbouring ranges each wants the block between them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy

from headwater.disk.errors import StorageError
from headwater.store.block import Index, Summary, TopicExtent, between, chosen, in_order, page_chunk
from headwater.store.chunk import Chunk, Indices
from headwater.store.query import Query
from headwater.store.shelf import EXTENT, INDEX, Shelf, position_key
from headwater.store.store import PositionGone
from headwater.store.topic_table import TopicTable

MANY: Final = 0.25
"""A question about more than this part of a block's messages reads all its pages."""
WHOLES: Final = 2
"""Blocks that stay in memory."""
TRIES: Final = 10
"""With a block from which messages are erased meanwhile."""
_EMPTY: Final = Chunk.of([])


class BlockReader:
    """Any thread may read. `cache` bytes of indexes are kept."""

    def __init__(self, shelf: Shelf, topics: TopicTable, cache: int) -> None:
        self._shelf = shelf
        self._topics = topics
        self._cache = cache
        self._indexes: OrderedDict[int, Index] = OrderedDict()
        self._size = 0
        self._wholes: OrderedDict[int, Chunk] = OrderedDict()
        self._making: dict[int, threading.Lock] = {}
        self._gone = 0
        """Blocks that begin before here have been removed."""
        self._changes = 0
        """How often blocks have changed."""
        self._lock = threading.Lock()

    def select(self, block: Summary, query: Query, wanted: Indices | None) -> Chunk:
        """What a query asks of a block, in the order of positions; `wanted` are the topics, None if all."""
        for _ in range(TRIES):
            changes = self._changes
            try:
                return self._select(block, query, wanted)
            except StorageError:
                self._drop_index(block)  # it may be of before messages were erased
                if changes == self._changes:
                    break
        return self._select(block, query, wanted)

    def _select(self, block: Summary, query: Query, wanted: Indices | None) -> Chunk:
        names = self._topics.names  # first of all: if its topics have lost their names, the block is gone, too
        index = self.index(block)
        if not index.pages[-1]:
            return _EMPTY
        query = block.left_of(query)
        if wanted is None:
            return chosen(*between(self._all(block, index, names), query), None)
        ranges = index.rows_of(wanted)
        rows = sum(end - start for start, end in ranges)
        if rows > MANY * (block.end - block.first):
            return chosen(*between(self._all(block, index, names), query), wanted)
        found = [
            chosen(self._page(block, index, names, page, rows_of_page), query, None)
            for page, rows_of_page in rows_by_page(ranges, index.pages).items()
            if index.may_have(page, query)
        ]
        return in_order(Chunk.joined(found)) if found else _EMPTY

    def extent(self, block: Summary) -> TopicExtent:
        record = self._shelf.get(position_key(EXTENT, block.first))
        if record is None:
            raise self._missing(block)
        return TopicExtent.unpack(record)

    def forget(self, blocks: list[Summary]) -> None:
        """They are going to be removed."""
        with self._lock:
            self._gone = blocks[-1].end
            self._wholes.clear()
            for block in blocks:
                index = self._indexes.pop(block.first, None)
                self._size -= 0 if index is None else index.size

    def forget_changed(self, *blocks: Summary) -> None:
        """Messages were erased from them."""
        with self._lock:
            self._changes += 1
            for block in blocks:
                self._wholes.pop(block.first, None)
        for block in blocks:
            self._drop_index(block)

    def _drop_index(self, block: Summary) -> None:
        with self._lock:
            index = self._indexes.pop(block.first, None)
            self._size -= 0 if index is None else index.size

    def records(self, block: Summary) -> list[bytes]:
        """Its pages."""
        records = self._shelf.pages(block.first)
        if len(records) != block.pages:
            raise self._missing(block)
        return records

    def _all(self, block: Summary, index: Index, names: Sequence[str]) -> Chunk:
        with self._lock:
            making = self._making.setdefault(block.first, threading.Lock())
        with making:  # who wants the same one waits for it, instead of making it, too
            try:
                return self._known(block) or self._made(block, index, names)
            finally:
                with self._lock:
                    self._making.pop(block.first, None)

    def _known(self, block: Summary) -> Chunk | None:
        with self._lock:
            found = self._wholes.get(block.first)
            if found is not None:
                self._wholes.move_to_end(block.first)
            return found

    def _made(self, block: Summary, index: Index, names: Sequence[str]) -> Chunk:
        changes = self._changes
        records = self.records(block)
        # Without a name for the pages, or for what they are joined to: each would be held while the next is made.
        chunk = in_order(
            Chunk.joined([page_chunk(record, names, index, at) for at, record in enumerate(records) if record])
        )
        with self._lock:
            if block.first >= self._gone and changes == self._changes:
                self._wholes[block.first] = chunk
                while len(self._wholes) > WHOLES:
                    self._wholes.popitem(last=False)
        return chunk

    def _page(
        self, block: Summary, index: Index, names: Sequence[str], page: int, ranges: list[tuple[int, int]]
    ) -> Chunk:
        record = self._shelf.page(block.first, page)
        if record is None:
            raise self._missing(block)
        start, end = ranges[0][0], ranges[-1][1]
        chunk = page_chunk(record, names, index, page, start, end)
        if len(ranges) == 1:
            return chunk
        return chunk.take(numpy.concatenate([numpy.arange(first - start, behind - start) for first, behind in ranges]))

    def index(self, block: Summary) -> Index:
        with self._lock:
            index = self._indexes.get(block.first)
            if index is not None:
                self._indexes.move_to_end(block.first)
                return index
        record = self._shelf.get(position_key(INDEX, block.first))
        if record is None:
            raise self._missing(block)
        index = Index.unpack(record)
        with self._lock:
            if block.first >= self._gone and block.first not in self._indexes:
                self._indexes[block.first] = index
                self._size += index.size
            while self._size > self._cache and len(self._indexes) > 1:
                self._size -= self._indexes.popitem(last=False)[1].size
        return index

    def _missing(self, block: Summary) -> Exception:
        if block.first < self._gone:
            return PositionGone(block.first, self._gone)
        return StorageError(
            f"messages from position {block.first} to {block.end - 1} are damaged in {self._shelf.path}; "
            "restore a backup"
        )


def rows_by_page(ranges: list[tuple[int, int]], pages: Indices) -> dict[int, list[tuple[int, int]]]:
    """The pages in which rows are, each with the ranges of rows in it, counted from its first. `pages` are their first
    rows."""
    found: dict[int, list[tuple[int, int]]] = {}
    for first_row, end in ranges:
        start = first_row
        page = int(pages.searchsorted(start, "right")) - 1
        while start < end:
            first, behind = int(pages[page]), min(end, int(pages[page + 1]))
            found.setdefault(page, []).append((start - first, behind - first))
            start = behind
            page += 1
    return found
