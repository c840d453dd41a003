"""Long work for the admin API, in slices behind the broker's clients (node/plane/background.py), and pages from far
behind."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeVar

from headwater.node.broker import Broker
from headwater.node.plane.background import SLICE, BackgroundTask
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.loop import EpollPlane

TOGETHER: Final = 2
"""Lists that are made at a time."""
NEAR: Final = 1000
"""Things that are passed over one by one to begin behind them."""
LASTS: Final = 2.0
"""Seconds for which a list of all things is used again."""

Found = TypeVar("Found")
Thing = TypeVar("Thing")
Steps = Generator[None, None, Found]
"""Some ten microseconds in each step; what it returns is found. Anything may have changed between two steps."""


class Slices:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._together = asyncio.Semaphore(TOGETHER)

    async def made(self, steps: Steps[Found]) -> Found:
        async with self._together:
            answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
            work = _Work(steps, answer)
            plane = self._broker.server.plane
            if isinstance(plane, EpollPlane | GuestPlane):
                self._broker.server.background.add(work)
                plane.wake()
            else:
                work.slice()
            return await answer


class _Work(BackgroundTask):
    def __init__(self, steps: Steps[Any], answer: asyncio.Future[Any]) -> None:
        self._steps = steps
        self._answer = answer

    def piece(self) -> bool:
        if self._answer.done():  # nobody waits for it
            return False
        try:
            next(self._steps)
        except StopIteration as end:
            self._answer.set_result(end.value)
            return False
        except Exception as error:
            self._answer.set_exception(error)
            return False
        return True

    def slice(self) -> None:
        """Where no plane has turns: between those of asyncio's loop."""
        until = time.monotonic() + SLICE
        while self.piece():
            if time.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self.slice)
                return


class Far(Generic[Thing]):
    """Some things of many, from a place on. Who asks for a place far behind would have all before it passed over each
    time: a list of all is made instead, and used for a moment. Belongs to the broker's loop."""

    def __init__(self, some: Callable[[Broker, int, int], list[Thing]]) -> None:
        """`some(broker, start, count)` passes over those before `start`."""
        self._some = some
        self._all: list[Thing] | None = None

    def some(self, broker: Broker, start: int, count: int) -> list[Thing]:
        if start <= NEAR:
            return self._some(broker, start, count)
        if self._all is None:
            self._all = self._some(broker, 0, sys.maxsize)
            asyncio.get_running_loop().call_later(LASTS, self._forget)
        return self._all[start : start + count]

    def _forget(self) -> None:
        self._all = None
