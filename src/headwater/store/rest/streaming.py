"""Answers of any length: made in steps by threads, sent as fast as the caller reads, ended when the caller goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headwater.disk.errors import StorageError
from headwater.store.rest.answers import Answer, Answers
from headwater.store.rest.gate import Caller
from headwater.store.rest.rendering import Note, Piece, Step
from headwater.store.store import PositionGone

log = logging.getLogger("headwater.rest")

THREADS: Final = 2
"""More would only wait for each other, and clients of the broker for them: Python's lock is one."""
WRITTEN: Final = 256 << 10
"""Bytes handed to the socket at once: who reads less in the time to write is too slow."""
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

    async def each(
        self, steps: Generator[Found, None, None], answer: Answer | None = None
    ) -> AsyncGenerator[Found, None]:
        """The next step is made while the last one is dealt with, if there is memory for it."""
        ahead: Future[Found | None] | None = None
        try:
            while True:
                if ahead is None:
                    if answer is not None:
                        await answer.room()
                    ahead = self._pool.submit(next, steps, None)
                found = await asyncio.wrap_future(ahead)
                ahead = None
                if found is None:
                    return
                if answer is None or answer.has_room_ahead():
                    ahead = self._pool.submit(next, steps, None)
                yield found
        finally:
            if ahead is None:
                steps.close()
            else:
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


class Stream(Streamed):
    """Of steps; `held` is closed with it."""

    def __init__(self, held: contextlib.ExitStack, content: Any, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


async def streamed(
    answers: Answers,
    threads: Threads,
    scope: Scope,
    made: Callable[[Note], Generator[Step, None, None]],
    caller: Caller,
    media_type: str,
    headers: Mapping[str, str],
) -> Streamed:
    """Begins when the first step is made: what that raises can still be an answer of its own. Raises Refused if there
    are too many."""
    with contextlib.ExitStack() as stack:
        answer = stack.enter_context(answers.stream(scope))
        iterator = threads.each(made(answer.note), answer)
        first: Step = await anext(iterator, [])
        pieces = _pieces(first, iterator, threads, caller, answer)
        return Stream(stack.pop_all(), pieces, headers, media_type)


async def _pieces(
    first: Step, others: AsyncGenerator[Step, None], threads: Threads, caller: Caller, answer: Answer
) -> AsyncGenerator[Any, None]:
    async with contextlib.aclosing(others):
        async for part in _taken(first, answer):
            yield part
        async for step in others:
            if not caller.is_current():
                raise Cut("the caller's rights have changed")
            if threads.stopping:
                raise Cut("the node stops")
            async for part in _taken(step, answer):
                yield part


async def _taken(step: Step, answer: Answer) -> AsyncGenerator[Piece, None]:
    """The parts of a step, which counts until the last of them is taken; another one may have been made meanwhile."""
    size = sum(len(piece) for piece in step)
    answer.hold(2 * size)
    try:
        for part in _parts(step):
            yield part
            answer.moved()
        answer.hold(size)
    finally:
        step.clear()  # frames of an answer that was cut off may be there for a while


def _parts(step: Step) -> Iterator[Piece]:
    """Copies, not views: one that is left behind would hold all that the step was made from."""
    for piece in step:
        if len(piece) > WRITTEN:
            view = memoryview(piece)
            for start in range(0, len(view), WRITTEN):
                yield bytes(view[start : start + WRITTEN])
        elif piece:
            yield piece


class Whole(Response):
    """An answer in one piece, which waits for its caller a part at a time; `held` is closed with it."""

    def __init__(
        self, held: contextlib.ExitStack, answer: Answer, body: bytes, headers: Mapping[str, str], media_type: str
    ) -> None:
        super().__init__(body, headers=dict(headers), media_type=media_type)
        self._held = held
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            self._answer.hold(len(self.body))
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for part in _parts([self.body]):
                await send({"type": "http.response.body", "body": part, "more_body": True})
                self._answer.moved()
            await send({"type": "http.response.body", "body": b""})
