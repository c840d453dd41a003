"""One node becomes an edge of two tiers, and its store goes along with its id and positions: real processes, and a
device that publishes all the time over one connection."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client
from headwater.client.errors import MqttError
from headwater.client.reconnect import Reconnect
from headwater.disk.crash_points import VARIABLE
from headwater.edge.status import stretches_of
from tests.node.admin.api import TOKEN
from tests.test_edge_nodes import HOST, LONG, Edge, Process, until

TOPIC = "plant/2"
STORE = "s-one"
OWN = {"edge.owns": '["plant/#"]'}
RECEIVES: dict[str, Any] = {"edge.roles": '["receiving"]'}


class OneNode(Edge):
    """Node `one`, which has both roles, and whose store is to be that of `two`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.orders = folder / "orders"
        self.nodes = {}
        self.one = self.nodes["one"] = Process(self, "one", **OWN)
        self.two = Process(self, "two", **{"edge.roles": '["delivery"]', "store.id": STORE})

    def is_up(self, *names: str) -> bool:
        status = self.nodes[names[-1]].status()
        return status is not None and [each.node for each in status.nodes if each.ready] == list(names)

    def hand_over(self) -> subprocess.CompletedProcess[str]:
        words = ["--from", f"http://{HOST}:{self.one.admin}", "--data-dir", str(self.folder / "two"), "--node", "two"]
        environment = os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN, VARIABLE: ""}
        command = [sys.executable, "-m", "headwater", "edge", "hand-over", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG, check=False)

    def begin_two(self) -> None:
        self.nodes["two"] = self.two
        self.two.start()
        until(lambda: self.is_up("one", "two"), self.said)

    def owner(self) -> str:
        status = self.two.status()
        return "" if status is None or status.moves else status.owner_of("plant/#")

    def nodes_of_stores(self) -> set[str]:
        status = self.two.status()
        return set() if status is None else {each.node for each in status.stores}

    def stored(self, node: Process) -> list[tuple[str, int, str]]:
        """As REST of a node says: store, position and payload."""
        found: list[tuple[str, int, str]] = []
        while True:
            after = f"&after={STORE}:{found[-1][1]}" if found else ""
            page = node.asked(f"/v1/messages?topic={TOPIC}&limit=1000{after}")
            if not page["messages"]:
                return found
            for each in page["messages"]:
                store, _, number = str(each["position"]).rpartition(":")
                found.append((store or page["store"], int(number), each["payload"]))


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[OneNode]:
    found = OneNode(tmp_path)
    try:
        found.one.start()
        until(lambda: found.is_up("one"), found.said)
        yield found
    finally:
        for node in found.nodes.values():
            node.end()


class Device:
    """Publishes numbers with QoS 2 in a thread until it is stopped; over one connection, unless it may `reconnect`."""

    def __init__(self, port: int, first: int = 0, reconnect: Reconnect | None = None) -> None:
        self.port = port
        self.next = first
        self._reconnect = reconnect
        self.is_cut = False
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        try:
            async with Client(HOST, self.port, client_id="device", timeout=LONG, reconnect=self._reconnect) as client:
                while not self._stopping:
                    await client.publish(TOPIC, str(self.next).encode(), qos=2)
                    self.next += 1
        except (MqttError, OSError):
            self.is_cut = True

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(LONG)
        assert not self._thread.is_alive()


def all_is_there_once(edge: OneNode, sent: int) -> None:
    """In one store, whichever node is asked; and all of it in the stretches that readers follow."""
    at_two = edge.stored(edge.two)
    assert [each[0] for each in at_two] == [STORE] * len(at_two)
    assert [each[1] for each in at_two] == list(range(1, len(at_two) + 1))
    assert [each[2] for each in at_two] == [str(number) for number in range(sent)]
    until(lambda: edge.nodes_of_stores() == {"two"}, edge.said)
    status = edge.two.status()
    assert status is not None
    stretches = [(each.first, each.last) for each in stretches_of(status, TOPIC)]
    assert stretches[0][0] == 1 and stretches[-1][1] is None
    assert all(last is not None and first == last + 1 for (_, last), (first, _) in pairwise(stretches))


def test_the_store_and_all_topics_go_to_the_new_tier_and_the_device_stays(edge: OneNode) -> None:
    device = Device(edge.one.port)
    try:
        until(lambda: device.next > 30, edge.said)
        done = edge.hand_over()
        assert done.returncode == 0, done.stderr
        before = device.next
        edge.begin_two()
        until(lambda: device.next > before + 30, edge.said)
        assert not device.is_cut
    finally:
        device.stop()
    until(lambda: edge.owner() == "two", edge.said)
    all_is_there_once(edge, device.next)
    assert edge.stored(edge.one) == edge.stored(edge.two), "one sends who asks to the other"
    status = edge.one.status()
    assert status is not None
    assert {each.node: each.roles for each in status.nodes} == {"one": ("receiving",), "two": ("delivery",)}


def test_a_node_that_died_with_its_store_given_away_has_its_topics_stored_by_the_new_tier(edge: OneNode) -> None:
    edge.one.end()
    edge.orders.write_text("hand-over-fenced\n")
    edge.one.start()
    until(lambda: edge.is_up("one"), edge.said)
    device = Device(edge.one.port)
    try:
        until(lambda: device.next > 30, edge.said)
        assert edge.hand_over().returncode != 0
    finally:
        device.stop()
    assert device.is_cut and edge.one.process is not None
    assert edge.one.process.wait(LONG) == -9
    edge.one.settings = RECEIVES
    edge.one.start()
    until(lambda: edge.one.status() is not None, edge.said)
    assert edge.hand_over().returncode == 0
    again = Device(edge.one.port, device.next, Reconnect(first=0.1, longest=0.5, always=True))
    try:
        edge.begin_two()
        until(lambda: again.next > device.next + 30, edge.said)
    finally:
        again.stop()
    until(lambda: edge.owner() == "two", edge.said)
    stored = edge.stored(edge.two)
    assert len(stored) - again.next in (0, 1), "the one that was under way may have been stored, and not acknowledged"
    assert {each[2] for each in stored} == {str(number) for number in range(again.next)}


def test_a_store_to_which_another_node_sends_stays(edge: OneNode) -> None:
    other = edge.nodes["other"] = Process(edge, "other", **RECEIVES)
    other.start()
    until(lambda: edge.is_up("one", "other"), edge.said)
    done = edge.hand_over()
    assert done.returncode == 1
    assert "node other sends messages here to be stored" in done.stderr
    assert "headwater edge split FILTER --to NODE" in done.stderr
    assert json.loads(edge.one.command("status", "--json").stdout)["ownership"][0]["node"] == "one"
