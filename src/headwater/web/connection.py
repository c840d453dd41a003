"""One HTTP connection: uvicorn's, with a time for everything that its caller has to do.

    wait for a first byte ─► head ─► body ─► answer ─► idle, which is waiting for a first byte
         first_byte          head    body    write     idle

Each phase has a deadline of its own. While an answer goes on, a caller that leaves unread what was written for it has
`write` seconds to read on. A closed connection has as long to take what is left.

A request may be refused before its body has come (a token is missing, say). If little is left of it, that is read and
forgotten. Else the connection ends: closing the socket at once would make the system throw away the answer, too, so the
answer is sent, the end is told, and what still comes is forgotten for a moment.

One request at a time: who sends the next one before it has its answer (pipelining) is answered once, and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headwater.web.admission import Bounds, Place

LINGER: Final = 2.0
"""Seconds in which what comes behind a refusal is forgotten."""
FORGOTTEN: Final = 1 << 20
"""Bytes of it."""
LITTLE: Final = 64 << 10
"""Bytes of a body that are read though nobody wants them, to keep the connection."""
READ: Final = 32 << 10
"""Bytes read at once: a system call is not interrupted, and others may need its processor."""
MOST_LINES: Final = 256
"""Lines of a head: each costs as much to parse as a short request."""


CLOSE: Final = (b"connection", b"close")
ABORT: Final = "headwater.abort"
"""In a request's scope: ends its connection at once."""


class _Transport:
    """A transport whose `close` the connection decides about."""

    def __init__(self, real: asyncio.Transport, close: Callable[[], None]) -> None:
        self._real = real
        self._close = close
        self._is_closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def untie(self) -> None:
        self._is_closing = True
        self._close = _nothing

    def is_closing(self) -> bool:
        return self._is_closing or self._real.is_closing()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._close()


class Connection(H11Protocol):
    def __init__(self, config: Config, state: ServerState, place: Place, bounds: Bounds, opened_at: float) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.place = place
        self._bounds = bounds
        self._opened_at = opened_at
        self._real: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._head_size = 0
        self._head_lines = 0
        self._is_lingering = False
        self._forgotten = 0
        self._phase = ""
        self.app = self._answered
        self.is_begun = False
        """Whether the socket is asyncio's already."""

    def abort(self) -> None:
        """At once, whatever is left."""
        if self._real is not None:
            self._real.abort()

    # ---- what asyncio calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._real = transport
        if hasattr(transport, "max_size"):
            transport.max_size = READ  # of asyncio's own transports
        super().connection_made(_Transport(transport, self._close))  # type: ignore[arg-type]
        self._enter("first byte", self._opened_at + self._bounds.first_byte - self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._deadline)
        self._stop(self._unread)
        self.place.leave()
        self._real = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._untie()

    def _untie(self) -> None:
        """Leave nothing behind that is tied to itself: garbage of that kind is looked for once a minute, and this may
        hold a long head."""
        self.app = self.config.loaded_app
        cast(_Transport, self.transport).untie()
        if self.cycle is None or self.cycle.response_complete:
            self.conn = h11.Connection(h11.SERVER)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            self._forgotten += len(data)
            if self._forgotten > FORGOTTEN:
                self.abort()
            return
        if self.conn.their_state is h11.IDLE:
            if not self._head_size:
                self._enter("head", self._bounds.head)
            self._head_size += len(data)
            self._head_lines += _lines(data)
            if self._head_lines > MOST_LINES:
                self.place.unfinished(0)
                self.send_400_response("Too many lines in the head.")
                return
        super().data_received(data)
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop(self._unread)
        self._unread = self.loop.call_later(self._bounds.write, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop(self._unread)

    # ---- phases ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Where the request is, after some of it has come."""
        if self.transport.is_closing():
            return
        theirs = self.conn.their_state
        if theirs is h11.IDLE and self._phase == "body":  # of a request that has its answer
            self._enter("idle", self._bounds.idle)
            return
        if theirs is h11.IDLE:
            self.place.unfinished(self._head_size)
            return
        self._head_size = self._head_lines = 0
        if self.cycle is not None and not self.cycle.response_complete:
            self.place.answer()
        if theirs is not h11.SEND_BODY:
            self._stop(self._deadline)
            self._phase = "answer"
        elif self._phase != "body":
            self._enter("body", self._bounds.body)

    def handle_events(self) -> None:
        super().handle_events()
        if self.flow.read_paused and self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            self.cycle.keep_alive = False  # the next request is here already

    async def _answered(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, which need not know that a connection ends with its answer."""

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and self._is_last():
                message = {**message, "headers": [*message.get("headers", []), CLOSE]}
            await send(message)

        await self.config.loaded_app({**scope, ABORT: self.abort}, receive, sending)

    def _is_last(self) -> bool:
        """Whether the connection ends with this answer: also if the body of its request may go on for long."""
        if self.place.is_spare or not self.cycle.keep_alive:
            return True
        if self.conn.their_state is not h11.SEND_BODY:
            return False
        length = dict(self.headers).get(b"content-length", b"")
        return self.conn.they_are_waiting_for_100_continue or not length or int(length) > LITTLE

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if not self.transport.is_closing():
            self.place.wait()
            if self.conn.their_state is h11.IDLE:
                self._enter("idle", self._bounds.idle)

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.abort()  # an answer is under way, and this is not its end
            return
        self.conn = h11.Connection(h11.SERVER)  # whatever state the other one is in
        super().send_400_response(msg)

    # ---- ends --------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """What was written is still sent, for a while."""
        real = self._real
        if real is None:
            return
        if self.conn.their_state is h11.SEND_BODY and real.can_write_eof() and not real.is_closing():
            self._is_lingering = True
            self.place.wait()
            self._enter("linger", LINGER)
            try:
                real.write_eof()
            except OSError:  # its caller has gone already
                real.abort()
            else:
                self.flow.resume_reading()
            return
        real.close()
        self._stop(self._deadline)
        self._stop(self._unread)
        self._unread = self.loop.call_later(self._bounds.write, real.abort)

    def _enter(self, phase: str, seconds: float) -> None:
        self._phase = phase
        self._stop(self._deadline)
        self._deadline = self.loop.call_later(max(0.0, seconds), self.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _nothing() -> None:
    pass


def _lines(data: bytes) -> int:
    """Of a head, as far as it is in this piece; what is behind it does not count."""
    for end in (b"\n\r\n", b"\n\n"):
        found = data.find(end)
        if found >= 0:
            return data.count(b"\n", 0, found)
    return data.count(b"\n")
