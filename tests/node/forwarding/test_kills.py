"""Both nodes as processes that are killed, at every point at which a crash could show: the remote's store has each
position of ours exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headwater.client.sync import Client
from headwater.disk.crash_points import BROKER_POINTS, FORWARD_POINTS, STORE_POINTS, VARIABLE
from headwater.node.toml_text import toml_value
from headwater.store.disk_store import DiskStore
from tests.brokers import find_mosquitto, free_port, wait_until_listening
from tests.node.forwarding.scene import entries, forward, payloads, sources

MESSAGES = 600
PATIENCE = 170.0
"""Some twenty processes start, on a machine that may be busy."""
NEVER_REACHED = ("store-in-seal", "store-after-seal", "store-before-trim", "store-after-trim")
FAR_POINTS = [each for each in (*BROKER_POINTS, *STORE_POINTS) if each not in NEVER_REACHED]


class Kept:
    """A process that is started again whenever it ends, until it is told to stop. `orders` are points at which it is
    killed."""

    def __init__(self, command: list[str], port: int, folder: Path, orders: list[str]) -> None:
        self._command = command
        self.port = port
        self._log = folder.with_suffix(".log").open("ab")
        self.orders = folder.with_suffix(".orders")
        self.orders.write_text("".join(f"{each}\n" for each in orders))
        self._environment = {**os.environ, VARIABLE: f"@{self.orders}"}
        self._is_wanted = True
        self.starts = 0
        self._lock = threading.Lock()
        self._start()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self._command, env=self._environment, stdout=self._log, stderr=self._log)
        self.starts += 1

    def _watch(self) -> None:
        while self._is_wanted:
            if self.process.poll() is not None:
                with self._lock:
                    if self._is_wanted:
                        self._start()
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()

    def killed_at(self) -> set[str]:
        done = self.orders.with_name(self.orders.name + ".done")
        return {line.split()[0] for line in done.read_text().splitlines()} if done.exists() else set()

    def stop(self) -> None:
        with self._lock:
            self._is_wanted = False
        self._watching.join()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


def command(folder: Path, port: int, *forwards: dict[str, object]) -> list[str]:
    folder.mkdir(exist_ok=True)
    rows = f"port = {port}\ndata_dir = {toml_value(str(folder / 'data'))}\nlog_level = 'info'\n"
    rows += f"[store]\nenabled = true\nid = {toml_value(folder.name)}\n"
    for each in forwards:
        rows += "[[forward]]\n" + "".join(f"{name} = {toml_value(value)}\n" for name, value in each.items())
    file = folder / "node.toml"
    file.write_text(rows)
    return [sys.executable, "-m", "headwater", "broker", "--config", str(file)]


@contextmanager
def stored(folder: Path) -> Iterator[DiskStore]:
    store = DiskStore(folder / "data" / "messages", create=False)
    try:
        yield store
    finally:
        store.close()


def fill(folder: Path, port: int, *forwards: dict[str, object]) -> None:
    """MESSAGES in the store of a node that forwards to nobody yet."""
    process = subprocess.Popen(command(folder, port, *forwards), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_listening(process, port)
        with Client("127.0.0.1", port) as client:
            for number in range(MESSAGES):
                client.publish(f"t/{number % 5}", str(number), qos=1 if number % 50 == 49 else 0)
    finally:
        process.terminate()
        process.wait(15)


def is_done(folder: Path) -> bool:
    try:
        progress = json.loads((folder / "data" / "forward" / "cloud.json").read_text())
    except (FileNotFoundError, ValueError):
        return False
    return progress["live"] == MESSAGES + 1 and not any(progress["owed"]) and not progress["sent"]


def wait_until_done(folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not is_done(folder):
        assert time.monotonic() < until, (folder.with_suffix(".log")).read_text()[-3000:]
        time.sleep(0.02)


def test_killed_at_any_point_each_position_arrives_once(tmp_path: Path) -> None:
    """The node that forwards at each of its points, its remote at each of its own; the line goes with each of them."""
    near, far = tmp_path / "near", tmp_path / "far"
    ports = free_port(), free_port()
    wanted = forward(ports[1], qos=2, max_inflight=20)
    fill(near, ports[0], wanted)
    with ExitStack() as stack:
        at_far = [f"{point}:{3 + 2 * number}" for number, point in enumerate(FAR_POINTS) if "recovery" not in point]
        at_far += [point for point in FAR_POINTS if "recovery" in point]
        kept_far = Kept(command(far, ports[1]), ports[1], far, at_far)
        stack.callback(kept_far.stop)
        at_near = [f"{point}:{2 + 3 * number}" for number, point in enumerate(FORWARD_POINTS)]
        at_near += [f"forward-before-save:{count}" for count in (12, 23, 34, 45)]  # when much has been confirmed
        kept_near = Kept(command(near, ports[0], wanted), ports[0], near, at_near)
        stack.callback(kept_near.stop)
        wait_until_done(near)
        assert kept_near.killed_at() == set(FORWARD_POINTS)
        assert kept_far.killed_at() >= set(FAR_POINTS) - {"in-recovery", "after-recovery"}
    with stored(far) as store:
        assert Counter(sources(store)) == {f"near:{position}": 1 for position in range(1, MESSAGES + 1)}
        assert {int(each) for each in payloads(store)} == set(range(MESSAGES))


def test_killed_at_any_time_each_position_arrives_once(tmp_path: Path) -> None:
    """Both of them, at random, with whatever is under way."""
    near, far = tmp_path / "near", tmp_path / "far"
    ports = free_port(), free_port()
    chance = random.Random(7)
    wanted = forward(ports[1], qos=2, rate=200, live_within=0.1)
    fill(near, ports[0], wanted)
    with ExitStack() as stack:
        kept = [Kept(command(far, ports[1]), ports[1], far, [])]
        stack.callback(kept[0].stop)
        kept.append(Kept(command(near, ports[0], wanted), ports[0], near, []))
        stack.callback(kept[1].stop)
        for _ in range(8):
            time.sleep(chance.uniform(0.2, 1.5))
            chance.choice(kept).kill()
        wait_until_done(near)
    with stored(far) as store:
        assert Counter(sources(store)) == {f"near:{position}": 1 for position in range(1, MESSAGES + 1)}


def test_with_qos_1_nothing_is_missing(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    ports = free_port(), free_port()
    wanted = forward(ports[1], qos=1)
    fill(near, ports[0], wanted)
    with ExitStack() as stack:
        kept_far = Kept(command(far, ports[1]), ports[1], far, ["after-write:3", "after-acknowledge:2"])
        stack.callback(kept_far.stop)
        orders = ["forward-after-send:2", "forward-after-answer:2", "forward-before-save:2"]
        kept_near = Kept(command(near, ports[0], wanted), ports[0], near, orders)
        stack.callback(kept_near.stop)
        wait_until_done(near)
        assert kept_near.killed_at() == {"forward-after-send", "forward-after-answer", "forward-before-save"}
    with stored(far) as store:
        assert set(sources(store)) == {f"near:{position}" for position in range(1, MESSAGES + 1)}
        assert len(entries(store)) >= MESSAGES


@pytest.mark.parametrize("qos", [1, 2])
def test_to_mosquitto(tmp_path: Path, qos: int) -> None:
    """Our node is killed, Mosquitto goes on: with QoS 2 each message is published there once."""
    near = tmp_path / "near"
    ports = free_port(), free_port()
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(
        f"listener {ports[1]} 127.0.0.1\nuser root\nallow_anonymous true\nmax_queued_messages 0\n"
        "max_inflight_messages 50\n"
    )
    wanted = forward(ports[1], qos=qos, max_inflight=20)
    fill(near, ports[0], wanted)
    with ExitStack() as stack:
        far = subprocess.Popen([find_mosquitto(), "-c", str(settings)], stderr=subprocess.DEVNULL)
        stack.callback(far.wait, 15)
        stack.callback(far.terminate)
        wait_until_listening(far, ports[1])
        reader = stack.enter_context(Client("127.0.0.1", ports[1], client_id="reader", receive_maximum=1000))
        reader.subscribe("#", qos=2)
        orders = [f"{point}:{2 + 2 * number}" for number, point in enumerate(FORWARD_POINTS)]
        kept = Kept(command(near, ports[0], wanted), ports[0], near, orders)
        stack.callback(kept.stop)
        arrived: Counter[str] = Counter()
        while len(arrived) < MESSAGES:
            message = reader.receive(PATIENCE)
            assert message is not None
            arrived[dict(message.properties.user_properties or [])["headwater-source"]] += 1
        wait_until_done(near)
        assert "forward-after-send" in kept.killed_at()
        assert set(arrived) == {f"near:{position}" for position in range(1, MESSAGES + 1)}
        if qos == 2:
            assert set(arrived.values()) == {1}
