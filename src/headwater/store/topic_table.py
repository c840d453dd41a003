"""The topics of a store: their numbers, and what there is of each.

A topic gets a number when its first message comes, and messages are stored with that number. Numbers are not used again
while the store is open, so that who holds some need not know what has happened to them since.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import numpy

from headwater.disk.errors import StorageError
from headwater.routing.topics import has_wildcard
from headwater.store.block import TopicExtent
from headwater.store.chunk import Chunk, Indices, Integers
from headwater.store.query import beginning, judged
from headwater.store.sorted_names import SortedNames

FILTERS: Final = 256
"""Wildcard filters whose topics are remembered."""
REMEMBERED: Final = 4_000_000
"""Topics of all these together; the filter that was asked last is remembered in any case."""
MOST_CHANGES: Final = 100_000
"""Names that come and go between two pages, above which their order is found anew."""
LOOKED_AT: Final = 500
"""Names that are looked at for a page before others may look, too."""
_MORE: Final = 1024
_NONE: Final = numpy.zeros(0, numpy.int32)


class TopicTable:
    """One thread names topics and adds messages; any threads look."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By number; it grows at its end, and is replaced when topics are dropped."""
        self.numbers: dict[bytes, int] = {}
        self.messages = numpy.zeros(_MORE, numpy.int64)
        self.used = 0
        """Topics with messages: counted as they come and go, because a store may have a million."""
        self.first = numpy.zeros(_MORE, numpy.int64)
        self.last = numpy.zeros(_MORE, numpy.int64)
        self.first_time = numpy.zeros(_MORE, numpy.int64)
        self.last_time = numpy.zeros(_MORE, numpy.int64)
        self._matching: OrderedDict[str, tuple[int, Indices]] = OrderedDict()
        self._remembered = 0
        self._lock = threading.Lock()
        self._sorted: SortedNames | None = None
        """In order, from the first time on that somebody asks for a page."""
        self._sorting = threading.Lock()
        self._changes: deque[tuple[bool, str]] = deque()
        """Names that came (True) or went since `_sorted` was looked at."""

    def restore(self, number: int, name: bytes) -> None:
        """In the order of numbers, which may have gaps."""
        while len(self.names) < number:
            self._named("")
        self.numbers[name] = self._named(name.decode())

    def number(self, name: bytes) -> int:
        """A topic that is not known yet gets a number."""
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = self._named(name.decode())
        return number

    def _named(self, name: str) -> int:
        number = len(self.names)
        if number == len(self.messages):
            more = numpy.zeros(number, numpy.int64)
            self.messages = numpy.concatenate([self.messages, more])
            self.first = numpy.concatenate([self.first, more])
            self.last = numpy.concatenate([self.last, more])
            self.first_time = numpy.concatenate([self.first_time, more])
            self.last_time = numpy.concatenate([self.last_time, more])
        self.names.append(name)
        self._changed(True, name)
        return number

    def _changed(self, has_come: bool, name: str) -> None:
        if self._sorted is not None and name:
            self._changes.append((has_come, name))
            if len(self._changes) > MOST_CHANGES:
                self._sorted = None  # nobody has asked for long: begin anew when somebody does
                self._changes.clear()

    def add(self, chunk: Chunk) -> None:
        """Messages have come, behind all others."""
        topic = chunk.topic
        new = self.messages[topic] == 0
        if new.any():
            backwards = topic[new][::-1]  # of several assignments to one place, the last one stays
            self.first[backwards] = chunk.position[new][::-1]
            self.first_time[backwards] = chunk.time[new][::-1]
            self.used += len(numpy.unique(backwards))
        numpy.add.at(self.messages, topic, 1)
        self.last[topic] = chunk.position
        self.last_time[topic] = chunk.time

    def add_extent(self, extent: TopicExtent) -> None:
        """The messages of a block have come, behind all others."""
        topic = extent.topic
        if len(topic) and (topic.min() < 0 or topic.max() >= len(self.names)):
            raise StorageError("an index of messages is damaged (unknown topics); restore a backup")
        new = topic[self.messages[topic] == 0]
        self.first[new] = extent.first[self.messages[topic] == 0]
        self.first_time[new] = extent.first_time[self.messages[topic] == 0]
        self.used += len(new)
        self.messages[topic] += extent.messages
        self.last[topic] = extent.last
        self.last_time[topic] = extent.last_time

    def remove_extent(self, extent: TopicExtent) -> None:
        """The messages of the first block have gone; what is first of each topic then has to be told (`begins`)."""
        self.messages[extent.topic] -= extent.messages
        self.used -= int(numpy.count_nonzero(self.messages[extent.topic] == 0))

    def remove(self, chunk: Chunk) -> None:
        """The same of messages that were in no block."""
        numpy.subtract.at(self.messages, chunk.topic, 1)
        left = numpy.unique(chunk.topic)
        self.used -= int(numpy.count_nonzero(self.messages[left] == 0))

    def remove_all(self) -> None:
        self.messages[:] = 0
        self.used = 0

    def begins(self, topic: Integers | Indices, first: Integers, time: Integers) -> None:
        self.first[topic] = first
        self.first_time[topic] = time

    def ends(self, topic: Integers | Indices, last: Integers, time: Integers) -> None:
        self.last[topic] = last
        self.last_time[topic] = time

    def unused(self, topics: Iterable[int]) -> list[int]:
        return [number for number in topics if self.messages[number] == 0]

    def drop(self, numbers: Iterable[int]) -> None:
        """Topics without messages; they would get another number. Chunks that were read keep the names they have."""
        names = self.names.copy()
        for number in numbers:
            self.numbers.pop(names[number].encode(), None)
            self._changed(False, names[number])
            names[number] = ""
        self.names = names

    def page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[str], bool]:
        """Names behind `after` of topics with messages, in their order, at most so many; and whether there are more.

        What it costs depends on the names that are looked at: those of the page, if the filter leaves none out between
        them."""
        begin = "" if filter is None else beginning(filter)
        meets = None
        if filter is not None:
            meets = re.compile(pattern(filter) if has_wildcard(filter) else re.escape(filter), re.DOTALL).fullmatch
        found: list[str] = []
        while some := self._behind(after, begin, min(limit + 1, LOOKED_AT)):
            inside = [name for name in some if name.startswith(begin)]
            names = [name for name in inside if self._has_messages(name) and (meets is None or meets(name))]
            if may_read is not None:
                names = [name for name, may in zip(names, judged(may_read, names), strict=True) if may]
            found += names
            if len(found) > limit:
                return found[:limit], True
            if len(inside) < len(some):
                break
            after = some[-1]
        return found, False

    def _has_messages(self, name: str) -> bool:
        number = self.numbers.get(name.encode())
        return number is not None and bool(self.messages[number])

    def _behind(self, after: str, begin: str, count: int) -> list[str]:
        with self._sorting:
            return list(islice(self._in_order().behind(after, begin), count))

    def _in_order(self) -> SortedNames:
        order = self._sorted
        if order is None:
            order = SortedNames()
            self._changes.clear()
            self._sorted = order  # from here on, changes are noted
            for known in list(self.numbers):
                order.add(known.decode())
        while True:
            try:
                has_come, name = self._changes.popleft()
            except IndexError:
                return order
            if has_come:
                order.add(name)
            elif name.encode() not in self.numbers:  # else it has come again
                order.remove(name)

    def matching(self, filter: str | None, may_read: Callable[[str], bool] | None) -> Indices | None:
        """The numbers of topics, in order; None if that is all of them."""
        if filter is None:
            if may_read is None:
                return None
            found = numpy.array(sorted(self.numbers.values()), numpy.int32)
        elif has_wildcard(filter):
            found = self._matching_wildcard(filter)
        else:
            number = self.numbers.get(filter.encode())
            found = numpy.array([] if number is None else [number], numpy.int32)
        if may_read is None:
            return found
        names = self.names
        allowed = judged(may_read, [names[number] for number in found.tolist()])
        return found[numpy.array(allowed, numpy.bool_)]

    def _matching_wildcard(self, filter: str) -> Indices:
        names = self.names
        with self._lock:
            looked_at, found = self._matching.pop(filter, (0, _NONE))
            self._remembered -= len(found)
            if looked_at < len(names):
                meets = re.compile(pattern(filter), re.DOTALL).fullmatch
                end = len(names)
                more = [number for number in range(looked_at, end) if meets(names[number])]
                found = numpy.append(found, numpy.array(more, numpy.int32))
                looked_at = end
            self._matching[filter] = looked_at, found
            self._remembered += len(found)
            while len(self._matching) > FILTERS or (self._remembered > REMEMBERED and len(self._matching) > 1):
                self._remembered -= len(self._matching.popitem(last=False)[1][1])
        return found


def pattern(filter: str) -> str:
    """A regular expression for a filter with wildcards, with the meaning that routing.topics.matches has."""
    levels = filter.split("/")
    parts = ["[^/]*" if level == "+" else re.escape(level) for level in levels if level != "#"]
    whole = "/".join(parts)
    if levels[-1] == "#":
        whole = f"{whole}(?:/.*)?" if parts else ".*"
    return f"(?!\\$){whole}" if filter[0] in "+#" else whole
