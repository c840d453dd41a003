"""Proxies and home brokers that are killed under load of QoS 1: what was acknowledged arrives, and nothing loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headwater.client import Client, Reconnect
from headwater.wire.packets import V311
from tests.brokers import free_port, wait_until_listening
from tests.node.links.nodes import run, until
from tests.node.proxy.echoing import echoing
from tests.node.proxy.fabric import Mosquitto, address_of, own_node, received
from tests.node.proxy.picky import as_home
from tests.node.transports.serving import HOST

KEEPS = "allow_anonymous true\nmax_queued_messages 0\npersistence true\npersistence_location {}/\n"


class ProxyProcess:
    """`headwater proxy`, with everything that outlives it."""

    def __init__(self, name: str, home: Mosquitto, folder: Path, cluster_port: int, peer_port: int, *more: str) -> None:
        self.port = free_port()
        self._home = home
        self._log = folder / f"{name}.log"
        self._arguments = [
            *("--broker", f"{HOST}:{home.port}", "--listen", f"{HOST}:{self.port}", "--node", name),
            *("--cluster-port", str(cluster_port), "--peer", f"{HOST}:{peer_port}"),
            *("--data-dir", str(folder / name), "--set", "cluster.heartbeat=0.1"),
            *more,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater", "proxy", *self._arguments],
                stdout=log,
                stderr=log,
                env=os.environ,
            )

    def wait(self) -> None:
        assert self.process is not None
        wait_until_listening(self.process, self.port)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def said(self, text: str) -> int:
        return self._log.read_text().count(text)


@pytest.fixture
def two(homes: list[Mosquitto], tmp_path: Path) -> Iterator[list[ProxyProcess]]:
    for home in homes[:2]:
        home.folder.mkdir()
        home.settings = KEEPS.format(home.folder)
    ports = [free_port(), free_port()]
    found = [
        ProxyProcess("a", homes[0], tmp_path, ports[0], ports[1]),
        ProxyProcess("b", homes[1], tmp_path, ports[1], ports[0]),
    ]
    for each in found:
        each.start()
    for each in found:
        each.wait()
    yield found
    for each in found:
        assert each.said("Traceback") == 0
        each.kill()


@contextlib.asynccontextmanager
async def reader(port: int, name: str) -> AsyncIterator[Counter[bytes]]:
    """What a client with a session that stays gets, however often its connection ends."""
    found: Counter[bytes] = Counter()
    again = Reconnect(first=0.05, longest=0.2)

    async def read(client: Client) -> None:
        async for message in client.messages:
            found[message.payload] += 1

    async with Client(HOST, port, client_id=name, clean_start=False, session_expiry=600, reconnect=again) as client:
        await client.subscribe("t/#", qos=1)
        task = asyncio.create_task(read(client))
        try:
            yield found
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def patient(condition: object, seconds: float = 40.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def test_proxies_that_are_killed_lose_nothing(two: list[ProxyProcess], homes: list[Mosquitto]) -> None:
    async def body() -> None:
        a, b = two
        await patient(lambda: a.said("linked with node b") and b.said("linked with node a"))
        async with (
            reader(b.port, "at-b") as at_b,
            reader(homes[0].port, "at-home-a") as at_a,
            Client(HOST, homes[0].port) as publisher,
        ):
            sent = 0

            async def publish(count: int) -> None:
                nonlocal sent
                for _ in range(count):
                    await publisher.publish("t/x", b"%d" % sent, qos=1)
                    sent += 1

            await publish(100)
            await patient(lambda: len(at_b) == sent)
            for victim in (a, b, a, b):
                task = asyncio.create_task(publish(400))
                await patient(lambda until=sent + 150: sent >= until)
                victim.kill()
                await task
                victim.start()
                await asyncio.to_thread(victim.wait)
                await patient(lambda: len(at_b) == sent)
            assert set(at_b) == {b"%d" % number for number in range(sent)}
            assert set(at_a) == set(at_b) and set(at_a.values()) == {1}, "something came back to where it was published"
            assert max(at_b.values()) <= 3, "more often than what was on its way when a process was killed"

    run(body())


def test_home_brokers_that_are_killed_and_stopped(two: list[ProxyProcess], homes: list[Mosquitto]) -> None:
    """Stopped, a broker keeps what it has acknowledged; killed, it loses what it has not written, as alone. What comes
    from the other side waits for it."""

    async def body() -> None:
        a, b = two
        await patient(lambda: a.said("linked with node b") and b.said("linked with node a"))
        async with reader(b.port, "at-b") as at_b, Client(HOST, homes[0].port) as publisher:
            sent = 0

            async def publish(count: int) -> None:
                nonlocal sent
                for _ in range(count):
                    await publisher.publish("t/x", b"%d" % sent, qos=1)
                    sent += 1

            await publish(100)
            await patient(lambda: len(at_b) == sent)
            for _ in range(2):
                task = asyncio.create_task(publish(300))
                await patient(lambda until=sent + 100: sent >= until)
                homes[1].stop()
                await task
                homes[1].start()
                await patient(lambda: len(at_b) == sent)
            assert set(at_b) == {b"%d" % number for number in range(sent)}
            ended = b.said("connection ended")
            homes[1].kill()
            await patient(lambda: b.said("connection ended") > ended)
            await publish(50)
            homes[1].start()
            await publish(50)
            await patient(lambda: b"%d" % (sent - 1) in at_b)

    run(body())


def test_what_a_killed_proxy_handed_over_comes_back_to_nobody(tmp_path: Path) -> None:
    """An echo waits in the home broker's session, and the message goes once more: the next process knows both."""

    async def body() -> None:
        async with (
            echoing() as home,
            own_node("n") as node,
            Client(HOST, node.port) as at_node,
            Client(HOST, node.port) as publisher,
            contextlib.AsyncExitStack() as stack,
        ):
            more = ("--cluster", "test", "--set", "proxy.protocol=3.1.1", "--set", "proxy.retained=false")
            peer_port = int(address_of(node).rpartition(":")[2])
            proxy = ProxyProcess("a", as_home(home), tmp_path, free_port(), peer_port, *more)
            stack.callback(proxy.kill)
            await at_node.subscribe("t/#", qos=2)

            async def start() -> None:
                """A client of the home broker wants the topic."""
                proxy.start()
                await asyncio.to_thread(proxy.wait)
                client = await stack.enter_async_context(Client(HOST, proxy.port, version=V311))
                await client.subscribe("t/#", qos=1)
                await until(lambda: "t/#" in home.filters)

            await start()
            home.holds = home.is_silent = True
            await publisher.publish("t/x", b"once", qos=2)
            await until(lambda: len(home.taken) == 1)
            await asyncio.to_thread(proxy.kill)
            home.holds = home.is_silent = False
            await start()
            await until(lambda: len(home.taken) > 1 and not home.queue)
            home.publish("t/end", b"")
            assert await received(at_node, 2) == [("t/x", b"once"), ("t/end", b"")]
            assert proxy.said("Traceback") == 0

    run(body())
