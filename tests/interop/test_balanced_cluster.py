"""Three nodes behind a TCP balancer are one broker for the clients that people use.

Each subscriber and each publisher may be at any node; every message reaches every subscriber, once, in the order of its
publisher.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt.client import MQTTv5, MQTTv311

from tests.brokers import PATIENCE, free_port, wait_until_listening
from tests.interop.balancer import Balancer, balancing
from tests.interop.test_mosquitto import publish, subscribed
from tests.interop.test_paho import Paho

NODES = ("a", "b", "c")
CLIENTS = 6
"""Of each kind: two at each node."""
MESSAGES = 20
LAST = b"last"
QUIET = 1.0
"""Seconds without news in the logs of nodes, after which none is on its way."""


class ClusterNode:
    def __init__(self, name: str, folder: Path, first: int) -> None:
        self.name = name
        self.port = free_port()
        self.link_port = first if name == NODES[0] else free_port()
        self._log = folder / f"{name}.log"
        words = ["broker", "--port", self.port, "--cluster", "test", "--node", name, "--cluster-port", self.link_port]
        if name != NODES[0]:
            words += ["--join", f"127.0.0.1:{first}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater", *map(str, words)], stdout=log, stderr=log
            )
        wait_until_listening(self.process, self.port)

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def is_linked(self) -> bool:
        return all(f"linked with node {other} " in self.said() for other in NODES if other != self.name)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


def wait_until_linked(nodes: list[ClusterNode]) -> None:
    """All with each other, for a while: of two connections that two nodes have begun at once, one ends again, and may
    take messages of QoS 0 with it."""
    until = time.monotonic() + PATIENCE
    said, since = [""], 0.0
    while time.monotonic() - since < QUIET or not all(node.is_linked() for node in nodes):
        assert time.monotonic() < until, "the nodes are not linked"
        if said != [node.said() for node in nodes]:
            said, since = [node.said() for node in nodes], time.monotonic()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    folder = tmp_path_factory.mktemp("cluster")
    first = free_port()
    with contextlib.ExitStack() as stack:
        nodes = []
        for name in NODES:
            nodes.append(ClusterNode(name, folder, first))
            stack.callback(nodes[-1].end)
        wait_until_linked(nodes)
        yield stack.enter_context(balancing([node.port for node in nodes]))


@pytest.fixture
def topic(balancer: Balancer) -> Iterator[str]:
    """Of a test; every node had its share of the test's clients."""
    before = balancer.taken.copy()
    yield f"balanced/{secrets.token_hex(4)}"
    taken = [balancer.taken[port] - before[port] for port in balancer.taken]
    assert len(taken) == len(NODES) and min(taken) >= 2 * CLIENTS // len(NODES)


def assert_all_came_once(payloads: list[bytes]) -> None:
    """`publisher number`, and at last one that says so, of each publisher."""
    for publisher in range(CLIENTS):
        own = [number for who, _, number in (each.partition(b" ") for each in payloads) if int(who) == publisher]
        assert own == [b"%d" % number for number in range(MESSAGES)] + [LAST]


def messages_of(publisher: int) -> list[bytes]:
    return [b"%d %d" % (publisher, number) for number in range(MESSAGES)] + [b"%d %s" % (publisher, LAST)]


@pytest.mark.parametrize("version", [MQTTv311, MQTTv5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_paho(balancer: Balancer, topic: str, version: int, qos: int) -> None:
    subscribers = [Paho(balancer.port, version) for _ in range(CLIENTS)]
    for subscriber in subscribers:
        subscriber.subscribe(f"{topic}/#", qos)
    publishers = [Paho(balancer.port, version) for _ in range(CLIENTS)]
    for messages in zip(*map(messages_of, range(CLIENTS)), strict=True):
        sent = [each.client.publish(f"{topic}/t", data, qos) for each, data in zip(publishers, messages, strict=True)]
        for each in sent:
            each.wait_for_publish(PATIENCE)
    for subscriber in subscribers:
        assert_all_came_once([subscriber.next().payload for _ in range(CLIENTS * (MESSAGES + 1))])
        assert subscriber.messages.empty()
    for client in (*subscribers, *publishers):
        client.client.disconnect()
        client.client.loop_stop()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_aiomqtt(balancer: Balancer, topic: str, qos: int) -> None:
    async def subscribe(ready: asyncio.Barrier) -> list[bytes]:
        payloads: list[bytes] = []
        async with aiomqtt.Client("127.0.0.1", balancer.port) as client:
            await client.subscribe(f"{topic}/#", qos)
            await ready.wait()
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                payloads.append(message.payload)
                if len(payloads) == CLIENTS * (MESSAGES + 1):
                    break
        return payloads

    async def publish_from(publisher: int, ready: asyncio.Barrier) -> None:
        async with aiomqtt.Client("127.0.0.1", balancer.port) as client:
            await ready.wait()
            for payload in messages_of(publisher):
                await client.publish(f"{topic}/t", payload, qos)

    async def main() -> list[list[bytes]]:
        ready = asyncio.Barrier(2 * CLIENTS)
        async with asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(subscribe(ready)) for _ in range(CLIENTS)]
            for publisher in range(CLIENTS):
                tasks.create_task(publish_from(publisher, ready))
        return [each.result() for each in found]

    for payloads in asyncio.run(asyncio.wait_for(main(), PATIENCE)):
        assert_all_came_once(payloads)


@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_pub_and_sub(balancer: Balancer, topic: str, version: str, qos: str, tmp_path: Path) -> None:
    how = ["-V", version, "-q", qos]
    with contextlib.ExitStack() as stack:
        count = CLIENTS * (MESSAGES + 1)
        subs = [
            stack.enter_context(subscribed(balancer.port, count, *how, "-t", f"{topic}/#", "-F", "> %p"))
            for _ in range(CLIENTS)
        ]
        for publisher in range(CLIENTS):
            lines = tmp_path / f"{publisher}.txt"
            lines.write_bytes(b"\n".join(messages_of(publisher)) + b"\n")
            with lines.open() as file:
                publish(balancer.port, *how, "-t", f"{topic}/t", "-l", stdin=file)
        for sub in subs:
            assert_all_came_once([line.removeprefix("> ").encode() for line in sub.lines()])
