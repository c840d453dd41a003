"""One node becomes an edge of two tiers, with its store, while the source or the target is killed at each named step.

`headwater node` with both roles has a device that publishes numbers with QoS 2 all the time. Its delivery store is
handed over to another node (`headwater edge hand-over`), which is started then, as anybody does that. At each step of
`HAND_OVER_POINTS` whoever gets there is killed, what died is started again as docs/edge-tiers.md says, and the command
is given again. In the end the device has to go on, and the one store, with one id, has to have every number once, at
the next position each. The device has a connection that is never made again, unless its own node was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from headwater.client import Client
from headwater.client.reconnect import Reconnect
from headwater.disk.crash_points import HAND_OVER_POINTS, VARIABLE
from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater.store.disk_store import DiskStore
from headwater.store.query import Query

OF_SOURCE: Final = ("hand-over-frozen", "hand-over-before-fence", "hand-over-fenced")
ADOPTED: Final = "hand-over-adopted"
NO_KILL: Final = ""
STORE: Final = "whole"
TOPIC: Final = "plant/1/reading"
TOKEN: Final = "the admin API of both nodes"
PATIENCE: Final = 60.0
ENOUGH: Final = 50
"""Messages before, and after."""
KILLED: Final = -9
WRONG: Final = ("lost", "stored_twice", "disorder", "device_reconnects", "unreadable")
SOURCE: Final = {"edge.owns": '["plant/#"]'}
RECEIVING: Final = {"edge.roles": '["receiving"]', "store.enabled": "false", "store.id": ""}
DELIVERY: Final = {"edge.roles": '["delivery"]'}


class Device:
    """Publishes numbers in a thread. `connections` counts those that it has had, `longest` is the longest wait for an
    acknowledgement in seconds."""

    def __init__(self, port: int) -> None:
        self.acknowledged = 0
        self.connections = 0
        self.longest = 0.0
        self._port = port
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        client = Client(
            *("127.0.0.1", self._port),
            client_id="device",
            clean_start=False,
            session_expiry=3600,
            reconnect=Reconnect(first=0.1, longest=0.5, always=True),
            on_change=self._changed,
        )
        async with client:
            while not self._stopping:
                began = time.monotonic()
                await client.publish(TOPIC, b"%d" % self.acknowledged, qos=2)
                self.longest = max(self.longest, time.monotonic() - began)
                self.acknowledged += 1

    def _changed(self, error: object) -> None:
        self.connections += error is None

    def stop(self) -> None:
        """Raises BrokerError if it still waits for an acknowledgement."""
        self._stopping = True
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise BrokerError(f"the device waits for the acknowledgement of {self.acknowledged}")


class Pair:
    """Node `one`, and what becomes `two`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._links = free_port(), free_port()
        self._admins = free_port(), free_port()
        self.ports = free_port(), free_port()
        self.messages = folder / "two" / "messages"

    def start(self, number: int, settings: dict[str, str], crash_at: str = NO_KILL) -> RunningBroker:
        name, port = ("one", "two")[number], self.ports[number]
        given = {
            "host": "127.0.0.1",
            "port": port,
            "data_dir": self._folder / name,
            "cluster.name": "abstraction",
            "cluster.node": name,
            "cluster.host": "127.0.0.1",
            "cluster.port": self._links[number],
            "cluster.join": f'["127.0.0.1:{self._links[0]}"]' if number else "[]",
            "admin.enabled": "true",
            "admin.port": self._admins[number],
            "edge.name": "north",
            "store.enabled": "true",
            "store.id": STORE,
            **settings,
        }
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        environment = [f"{VARIABLE}={crash_at}", f"HEADWATER_ADMIN__TOKEN={TOKEN}"]
        command = ["env", *environment, sys.executable, "-m", "headwater", "broker", *words]
        return RunningBroker(command, port, self._folder / f"{name}.log")

    def hand_over(self, crash_at: str = NO_KILL) -> int:
        """Its status."""
        words = [
            "--from",
            f"http://127.0.0.1:{self._admins[0]}",
            "--data-dir",
            str(self._folder / "two"),
            "--node",
            "two",
        ]
        environment = [f"{VARIABLE}={crash_at}", f"HEADWATER_ADMIN__TOKEN={TOKEN}"]
        command = ["env", *environment, sys.executable, "-m", "headwater", "edge", "hand-over", *words]
        with (self._folder / "hand-over.log").open("ab") as log:
            return subprocess.run(command, stdout=log, stderr=log, timeout=PATIENCE, check=False).returncode

    def handed_over(self) -> None:
        """Once more while the source does not answer yet. Raises BrokerError if it comes to nothing."""
        deadline = time.monotonic() + PATIENCE
        while (status := self.hand_over()) != 0:
            if time.monotonic() > deadline:
                said = (self._folder / "hand-over.log").read_text()[-500:]
                raise BrokerError(f"hand-over ended with status {status}: {said}")


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise BrokerError(f"{what} did not come in {PATIENCE:g} s")
        time.sleep(0.02)


