"""WebSocket under a link: a protocol to the network's transport, and a transport to the link.

    network's transport <-> Below (HTTP request, frames) <-> link, which sees an Above for its transport

The HTTP request is wsproto's; it is loaded when the first WebSocket is opened.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, cast

from headwater.wire.websocket import (
    BINARY,
    BROKEN,
    CLOSE,
    NORMAL,
    PONG,
    FrameError,
    FrameReader,
    close_payload,
    masked_frame,
)

SUB_PROTOCOL: Final = "mqtt"
LARGEST_HEAD: Final = 16384
"""Bytes of an HTTP response."""
END_OF_HEAD: Final = b"\r\n\r\n"


class RefusedError(ConnectionError):
    """The server does not speak WebSocket here, or not with us."""


class Below(asyncio.Protocol):
    """`opened` is done when the server has accepted the request; RefusedError, or what ended the connection."""

    def __init__(self, host: str, target: str, link: asyncio.Protocol) -> None:
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import Request

        self._link = link
        self._handshake = WSConnection(ConnectionType.CLIENT)
        request = Request(host=host, target=target, subprotocols=[SUB_PROTOCOL])  # [MQTT-6.0.0-3]
        self._request = self._handshake.send(request)
        self._head = b""
        self._reader = FrameReader(masked=False)
        self._is_open = False
        self._said_close = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            rest = self._response(data)
            if rest is None:
                return
            data = rest
        try:
            payload = self._reader.feed(data)
        except FrameError as error:
            self.say_close(error.code)
            self.transport.close()
            return
        if self._reader.ping is not None:
            self.write(PONG, self._reader.ping)
            self._reader.ping = None
        if payload:
            self._link.data_received(payload)
        if self._reader.closed is not None:
            self.say_close(NORMAL)
            self.transport.close()

    def _response(self, data: bytes) -> bytes | None:
        """Collect the HTTP response; returns what came behind it, None as long as it is not here or not good."""
        self._head += data
        end = self._head.find(END_OF_HEAD)
        if end < 0 and len(self._head) <= LARGEST_HEAD:
            return None
        end += len(END_OF_HEAD)
        problem = "its response is too long" if end < len(END_OF_HEAD) else self._problem(self._head[:end])
        rest = self._head[end:]
        self._head = b""
        if problem:
            self._fail(RefusedError(problem))
            return None
        self._is_open = True
        self._link.connection_made(Above(self))
        if not self.opened.done():
            self.opened.set_result(None)
        return rest

    def _problem(self, head: bytes) -> str:
        """What is wrong with a response; empty: nothing."""
        from wsproto.events import AcceptConnection, RejectConnection
        from wsproto.utilities import RemoteProtocolError

        try:
            self._handshake.receive_data(head)
            answer = next(self._handshake.events(), None)
        except RemoteProtocolError as error:
            return f"no WebSocket: {error}"
        if isinstance(answer, RejectConnection):
            return f"no WebSocket: HTTP status {answer.status_code}"
        if not isinstance(answer, AcceptConnection):
            return "no WebSocket"
        return "" if answer.subprotocol == SUB_PROTOCOL else "no MQTT over WebSocket"  # [MQTT-6.0.0-4]

    def _fail(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_open:
            self._link.connection_lost(error)
        elif not self.opened.done():
            self.opened.set_exception(error or ConnectionResetError("the server closed the connection"))

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def write(self, opcode: int, payload: bytes) -> None:
        self.transport.write(masked_frame(opcode, payload, os.urandom(4)))

    def say_close(self, code: int = BROKEN) -> None:
        if not self._said_close:
            self._said_close = True
            self.write(CLOSE, close_payload(code))


class Above(asyncio.Transport):
    """What a link needs of a transport; each write is one frame."""

    def __init__(self, below: Below) -> None:
        super().__init__()
        self._below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._below.write(BINARY, bytes(data))

    def pause_reading(self) -> None:
        self._below.transport.pause_reading()

    def resume_reading(self) -> None:
        self._below.transport.resume_reading()

    def is_closing(self) -> bool:
        return self._below.transport.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._below.say_close(NORMAL)
            self._below.transport.close()

    def abort(self) -> None:
        self._below.transport.abort()
