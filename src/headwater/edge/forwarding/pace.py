"""How fast a backlog goes, so that what is new does not wait behind it.

Theory. Two things bound it. A rate, in messages or bytes a second, is what somebody has set: a bucket that may be
overdrawn by one message, so that a message larger than the bucket goes, too. And a window, in bytes under way, finds by
itself what the line takes. What is sent beyond that lies in queues, of this machine and of the line, and whatever is
sent later lies behind it. So the window is measured by what it does to answers: the shortest time in which a message
was acknowledged of late is what the way takes when nothing lies in it, and what is longer by more than `delay` is our
own doing: the window is halved, once for each round. Otherwise it grows, quickly until it was too large once, then by a
small piece a round. What is new is not bounded by it: it waits at most for what lies in front of it, which is `delay`,
or the one message that the window always lets go.
"""

from __future__ import annotations

from typing import Final

SMALLEST: Final = 2 << 10
BEGINNING: Final = 4 << 10
STEP: Final = 2 << 10
"""Bytes: the least window, the first one, and what it grows by in a round, at least."""
SHARE: Final = 1 / 16
"""Of the window, if that is more."""
MEMORY: Final = 30.0
"""Seconds for which the shortest time is remembered, at least; twice that at most."""


class Bucket:
    """`rate` a second, saved up for one second at most; None: as many as there are."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._level = rate or 0.0
        self._at: float | None = None

    def ready_at(self, now: float) -> float:
        if self._rate is None:
            return now
        if self._at is not None:
            self._level = min(self._rate, self._level + (now - self._at) * self._rate)
        self._at = now
        return now if self._level > 0 else now - self._level / self._rate + 1e-6

    def take(self, amount: float) -> None:
        if self._rate is not None:
            self._level -= amount


class Pace:
    """Times are seconds of a clock that never goes back."""

    def __init__(self, messages: float | None, size: float | None, delay: float, largest: int) -> None:
        self._messages = Bucket(messages)
        self._size = Bucket(size)
        self._delay = delay
        self._largest = max(largest, BEGINNING)
        self.window = float(BEGINNING)
        self._grows_quickly = True
        self._halved_at = float("-inf")
        self._shortest = [float("inf"), float("inf")]
        """Of this period and of the last one."""
        self._period_ends = float("-inf")

    def ready_at(self, now: float) -> float:
        """When the rate allows one more; `now` or earlier: it does."""
        return max(self._messages.ready_at(now), self._size.ready_at(now))

    def allows(self, under_way: int) -> bool:
        """Whether the window does, with so many bytes of the backlog on their way."""
        return under_way == 0 or under_way < self.window

    def sent(self, size: int) -> None:
        self._messages.take(1)
        self._size.take(size)

    def answered(self, now: float, sent_at: float, size: int) -> None:
        """A message of so many bytes was acknowledged; size 0: it was not of the backlog."""
        took = now - sent_at
        if now >= self._period_ends:
            self._period_ends = now + MEMORY
            self._shortest = [took, self._shortest[0]]
        self._shortest[0] = min(self._shortest[0], took)
        if took > min(self._shortest) + self._delay:
            if sent_at >= self._halved_at:  # what was sent before tells of the larger window
                self._grows_quickly = False
                self._halved_at = now
                self.window = max(float(SMALLEST), self.window / 2)
        elif size:
            grown = size if self._grows_quickly else size * max(SHARE, STEP / self.window)
            self.window = min(float(self._largest), self.window + grown)
