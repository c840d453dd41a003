"""Proxies in this process, in front of real Mosquittos, and clients that connect to these directly: what the relay
would tap is said by the test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from headwater.client import Client
from headwater.client.messages import Message as Received
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.proxy.home import Home
from headwater.node.proxy.interest import Interest
from headwater.node.proxy.tap import TappedClient
from headwater.wire.packets import V5
from tests.brokers import find_mosquitto, free_port, wait_until_listening
from tests.node.links.nodes import until
from tests.node.transports.serving import HOST

FAST: dict[str, Any] = {"name": "test", "host": HOST, "port": 0, "heartbeat": 0.05, "patience": 2.0}


class Mosquitto:
    """A home broker that can be killed and started again at its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = "allow_anonymous true"
        self.process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def port(self) -> int:
        if not self._port:
            self.start()
        return self._port

    def start(self) -> None:
        self._port = self._port or free_port()
        self.folder.mkdir(exist_ok=True)
        file = self.folder / "mosquitto.conf"
        file.write_text(f"listener {self._port} 127.0.0.1\nuser root\nset_tcp_nodelay true\n{self.settings}\n")
        self.process = subprocess.Popen(
            [find_mosquitto(), "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until_listening(self.process, self._port)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """It hangs, and its connections stay."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None:
            self.go_on()
            self.process.terminate()
            self.process.wait()


def proxy_config(name: str, home: Mosquitto, *join: Broker, data_dir: str = "", **settings: Any) -> Config:
    cluster = {**FAST, "node": name, "join": [address_of(each) for each in join], **settings.pop("cluster", {})}
    proxy = {"broker": f"{HOST}:{home.port}", "listen": [f"{HOST}:0"], **settings}
    return Config(sys_interval=0, data_dir=data_dir, cluster=cluster, proxy=proxy)


def address_of(broker: Broker) -> str:
    assert broker.cluster is not None
    return broker.cluster.address


@contextlib.asynccontextmanager
async def proxy(name: str, home: Mosquitto, *join: Broker, **settings: Any) -> AsyncIterator[Broker]:
    async with Broker(proxy_config(name, home, *join, **settings)) as broker:
        yield broker
        assert broker.server.stats.failures == 0
        assert broker.server.timers.failures == 0


@contextlib.asynccontextmanager
async def own_node(name: str, *join: Broker, **cluster: Any) -> AsyncIterator[Broker]:
    settings = {**FAST, "node": name, "join": [address_of(each) for each in join], **cluster}
    async with Broker(Config(host=HOST, port=0, sys_interval=0, cluster=settings)) as broker:
        yield broker
        assert broker.server.stats.failures == 0


def home_of(broker: Broker) -> Home:
    assert broker.proxy is not None
    return broker.proxy.home


def interest_of(broker: Broker) -> Interest:
    assert broker.proxy is not None
    return broker.proxy.interest


def is_up(broker: Broker) -> bool:
    """Whether a proxy has its home broker, and has tried what that can do."""
    return home_of(broker).session.connection is not None


async def ready(*brokers: Broker) -> None:
    """All linked with each other, and every proxy with its home broker."""
    names = {each.cluster.node for each in brokers if each.cluster is not None}
    for each in brokers:
        cluster = each.cluster
        assert cluster is not None
        await until(lambda cluster=cluster: {*cluster.links.up, cluster.node} >= names)
        if each.proxy is not None:
            await until(lambda each=each: is_up(each))


_numbers = itertools.count()


class Tapped:
    """A client at a home broker, and what the relay would tell of it."""

    def __init__(self, broker: Broker, client: Client, name: str = "") -> None:
        self.broker = broker
        self.client = client
        self.as_seen = TappedClient(name or f"tapped{next(_numbers)}", V5, False, False)
        interest_of(broker).opened(self.as_seen)

    async def subscribe(self, *filters: str, qos: int = 2) -> None:
        """Returns when the SUBACK has been let through."""
        for each in filters:
            await self.client.subscribe(each, qos=qos)
        await tell(self.broker, self.as_seen, *filters, qos=qos)

    async def unsubscribe(self, *filters: str) -> None:
        for each in filters:
            await self.client.unsubscribe(each)
        with self.broker.server.turn():
            interest_of(self.broker).unsubscribed(self.as_seen, list(filters))


async def tell(broker: Broker, client: TappedClient, *filters: str, qos: int = 2) -> None:
    released = asyncio.Event()
    with broker.server.turn():
        if not interest_of(broker).subscribing(client, 1, [(each, qos) for each in filters], released.set):
            released.set()
    await asyncio.wait_for(released.wait(), 5)


async def received(client: Client, count: int, seconds: float = 10.0) -> list[tuple[str, bytes]]:
    """So many messages, in order."""
    found: list[tuple[str, bytes]] = []
    async with asyncio.timeout(seconds):
        while len(found) < count:
            message: Received = await anext(aiter(client.messages))
            found.append((message.topic, message.payload))
    return found
