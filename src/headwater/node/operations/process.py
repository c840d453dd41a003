"""How the broker's process has its memory and its threads: the ways that suit most programs make its clients wait.

*What is freed is kept.* The C library gives the end of its heap back to the system at once, and gets it anew for the
next large packet: page by page, each by a fault of about a microsecond. A packet of half a megabyte took 0.6 ms to be
put together, and 0.03 ms where its memory was still there; reads of 60 KB were 2 to 10 times as fast.

*Garbage is looked for in small portions.* Python's collector looks at the young objects when there are so many, and at
all of them when there are a quarter more than the last time: 20 ms for every million, at which a client that lets much
wait can keep it. So here the young ones are looked at 500 at a time, and all of them at most once a minute. Hardly
anything depends on that: what connections and sessions leave behind has no circles
(tests/node/operations/test_process.py).

*Other threads give way soon.* The one that writes the log, or those of a commit, may have Python's lock for a moment
when the loop wants it. By default they may keep it for 5 ms; here it is 0.1 ms. Less (30 µs, with exact timers) made
others wait less for REST and the admin API, and cost a storing node a third of its throughput: its own threads took the
lock from each other all the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from asyncio import AbstractEventLoop
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
KEPT: Final = 32 << 20
"""Bytes at the end of the heap that are kept when they are free."""
LARGE: Final = 8 << 20
"""Bytes from which on a block is got from the system, and given back, by itself."""
YOUNG: Final = 500
OLDER: Final = 1
"""Portions of young objects after which those that have survived one look are looked at again."""
NEVER: Final = 1 << 30
BETWEEN: Final = 60.0
"""Seconds between two looks at all objects."""
GROWTH: Final = 1.25
SWITCH: Final = 0.0001
"""Seconds for which a thread may keep Python's lock when another one waits for it."""


def keep_what_is_freed(arenas: int = 0) -> None:
    """From now on; without effect where the C library is not GNU's. With few `arenas`, what threads free is there for
    other threads; 0: as many as the C library likes."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        if arenas:
            library.mallopt(M_ARENA_MAX, arenas)
        library.mallopt(M_TRIM_THRESHOLD, KEPT)
        library.mallopt(M_MMAP_THRESHOLD, LARGE)


def give_way_soon() -> None:
    """From now on, in all threads."""
    sys.setswitchinterval(SWITCH)


class Collector:
    """Looks for garbage, from `start` on, as is said above."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._blocks = 0
        """Blocks of memory that were left the last time, or fewer if there have been fewer since."""

    def start(self) -> None:
        """What is here now stays: it need not be looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, OLDER, NEVER)
        self._blocks = sys.getallocatedblocks()
        self._loop.call_later(BETWEEN, self._look)

    def _look(self) -> None:
        self._loop.call_later(BETWEEN, self._look)
        if sys.getallocatedblocks() > self._blocks * GROWTH:
            gc.collect()
            self._blocks = sys.getallocatedblocks()
        else:
            self._blocks = min(self._blocks, sys.getallocatedblocks())
