"""A node of a cluster as a process: its lives on one data folder, and what it is told while it lives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater.node.broker import Broker
from headwater.node.config import Config, load_config
from headwater.node.delivery.gate import BrokerGate
from headwater.node.delivery.listening import listen_for_rest
from headwater.node.delivery.peers import Members, peer_token_of
from headwater.node.delivery.serving import rest_server
from headwater.node.links import cluster as loaded_before_it_is_forked
from headwater.node.persistence import persistence, recovery
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.schema import open_folder
from headwater.node.plane.selector import run
from headwater.store.rest.serving import RestServer
from headwater_lab.chaos.disks import UnsyncedIsLost
from headwater_lab.chaos.lives import KEPT, BrokerFailed, Lives, Process, Settings, fork
from headwater_lab.cluster_chaos.namespaces import Namespaces, NodeInNamespace
from headwater_lab.cluster_chaos.relay import Relay

LOADED: Final = (loaded_before_it_is_forked, persistence, recovery)
CLUSTER: Final = "chaos"
SECRET: Final = "what all nodes know"
WRONG: Final = ("makes no sense", "Traceback", "failed")
"""What the log of a node must not have."""
DISK_IS_FULL: Final = "disk is full"
PATIENCE: Final = 30.0

Disk = Callable[[Path, int], Backend | None]
"""Where a node keeps what it has, given its folder and a seed; None: as the settings say."""


def _honest(folder: Path, seed: int) -> Backend | None:
    return None


def _power_cuts(folder: Path, seed: int) -> Backend | None:
    return UnsyncedIsLost(open_folder(folder), Random(seed))


def _lies(folder: Path, seed: int) -> Backend | None:
    return UnsyncedIsLost(open_folder(folder), Random(seed), lies=True)


DISKS: Final[dict[str, Disk]] = {"sync": _honest, "power-cuts": _power_cuts, "lying-disk": _lies}
"""The last is there to be found."""


class ClusterNode(Lives):
    """`port` is 0 while it does not listen. `moves`: at its next start it has the other one of its addresses."""

    def __init__(self, name: str, folder: Path, network: Relay | Namespaces, disk: str) -> None:
        super().__init__(folder / name, None)
        self.name = name
        self.disk = disk
        self._network = network
        self._place = 0
        self._orders = -1
        self._asked = 0
        self.clock = 0.0
        """Seconds by which its clock is ahead of that of this machine."""

    def move(self) -> None:
        self._place = 1 - self._place

    @property
    def address(self) -> str:
        """Where other nodes reach it."""
        return self._network.addresses[self.name][self._place]

    def _start(self, crash_at: str) -> bool:
        """The port of clients is known when somebody listens there."""
        try:
            if super()._start(crash_at):
                return True
        except BrokerFailed:
            self.port = 0
            raise
        self.port = 0
        return False

    def _spawn(self, crash_at: str) -> Process:
        host, link_port = self._network.place_of(self.name, self._place)
        self._network.lead_to(self.name, link_port)
        others = [places[0] for node, places in self._network.addresses.items() if node != self.name]
        settings = {
            **self.settings,
            "cluster.name": CLUSTER,
            "cluster.node": self.name,
            "cluster.host": host,
            "cluster.port": link_port,
            "cluster.advertise": self.address,
            "cluster.join": others,
            "cluster.secret": SECRET,
        }
        config = _config(self.port, self.data, settings)
        self._close_orders()
        reader, self._orders = os.pipe()
        try:
            network = self._network.network_of(self.name)
            return fork(partial(self.live, config, network), self.log, crash_at, reader)
        finally:
            os.close(reader)

    def live(self, config: Config, network: str) -> int:
        """In the node's process."""
        return serve(config, self.disk, network, self.clock)

    def kill(self) -> None:
        super().kill()
        self.port = 0

    def jump(self, seconds: float) -> None:
        """Of its clock: what the time is, not how long something takes (`time.time`, not `time.monotonic`)."""
        self.clock += seconds
        self.order("clock", str(self.clock))

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def order(self, *words: str) -> None:
        """`leave`, `join ADDRESS`, `forget NODE`; carried out soon."""
        os.write(self._orders, (" ".join(words) + "\n").encode())

    def view(self) -> dict[str, Any]:
        """What it knows of the cluster. Raises BrokerFailed."""
        found: dict[str, Any] = self.ask("view")
        return found

    def ask(self, what: str) -> Any:
        """What it answers to an order that is given a file for that. Raises BrokerFailed."""
        self._asked += 1
        answer = self.log.parent / f"{what}-{self._asked}.json"
        self.order(what, str(answer))
        deadline = time.monotonic() + PATIENCE
        while not answer.exists():
            if time.monotonic() > deadline or self.died():
                raise BrokerFailed(f"node {self.name} does not say what it knows; {self._last_words()}")
            time.sleep(0.005)
        found = json.loads(answer.read_text())
        answer.unlink()
        return found

    def is_linked_with(self, others: list[str]) -> bool:
        """And has heard all that they want."""
        up = {each["peer"] for each in self.view()["links"] if each["state"] == "up"}
        return set(others) <= up

    def complaints(self) -> list[str]:
        """Of what no node of ours does to another one, and of failures."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(words in line for words in WRONG) and DISK_IS_FULL not in line]

    def _close_orders(self) -> None:
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def close(self) -> None:
        self.kill()
        self._close_orders()


def _config(port: int, data: Path, settings: Settings) -> Config:
    given = {"port": port, "data_dir": str(data), "durability": "sync", "sys_interval": 0, "log_level": "info"}
    return load_config(None, {**given, **settings}, {})


_true_time: Final = time.time


def _set_clock(ahead: float) -> None:
    """Of this process. A time namespace cannot shift the time of day, and the machine's is not ours to set."""
    time.time = lambda: _true_time() + ahead


