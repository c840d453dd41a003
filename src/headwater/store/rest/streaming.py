"""Answers of any length: made in steps by threads, sent as fast as the caller reads, ended when the caller goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headwater.disk.errors import StorageError
from headwater.store.rest.gate import Caller
from headwater.store.rest.rendering import Piece, Step
from headwater.store.store import PositionGone

log = logging.getLogger("headwater.rest")

THREADS: Final = 4
"""More would only wait for each other: Python's lock is one."""
WRITTEN: Final = 1 << 20
"""Bytes handed to the socket at once."""
Found = TypeVar("Found")


class Cut(Exception):
    """An answer that has begun cannot go on; the caller notices that its end is missing."""


class Threads:
    """For whatever would keep the loop: reading from disk, making thousands of rows."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rest")
        self.stopping = False
        """What goes on for long is to end soon."""

    async def run(self, work: Callable[..., Found], *arguments: Any) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def each(self, steps: Generator[Found, None, None]) -> AsyncGenerator[Found, None]:
        """The next step is made while the last one is dealt with."""
        ahead = self._pool.submit(next, steps, None)
        try:
            while (found := await asyncio.wrap_future(ahead)) is not None:
                ahead = self._pool.submit(next, steps, None)
                yield found
        finally:
            ahead.cancel()
            ahead.add_done_callback(lambda _: steps.close())  # which cannot be while a thread is in it

    def stop(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class Streamed(StreamingResponse):
    """A streaming answer that may end before its end: then the connection is closed, and no last chunk is sent."""

    body_iterator: AsyncGenerator[Any, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with contextlib.aclosing(self.body_iterator):
                await super().__call__(scope, receive, send)
        except* (Cut, PositionGone, StorageError) as cut:  # alone or in a group, as Starlette's version has it
            log.info("an answer was cut off: %s", cut.exceptions[0])


async def streamed(
    threads: Threads, steps: Generator[Step, None, None], caller: Caller, media_type: str, headers: Mapping[str, str]
) -> Streamed:
    """Begins when the first step is made: what that raises can still be an answer of its own."""
    iterator = threads.each(steps)
    first: Step = await anext(iterator, [])
    return Streamed(_pieces(first, iterator, threads, caller), headers=headers, media_type=media_type)


async def _pieces(
    first: Step, others: AsyncGenerator[Step, None], threads: Threads, caller: Caller
) -> AsyncGenerator[Any, None]:
    async with contextlib.aclosing(others):
        for part in _parts(first):
            yield part
        async for step in others:
            if not caller.is_current():
                raise Cut("the caller's rights have changed")
            if threads.stopping:
                raise Cut("the node stops")
            for part in _parts(step):
                yield part


def _parts(step: Step) -> Iterator[Piece]:
    for piece in step:
        if len(piece) > WRITTEN:
            view = memoryview(piece)
            for start in range(0, len(view), WRITTEN):
                yield view[start : start + WRITTEN]
        elif piece:
            yield piece
