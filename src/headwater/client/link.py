"""Packets over one asyncio transport: decodes what arrives, encodes what leaves, knows when it was quiet.

This is the only file that knows what packets travel over: TCP, TLS, a Unix socket, WebSocket (websocket.py). The rest
of the client sees a Link.

What is sent within one turn of the event loop leaves in one write. While reading is paused nothing is decoded either:
what one read brought stays in bytes, so that a burst of small packets does not become many messages at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar, cast

from headwater.client.trace import in_one_line
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Disconnect, Packet
from headwater.wire.primitives import ANY_NUMBER

LAST_WORDS: Final = 1.0
"""Seconds to tell a peer that broke the protocol why it is left."""
NEXT_ADDRESS: Final = 0.25
"""Seconds before the next address of a host is tried beside the last one."""
WRITE_AT: Final = 65536
"""Bytes that are not held back until the turn ends."""

log: Final = logging.getLogger("headwater.client")

Made = TypeVar("Made", bound=asyncio.Protocol)


class Address:
    """Where the server is, and how to get there: by TCP, over WebSocket if there is a `web_path`, or by the Unix socket
    at the path `host`; with TLS if there is a context. With `open_socket`, over what that returns."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        *,
        web_path: str = "",
        is_unix: bool = False,
        open_socket: Callable[[], socket.socket] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.web_path = web_path
        self.is_unix = is_unix
        self.open_socket = open_socket
        self.is_name = True
        """And may stand for several addresses. One address needs no race between several, in which asyncio loses a
        socket now and then when it is cancelled."""
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            self.is_name = False

    def __str__(self) -> str:
        return self.host if self.is_unix or self.open_socket is not None else f"{self.host}:{self.port}{self.web_path}"


async def open_link(address: Address, make: Callable[[], Link]) -> Link:
    """Connect; raises OSError (ssl.SSLError is one)."""
    try:
        return await _open(address, make)
    except UnicodeError:  # a part of the host's name is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "that is no host name") from None


async def _open(address: Address, make: Callable[[], Link]) -> Link:
    if not address.web_path:
        return await _connect(address, make)
    from headwater.client.websocket import Below

    link = make()
    host = f"[{address.host}]" if ":" in address.host else address.host
    below = await _connect(address, lambda: Below(f"{host}:{address.port}", address.web_path, link))
    try:
        await below.opened
    except BaseException:
        below.transport.abort()
        raise
    return link


async def _connect(address: Address, make: Callable[[], Made]) -> Made:
    loop = asyncio.get_running_loop()
    if address.open_socket is not None:
        ready = address.open_socket()
        if ready.family == socket.AF_UNIX:
            return (await loop.create_unix_connection(make, sock=ready))[1]
        name = address.host if address.tls else None
        return (await loop.create_connection(make, sock=ready, ssl=address.tls, server_hostname=name))[1]
    if address.is_unix:
        return (await loop.create_unix_connection(make, address.host))[1]
    if address.is_name and isinstance(loop, asyncio.BaseEventLoop):  # uvloop tries one address after the other
        made = loop.create_connection(
            make, address.host, address.port, ssl=address.tls, happy_eyeballs_delay=NEXT_ADDRESS
        )
    else:
        made = loop.create_connection(make, address.host, address.port, ssl=address.tls)
    return (await made)[1]


class Link(asyncio.Protocol):
    """`on_packet` gets each packet in order; it may raise RemoteProtocolError. `on_end` is called once, with the
    error that ended the link or None when the transport was closed. `on_writable` is called when the peer takes data
    again after it took too little."""

    def __init__(self, version: int, largest_packet: int | None) -> None:
        self._version = version
        self._reader = PacketReader() if largest_packet is None else PacketReader(largest_packet)
        self._loop = asyncio.get_running_loop()
        self._violation: RemoteProtocolError | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0
        self.on_packet: Callable[[Packet], None] = lambda packet: None
        self.on_end: Callable[[Exception | None], None] = lambda error: None
        self.on_writable: Callable[[], None] = lambda: None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.sent_at = self.received_at = self._loop.time()
        self.is_paused = False
        self.is_writable = True
        self._is_made = False
        """Whether there is a transport; with TLS it takes a while."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_made = True

    def data_received(self, data: bytes) -> None:
        self.received_at = self._loop.time()
        self._reader.feed(data)
        self._decode()

    def _decode(self) -> None:
        if self._violation is not None:
            return
        try:
            while not self.is_paused and (frame := self._reader.next_frame()) is not None:
                packet = decode(frame[0], frame[1], self._version, FROM_SERVER, ANY_NUMBER)
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("received %s", in_one_line(packet))
                self.on_packet(packet)
        except RemoteProtocolError as error:
            self._violation = error
            if self._version == V5:
                self.send(Disconnect(error.reason))  # [MQTT-4.13.1-1]
            self.end()
            self._loop.call_later(LAST_WORDS, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._unwritten.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        self.on_end(self._violation or error)

    def send(self, packet: Packet) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("sending %s", in_one_line(packet))
        self.write(encode(packet, self._version))

    def write(self, data: bytes) -> None:
        self.sent_at = self._loop.time()
        if not self._unwritten:
            self._loop.call_soon(self._flush)
        self._unwritten.append(data)
        self._unwritten_size += len(data)
        if self._unwritten_size >= WRITE_AT:
            self._flush()

    def _flush(self) -> None:
        if self._unwritten:
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            self._unwritten_size = 0
            self._transport.write(data)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.on_writable()

    def pause_reading(self) -> None:
        """Take no more packets, whether they have arrived already or not."""
        if not self.is_paused:
            self.is_paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_paused:
            return
        self.is_paused = False
        self.received_at = self._loop.time()
        self._decode()  # which may pause again
        if not self.is_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def is_open(self) -> bool:
        return self._is_made and not self._transport.is_closing()

    def end(self) -> None:
        """End the link behind what was sent."""
        self._flush()
        self._transport.close()

    async def close(self, patience: float) -> None:
        """Send what is still to be sent, for at most `patience` seconds, and end the link."""
        if not self._is_made:
            return
        self.end()
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(self.closed)
        except TimeoutError:
            self.abort()
            await self.closed

    def abort(self) -> None:
        if self._is_made:
            self._transport.abort()
