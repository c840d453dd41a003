"""A tiny broker that makes mistakes on purpose: QoS 0, exact topics, shared groups, one event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

Fault = Callable[[int, bytes], list[bytes]]
"""Gets the number of a PUBLISH and its bytes; returns what each subscriber is sent instead."""


def faithful(number: int, packet: bytes) -> list[bytes]:
    return [packet]


class FakeBroker:
    """`async with FakeBroker(fault) as broker`: listens on `broker.port`.

    Members of a shared group get messages in turn. `everybody_gets_all` ignores topics and groups; `granted` is the
    reason code of every SUBACK; `piece` cuts what is sent into pieces of so many bytes, each flushed before the next.
    """

    def __init__(
        self,
        fault: Fault = faithful,
        *,
        everybody_gets_all: bool = False,
        granted: int = 0,
        piece: int = 1 << 20,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.fault = fault
        self.everybody_gets_all = everybody_gets_all
        self.granted = granted
        self.piece = piece
        self.tls = tls
        self.connections = 0
        self.published: list[bytes] = []  # topics
        self.filters: list[bytes] = []
        self._subscribers: list[tuple[bytes, asyncio.StreamWriter]] = []  # a shared filter without its group
        self._shared: set[bytes] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> FakeBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        # Python 3.11 leaks a connection whose server is closed while it is being accepted: first let all of them end.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.wait(others)
        self._server.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        version = 4
        try:
            while True:
                first, header, body = await _read_packet(reader)
                kind = first >> 4
                if kind == 1:
                    self.connections += 1
                    version = body[6]
                    writer.write(b"\x20\x03\0\0\0" if version == 5 else b"\x20\x02\0\0")
                elif kind == 8:
                    self._subscribe(body, version, writer)
                elif kind == 3:
                    await self._publish(header + body, body)
                elif kind == 14:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._subscribers = [entry for entry in self._subscribers if entry[1] is not writer]
            writer.close()

    def _subscribe(self, body: bytes, version: int, writer: asyncio.StreamWriter) -> None:
        position, count = 3 if version == 5 else 2, 0
        while position < len(body):
            length = int.from_bytes(body[position : position + 2], "big")
            topic = body[position + 2 : position + 2 + length]
            self.filters.append(topic)
            if topic.startswith(b"$share/"):
                topic = topic.split(b"/", 2)[2]
                self._shared.add(topic)
            self._subscribers.append((topic, writer))
            position += 3 + length
            count += 1
        rest = body[:2] + (b"\0" if version == 5 else b"") + bytes([self.granted]) * count
        writer.write(b"\x90" + _length(len(rest)) + rest)

    async def _publish(self, packet: bytes, body: bytes) -> None:
        topic = body[2 : 2 + int.from_bytes(body[:2], "big")]
        outgoing = b"".join(self.fault(len(self.published), packet))
        self.published.append(topic)
        wanting = [writer for wanted, writer in self._subscribers if wanted == topic or self.everybody_gets_all]
        if topic in self._shared and not self.everybody_gets_all:
            wanting = [wanting[len(self.published) % len(wanting)]]
        for subscriber in wanting:
            for start in range(0, len(outgoing), self.piece):
                subscriber.write(outgoing[start : start + self.piece])
                if self.piece < len(outgoing):
                    await asyncio.sleep(0)  # let the piece leave alone


async def _read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    header = await reader.readexactly(2)
    while header[-1] >= 128:
        header += await reader.readexactly(1)
    length = sum((digit & 127) << 7 * place for place, digit in enumerate(header[1:]))
    return header[0], header, await reader.readexactly(length)


def _length(value: int) -> bytes:
    digits = bytearray()
    while True:
        value, digit = value >> 7, value & 127
        digits.append(digit | (128 if value else 0))
        if not value:
            return bytes(digits)
