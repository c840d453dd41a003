"""Threads that serve HTTP come behind the one whose time matters, where the process has a real-time priority.

Such threads would otherwise share the processors with the broker's loop in slices of 100 ms. Under the ordinary policy
nothing is done: a thread that is niced and holds Python's lock would have the loop wait for whatever else the machine
does.
"""

from __future__ import annotations

import contextlib
import os

_REAL_TIME = tuple(getattr(os, name) for name in ("SCHED_RR", "SCHED_FIFO") if hasattr(os, name))


def come_first() -> None:
    """From now on this thread is before those that give way."""
    _change(1)


def give_way() -> None:
    """This thread, which was started by one that comes first, is behind it."""
    _change(-1)


def _change(steps: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not allowed, or not Linux
        policy = os.sched_getscheduler(0)
        if policy & ~os.SCHED_RESET_ON_FORK in _REAL_TIME:
            priority = os.sched_getparam(0).sched_priority + steps
            os.sched_setscheduler(0, policy, os.sched_param(max(1, priority)))
