"""How the HTTP process has its memory: kept while answers are made, given back soon after.

Making a block of messages into Arrow passes through arrays of megabytes. If each of them is got from the system by
itself, its pages are got one by one, by faults of about a microsecond: 120,000 of them for a million messages, and
half of them can be spared, an eighth of the time. So freed memory is kept for the next array, and what is left of it
when there was work is given back every few seconds, also from between what is in use, which the C library does not do
by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from asyncio import AbstractEventLoop
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
FEW: Final = 2
"""Arenas: what threads free is there for other threads."""
KEPT: Final = 32 << 20
"""Bytes at the end of the heap that are kept when they are free."""
LARGE: Final = 8 << 20
"""Bytes from which on a block is got from the system, and given back, by itself."""
BETWEEN: Final = 5.0
"""Seconds between two looks at whether there was work."""
WORK: Final = 0.1
"""Seconds of processor time that are work."""


def keep_for_answers() -> None:
    """From now on; without effect where the C library is not GNU's."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_ARENA_MAX, FEW)
        library.mallopt(M_TRIM_THRESHOLD, KEPT)
        library.mallopt(M_MMAP_THRESHOLD, LARGE)


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
