"""Long work in small pieces, so that nobody waits for it.

Theory. What a client asks for with one packet takes microseconds, or very long: ten thousand topic filters, a million
retained messages, the end of a session in which much waits; so may all the packets of one read. Who asks for little
should not wait for who asks for much, although both came in the same turn of the loop. So everything begins at once,
and what is not done when the time for it is over goes on as a background task: a turn has one slice of time for all
background tasks, behind those who ask for little, and background tasks take turns with each other in pieces of some ten
microseconds. This is the feedback queue of time-sharing systems with two levels (Corbató et al., 1962).

A client whose packet has become a background task is not read from until it is done (`Channel.busy`), so it has one at
most, and what it sends meanwhile waits in its own socket.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

log = logging.getLogger("headwater.background")

SLICE: Final = 0.00002
"""Seconds of a turn for work that may wait."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BackgroundTask:
    def piece(self) -> bool:
        """Do a little of it, some ten microseconds. False: nothing is left, or it will be added again."""
        raise RuntimeError("nothing to do")

    def failed(self) -> None:
        """`piece` has raised; it is not called again."""


class BackgroundTasks:
    def __init__(self) -> None:
        self.failures = 0
        self.waiting: deque[BackgroundTask] = deque()

    def add(self, task: BackgroundTask) -> None:
        self.waiting.append(task)

    def run(self, until: float) -> None:
        """One piece after another, in turn, until this time of `time.monotonic`; one at least."""
        waiting = self.waiting
        while waiting:
            task = waiting.popleft()
            try:
                if task.piece():
                    waiting.append(task)
            except Exception:  # one client's work must never be the broker's end
                self.failures += 1
                log.exception("background task %r failed", task)
                task.failed()
            if time.monotonic() >= until:
                break

    def finish(self) -> None:
        """All that can be done, at once."""
        while self.waiting:
            self.run(0.0)
