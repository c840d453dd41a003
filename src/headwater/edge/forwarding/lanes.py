"""Which message goes next: two lanes, live and backlog, in each the classes of messages by their urgency.

Theory. Positions are settled in any order, so what counts is what is *owed*: below `live`, the first position that was
not looked at, each class has the ranges in which messages of it are owed. A message that is in memory, queued or under
way, stays owed until it is settled, and is *loaded* besides; what is owed and not loaded has to be read. That is all
that has to be remembered, and `progress` keeps it.

    store ──live lane──► queue ─┐                       settled ──► not owed any more
      └──backlog lane──► queue ─┴─► under way ─► answer ┤
                                                        refused ──► parked, and sent again ─► … ─► given up

The live lane reads what is stored as it comes. When it is late, because the line was cut or does not take what comes,
it *leaves behind* all that is not under way, and goes on with the newest: what was left behind is owed, not loaded, and
so is backlog. That costs one range for each class; when there are `most_ranges` already, nothing is left behind, and
the live lane goes on in order, late. The backlog lane reads what is owed from the front, the most urgent class first.

Each message has a *span*: it and the positions around it at which nothing of its class is. Spans of neighbours touch,
so a class that is settled in order is one range, whatever lies between its messages. Within a lane and a class messages
go in the order of positions. Live goes before backlog, which has at most half of what may be under way and is bounded
by `pace`; so whatever waits, a live message waits only for what is under way already.

With `in_order` there is one lane: nothing is left behind, and late messages go at the pace of a backlog.

Nothing here does I/O or looks at a clock. Arrivals are microseconds of the wall clock, `now` seconds of another.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headwater.edge.forwarding.pace import Pace
from headwater.edge.forwarding.progress import Progress, Span
from headwater.edge.forwarding.ranges import Range, Ranges, union
from headwater.store.entry import Entry

OVERHEAD: Final = 300
"""Bytes that a message takes in memory, or on the line, beside its texts, about."""
NOT_OURS: Final = -1
"""The class of a topic that is not forwarded."""


@dataclass(frozen=True)
class Bounds:
    """`live_within`: seconds after its arrival within which a message is live. A queue is of one lane; messages that
    are parked have as many bytes as a queue."""

    most_under_way: int = 200
    most_bytes_under_way: int = 4 << 20
    most_queued: int = 2000
    most_bytes_queued: int = 4 << 20
    most_ranges: int = 1000
    most_parked: int = 1000
    live_within: float = 2.0
    in_order: bool = False


class Item:
    """A message that is loaded. `packet_id` is for whoever sends it."""

    __slots__ = ("attempts", "entry", "first_refused", "is_backlog", "packet_id", "sent_at", "size", "span")

    def __init__(self, span: Span, entry: Entry, is_backlog: bool) -> None:
        self.span = span
        self.entry = entry
        self.is_backlog = is_backlog
        self.size = len(entry.topic) + len(entry.payload) + len(entry.properties) + OVERHEAD
        self.sent_at = 0.0
        self.attempts = 0
        self.first_refused = 0.0
        self.packet_id = 0


class Wanted(NamedTuple):
    """What the backlog lane is to read next: messages of a class in a range."""

    urgency: int
    start: int
    stop: int


class Queue:
    """Messages of one lane, the most urgent class first."""

    def __init__(self, classes: int) -> None:
        self.classes: list[deque[Item]] = [deque() for _ in range(classes)]
        self.messages = 0
        self.size = 0

    def put(self, item: Item) -> None:
        self.classes[item.span.urgency].append(item)
        self.messages += 1
        self.size += item.size

    def head(self) -> Item | None:
        return next((queue[0] for queue in self.classes if queue), None)

    def take(self) -> Item:
        item = next(queue for queue in self.classes if queue).popleft()
        self.messages -= 1
        self.size -= item.size
        return item

    def clear(self, urgency: int) -> deque[Item]:
        gone, self.classes[urgency] = self.classes[urgency], deque()
        self.messages -= len(gone)
        self.size -= sum(item.size for item in gone)
        return gone


class Lanes:
    """`class_of` a topic is its urgency, 0 the highest, or NOT_OURS; `progress` is changed as things go."""

    def __init__(self, progress: Progress, class_of: Callable[[str], int], bounds: Bounds, pace: Pace) -> None:
        self.progress = progress
        self.bounds = bounds
        self.pace = pace
        self._class_of = class_of
        count = len(progress.owed)
        self.loaded = [Ranges() for _ in range(count)]
        self.live = Queue(count)
        self.backlog = Queue(count)
        self.under_way = 0
        self.bytes_under_way = 0
        self.backlog_under_way = 0
        self.backlog_bytes_under_way = 0
        self._parked: list[tuple[float, int, Item]] = []
        self._parked_size = 0

    # ---- reading: the live lane ----------------------------------------------------------------------------------

    def has_live_room(self) -> bool:
        return self._has_room(self.live)

    def take_live(self, entries: Sequence[Entry], stop: int) -> None:
        """All messages of the store from `progress.live` up to `stop`."""
        self._take(entries, self.progress.live, stop, None)
        self.progress.live = stop
        self.progress.is_changed = True

    def is_late(self, arrival: int, clock: int) -> bool:
        return arrival < clock - self.bounds.live_within * 1e6

    def oldest_live(self) -> int | None:
        """The arrival of the oldest message that waits to be sent as live."""
        return min((queue[0].entry.arrival for queue in self.live.classes if queue), default=None)

    def leave_behind(self, next: int) -> bool:
        """Make a backlog of what is not under way, up to the position `next`. False: there are too many ranges."""
        if self.bounds.in_order or self.ranges() + len(self.loaded) > self.bounds.most_ranges:
            return False
        progress = self.progress
        for urgency, owed in enumerate(progress.owed):
            self._unload(self.live.clear(urgency))
            owed.add(progress.live, next)
        progress.live = max(progress.live, next)
        progress.is_changed = True
        return True

    # ---- reading: the backlog lane -------------------------------------------------------------------------------

    def wanted(self) -> Wanted | None:
        """What is to be read next, if anything is owed that is not loaded."""
        for urgency, owed in enumerate(self.progress.owed):
            found = owed.first_outside(self.loaded[urgency])
            if found is not None:
                return Wanted(urgency, *found)
        return None

    def has_backlog_room(self) -> bool:
        return self._has_room(self.backlog)

    def take_backlog(self, wanted: Wanted, entries: Sequence[Entry]) -> None:
        """All messages of the store in that range, of whatever class; it may be the first part of what was wanted."""
        urgency, start, stop = wanted
        if not self._take(entries, start, stop, urgency):
            self.progress.owed[urgency].remove(start, stop)
            self.progress.is_changed = True

    def put_back(self, urgency: int) -> None:
        """Something more urgent is owed: what is queued of less urgent classes is read again later."""
        for other in range(urgency + 1, len(self.loaded)):
            self._unload(self.backlog.clear(other))

    def load(self, span: Span, entry: Entry, now: float) -> Item:
        """A message that an earlier process may have sent; it is under way."""
        item = Item(span, entry, True)
        item.sent_at = now
        self.loaded[span.urgency].add(span.start, span.stop)
        self.progress.owed[span.urgency].add(span.start, span.stop)
        self._goes(item)
        return item

    def lost(self, first: int) -> list[Range]:
        """Messages before `first` are not there any more: what was owed of them and not loaded, as ranges."""
        progress = self.progress
        gone = Ranges()
        for urgency, owed in enumerate(progress.owed):
            for start, stop in owed.without(self.loaded[urgency]).within(0, first):
                gone.add(start, stop)
                owed.remove(start, stop)
                progress.is_changed = True
        if progress.live < first:
            gone.add(progress.live, first)
            progress.live = first
            progress.is_changed = True
        return list(gone)

    # ---- sending -------------------------------------------------------------------------------------------------

    def next(self, now: float, clock: int, window: int) -> Item | None:
        """The next message to send, which is under way from then on; `window` is what the target takes at a time."""
        most = min(self.bounds.most_under_way, window)
        if self.under_way >= most or self.bytes_under_way >= self.bounds.most_bytes_under_way:
            return None
        item = self._parked_item(now)
        if item is None and not self.is_blocked:
            item = self._live_item(now, clock) or self._backlog_item(now, most)
        if item is not None:
            item.sent_at = now
        return item

    def next_at(self, now: float) -> float | None:
        """When something that waits for a time alone may go; None: nothing does."""
        times = [self._parked[0][0]] if self._parked else []
        if self.backlog.messages or (self.bounds.in_order and self.live.messages):
            ready = self.pace.ready_at(now)
            if ready > now:
                times.append(ready)
        return min(times, default=None)

    def settled(self, item: Item, now: float, is_answer: bool = True) -> None:
        """The message is the target's, or was given up."""
        span = item.span
        self._left(item)
        if is_answer:
            self.pace.answered(now, item.sent_at, item.size if item.is_backlog else 0)
        self.loaded[span.urgency].remove(span.start, span.stop)
        self.progress.owed[span.urgency].remove(span.start, span.stop)
        self.progress.is_changed = True

    def park(self, item: Item, until: float) -> None:
        """The target did not take it now: it is sent again then."""
        self._left(item)
        heapq.heappush(self._parked, (until, item.span.position, item))
        self._parked_size += item.size

    @property
    def parked(self) -> int:
        return len(self._parked)

    @property
    def is_blocked(self) -> bool:
        """So much was refused for now that nothing new is sent."""
        bounds = self.bounds
        return len(self._parked) >= bounds.most_parked or self._parked_size >= bounds.most_bytes_queued

    # ---- figures -------------------------------------------------------------------------------------------------

    def ranges(self) -> int:
        return sum(len(owed) for owed in self.progress.owed)

    def behind(self, next: int) -> int:
        """Positions up to `next` at which something may be owed."""
        return union(self.progress.owed).count() + max(0, next - self.progress.live)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _has_room(self, queue: Queue) -> bool:
        return queue.messages < self.bounds.most_queued and queue.size < self.bounds.most_bytes_queued

    def _take(self, entries: Sequence[Entry], start: int, stop: int, only: int | None) -> bool:
        """Queue what is ours of [start, stop), with spans that touch; whether there was anything."""
        found: dict[int, list[Entry]] = {}
        for entry in entries:
            urgency = self._class_of(entry.topic)
            if urgency != NOT_OURS and only in (None, urgency):
                found.setdefault(urgency, []).append(entry)
        queue = self.live if only is None else self.backlog
        for urgency, some in found.items():
            begin = start
            for entry in some:
                end = stop if entry is some[-1] else entry.position + 1
                queue.put(Item(Span(entry.position, begin, end, urgency), entry, only is not None))
                begin = end
            self.progress.owed[urgency].add(start, stop)
            self.loaded[urgency].add(start, stop)
        return bool(found)

    def _unload(self, items: deque[Item]) -> None:
        for item in items:
            self.loaded[item.span.urgency].remove(item.span.start, item.span.stop)

    def _parked_item(self, now: float) -> Item | None:
        if not self._parked or self._parked[0][0] > now:
            return None
        item = heapq.heappop(self._parked)[2]
        self._parked_size -= item.size
        return self._goes(item)

    def _live_item(self, now: float, clock: int) -> Item | None:
        head = self.live.head()
        if head is None:
            return None
        if self.bounds.in_order and self.is_late(head.entry.arrival, clock):
            if self.pace.ready_at(now) > now:
                return None
            self.pace.sent(head.size)
        return self._goes(self.live.take())

    def _backlog_item(self, now: float, most: int) -> Item | None:
        head = self.backlog.head()
        if head is None or self.pace.ready_at(now) > now or not self.pace.allows(self.backlog_bytes_under_way):
            return None
        if self.backlog_under_way >= max(1, most // 2):
            return None
        if 0 < self.backlog_bytes_under_way >= self.bounds.most_bytes_under_way // 2:
            return None
        self.pace.sent(head.size)
        return self._goes(self.backlog.take())

    def _goes(self, item: Item) -> Item:
        self._count(item, 1)
        return item

    def _left(self, item: Item) -> None:
        self._count(item, -1)

    def _count(self, item: Item, sign: int) -> None:
        self.under_way += sign
        self.bytes_under_way += sign * item.size
        if item.is_backlog:
            self.backlog_under_way += sign
            self.backlog_bytes_under_way += sign * item.size
