"""A home broker in this process that ends the connection at a topic with `.`, as NATS does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.encode import encode
from headwater.wire.packets import (
    V311,
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from headwater.wire.primitives import ANY_NUMBER
from tests.node.transports.serving import HOST

OWN = "headwater/proxy/"
SETTINGS: dict[str, Any] = {"protocol": "3.1.1", "retained": False}
"""So that all connections are of the own client."""


class Picky:
    """It has no window: what is sent together comes together. It keeps no session but says so."""

    def __init__(self) -> None:
        self.port = 0
        self.accepted: list[float] = []
        """When."""
        self.published: list[list[str]] = []
        """Topics, of each connection."""
        self.taken: list[str] = []
        """Acknowledged ones."""
        self.is_silent = False
        """No PUBLISH is acknowledged."""
        self.ends_at_once = False
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def come(self) -> None:
        self._server = await asyncio.start_server(self, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def go(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        filters: set[str] = set()
        self.published.append([])
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async for packet in packets(reader):
                answers = self._answers(packet, filters)
                if answers is None:
                    break
                writer.write(b"".join(encode(each, V311) for each in answers))
        writer.close()

    def _answers(self, packet: Packet, filters: set[str]) -> list[Packet] | None:
        match packet:
            case Connect():
                self.accepted.append(time.monotonic())
                return [Connack(True, 0)]
            case Subscribe():
                if self.ends_at_once:
                    return None
                filters.update(each.filter for each in packet.requests)
                return [Suback(packet.packet_id, [each.qos for each in packet.requests])]
            case Unsubscribe():
                return [Unsuback(packet.packet_id, [])]
            case Pingreq():
                return [Pingresp()]
            case Pubrel():
                return [Pubcomp(packet.packet_id)]
            case Publish() if packet.topic.startswith(OWN):
                back: list[Packet] = [Publish(packet.topic, packet.payload)] if packet.topic in filters else []
                return [*back, *_acknowledgement(packet)]
            case Publish():
                return self._take(packet)
        return []

    def _take(self, packet: Publish) -> list[Packet] | None:
        self.published[-1].append(packet.topic)
        if "." in packet.topic:
            return None
        if self.is_silent:
            return []
        self.taken.append(packet.topic)
        return _acknowledgement(packet)

    def cut(self) -> None:
        for each in self._writers:
            each.transport.abort()
        self._writers.clear()


def _acknowledgement(packet: Publish) -> list[Packet]:
    if not packet.qos:
        return []
    return [Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id)]


async def packets(reader: asyncio.StreamReader) -> AsyncIterator[Packet]:
    """Of a client of 3.1.1, until it ends the connection: IncompleteReadError."""
    while True:
        first = (await reader.readexactly(1))[0]
        body = await reader.readexactly(await _length(reader))
        yield decode(first, body, V311, FROM_CLIENT, ANY_NUMBER)


async def _length(reader: asyncio.StreamReader) -> int:
    length = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length


@contextlib.asynccontextmanager
async def picky() -> AsyncIterator[Picky]:
    made = Picky()
    await made.come()
    try:
        yield made
    finally:
        made.go()


def as_home(made: Picky) -> Any:
    """For `fabric.proxy`, with `**SETTINGS`."""
    return SimpleNamespace(port=made.port)
