"""How the admin API, which has a thread of its own, reaches the broker, whose state belongs to the broker's loop.

Theory. What needs no state of the broker (HTTP, the token, parsing, writing JSON) is done in the API's thread. What
does is handed to the broker's loop as a function, and runs there between two turns, so that it sees the broker whole.
What takes long there is a generator: some 30 µs of it are done in a turn, then the broker's clients have theirs. A
thing may change between two slices; a generator has to be ready for that. At most `TOGETHER` of them go on at a time.
Single values (a name, a length) may be read in any thread, so lists hardly need the loop: it says what is on a page.

Where API and broker share a loop (tests, programs of their own), there is nobody to hand to, and slices are taken with
turns of that loop between them all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, TypeVar

from headwater.node.broker import Broker

SLICE: Final = 0.00003
"""Seconds of the broker's loop at a time."""
TOGETHER: Final = 2
NEAR: Final = 1000
"""Things that are passed over one by one to begin behind them."""
LASTS: Final = 2.0
"""Seconds for which a list of all things is used again."""

Found = TypeVar("Found")
Thing = TypeVar("Thing")


class Reach:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: the broker's, if it is another one than that of those who ask."""
        self.broker = broker
        self._loop = loop
        self._lists = asyncio.Semaphore(TOGETHER)

    async def ask(self, work: Callable[[Broker], Found]) -> Found:
        """`work` runs on the broker's loop; what it raises is raised here."""
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._there(_Call(self.broker, work, answer).run)
        return await answer

    async def collect(self, work: Callable[[Broker], Iterator[Found]]) -> list[Found]:
        """All that the generator yields, made in slices on the broker's loop."""
        async with self._lists:
            answer: asyncio.Future[list[Found]] = asyncio.get_running_loop().create_future()
            self._there(_Slices(self.broker, work, answer).run)
            return await answer

    async def wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        """A coroutine of the broker's loop."""
        if self._loop is None:
            return await work
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise BrokerStopped from None
        return await asyncio.wrap_future(future)

    def tell(self, work: Callable[[], None]) -> None:
        """Soon, on the broker's loop, if it still turns."""
        with contextlib.suppress(BrokerStopped):
            self._there(work)

    def _there(self, work: Callable[[], None]) -> None:
        loop = self._loop or asyncio.get_running_loop()
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise BrokerStopped from None


class BrokerStopped(Exception):
    """Its loop has ended."""


class _Call(Generic[Found]):
    """Something to do on the broker's loop, and where its answer goes."""

    def __init__(self, broker: Broker, work: Callable[[Broker], Any], answer: asyncio.Future[Found]) -> None:
        self.broker = broker
        self.work = work
        self.answer = answer

    def run(self) -> None:
        try:
            self.broker.server.hot.now = time.monotonic()
            found = self.work(self.broker)
        except Exception as error:
            self.say(None, error)
        else:
            self.say(found, None)

    def say(self, found: Any, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # who asked has ended
            self.answer.get_loop().call_soon_threadsafe(self._said, found, error)

    def _said(self, found: Any, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(found)


class _Slices(_Call[list[Found]]):
    def __init__(
        self, broker: Broker, work: Callable[[Broker], Iterator[Found]], answer: asyncio.Future[list[Found]]
    ) -> None:
        super().__init__(broker, work, answer)
        self.items: list[Found] = []
        self.left: Iterator[Found] | None = None

    def run(self) -> None:
        if self.answer.cancelled():
            return
        now = time.monotonic()
        until = now + SLICE
        try:
            self.broker.server.hot.now = now
            if self.left is None:
                self.left = self.work(self.broker)
            for item in self.left:
                if item is not None:
                    self.items.append(item)
                if time.monotonic() >= until:
                    asyncio.get_running_loop().call_soon(self.run)
                    return
        except Exception as error:
            self.say(None, error)
        else:
            self.say(self.items, None)


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
