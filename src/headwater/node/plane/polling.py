"""How epoll is waited on: by events.c where it was compiled, otherwise as Python has it."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

events: Any
try:
    import headwater.node.plane.events as events
except ImportError:
    events = None


def poll_of(epoll: select.epoll) -> Callable[[float, int], list[tuple[int, int]]]:
    """`epoll.poll`, or what does the same in less time."""
    poll: Callable[[float, int], list[tuple[int, int]]] = epoll.poll if events is None else events.Events(epoll).poll
    return poll
