"""Deadlines in one heap; the owner of the clock says what time it is.

Timers that are pushed back again and again (keep alive) are not moved: their callback looks whether it is really time
and asks for the next look.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable

from headwater.message import NEVER

log = logging.getLogger("headwater.timers")


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Timers:
    """`soonest` is no later than the next deadline, `NEVER` when there is none."""

    def __init__(self) -> None:
        self.failures = 0
        self._heap: list[Timer] = []
        self._cancelled = 0
        self.failures = 0
        self.soonest = NEVER

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(when, callback)
        heapq.heappush(self._heap, timer)
        if when < self.soonest:
            self.soonest = when
        return timer

    def cancel(self, timer: Timer) -> None:
        """A cancelled timer stays in the heap until it is due or half of the heap is such."""
        if timer.callback is None:
            return
        timer.callback = None
        self._cancelled += 1
        if self._cancelled * 2 > len(self._heap) + 64:
            self._heap = [kept for kept in self._heap if kept.callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def clear(self) -> None:
        """Forget all timers; none is called any more."""
        self._heap = []
        self._cancelled = 0
        self.soonest = NEVER

    def run(self, now: float, until: float = NEVER) -> None:
        """Call what is due, one at least, and others until this time of `time.monotonic`; the rest stays due. One that
        raises does not keep the others from being called."""
        while self._heap and self._heap[0].when <= now:
            timer = heapq.heappop(self._heap)
            callback = timer.callback
            if callback is None:
                self._cancelled -= 1
            else:
                timer.callback = None
                try:
                    callback()
                except Exception:
                    self.failures += 1
                    log.exception("a timer's callback failed")
                if until != NEVER and time.monotonic() > until:
                    break
        self.soonest = self._heap[0].when if self._heap else NEVER

    def __len__(self) -> int:
        return len(self._heap)
