"""asyncio as the guest of the data plane.

asyncio's loop waits in `selector.select`. This selector serves the data plane's sockets there, turn after turn, and
comes back to asyncio only with asyncio's own events, its timers, or when something was scheduled meanwhile. So the
frequent work never passes through asyncio, and all else is ordinary asyncio. (docs/adr/0002-event-loop.md has figures.)
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from headwater.node.plane.loop import EpollPlane

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class HotSelector(selectors.EpollSelector):
    """An EpollSelector that hosts a data plane."""

    plane: EpollPlane | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.plane is None:
            return super().select(timeout)
        ready = []
        keys = self.get_map()
        for fd, mask in self.plane.run(-1.0 if timeout is None else max(timeout, 0.0)):
            key = keys.get(fd)
            if key is not None:
                events = selectors.EVENT_WRITE if mask & ~1 else 0
                events |= selectors.EVENT_READ if mask & ~4 else 0
                if events & key.events:
                    ready.append((key, events & key.events))
        return ready

    @property
    def epoll(self) -> Any:
        return self._selector  # type: ignore[attr-defined]


class HotEventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop over a HotSelector; what is scheduled during a turn of the data plane ends that wait."""

    def __init__(self) -> None:
        self.hot_selector = HotSelector()
        super().__init__(self.hot_selector)

    def _interrupt(self) -> None:
        if self.hot_selector.plane is not None:
            self.hot_selector.plane.interrupted = True

    def call_soon(
        self, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        self._interrupt()
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._interrupt()
        return super().call_at(when, callback, *args, context=context)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """asyncio.run on the fast loop where there is epoll, on asyncio's own elsewhere."""
    factory = HotEventLoop if sys.platform == "linux" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
