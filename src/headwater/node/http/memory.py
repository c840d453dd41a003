"""How the HTTP process has its memory: kept while answers are made, given back soon after.

Making a block of messages into Arrow passes through arrays of megabytes. If each of them is got from the system by
itself, its pages are got one by one, by faults of about a microsecond: 120,000 of them for a million messages, and
half of them can be spared, an eighth of the time. So freed memory is kept for the next array (operations/process.py),
and what is left of it when there was work is given back every few seconds, also from between what is in use, which the
C library does not do by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from asyncio import AbstractEventLoop
from typing import Final

ARENAS: Final = 2
BETWEEN: Final = 5.0
"""Seconds between two looks at whether there was work."""
WORK: Final = 0.1
"""Seconds of processor time that are work."""


def give_back() -> None:
    """All that is free, other threads may run meanwhile; without effect where the C library is not GNU's."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class GivingBack:
    """Every few seconds, after work."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._worked = 0.0

    def start(self) -> None:
        self._worked = time.process_time()
        self._loop.call_later(BETWEEN, self._look)

    def _look(self) -> None:
        if time.process_time() - self._worked > WORK:
            give_back()
        self.start()
