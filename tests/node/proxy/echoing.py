"""A home broker in this process that speaks 3.1.1, knows no No Local, grants QoS 1 and keeps the own client's session,
as RabbitMQ does; what it delivers, acknowledges and forgets is as the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from headwater.routing.topics import matches
from headwater.wire.encode import encode
from headwater.wire.packets import (
    V311,
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.node.proxy.picky import OWN, packets
from tests.node.transports.serving import HOST


class Echoing:
    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.is_present = True
        """Whether it goes on with the session; else it is another one at the next connection."""
        self.holds = False
        """What is for the own client is queued and not sent."""
        self.is_silent = False
        """What the own client publishes is taken and not acknowledged."""
        self.forgets = False
        """What the own client has acknowledged goes again."""
        self.queue: list[Publish] = []
        """Of the session: what is not acknowledged, in its order."""
        self.taken: list[Publish] = []
        """Published by the own client."""
        self.acknowledged: set[int] = set()
        """By the own client, forgotten or not."""
        self.filters: set[str] = set()
        """Of the own client."""
        self._last_id = 0
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def come(self) -> None:
        self._server = await asyncio.start_server(self, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def go(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        take = self._take_of_client
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async for packet in packets(reader):
                if isinstance(packet, Connect) and packet.client_id.startswith("headwater-proxy-"):
                    take = self._take
                take(packet, writer)
        writer.close()

    def _take_of_client(self, packet: Packet, writer: asyncio.StreamWriter) -> None:
        """It may subscribe, and gets nothing."""
        match packet:
            case Connect():
                writer.write(encode(Connack(False, 0), V311))
            case Subscribe():
                writer.write(encode(Suback(packet.packet_id, [1] * len(packet.requests)), V311))

    def _take(self, packet: Packet, writer: asyncio.StreamWriter) -> None:
        match packet:
            case Connect():
                if not self.is_present:
                    self.filters, self.queue = set(), []
                self._writer = writer
                self._send(Connack(self.connections > 0 and self.is_present, 0))
                self.connections += 1
                self.is_present = True
                for each in [] if self.holds else self.queue:
                    self._send(each)
                self._were_sent()
            case Subscribe():
                self.filters.update(each.filter for each in packet.requests)
                self._send(Suback(packet.packet_id, [min(1, each.qos) for each in packet.requests]))
            case Unsubscribe():
                self.filters.difference_update(packet.filters)
                self._send(Unsuback(packet.packet_id, []))
            case Pingreq():
                self._send(Pingresp())
            case Publish():
                self.publish(packet.topic, packet.payload, packet.qos)
                if not packet.topic.startswith(OWN):
                    self.taken.append(packet)
                if packet.qos and not self.is_silent:
                    self._send(Puback(packet.packet_id))
            case Puback():
                self.acknowledged.add(packet.packet_id)
                if not self.forgets:
                    self.queue = [each for each in self.queue if each.packet_id != packet.packet_id]
            case Pubrec() | Pubrel():
                raise AssertionError("QoS 2 was not granted")

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        """By one of its clients, too."""
        if not any(matches(each, topic) for each in self.filters):
            return
        if not qos:
            self._send(Publish(topic, payload))
            return
        self._last_id += 1
        packet = Publish(topic, payload, 1, False, False, self._last_id)
        self.queue.append(packet)
        if not self.holds and self._writer is not None:
            self._send(packet)
            self._were_sent()

    def _were_sent(self) -> None:
        """The next time, they go with DUP [MQTT-3.3.1-1]."""
        if not self.holds:
            self.queue = [replace(each, dup=True) for each in self.queue]

    def _send(self, packet: Packet) -> None:
        if self._writer is not None:
            self._writer.write(encode(packet, V311))


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Echoing]:
    made = Echoing()
    await made.come()
    try:
        yield made
    finally:
        made.go()
