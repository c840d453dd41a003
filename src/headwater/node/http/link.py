"""One end of the connection between node and HTTP process, on an event loop.

{"id": 7, "do": "kick", …}       a question; answered once, in any order
{"id": 7, "raw": true} + body    its answer: bytes; without "raw", the body is JSON
{"id": 7, "failed": […]}         its answer: what was raised (failures.py)
{"tell": "stop", …}              something to know, without an answer
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pydantic_core import from_json, to_json

from headwater.node.http.failures import failure_of, told
from headwater.node.http.frames import BadFrame, Frames, Head, encoded

log = logging.getLogger("headwater.http")

READ: Final = 32 << 10
"""Bytes read at once: others have their turn in between."""
MOST_QUESTIONS: Final = 1024
"""That are under way at a time."""

Asked = Callable[..., Any]


class LinkLost(Exception):
    """The other process has gone."""


class Link(asyncio.Protocol):
    """`questions` are the functions, plain or coroutines, that the other end may ask by name; `known` is told what is
    told; `lost` is called once, with the reason, when it ends. A body has at most `largest` bytes."""

    def __init__(
        self,
        questions: dict[str, Asked],
        known: Callable[[str, Head], None],
        lost: Callable[[str], None],
        largest: int,
    ) -> None:
        self.frames = Frames(largest)
        self._questions = questions
        self._known = known
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._why = "its connection ended"

    # ---- asking ------------------------------------------------------------------------------------------------

    async def ask(self, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
        """Raises what was raised there, and LinkLost."""
        if self._transport is None:
            raise LinkLost
        self._number = number = self._number + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send({"id": number, "do": name, "with": arguments}, body)
            return await answer
        finally:
            self._waiting.pop(number, None)

    def tell(self, name: str, /, **arguments: Any) -> None:
        if self._transport is not None:
            self._send({"tell": name, "with": arguments})

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _send(self, head: Head, body: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.writelines(encoded(head, body))

    # ---- what asyncio calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if hasattr(transport, "max_size"):
            transport.max_size = READ

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LinkLost())
        for task in self._tasks:
            task.cancel()
        self._lost(self._why)

    def pause_writing(self) -> None:
        """The other end does not read: it gets no more answers by not asking."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            for head, body in self.frames.feed(data):
                self._take(head, body)
        except BadFrame as error:
            self._why = f"it sent {error}"
            if self._transport is not None:
                self._transport.abort()

    # ---- answering ---------------------------------------------------------------------------------------------

    def _take(self, head: Head, body: bytes) -> None:
        arguments = head.get("with", {})
        if not isinstance(arguments, dict):
            raise BadFrame("arguments that are no object")
        if "tell" in head:
            self._known(str(head["tell"]), arguments)
        elif "do" in head:
            self._answer(head.get("id"), str(head["do"]), arguments, body)
        else:
            self._answered(head, body)

    def _answer(self, number: Any, name: str, arguments: Head, body: bytes) -> None:
        work = self._questions.get(name)
        if work is None or len(self._tasks) >= MOST_QUESTIONS:
            raise BadFrame(f"a question too many, or one that nobody knows: {name[:50]!r}")
        try:
            if body:
                arguments["body"] = body
            found = work(**arguments)
        except Exception as error:
            self._fail(number, name, error)
            return
        if inspect.iscoroutine(found):
            task = asyncio.get_running_loop().create_task(self._finish(number, name, found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._say(number, found)

    async def _finish(self, number: Any, name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self._say(number, await work)
        except Exception as error:
            self._fail(number, name, error)

    def _say(self, number: Any, found: Any) -> None:
        if isinstance(found, bytes):
            self._send({"id": number, "raw": True}, found)
        else:
            self._send({"id": number}, to_json(found))

    def _fail(self, number: Any, name: str, error: Exception) -> None:
        words = told(error)
        if words is None:
            log.error("%s failed", name, exc_info=error)
            words = ["failed", "it failed in the node, whose log says why"]
        self._send({"id": number, "failed": words})

    def _answered(self, head: Head, body: bytes) -> None:
        answer = self._waiting.get(head.get("id", 0))
        if answer is None or answer.done():
            return  # who asked has gone
        if "failed" in head:
            answer.set_exception(failure_of(head["failed"]))
        else:
            try:
                answer.set_result(body if head.get("raw") else from_json(body))
            except ValueError as error:
                raise BadFrame(f"an answer that is no JSON: {error}") from None