Obey = Callable[[Broker, list[str]], None]
"""Carries out an order."""


def serve(config: Config, disk: str, network: str, clock: float, obey: Obey | None = None) -> int:
    """A node that takes orders, line by line. `network` is the file of its namespace, or "": this one. `clock`: seconds
    by which it is ahead."""
    _set_clock(clock)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    backend = DISKS[disk](Path(config.data_dir), config.port)

    async def living() -> int:
        broker = NodeInNamespace(config, backend=backend) if network else Broker(config, backend=backend)
        if isinstance(broker, NodeInNamespace):
            broker.network = network
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        sockets = listen_for_rest(config.rest) if config.rest.enabled else []  # before it enters its namespace
        await broker.start()
        rest = _rest(broker, sockets) if sockets else None
        if rest is not None:
            await asyncio.to_thread(rest.start)
        loop.add_reader(KEPT, partial(_read_orders, broker, obey or obeyed))
        await stop.wait()
        loop.remove_reader(KEPT)
        if rest is not None:
            await asyncio.to_thread(rest.stop)
        await broker.stop()
        return 0 if broker.failure is None else 1

    return run(living())


def _rest(broker: Broker, sockets: list[socket.socket]) -> RestServer:
    assert broker.store is not None
    settings = broker.config.rest
    peers = Members(settings, peer_token_of(broker.config))
    return rest_server(broker.store, BrokerGate(broker, settings, ""), settings, sockets, None, peers)


def _read_orders(broker: Broker, obey: Obey) -> None:
    for line in os.read(KEPT, 1 << 16).decode().splitlines():
        obey(broker, line.split())


def obeyed(broker: Broker, words: list[str]) -> None:
    cluster = broker.cluster
    assert cluster is not None
    match words:
        case ["leave"]:
            cluster.leave()
        case ["join", *addresses]:
            cluster.join(addresses)
        case ["forget", node]:
            with contextlib.suppress(ValueError):  # the other one has heard of it
                cluster.forget(node)
        case ["clock", ahead]:
            _set_clock(float(ahead))
        case ["view", file]:
            view = cluster.view()
            found = {
                "nodes": [each._asdict() for each in view.nodes],
                "links": [each._asdict() for each in view.links],
            }
            answer(file, found)


def answer(file: str, found: Any) -> None:
    """All at once."""
    fresh = Path(f"{file}.new")
    fresh.write_text(json.dumps(found))
    fresh.rename(file)
