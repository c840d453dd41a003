"""Proxies in one loop, each a node of a cluster in front of a home broker, and clients that wait for packets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Connack, Connect, Disconnect, Packet, Properties
from tests.node.links import nodes

HOST = "127.0.0.1"
PATIENCE = 20.0


class Proxy:
    def __init__(self, node: Broker) -> None:
        assert node.proxy is not None and node.proxy.leading is not None
        self.node = node
        self.leading = node.proxy.leading
        self.interest = node.proxy.interest
        self.port = node.addresses[0][1]


@contextlib.asynccontextmanager
async def proxy(
    name: str, home: int, others: list[Proxy], folder: Path | None = None, lost: str = "home", **cluster: Any
) -> AsyncIterator[Proxy]:
    settings = {
        "name": "test",
        "node": name,
        "host": HOST,
        "port": 0,
        "heartbeat": 0.1,
        "session_wait": 0.5,
        "patience": 5.0,
        "catch_up_wait": 0.0,
        "join": [each.node.cluster.address for each in others if each.node.cluster],
        **cluster,
    }
    config = Config(
        sys_interval=0,
        cluster=settings,
        data_dir="" if folder is None else str(folder / name),
        proxy={"broker": f"{HOST}:{home}", "listen": [f"{HOST}:0"], "sessions": lost},
    )
    async with Broker(config) as node:
        made = Proxy(node)
        yield made
        assert made.leading.entering.relay.counters.failures == node.server.stats.failures == 0


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.002)


async def are_linked(*proxies: Proxy) -> None:
    names = {each.leading.homes.node for each in proxies}
    await until(lambda: all(each.leading.homes.told_all == names - {each.leading.homes.node} for each in proxies))


clients: list[Client] = []


def run(body: Coroutine[Any, Any, None]) -> None:
    """And have all clients go in the end."""

    async def whole() -> None:
        try:
            await body
        finally:
            for client in clients:
                await client.drop()
            clients.clear()

    nodes.run(whole())


class Client:
    """Of MQTT, with what came."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.connack = Connack()
        self._packets = PacketReader()

    async def open(self, port: int, connect: Connect) -> Client:
        clients.append(self)
        self._reader, self._writer = await asyncio.open_connection(HOST, port)
        self.send(connect)
        found = await self.packet()
        assert isinstance(found, Connack), found
        self.connack = found
        return self

    def send(self, packet: Packet) -> None:
        self._writer.write(encode(packet, self.version))

    async def packet(self) -> Packet | None:
        """The next one; None: the connection has ended."""
        while (frame := self._packets.next_frame()) is None:
            try:
                async with asyncio.timeout(PATIENCE):
                    data = await self._reader.read(65536)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._packets.feed(data)
        return decode(frame[0], frame[1], self.version, FROM_SERVER)

    async def leave(self) -> None:
        self.send(Disconnect())
        await self.drop()

    async def drop(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def connect_of(client_id: str, version: int = V5, clean: bool = False, lasts: bool = True) -> Connect:
    properties = Properties(session_expiry_interval=1000) if version == V5 and lasts else None
    return Connect(client_id, version, clean, properties=properties)


async def come(port: int, client_id: str, version: int = V5, clean: bool = False, lasts: bool = True) -> Client:
    return await Client(version).open(port, connect_of(client_id, version, clean, lasts))
