"""What a forward reads: a store, part by part, in threads that may wait for the disk."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from headwater.store.entry import Entry
from headwater.store.portions import portions
from headwater.store.query import Query
from headwater.store.store import PositionGone, Store, UnknownReader

ROWS: Final = 256
SIZE: Final = 1 << 20
"""Messages, and bytes of them, that are made at a time."""
NEAR: Final = 10_000
"""Positions between two messages that are read in one go."""
MOST_TOPICS: Final = 10_000
"""Of which it is remembered up to where they were looked through for retained messages."""


class Part(NamedTuple):
    """The messages that there are before `stop`, from where the last part ended."""

    entries: list[Entry]
    stop: int


class Source:
    """A store, and the reader of it that is called `reader`."""

    def __init__(self, store: Store, reader: str) -> None:
        self._store = store
        self._reader = reader
        self._retained: OrderedDict[str, int] = OrderedDict()

    @property
    def id(self) -> str:
        return self._store.id

    @property
    def first(self) -> int:
        return self._store.first

    @property
    def next(self) -> int:
        return self._store.next

    def parts(self, filter: str | None, start: int, stop: int) -> Iterator[Part]:
        """What matches the filter in [start, stop). Raises PositionGone. What is read from disk at a time, a block of
        the store, stays in memory until the iterator is done with it."""
        for chunk in self._store.select(Query(filter=filter, after=start - 1, before=stop)):
            for portion in portions(chunk, ROWS, SIZE):
                entries = list(portion.entries())
                yield Part(entries, entries[-1].position + 1)
        yield Part([], stop)

    def at(self, position: int) -> Entry | None:
        """The first message from there on. Raises PositionGone."""
        for chunk in self._store.select(Query(after=position - 1, limit=1)):
            return next(chunk.entries())
        return None

    def at_each(self, positions: Sequence[int]) -> dict[int, Entry]:
        """The messages at these positions, which are in order, as far as they are there."""
        wanted = set(positions)
        found: dict[int, Entry] = {}
        start = 0
        while start < len(positions):
            end = start + 1
            while end < len(positions) and positions[end] - positions[end - 1] <= NEAR:
                end += 1
            with contextlib.suppress(PositionGone):
                for part in self.parts(None, max(self.first, positions[start]), positions[end - 1] + 1):
                    found.update((entry.position, entry) for entry in part.entries if entry.position in wanted)
            start = end
        return found

    def is_replaced(self, topic: str, position: int) -> bool:
        """Whether a later message is what the topic retains."""
        known = self._retained.get(topic, 0)
        if known <= position:
            known = position
            for chunk in self._store.select(Query(filter=topic, after=max(position, self.first - 1))):
                known = max([known, *chunk.position[chunk.retain != 0].tolist()])
            self._retained[topic] = known
            self._retained.move_to_end(topic)
            if len(self._retained) > MOST_TOPICS:
                self._retained.popitem(last=False)
        return known > position

    def committed(self) -> int | None:
        """What the reader has dealt with; None: there is no such reader."""
        try:
            return self._store.reader(self._reader).position
        except UnknownReader:
            return None

    def commit(self, position: int) -> None:
        self._store.commit(self._reader, position)

    def watch(self, tell: Callable[[], None]) -> None:
        self._store.watch(tell)

    def unwatch(self, tell: Callable[[], None]) -> None:
        self._store.unwatch(tell)
