"""WebSocket between a channel and its socket, or TLS: what a turn sends is one binary frame.

Theory. A frame's length stands in its head. If the socket takes a frame in part, the rest of it is the first of what
the channel sends next; `_left` counts how much is missing. Heads and control frames go in front of payload and are not
the channel's: they wait in `_front`, which may not be changed once it was tried to send, because TLS has encrypted it.
A Pong that has to wait for the end of a frame is in `_pong`; a newer one replaces it (RFC 6455, 5.5.3), so a client
that sends Pings and does not read makes nothing grow.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from headwater.node.plane.channel import Channel, Transport
from headwater.wire.websocket import (
    BINARY,
    CLOSE,
    NORMAL,
    PONG,
    FrameError,
    FrameReader,
    close_payload,
    frame_head,
)

log = logging.getLogger("headwater.transports")

FIRST_READ: Final = 960
LARGEST_READ: Final = 61440
LARGEST_HEAD: Final = 16384
"""Bytes of an HTTP request."""
END_OF_HEAD: Final = b"\r\n\r\n"
OTHERS: Final = {0x10: "MQTT itself", 0x16: "TLS"}
"""What comes to the wrong door, by its first byte, with which no HTTP request begins."""


class WebSocket(Transport):
    """`handshake` is given a whole HTTP request and returns whether it is accepted, and the response."""

    def __init__(
        self, channel: Channel, handshake: Callable[[Channel, bytes], tuple[bool, bytes]], below: Transport | None
    ) -> None:
        self._channel = channel
        self._below = below
        self._recv_below = channel.recv
        self._send_below = channel.send_bytes
        self._handshake = handshake
        self._reader = FrameReader(masked=True)
        self._read_size = FIRST_READ
        """The channel's own would not grow: payload is always less than was read."""
        self._request = b""
        self._open = False
        self._ended = False
        self._close_code = NORMAL
        self._front = b""
        self._left = 0
        self._pong: bytes | None = None

    # ---- in ----------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        data = self._recv_below(self._read_size)
        if not data:
            return data
        if len(data) == self._read_size < LARGEST_READ:
            self._read_size *= 2
        if not self._open:
            data = self._requested(data)
        reader = self._reader
        try:
            payload = reader.feed(data)
        except FrameError as error:
            log.info("%s broke WebSocket: %s", self._channel.address, error.text)
            self._close_code = error.code
            self.end()
            raise ConnectionAbortedError(error.text) from None
        if reader.ping is not None:
            self._answer(reader.ping)
            reader.ping = None
        if reader.closed is not None:
            if not payload:
                return b""
            self._channel.end_of_input()
        if not payload:
            raise BlockingIOError
        return payload

    def _requested(self, data: bytes) -> bytes:
        """Collect the HTTP request and answer it; returns what came behind it."""
        request = self._request + data
        if request[0] in OTHERS:
            log.info("%s speaks %s where WebSocket is spoken", self._channel.address, OTHERS[request[0]])
            raise ConnectionAbortedError("no HTTP request")
        end = request.find(END_OF_HEAD, max(0, len(self._request) - len(END_OF_HEAD)))
        if end < 0 and len(request) <= LARGEST_HEAD:
            self._request = request
            raise BlockingIOError
        self._request = b""
        if end < 0 or end > LARGEST_HEAD:
            log.info("%s sent an HTTP request that is too long", self._channel.address)
            raise ConnectionAbortedError("an HTTP request that is too long")
        end += len(END_OF_HEAD)
        accepted, response = self._handshake(self._channel, request[:end])
        if self._send_below(response) < len(response):
            raise ConnectionAbortedError("not even the response to its request was taken")
        if not accepted:
            raise ConnectionAbortedError("not a request that is served here")
        self._open = True
        return request[end:]

    def _answer(self, ping: bytes) -> None:
        self._pong = frame_head(PONG, len(ping)) + ping
        if self._front or self._left or self._ended:
            return
        self._front = self._pong
        self._pong = None
        with contextlib.suppress(BlockingIOError):
            self._front = self._front[self._send_below(self._front) :]

    # ---- out ---------------------------------------------------------------------------------------------------

    def send(self, blob: bytes) -> int:
        """Bytes of payload that have gone; the channel gives the others again."""
        front = self._front
        left = self._left
        if left == 0:
            if self._pong is not None:
                front += self._pong
                self._pong = None
            front += frame_head(BINARY, len(blob))
            left = len(blob)
            self._front = front
            self._left = left
        part = blob if len(blob) <= left else blob[:left]
        gone = self._send_below(front + part)
        if gone < len(front):
            self._front = front[gone:]
            return 0
        gone -= len(front)
        self._front = b""
        self._left = left - gone
        return gone

    def writable(self) -> None:
        if self._below is not None:
            self._below.writable()

    def end(self) -> None:
        """Say that nothing more comes: a Close frame, if the socket takes it."""
        if self._open and not self._ended and not self._front and not self._left:
            self._ended = True
            payload = close_payload(self._close_code)
            with contextlib.suppress(OSError):
                self._send_below(frame_head(CLOSE, len(payload)) + payload)
        if self._below is not None:
            self._below.end()
