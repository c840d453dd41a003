"""All stores of an edge, by way of any of its nodes: which there are, as that changes, and everything that they have.

    edge = EdgeReader(StoreReader("http://node:8080", token="…"))
    for store, batch in edge.read(after={"4f6a12": 120_000}):
        …

Stores come and end while somebody reads: a look asks the node for its directory; if it does not answer, another one of
the edge that is known by then. A node that knows of no edge is an edge of its own store. Each message is in one store,
so all of them together are everything, each once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headwater.store.directory import Directory, Holding, Place
from headwater.store.reader import Refused, StoreReader, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

ALONE_FOR: Final = 5.0
"""Seconds for which a node that knows of no edge is not asked again."""


class EdgeReader:
    """`home` is a reader of the node that is known at first; other nodes are shown the same (`StoreReader.at`)."""

    def __init__(self, home: StoreReader) -> None:
        self.home = home
        self.directory = Directory()
        """As it was at the last look."""
        self.is_alone = True
        """Whether the node knows of no edge."""
        self._asked_at = -ALONE_FOR

    def look(self) -> Directory:
        """What there is now. Raises Unreachable if nobody says."""
        now = time.monotonic()
        if self.is_alone and now - self._asked_at < ALONE_FOR:
            return self.directory
        found = self._asked()
        self._asked_at = now
        self.is_alone = found is None
        if found is None:
            self.directory = Directory([Holding(self.home.store_id(), "", self.home.url, ("#",), 1, None)])
        else:
            self.directory = self.directory.joined(found) if self._is_older(found) else found
        return self.directory

    def reader(self, place: Place) -> StoreReader:
        """Raises Unreachable if nobody says where it is, and Refused if it may not be shown there who we are."""
        if place.node == self.directory.node:
            return self.home  # at the address that we were given
        if not place.url:
            raise Unreachable(f"the store {place.id} at {place.node} does not say where its REST is")
        return self.home.at(place.url)

    def read(
        self, after: Mapping[str, int] | None = None, topic: str | None = None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Everything that there is now: for each batch the store that it is of. `after` says how far each store has
        been read; those that it does not name are read from their beginning. What a topic's old store has comes before
        what its new one has. Raises Unreachable if one of the stores does not answer."""
        done = dict(after or {})
        self.look()
        ends = {place.id: self._end(place, done) for place in self.directory.holders(topic)}
        directory = self.look()  # what is in a new store up to its end has its precedence in this one
        for id, first in directory.withheld(time.time()).items():
            ends[id] = min(first, ends.get(id, first))
        while left := [id for id, end in ends.items() if done.get(id, 0) + 1 < end]:
            bounds = bounds_of(directory, {id: done.get(id, 0) for id in ends}, left)
            for id in left:
                before = min(ends[id], bounds.get(id, ends[id]))
                if done.get(id, 0) + 1 < before:
                    yield from self._batches(directory.places[id], done.get(id), before, topic)
                    done[id] = before - 1

    def _batches(
        self, place: Place, after: int | None, before: int, topic: str | None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        begin = None if after is None else f"{place.id}:{after}"
        for batch in self.reader(place).read(begin, f"{place.id}:{before}", topic):
            yield place.id, batch

    def _end(self, place: Place, done: Mapping[str, int]) -> int:
        if place.ended is not None and done.get(place.id, 0) >= place.ended:
            return place.ended + 1
        return self.reader(place).extent().next

    def _asked(self) -> Directory | None:
        try:
            return self.home.directory()
        except Unreachable as error:
            for place in self.directory.places.values():
                if place.url and place.node != self.directory.node:
                    try:
                        found = self.home.at(place.url).directory()
                    except (Unreachable, Refused):
                        continue
                    if found is not None:
                        found.node = self.directory.node
                        return found
            raise error

    def _is_older(self, found: Directory) -> bool:
        """Another node may not have heard yet what we know."""
        newest = max((each.epoch for each in self.directory.holdings), default=0)
        return max((each.epoch for each in found.holdings), default=0) < newest


def bounds_of(directory: Directory, done: Mapping[str, int], left: Collection[str]) -> dict[str, int]:
    """Of the stores that have to wait for others, the position before which they may be read now. `done` is how far
    each has been read, `left` are those in which there is more to read and which answer. If all of these wait for each
    other, which is the fault of a directory that is wrong, one of them does not."""
    found: dict[str, int] = {}
    for each in directory.waiting(done):
        found[each.later] = min(each.first, found.get(each.later, each.first))
    held = [id for id in left if found.get(id, done[id] + 2) <= done[id] + 1]
    earlier = {each.earlier for each in directory.waiting(done) if each.later in held}
    if held and len(held) == len(left) and earlier <= set(held):
        del found[min(held)]
    return found
