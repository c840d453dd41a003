"""A store, lanes and a line to a target, without sockets, disks or clocks: what is forwarded when."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from headwater.edge.forwarding.lanes import NOT_OURS, Bounds, Item, Lanes
from headwater.edge.forwarding.pace import Pace
from headwater.edge.forwarding.progress import Progress, read
from headwater.edge.forwarding.ranges import Ranges
from headwater.store.entry import Entry

CLASSES = {"urgent": 0, "usual": 1, "slow": 2}
PART = 7


def class_of(topic: str) -> int:
    return CLASSES.get(topic, NOT_OURS)


def entry(position: int, topic: str, arrival: int, size: int = 100) -> Entry:
    return Entry(position, topic, bytes(size), 1, False, "d", arrival, arrival, None)


class Forwarding:
    """`delivered` counts what the target has got, by position."""

    def __init__(self, bounds: Bounds, pace: Pace | None = None, part: int = PART, classes: int = len(CLASSES)) -> None:
        self.bounds = bounds
        self.store: list[Entry] = []
        self.first = 1
        self.part = part
        self.progress = Progress("s", 1, [Ranges() for _ in range(classes)])
        self.delivered: Counter[int] = Counter()
        self.sent: list[Item] = []
        self.under_way: list[Item] = []
        self.lost: set[int] = set()
        self._make_pace: Callable[[], Pace] = lambda: pace or Pace(None, None, 10.0, 1 << 40)
        self.lanes = self._made()

    def _made(self) -> Lanes:
        least = len(self.progress.owed) - 1
        return Lanes(self.progress, lambda topic: min(least, class_of(topic)), self.bounds, self._make_pace())

    @property
    def next(self) -> int:
        return len(self.store) + 1

    def publish(self, topic: str, clock: int, size: int = 100) -> None:
        self.store.append(entry(self.next, topic, clock, size))

    def read_live(self) -> None:
        lanes = self.lanes
        if lanes.has_live_room() and lanes.progress.live < self.next and not self.lose():
            stop = min(self.next, lanes.progress.live + self.part)
            lanes.take_live(self.store[lanes.progress.live - 1 : stop - 1], stop)

    def read_backlog(self) -> None:
        lanes = self.lanes
        wanted = None if self.lose() else lanes.wanted()
        if wanted is None:
            return
        lanes.put_back(wanted.urgency)
        if lanes.has_backlog_room():
            stop = min(wanted.stop, wanted.start + self.part)
            lanes.take_backlog(wanted._replace(stop=stop), self.store[wanted.start - 1 : stop - 1])

    def lose(self) -> bool:
        gone = [position for start, stop in self.lanes.lost(self.first) for position in range(start, stop)]
        self.lost.update(gone)
        return bool(gone)

    def send(self, now: float, clock: int, window: int = 1000) -> Item | None:
        item = self.lanes.next(now, clock, window)
        if item is not None:
            self.sent.append(item)
            self.under_way.append(item)
        return item

    def answer(self, at: int, now: float) -> None:
        item = self.under_way.pop(at)
        self.delivered[item.span.position] += 1
        self.lanes.settled(item, now)

    def refuse(self, at: int, until: float) -> None:
        self.lanes.park(self.under_way.pop(at), until)

    def crash(self, arrived: int) -> None:
        """The target has got some of what was under way, and nobody was told."""
        for item in self.under_way[:arrived]:
            self.delivered[item.span.position] += 1
        self.under_way = []
        self.progress = read(self.progress.written())
        self.lanes = self._made()

    def finish(self, now: float, clock: int) -> None:
        """Until nothing is owed."""
        rounds = 0
        while self.under_way:
            self.answer(0, now)
        while self.progress.position < self.next - 1:
            self.read_live()
            self.read_backlog()
            while self.send(now, clock) is not None:
                self.answer(0, now)
            now += 60.0
            rounds += 1
            assert rounds < 20 * len(self.store) + 100, "it does not come to an end"


class Line:
    """A line of so many bytes a second, `way` seconds long each way, with a queue in front of it that has no end."""

    def __init__(self, rate: float, way: float) -> None:
        self.rate = rate
        self.way = way
        self._free_at = 0.0
        self.answers: list[tuple[float, int, Item, float]] = []
        """When they are here, and when the message was there."""

    def send(self, item: Item, now: float) -> None:
        self._free_at = max(now, self._free_at) + item.size / self.rate
        there = self._free_at + self.way
        heapq.heappush(self.answers, (there + self.way, item.span.position, item, there))
