"""`subscribe`: a node tells its filters as they are.

    state    size:2 filter …
    change   sign:1 size:2 filter …          sign: `+` or `-`

A filter counts once, however many clients and shared groups here have it. What comes and goes between two looks (`due`)
is not told. Others keep the filters in a trie, up to `MAX_KEPT` bytes as they are in memory for each node; beyond, the
node is taken for one that wants everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.message import Subscription, text_size
from headwater.peering.frames.frame import MAX_CHANGE, MAX_STATE, MalformedFrame
from headwater.peering.methods.method import Announcement, Hearing, Told, TooMuch
from headwater.routing.feed import FILTER_ADDED, GROUP_ADDED, RouteChange
from headwater.routing.topics import (
    ANY_LEVELS,
    InvalidTopicFilter,
    check_filter,
    has_wildcard,
)
from headwater.routing.trie import Trie

SUBSCRIBE: Final = "subscribe"
MAX_KEPT: Final = 256 << 20
OVERHEAD: Final = 300
"""Bytes that a kept filter counts with beside its text: its entry in the trie (measured, as the next two)."""
NAME: Final = 300
"""The same for each name in a filter with wildcards: a node of the tree, in a dictionary of its own."""
PLUS: Final = 72
ADD: Final = 0x2B
REMOVE: Final = 0x2D
_ANYBODY: Final = Subscription("#")
_KEY: Final = 0


class SubscribeAnnouncement(Announcement):
    method = SUBSCRIBE

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._told: dict[str, None] = {}
        self._size = 0
        self._changed: dict[str, None] = {}

    def note(self, change: RouteChange, now: float) -> None:
        filter = change.filter
        count = self._counts.get(filter, 0) + (1 if change.kind in (FILTER_ADDED, GROUP_ADDED) else -1)
        if count > 0:
            self._counts[filter] = count
        else:
            self._counts.pop(filter, None)
        self._changed[filter] = None

    def due(self, now: float) -> list[Told]:
        entries = []
        for filter in self._changed:
            if (filter in self._counts) == (filter in self._told):
                continue
            data = filter.encode()
            if filter in self._told:
                del self._told[filter]
                self._size -= len(data) + 2
                entries.append(b"-" + len(data).to_bytes(2, "big") + data)
            else:
                self._told[filter] = None
                self._size += len(data) + 2
                entries.append(b"+" + len(data).to_bytes(2, "big") + data)
        self._changed.clear()
        self.is_too_large = self._size > MAX_STATE
        return [Told(False, each) for each in _packed(entries)]

    def whole(self) -> bytes:
        return _whole(self._told)


class SubscribeHearing(Hearing):
    method = SUBSCRIBE
    is_exact = True

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self.max_kept = max_kept
        self.kept = 0
        self._trie = Trie()
        self._rest = b""
        """Of a filter that was cut between two parts."""
        self._has_more = False

    def take(self, told: Told) -> list[str] | None:
        if told.is_whole:
            self._take_part(told)
            return None
        changed = []
        for sign, filter in list(_entries(told.data, signed=True)):  # all are right before one is taken
            if sign == ADD:
                self._add(filter)
            elif self._trie.remove(filter, _KEY) is not None:
                self.kept -= _cost(filter)
            changed.append(filter)
        return changed

    def _take_part(self, told: Told) -> None:
        if not self._has_more:
            self._trie = Trie()
            self.kept = 0
            self._rest = b""
        self._has_more = told.has_more
        data = self._rest + told.data
        end = _last_end(data) if told.has_more else len(data)
        self._rest = data[end:]
        for _, filter in _entries(data[:end], signed=False):
            if not self._add(filter):
                raise MalformedFrame("a filter that is told twice")

    def whole(self) -> bytes:
        return _whole(dict.fromkeys(self._trie.filters()))

    def wants(self, topic: str) -> bool:
        return bool(self._trie.match(topic))

    def filters(self) -> list[str] | None:
        return list(self._trie.filters())

    def _add(self, filter: str) -> bool:
        """False: it is there already."""
        if self._trie.add(filter, _KEY, _ANYBODY) is not None:
            return False
        self.kept += _cost(filter)
        if self.kept > self.max_kept:
            self._trie = Trie()
            raise TooMuch
        return True


def _cost(filter: str) -> int:
    cost = text_size(filter) + OVERHEAD
    if has_wildcard(filter):
        plus = filter.count("+")
        cost += PLUS * plus + NAME * (filter.count("/") + 1 - plus)
    return cost


def _whole(filters: dict[str, None]) -> bytes:
    made = bytearray()
    for filter in filters:
        data = filter.encode()
        made += len(data).to_bytes(2, "big") + data
    return bytes(made)


def _packed(entries: list[bytes]) -> list[bytes]:
    """As few changes as their bound allows."""
    found: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for entry in entries:
        if size + len(entry) > MAX_CHANGE:
            found.append(b"".join(waiting))
            waiting, size = [], 0
        waiting.append(entry)
        size += len(entry)
    if waiting:
        found.append(b"".join(waiting))
    return found


def _last_end(data: bytes) -> int:
    """Where the last filter of a state ends that is all there."""
    at = 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data):
            break
        at = end
    return at


def _entries(data: bytes, signed: bool) -> Iterator[tuple[int, str]]:
    """Sign and filter of each. Raises MalformedFrame."""
    at, end, sign = 0, len(data), ADD
    head = 3 if signed else 2
    while at < end:
        if at + head > end:
            raise MalformedFrame("a filter is cut off")
        if signed:
            sign = data[at]
        at += head
        stop = at + int.from_bytes(data[at - 2 : at], "big")
        if stop > end or sign not in (ADD, REMOVE):
            raise MalformedFrame("malformed change of filters")
        try:
            filter = data[at:stop].decode("utf-8")
            check_filter(filter, ANY_LEVELS)
        except (UnicodeDecodeError, InvalidTopicFilter):
            raise MalformedFrame("malformed filter") from None
        yield sign, filter
        at = stop
