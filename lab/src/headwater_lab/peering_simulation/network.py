"""Time, and connections between nodes: ordered like TCP, slow and cut as the seed says, nothing else random.

A connection delivers what is sent in order. While a direction is cut, what is sent waits, as TCP sends it again, until
the cut heals or an end gives the connection up. Different connections overtake each other.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random


class Clock:
    """Simulated seconds, and what happens when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (time, self._number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = until


class End:
    """One node's end of a connection. `received` and `closed` are what happens there."""

    def __init__(self, owner: str, peer: str) -> None:
        self.owner = owner
        self.peer = peer
        self.other: End | None = None
        self.is_open = True
        self.received: Callable[[bytes], None] = lambda data: None
        self.closed: Callable[[], None] = lambda: None
        self.last = 0.0
        """When what was sent last arrives."""
        self.under_way: deque[tuple[float, bytes | None]] = deque()
        """With the time from which on it may arrive; None: the end."""


class Network:
    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.cuts: set[tuple[str, str]] = set()
        self.ends: list[End] = []
        self._delays: dict[tuple[str, str], float] = {}

    def delay(self, one: str, two: str) -> float:
        base = self._delays.setdefault((one, two), self.random.choice((0.0002, 0.001, 0.005, 0.03)))
        return base * (0.5 + self.random.random())

    def is_through(self, one: str, two: str) -> bool:
        return (one, two) not in self.cuts and (two, one) not in self.cuts

    def connect(self, one: str, two: str) -> tuple[End, End]:
        here, there = End(one, two), End(two, one)
        here.other, there.other = there, here
        self.ends = [end for end in self.ends if end.is_open or (end.other is not None and end.other.is_open)]
        self.ends += (here, there)
        return here, there

    def send(self, end: End, data: bytes) -> None:
        if end.is_open:
            self._carry(end, data)

    def close(self, end: End, says_so: bool = True) -> None:
        """The other end hears of it behind what was sent, if it gets through; without a word, it never does."""
        if end.is_open:
            end.is_open = False
            if says_so:
                self._carry(end, None)

    def cut(self, one: str, two: str) -> None:
        self.cuts.add((one, two))

    def heal(self) -> None:
        self.cuts.clear()
        for end in self.ends:
            self.clock.after(self.delay(end.owner, end.peer), partial(self._arrive, end))

    def _carry(self, end: End, data: bytes | None) -> None:
        end.last = max(end.last, self.clock.now + self.delay(end.owner, end.peer))
        end.under_way.append((end.last, data))
        self.clock.at(end.last, partial(self._arrive, end))

    def _arrive(self, end: End) -> None:
        other = end.other
        while end.under_way and end.under_way[0][0] <= self.clock.now and (end.owner, end.peer) not in self.cuts:
            _, data = end.under_way.popleft()
            if other is None or not other.is_open:
                continue
            if data is None:
                other.is_open = False
                other.closed()
            else:
                other.received(data)
