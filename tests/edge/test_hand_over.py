"""A delivery store goes to another node while publishers publish, and either node is killed at any step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client.sync import Client
from headwater.disk.crash_points import HAND_OVER_POINTS, VARIABLE
from headwater.disk.errors import StorageError
from headwater.edge.http_source import HttpSource
from headwater.edge.taking_over import SourceRefuses, TakeOverError
from headwater.store.disk_store import DiskStore
from headwater.store.hand_over import HandedOver, read_fence, read_take_over
from headwater.store.query import Query
from tests.brokers import free_port

PATIENCE = 30.0
TOKEN = "of the admin API of a test"
KILLED = -9
SOURCE_POINTS = ["hand-over-frozen", "hand-over-before-fence"]
TARGET_POINTS = [
    *("hand-over-in-copy", "hand-over-copied", "hand-over-checked", "hand-over-ready"),
    *("hand-over-before-adopt", "hand-over-adopted"),
]


def until(is_so: Any, why: Any = lambda: "") -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, why()
        time.sleep(0.01)


class OldNode:
    """`headwater broker` with a store, and what it has acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "old"
        self.port, self.admin = free_port(), free_port()
        self.acknowledged: list[bytes] = []
        self.log = folder / "old.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, crash_at: str = "", store: bool = True) -> None:
        settings = {"store.enabled": str(store).lower(), "admin.enabled": "true", "admin.port": self.admin}
        words = [each for name, value in settings.items() for each in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "headwater", "broker", "--port", self.port, "--data-dir", self.data, *words]
        environment = os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN, VARIABLE: crash_at}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env=environment)

    def is_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log.read_text()
        try:
            self.source.ask("")
        except SourceRefuses:
            return True
        except TakeOverError:
            return False
        return True

    def wait_until_up(self) -> None:
        until(self.is_up, self.log.read_text)

    def end(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def source(self) -> HttpSource:
        return HttpSource(f"http://127.0.0.1:{self.admin}", TOKEN)

    def publish(self, count: int) -> None:
        with Client("127.0.0.1", self.port, timeout=PATIENCE) as client:
            for _ in range(count):
                payload = str(len(self.acknowledged)).encode()
                client.publish("plant/1", payload, qos=1)
                self.acknowledged.append(payload)


class NewNode:
    """The folder of the node that gets the store."""

    def __init__(self, folder: Path, old: OldNode) -> None:
        self.data = folder / "new"
        self.messages = self.data / "messages"
        self._old = old

    def take_over(self, crash_at: str = "", *more: str) -> tuple[int, Any]:
        """Exit code, and what it says."""
        url = self._old.source.url
        command = [sys.executable, "-m", "headwater", "edge", "hand-over", "--from", url, "--node", "new"]
        command += ["--data-dir", str(self.data), "--json", "--freeze", "5", *more]
        environment = os.environ | {"HEADWATER_ADMIN__TOKEN": TOKEN, VARIABLE: crash_at}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr

    def payloads(self) -> list[bytes]:
        store = DiskStore(self.messages, create=False)
        try:
            rows = [entry for chunk in store.select(Query()) for entry in chunk.entries()]
        finally:
            store.close()
        assert [each.position for each in rows] == list(range(1, len(rows) + 1))
        return [each.payload for each in rows]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldNode]:
    node = OldNode(tmp_path)
    node.start()
    try:
        node.wait_until_up()
        yield node
    finally:
        node.kill()


@pytest.fixture
def new(tmp_path: Path, old: OldNode) -> NewNode:
    return NewNode(tmp_path, old)


class Publishing:
    """Somebody publishes at the old node, one message after the other is acknowledged, until the end of the block."""

    def __init__(self, old: OldNode) -> None:
        self._old = old
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Publishing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with Client("127.0.0.1", self._old.port, timeout=PATIENCE) as client:
            while not self._stopping.is_set():
                payload = str(len(self._old.acknowledged)).encode()
                client.publish("plant/1", payload, qos=1)
                self._old.acknowledged.append(payload)


