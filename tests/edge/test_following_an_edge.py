"""Two real nodes between which topics move, and whoever reads them by way of one: REST, a reader, a mirror."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.client.sync import Client
from headwater.store.edge_reader import EdgeReader
from headwater.store.reader import StoreReader
from tests.brokers import free_port

PATIENCE = 40.0
TOKEN = "shown by nodes to each other"
SECRET = "the secret of a cluster of nodes"


class Node:
    """`headwater broker` of an edge."""

    def __init__(self, id: str, folder: Path, join: Node | None, *owns: str) -> None:
        self.port, self.cluster, self.admin, rest = (free_port() for _ in range(4))
        self.url = f"http://127.0.0.1:{rest}"
        settings = {
            "cluster.name": "demo",
            "cluster.node": id,
            "cluster.port": self.cluster,
            "cluster.secret": SECRET,
            "cluster.join": json.dumps([] if join is None else [f"127.0.0.1:{join.cluster}"]),
            "store.enabled": "true",
            "rest.enabled": "true",
            "rest.port": rest,
            "rest.token": TOKEN,
            "rest.peer_token": TOKEN,
            "admin.enabled": "true",
            "admin.port": self.admin,
            "edge.name": "north",
            "edge.owns": json.dumps(owns),
            "edge.rest": self.url,
        }
        words = [each for name, value in settings.items() for each in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "headwater", "broker", "--port", self.port, "--data-dir", folder / id, *words]
        self.log = folder / f"{id}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, env=os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN}
            )

    def get(self, path: str) -> Any:
        answer = httpx.get(self.url + path, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sees(self, nodes: int) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            found = self.get("/v1/edge")["nodes"]
        except (httpx.HTTPError, AssertionError):
            return False
        return len(found) == nodes and all(each["ready"] for each in found)

    def move(self, *words: str) -> None:
        command = [sys.executable, "-m", "headwater", "edge", *words, "--wait", "--admin"]
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{self.admin}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN},
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    a = Node("a", tmp_path, None, "#")
    b = Node("b", tmp_path, a)
    try:
        end = time.monotonic() + PATIENCE
        while not (a.sees(2) and b.sees(2)):
            assert time.monotonic() < end, a.log.read_text() + b.log.read_text()
            time.sleep(0.05)
        yield a, b
    finally:
        for each in (a, b):
            each.process.terminate()
        for each in (a, b):
            each.process.wait(PATIENCE)


def test_a_split_and_a_join(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    sent: list[str] = []
    out = tmp_path / "out.ndjson"
    with Client("127.0.0.1", a.port, timeout=PATIENCE) as client:
        for moved in ((), ("split", "plant/#", "--to", "b"), ("join", "plant/#")):
            if moved:
                a.move(*moved)
            for _ in range(10):
                client.publish("plant/1", str(len(sent)).encode(), qos=1)
                sent.append(str(len(sent)))
            mirror = [sys.executable, "-m", "headwater", "edge", "mirror", "-p", str(b.port), "--rest", b.url]
            mirror += ["--token", TOKEN, "-t", "plant/#", "-o", str(out), "--until-complete", "--json"]
            done = subprocess.run(mirror, check=False, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["lost"] == 0
    assert len({row["id"] for row in a.get("/v1/edge")["stores"]}) == 2
    for node in (a, b):
        page = node.get("/v1/messages?topic=plant/%23&limit=13")
        found = [row["payload"] for row in page["messages"]]
        found += [row["payload"] for row in node.get(f"/v1/messages?topic=plant/%23&after={page['next']}")["messages"]]
        assert found == sent
        assert node.get("/v1/topics/plant/1/latest")["payload"] == sent[-1]
        read = EdgeReader(StoreReader(node.url, token=TOKEN)).read(topic="plant/#")
        assert [each.decode() for _, batch in read for each in batch["payload"].to_pylist()] == sent
    assert [json.loads(line)["payload"] for line in out.read_text().splitlines()] == sent
