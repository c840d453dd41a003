"""The nodes of a scenario, each a process of its own, and whether each message goes where it belongs.

An edge that is not split is `headwater node`. Tiers are nodes of one cluster: delivery tiers with store and REST,
receiving ones with neither store nor disk.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Self

from headwater.edge.copies import Copy, from_batch
from headwater.fleet.devices import Fleet
from headwater.fleet.node import RunningNode
from headwater.fleet.process import BrokerError, RunningBroker
from headwater.store.reader import StoreReader
from headwater.wire.packets import Publish
from headwater_lab.cluster.caller import Caller
from headwater_lab.reproduce.edge.plan import FILTERS, PERIOD, ROOMS, TOPICS, Scenario, Tier

CLUSTER: Final = "edges"
READY_LIMIT: Final = 60.0
"""Seconds within which all messages have to go where they belong."""
PROBE_WAIT: Final = 1.0
"""Seconds that a round of probes has; what was not where it belongs then was sent before all knew the owners."""
SOON: Final = 0.05
PORTS: Final = range(20000, 32000)


class Stored(NamedTuple):
    """What REST returns; `tier` is the place of the delivery tier among all."""

    tier: int
    copy: Copy


class Ground:
    """Started and ready in a `with`, which stops it. `ports` are those of the receiving tiers, `sources` what the cloud
    subscribes to where, `stores` where it asks by REST; both are of the delivery tiers."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.nodes: dict[str, RunningBroker] = {}
        self._started: list[RunningBroker] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="headwater-edge-")))
            stack.callback(self._stop_all)
            self._start_all(folder)
            delivery = [self.nodes[tier.name] for tier in self.scenario.delivery]
            self.ports = [self.nodes[tier.name].port for tier in self.scenario.receiving]
            self.sources = [(node.port, tier.owns) for node, tier in zip(delivery, self.scenario.delivery, strict=True)]
            self.stores = [StoreReader(node.url) for node in delivery if isinstance(node, RunningNode)]
            self._wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_all(self, folder: Path) -> None:
        """At the same time, on as many processors as there are. Whatever ends this, those that started are known."""
        tiers = self.scenario.tiers
        ports = _free_ports(3 * len(tiers))
        links = {tier.name: ports.pop() for tier in tiers}

        def note(starting: Future[RunningBroker]) -> None:
            if starting.exception() is None:
                self._started.append(starting.result())

        with ThreadPoolExecutor(len(tiers)) as pool:
            found: list[Future[RunningBroker]] = []
            for tier in tiers:
                words = (tier, folder / tier.name, ports.pop(), ports.pop(), self._options(tier, links))
                found.append(pool.submit(_started, *words))
                found[-1].add_done_callback(note)
        self.nodes = {tier.name: starting.result() for tier, starting in zip(tiers, found, strict=True)}

    def _stop_all(self) -> None:
        with ThreadPoolExecutor(len(self.scenario.tiers)) as pool:
            list(pool.map(RunningBroker.stop, self._started))

    def _options(self, tier: Tier, links: dict[str, int]) -> list[str]:
        if not self.scenario.is_split:
            return []
        words = ["--cluster", CLUSTER, "--node", tier.name, "--cluster-port", str(links[tier.name])]
        for name, port in links.items():
            if name != tier.name:
                words += ["--join", f"localhost:{port}"]
        role = "delivery" if tier.delivers else "receiving"
        settings = {"name": tier.edge, "roles": json.dumps([role])}
        if tier.owns:
            settings["owns"] = json.dumps(tier.owns)
        return words + [word for name, value in settings.items() for word in ("--set", f"edge.{name}={value}")]

    def nexts(self) -> list[int]:
        """The next position of each store."""
        return [store.status()["next"] for store in self.stores]

    def stored(self, begins: list[int]) -> list[Stored]:
        """All messages of the experiment's topics from these positions on, of each store in the order of positions,
        whether its tier should have them or not."""
        return [
            Stored(tier, copy)
            for tier, (store, begin) in enumerate(zip(self.stores, begins, strict=True))
            for copy in sorted(
                copy
                for filter in FILTERS
                for batch in store.read(begin - 1, topic=filter)
                for copy in from_batch(batch)
            )
        ]

    def check_alive(self) -> None:
        for node in self.nodes.values():
            node.check_alive()

    def cpu_seconds(self) -> dict[str, float]:
        """Of each node since its start."""
        return {name: node.cpu_seconds() for name, node in self.nodes.items()}

    # ---- ready ---------------------------------------------------------------------------------------------------

    def _wait_until_ready(self) -> None:
        """Return when a probe of each topic, from each receiving tier, is in the store of the tier that owns the topic,
        and in no other. BrokerError: that is not so in time."""
        deadline = time.monotonic() + READY_LIMIT
        topics = Fleet(TOPICS, ROOMS, 1.0 / PERIOD).topics()
        with ExitStack() as stack:
            callers = [stack.enter_context(Caller(port, f"probe-{port}")) for port in self.ports]
            number = 0
            while True:
                number += 1
                begins = self.nexts()
                payloads = [b"probe %d of %d" % (number, place) for place in range(len(callers))]
                for caller, payload in zip(callers, payloads, strict=True):
                    caller.send(*(Publish(topic, payload) for topic in topics))
                wanted = Counter((self.scenario.owner(topic), topic, each) for topic in topics for each in payloads)
                if self._arrives(wanted, begins):
                    return
                if time.monotonic() > deadline:
                    raise BrokerError(f"the tiers of {self.scenario.name} did not find their owners in time")

    def _arrives(self, wanted: Counter[tuple[int, str, bytes]], begins: list[int]) -> bool:
        payloads = {payload for _, _, payload in wanted}
        limit = time.monotonic() + PROBE_WAIT
        while time.monotonic() < limit:
            self.check_alive()
            stored = self.stored(begins)
            found = Counter((each.tier, each.copy.topic, each.copy.payload) for each in stored)
            if Counter({row: count for row, count in found.items() if row[2] in payloads}) == wanted:
                return True
            time.sleep(SOON)
        return False


def _started(tier: Tier, folder: Path, port: int, rest_port: int, options: list[str]) -> RunningBroker:
    folder.mkdir()
    if tier.delivers:
        return RunningNode(folder, port=port, rest_port=rest_port, options=options)
    words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), *options]
    return RunningBroker(words, port, folder / "node.log")


def _free_ports(count: int) -> list[int]:
    """Of those that the system does not give to whoever asks for any: until a node has started, which takes seconds on
    a machine that has much to do, nobody else gets its port."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found
