"""An edge of real processes, as docs/edge-tiers.md and `headwater edge` have it: splits and joins while a device
publishes, and nodes are killed at each step of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.app import app
from headwater.client import Client
from headwater.client.reconnect import Reconnect
from headwater.disk.crash_points import EDGE_POINTS
from headwater.edge.status import EdgeStatus, decode, stretches_of
from tests.brokers import PATIENCE, free_port
from tests.node.admin.api import TOKEN

HOST = "127.0.0.1"
FILTER = "plant/2/#"
LONG = 60.0
"""Seconds: processes start, one after another, on a machine that has other things to do."""
DEVICE = 60
MOVES = 5
"""Of which one comes to a point, at the latest."""


def until(condition: Callable[[], Any], said: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)


class Process:
    def __init__(self, edge: Edge, name: str, **settings: Any) -> None:
        self.edge, self.name = edge, name
        self.port, self.link, self.admin, self.rest = (free_port() for _ in range(4))
        self.settings = settings
        self.log = edge.folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        others = [f"{HOST}:{each.link}" for each in self.edge.nodes.values() if each is not self]
        delivers = self.settings.get("edge.roles") != '["receiving"]'
        given = {
            "host": HOST,
            "port": self.port,
            "sys_interval": 0,
            "data_dir": str(self.edge.folder / self.name),
            "cluster.name": "test",
            "cluster.node": self.name,
            "cluster.host": HOST,
            "cluster.port": self.link,
            "cluster.join": json.dumps(others),
            "cluster.heartbeat": 0.2,
            "cluster.patience": 2.0,
            "admin.enabled": "true",
            "admin.host": HOST,
            "admin.port": self.admin,
            **({"store.enabled": "true", "store.id": f"s-{self.name}"} if delivers else {}),
            **({"rest.enabled": "true", "rest.host": HOST, "rest.port": self.rest} if delivers else {}),
            "edge.name": "north",
            **self.settings,
        }
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        environment = os.environ | {
            "HEADWATER_ADMIN__TOKEN": TOKEN,
            "HEADWATER_REST__TOKEN": TOKEN,
            "HEADWATER_CRASH_AT": f"@{self.edge.orders}",
        }
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "headwater", "broker", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE)

    def command(self, *words: str) -> Result:
        url = f"http://{HOST}:{self.admin}"
        return CliRunner().invoke(app, ["edge", *words, "--admin", url], env={"HEADWATER_ADMIN__TOKEN": TOKEN})

    def status(self) -> EdgeStatus | None:
        done = self.command("status", "--json")
        return decode(json.loads(done.stdout)) if done.exit_code == 0 else None

    def asked(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://{HOST}:{self.rest}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)


class Edge:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.orders = folder / "orders"
        self.nodes: dict[str, Process] = {}
        for name, settings in {
            "a": {"edge.owns": '["plant/#"]'},
            "b": {},
            "r": {"edge.roles": '["receiving"]'},
        }.items():
            self.nodes[name] = Process(self, name, **settings)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        until(lambda: all(self.is_ready(node) for node in self.nodes.values()), self.said)

    def is_ready(self, node: Process) -> bool:
        status = node.status()
        return status is not None and [each.node for each in status.nodes if each.ready] == ["a", "b", "r"]

    def revive(self) -> list[str]:
        """Those that were killed at a point."""
        dead = [
            name for name, each in self.nodes.items() if each.process is not None and each.process.poll() is not None
        ]
        for name in dead:
            self.nodes[name].start()
        return dead

    def said(self) -> str:
        return "\n".join(f"--- {name}\n{each.log.read_text()[-3000:]}" for name, each in self.nodes.items())

    def settles(self, *owners: str) -> str:
        """On one of these, of exactly the filter, all nodes agree; "": it is part of the wider one."""
        found: set[str] = set()

        def is_settled() -> bool:
            if self.revive():
                return False
            statuses = [each.status() for each in self.nodes.values()]
            found.clear()
            found.update("?" if each is None or each.moves else each.owner_of(FILTER) for each in statuses)
            return len(found) == 1 and found <= {*owners}

        until(is_settled, self.said)
        return found.pop()

    def rows(self) -> dict[str, list[tuple[int, str]]]:
        """Of both stores: position and payload."""
        found = {}
        for name in ("a", "b"):
            rows: list[tuple[int, str]] = []
            while True:
                page = self.nodes[name].asked(
                    f"/v1/messages?topic=plant/2&limit=1000&after={rows[-1][0] if rows else 0}"
                )
                if not page["messages"]:
                    break
                rows += [(int(str(each["position"]).rpartition(":")[2]), each["payload"]) for each in page["messages"]]
            found[f"s-{name}"] = rows
        return found


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    found = Edge(tmp_path)
    try:
        found.start()
        yield found
    finally:
        for node in found.nodes.values():
            node.end()


class Device:
    """Publishes numbers with QoS 2, in a thread of its own, until it is told to stop; `sent` are acknowledged."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent: list[str] = []
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        again = Reconnect(first=0.1, longest=0.5, always=True)
        async with Client(
            HOST, self.port, client_id="device", clean_start=False, session_expiry=1000, reconnect=again
        ) as client:
            while not self._stopping:
                await client.publish("plant/2", str(len(self.sent)).encode(), qos=2)
                self.sent.append(str(len(self.sent)))

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(DEVICE)
        assert not self._thread.is_alive()