@contextlib.contextmanager
def stopping() -> Iterator[list[RunningBroker]]:
    running: list[RunningBroker] = []
    try:
        yield running
    finally:
        for node in running:
            node.stop()


def episode(folder: Path, point: str) -> tuple[Counter[str], float]:
    """What was wrong, and how often `point` was hit; the longest wait of the device in seconds."""
    found: Counter[str] = Counter()
    pair = Pair(folder)
    with stopping() as running:
        running.append(pair.start(0, SOURCE, point if point in OF_SOURCE else NO_KILL))
        device = Device(pair.ports[0])
        until(lambda: device.acknowledged >= ENOUGH, "the beginning")
        if point:
            found[point] += _killed(pair, running, point)
        if point != ADOPTED:
            pair.handed_over()
        before = device.acknowledged
        running.append(pair.start(1, DELIVERY))
        until(lambda: device.acknowledged >= before + ENOUGH, "what is published behind it")
        device.stop()
    found["device_reconnects"] += max(0, device.connections - (2 if point in OF_SOURCE else 1))
    found.update(wrong_in(pair.messages, device.acknowledged))
    return found, device.longest


def _killed(pair: Pair, running: list[RunningBroker], point: str) -> bool:
    """Whether somebody was, at the point; whoever has to be there again is."""
    status = pair.hand_over(NO_KILL if point in OF_SOURCE else point)
    if point not in OF_SOURCE:
        return status == KILLED
    node = running.pop()
    with contextlib.suppress(BrokerError):
        until(lambda: not is_alive(node), "the source's end")
    has_died = not is_alive(node)
    node.stop()
    running.append(pair.start(0, RECEIVING if point == "hand-over-fenced" else SOURCE))
    return has_died


def is_alive(node: RunningBroker) -> bool:
    try:
        node.check_alive()
    except BrokerError:
        return False
    return True


def wrong_in(folder: Path, acknowledged: int) -> Counter[str]:
    store = DiskStore(folder, create=False)
    try:
        rows = [entry for chunk in store.select(Query()) for entry in chunk.entries()]
        found: Counter[str] = Counter(unreadable=int(store.id != STORE))
    finally:
        store.close()
    numbers = Counter(int(row.payload) for row in rows)
    found["lost"] += sum(number not in numbers for number in range(acknowledged))
    found["stored_twice"] += numbers.total() - len(numbers)
    found["disorder"] += [int(row.payload) for row in rows] != sorted(numbers.elements())
    found["unreadable"] += [row.position for row in rows] != list(range(1, len(rows) + 1))
    return found


def measure(folder: Path, points: tuple[str, ...] = (NO_KILL, *HAND_OVER_POINTS)) -> dict[str, Any]:
    """Figures, and what they were taken with."""
    total: Counter[str] = Counter()
    waits: dict[str, float] = {}
    failures: list[str] = []
    for number, point in enumerate(points):
        place = folder / str(number)
        place.mkdir()
        try:
            found, waits[point] = episode(place, point)
        except (BrokerError, subprocess.TimeoutExpired) as error:
            found = Counter(unreadable=1)
            failures.append(f"killed at {point or 'nothing'}: {error}")
        total.update(found)
        failures += [f"killed at {point or 'nothing'}: {name} {found[name]}" for name in WRONG if found[name]]
    return {
        "figures": {
            **{f"abstraction/{name}": total[name] for name in WRONG},
            **{f"kills/{point}": total[point] for point in points if point},
            **({"abstraction/pause_ms": round(1000 * waits[NO_KILL], 1)} if NO_KILL in waits else {}),
        },
        "longest wait of the device in s": {point or "no kill": round(wait, 3) for point, wait in waits.items()},
        "failures": failures + [f"never killed at {point}" for point in points if point and not total[point]],
    }
