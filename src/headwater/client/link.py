"""Packets over one asyncio transport: decodes what arrives, encodes what leaves, knows when it was quiet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from headwater.client.trace import in_one_line
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Disconnect, Packet

LAST_WORDS: Final = 1.0
"""Seconds to tell a peer that broke the protocol why it is left."""

log: Final = logging.getLogger("headwater.client")


class Link(asyncio.Protocol):
    """`on_packet` gets each packet in order; it may raise RemoteProtocolError. `on_end` is called once, with the
    error that ended the link or None when the transport was closed."""

    def __init__(
        self,
        version: int,
        largest_packet: int | None,
        on_packet: Callable[[Packet], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._version = version
        self._on_packet = on_packet
        self._on_end = on_end
        self._reader = PacketReader() if largest_packet is None else PacketReader(largest_packet)
        self._loop = asyncio.get_running_loop()
        self._writable: asyncio.Future[None] | None = None
        self._violation: RemoteProtocolError | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._sent_at = self._received_at = self._loop.time()
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._violation is not None:
            return
        self._received_at = self._loop.time()
        try:
            self._reader.feed(data)
            for first_byte, body in self._reader:
                packet = decode(first_byte, body, self._version, FROM_SERVER)
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("received %s", in_one_line(packet))
                self._on_packet(packet)
        except RemoteProtocolError as error:
            self._violation = error
            if self._version == V5:
                self.send(Disconnect(error.reason))  # [MQTT-4.13.1-1]
            self._transport.close()
            self._loop.call_later(LAST_WORDS, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self.resume_writing()
        self._on_end(self._violation or error)

    def send(self, packet: Packet) -> None:
        self.send_bytes(encode(packet, self._version), packet)

    def send_bytes(self, data: bytes, packet: Packet) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("sending %s", in_one_line(packet))
        self._sent_at = self._loop.time()
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the peer takes less than we send."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def pause_reading(self) -> None:
        if not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_paused and not self._transport.is_closing():
            self.is_paused = False
            self._received_at = self._loop.time()
            self._transport.resume_reading()

    @property
    def quiet_since(self) -> float:
        """Since when one of the two directions has been quiet."""
        return min(self._sent_at, self._received_at)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def close(self, patience: float) -> None:
        """Send what is still to be sent, for at most `patience` seconds, and end the link."""
        self._transport.close()
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(self.closed)
        except TimeoutError:
            self.abort()
            await self.closed

    def abort(self) -> None:
        self._transport.abort()