def move(edge: Edge, before: str) -> str:
    """The filter to another owner, who is returned; "": it is part of the wider one."""
    owner = "" if before else "b"
    words = ("join", FILTER) if before else ("split", FILTER, "--to", "b")
    done = edge.nodes["r"].command(*words)
    if edge.settles(before, owner) == before:  # it was killed before that was decided
        assert done.exit_code != 0, done.stdout
        done = edge.nodes["r"].command(*words)
        assert done.exit_code == 0, done.stderr
        edge.settles(owner)
    return owner


def test_nodes_that_are_killed_at_each_step_of_a_move(edge: Edge) -> None:
    """What is decided goes on after a restart, what is not has not happened; and no message is lost or stored twice."""
    device = Device(edge.nodes["r"].port)
    try:
        owner = ""
        for point in EDGE_POINTS:
            edge.orders.write_text(f"{point}\n")
            carried_out = edge.orders.with_name("orders.done")
            for _ in range(MOVES):  # a node that learns of a move while it starts does not pass all points
                owner = move(edge, owner)
                if carried_out.exists() and point in carried_out.read_text():
                    break
            else:
                raise AssertionError(f"no node came to {point}: {carried_out.read_text()}")
        count = len(device.sent)
        until(lambda: len(device.sent) > count + 20, edge.said)
    finally:
        device.stop()

    until(lambda: sum(len(rows) for rows in edge.rows().values()) >= len(device.sent), edge.said)
    rows = edge.rows()
    stored = Counter(payload for each in rows.values() for _, payload in each)
    assert max(stored.values()) == 1
    assert stored.keys() >= set(device.sent)
    assert all(len(each) > 5 for each in rows.values()), "both nodes had a part"
    status = decode(edge.nodes["b"].asked("/v1/edge"))
    read = [
        payload
        for each in stretches_of(status, "plant/2")
        for position, payload in rows[each.id]
        if each.first <= position and (each.last is None or position <= each.last)
    ]
    assert read == sorted(read, key=int) and len(read) == sum(stored.values())


def test_the_commands(edge: Edge) -> None:
    r = edge.nodes["r"]
    shown = r.command("status").stdout
    assert "edge north, seen by node r" in shown and "plant/#  node a, epoch 1, settled" in shown
    done = r.command("split", FILTER, "--to", "b", "--dry-run")
    assert done.stdout == f"{FILTER} would go from node a to node b\n"
    done = r.command("split", FILTER, "--to", "b", "--wait")
    assert done.exit_code == 0 and f"done: {FILTER} is node b's" in done.stdout
    done = r.command("split", FILTER, "--to", "b")
    assert done.exit_code == 1 and f"node b has {FILTER} already" in done.stderr
    done = r.command("join", "nothing")
    assert done.exit_code == 1 and "nobody has exactly nothing" in done.stderr
    done = r.command("join", FILTER, "--wait")
    assert done.exit_code == 0 and "done" in done.stdout
    assert {each["node"] for each in edge.nodes["a"].asked("/v1/edge")["nodes"]} == {"a", "b", "r"}