def test_while_somebody_publishes(old: OldNode, new: NewNode) -> None:
    old.publish(50)
    id = old.source.ask("")["store"]
    with Publishing(old):
        until(lambda: len(old.acknowledged) > 100)
        status, took = new.take_over()
        assert status == 0, took
        stored = new.payloads()
        assert stored == old.acknowledged[: len(stored)]
        assert len(old.acknowledged) == len(stored) >= 100, "the publisher waits"
        assert (took["store"], took["position"], took["messages"]) == (id, len(stored), len(stored))
        assert 0 < took["split/pause_ms"] < 5000
        state = old.source.ask("")
        assert state["fence"] == {"store": id, "hand_over": took["hand_over"], "to": "new", "position": len(stored)}
        old.source.ask(f"/{took['hand_over']}/release", {})
        until(lambda: len(old.acknowledged) > len(stored) + 10)
    assert new.payloads() == stored, "what came then is not stored"
    assert read_fence(old.data / "messages") is not None
    old.end()
    with pytest.raises(HandedOver, match="handed over to new at position"):
        DiskStore(old.data / "messages", create=False)
    assert new.take_over()[0] != 0


def test_every_step_has_its_kill() -> None:
    assert sorted([*SOURCE_POINTS, "hand-over-fenced", *TARGET_POINTS]) == sorted(HAND_OVER_POINTS)


@pytest.mark.parametrize("point", TARGET_POINTS)
def test_the_new_node_is_killed(old: OldNode, new: NewNode, point: str) -> None:
    old.publish(20)
    with Publishing(old):
        until(lambda: len(old.acknowledged) > 40)
        status, _ = new.take_over(point)
        assert status == KILLED
        fence = read_fence(old.data / "messages")
        assert (fence is None) is (point not in ("hand-over-before-adopt", "hand-over-adopted"))
        if point == "hand-over-adopted":
            stored = new.payloads()
        else:
            with pytest.raises(StorageError, match="is being taken over"):
                DiskStore(new.messages)
            if fence is None:  # the old node goes on by itself
                so_far = len(old.acknowledged)
                until(lambda: len(old.acknowledged) > so_far + 5)
            status, took = new.take_over()
            assert status == 0, took
            stored = new.payloads()
            assert took["position"] == len(stored)
        state = old.source.ask("")
        assert state["fence"]["position"] == len(stored)
        old.source.ask(f"/{state['hand_over']}/release", {})
    assert stored == old.acknowledged[: len(stored)]
    assert len(stored) >= 40


@pytest.mark.parametrize("point", SOURCE_POINTS)
def test_the_old_node_is_killed_and_has_kept_its_store(old: OldNode, new: NewNode, point: str) -> None:
    old.end()
    old.start(point)
    old.wait_until_up()
    old.publish(30)
    status, said = new.take_over()
    assert status != 0
    assert "does not answer" in said
    assert old.wait() == KILLED
    with pytest.raises(StorageError, match="is being taken over"):
        DiskStore(new.messages)
    old.start()
    old.wait_until_up()
    old.publish(10)
    status, took = new.take_over()
    assert status == 0, took
    assert new.payloads() == old.acknowledged


@pytest.mark.parametrize("way", ["asked", "by its file"])
def test_the_old_node_is_killed_and_has_given_its_store_away(old: OldNode, new: NewNode, way: str) -> None:
    old.end()
    old.start("hand-over-fenced")
    old.wait_until_up()
    old.publish(30)
    assert new.take_over()[0] != 0
    assert old.wait() == KILLED
    taking = read_take_over(new.messages)
    assert taking is not None and (taking.step, taking.position) == ("ready", 30)
    old.start()
    assert old.wait() != 0
    assert "handed over to new at position 30" in old.log.read_text()
    if way == "asked":
        old.start(store=False)
        old.wait_until_up()
        status, took = new.take_over()
    else:
        status, took = new.take_over("", "--fence", str(old.data / "messages" / "handed-over.json"))
    assert status == 0, took
    assert (took["position"], took["split/pause_ms"]) == (30, 0)
    assert new.payloads() == old.acknowledged


def test_what_was_taken_over_is_served_and_goes_on(old: OldNode, new: NewNode) -> None:
    """As the sessions of the old node are not there, nothing of them may come to the new one."""
    with Client("127.0.0.1", old.port, timeout=PATIENCE) as client:
        client.publish("plant/1", b"0", qos=2)  # leaves a note for a crash
    old.acknowledged.append(b"0")
    id = old.source.ask("")["store"]
    assert new.take_over("", "--release")[0] == 0
    old.end()
    again = OldNode(new.data.parent)
    again.data, again.acknowledged = new.data, old.acknowledged
    again.start()
    try:
        again.wait_until_up()
        assert again.source.ask("")["store"] == id
        again.publish(5)
    finally:
        again.end()
    assert new.payloads() == old.acknowledged
