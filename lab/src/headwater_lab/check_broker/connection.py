"""Packets over one TCP connection, both ways: nothing is retried, nothing is hidden."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from typing import Final, NamedTuple

from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import Packet

READ_SIZE: Final = 1 << 16
ABORT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: close with RST."""


class Target(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(text: str) -> Target:
    """`host:port`, or a host (1883). Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "1883"
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is no host:port")
    return Target(host, int(port))


class Connection:
    """`closed` is set when it is over, and `by_us` says who ended it."""

    def __init__(self, number: int, target: Target, version: int) -> None:
        self.number = number
        self.target = target
        self.version = version
        self.closed = asyncio.Event()
        self.by_us = False
        self.noted = False
        """Its end is in the history."""
        self._frames = PacketReader()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Raises OSError."""
        self._streams = await asyncio.open_connection(*self.target)
        opened: socket.socket = self._streams[1].get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, packet: Packet) -> None:
        """What a connection that is over is given is gone: nobody will know."""
        if not self.closed.is_set() and self._streams is not None:
            self._streams[1].write(encode(packet, self.version))

    async def receive(self) -> Packet | None:
        """The next packet; None: the other side has closed. Raises RemoteProtocolError."""
        assert self._streams is not None
        while not self._waiting:
            try:
                data = await self._streams[0].read(READ_SIZE)
            except OSError:
                data = b""
            if not data:
                self.close(by_us=False)
                return None
            self._frames.feed(data)
            self._waiting.extend(self._frames)
        return decode(*self._waiting.popleft(), self.version, FROM_SERVER)

    def close(self, *, by_us: bool, abort: bool = False) -> None:
        """`abort`: with RST, and what was not sent is dropped."""
        if self.closed.is_set():
            return
        self.by_us = by_us
        self.closed.set()
        if self._streams is None:
            return
        writer = self._streams[1]
        if abort:
            with contextlib.suppress(OSError):
                opened: socket.socket = writer.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            writer.transport.abort()
        else:
            writer.close()
