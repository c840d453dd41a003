"""A cluster in memory whose nodes a test kills, stops and cuts off, and whose wills it counts.

Each node has a clock, a disk (tests/node/persistence/durable.py) and links; a second passes for all that run at a time.
A will is known by its payload, of which there is one for each connection. It counts as published by a node when the
commit of that is on disk: what a node published in a turn that a kill undid was not published.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import combinations
from typing import Any

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.links.link import CLOSED, UP
from headwater.node.links.settings import ClusterSettings
from headwater.node.links.wills import Wills
from headwater.node.persistence.memory import MemoryBackend
from headwater.wire.packets import Connect, Disconnect, Properties, Will
from tests.node.links.memory import ROOMY, Node, Wire
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker

NAMES = ("a", "b", "c")
SETTINGS: dict[str, Any] = {"will_after": 10.0, "heartbeat": 1.0, "patience": 5.0}


class WillingBroker(DurableBroker):
    """It knows its wills before it recovers what is on disk. `elapsed`: seconds that have passed in its world."""

    def __init__(self, backend: MemoryBackend, config: Config, elapsed: float = 0.0) -> None:
        self.elapsed = elapsed
        super().__init__(backend, config)

    def prepare(self) -> None:
        self.server.hot.now += self.elapsed  # what is on disk has times of the same clock
        self.wills = Wills(self.server, ClusterSettings(name="test", **SETTINGS))
        self.published: list[tuple[int, bytes]] = []
        self.hooks.add("will_sent", self._sent)

    def _sent(self, will: Message, client_id: str) -> None:
        self.published.append((self.journal.sequence, will.payload))

    def reborn(self, keep: int | None, elapsed: float) -> WillingBroker:
        return WillingBroker(self.backend.crashed(keep), self.server.config, elapsed)


class WillingNode(Node):
    def __init__(
        self, name: str, broker: WillingBroker, boot: int, names: tuple[str, ...], sessions: bool = False
    ) -> None:
        super().__init__(name, broker, boot, sessions=sessions, **SETTINGS)
        for other in names:
            if other != name:
                self.links.join(other, is_known=True)
        self.wills = broker.wills
        self.wills.begin(self.links)
        self.settle()


class World:
    """`sessions`: those of clients move along."""

    def __init__(self, names: tuple[str, ...] = NAMES, sessions: bool = False) -> None:
        self.names = names
        self.sessions = sessions
        self.nodes: dict[str, WillingNode] = {}
        self.disks: dict[str, WillingBroker] = {}
        self.elapsed = 0.0
        self.boots = Counter(names)
        self.wires: dict[tuple[str, str], Wire] = {}
        self.cuts: set[tuple[str, str]] = set()
        """Pairs between which nothing moves."""
        self.stopped: dict[str, float] = {}
        """Seconds that a node has missed."""
        self.clients: dict[str, Client] = {}
        self.done: Counter[bytes] = Counter()
        """Wills that were published by lives of nodes that have ended."""
        for name in names:
            self._start(name, WillingBroker(MemoryBackend(), Config(**ROOMY)))
        self.settle()
        self.later(2)

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, broker: WillingBroker) -> None:
        self.boots[name] += 1
        self.disks[name] = broker
        self.nodes[name] = WillingNode(name, broker, self.boots[name], self.names, self.sessions)

    def kill(self, name: str, keep: int | None = 0) -> None:
        """Of what its disk was not asked to sync, `keep` batches are there when it comes back."""
        node = self.nodes.pop(name)
        self.stopped.pop(name, None)
        broker = self.disks[name]
        durable = broker.server.hot.durable
        self.done.update(payload for sequence, payload in broker.published if sequence <= durable)
        self.disks[name] = broker.reborn(keep, self.elapsed)
        for pair in [pair for pair in self.wires if name in pair]:
            wire = self.wires.pop(pair)
            side = 1 - wire.nodes.index(node)
            if pair not in self.cuts and wire.links[side].channel.fd >= 0:
                wire.nodes[side].server.lost(wire.links[side].channel)
                wire.nodes[side].broker.turn()
        self.clients = {key: each for key, each in self.clients.items() if each.broker is not broker}

    def restart(self, name: str) -> None:
        self._start(name, self.disks[name].reborn(None, self.elapsed))

    def stop(self, name: str) -> None:
        """SIGSTOP."""
        self.stopped[name] = 0.0

    def go_on(self, name: str) -> None:
        self.nodes[name].server.hot.now += self.stopped.pop(name)

    def runs(self, name: str) -> bool:
        return name in self.nodes and name not in self.stopped

    # ---- links -----------------------------------------------------------------------------------------------------

    def cut(self, *pairs: tuple[str, str]) -> None:
        self.cuts.update((min(pair), max(pair)) for pair in pairs)

    def isolate(self, name: str) -> None:
        self.cut(*[(name, other) for other in self.names if other != name])

    def heal(self) -> None:
        self.cuts.clear()

    def _link(self) -> None:
        """Whoever can reach another one dials."""
        for pair in combinations(sorted(self.names), 2):
            wire = self.wires.get(pair)
            if pair in self.cuts or not all(map(self.runs, pair)):
                continue
            if wire is None or all(link.phase == CLOSED for link in wire.links):
                one, other = self.nodes[pair[0]], self.nodes[pair[1]]
                if not (one.name in other.links.up or other.name in one.links.up):
                    self.wires[pair] = Wire(one, other)

    def move(self) -> bool:
        """One round of bytes; whether there were any."""
        is_moving = False
        for node in self.nodes.values():
            if node.name not in self.stopped:
                node.broker.turn()
        for pair, wire in list(self.wires.items()):
            for side in (0, 1):
                receiver = wire.nodes[1 - side].name
                if pair not in self.cuts and receiver not in self.stopped:
                    is_moving = wire.move(side) or is_moving
        return is_moving

    def sync(self) -> None:
        for node in self.nodes.values():
            if node.name not in self.stopped:
                node.settle()

    def settle(self) -> None:
        """Until nothing moves any more."""
        self._link()
        self.sync()
        while self.move():
            self.sync()
        for node in self.nodes.values():
            server = node.server
            assert (server.stats.failures, server.timers.failures, server.background.failures) == (0, 0, 0)

    def later(self, seconds: int) -> None:
        for _ in range(seconds):
            self.elapsed += 1.0
            for name, node in self.nodes.items():
                if name in self.stopped:
                    self.stopped[name] += 1.0
                else:
                    node.broker.later(1.0)
            self.settle()

    # ---- clients ---------------------------------------------------------------------------------------------------

    def connect(
        self, name: str, client_id: str, payload: bytes, delay: int = 0, expiry: int = 1000, qos: int = 1
    ) -> Client:
        """Not settled: what follows from it is not on disk, and not told."""
        will = Will("w", payload, qos, False, Properties(will_delay_interval=delay) if delay else None)
        properties = Properties(session_expiry_interval=expiry)
        client = Client(self.nodes[name].broker)
        client.version = 5
        client.send(Connect(client_id, 5, clean_start=False, will=will, properties=properties))
        self.clients[client_id] = client
        return client

    def lose(self, client_id: str) -> None:
        self.clients.pop(client_id).lose()

    def disconnect(self, client_id: str) -> None:
        self.clients.pop(client_id).send(Disconnect())

    def is_elsewhere(self, client_id: str) -> None:
        """All nodes that run hear that the client has connected at another one."""
        for name, node in self.nodes.items():
            if name not in self.stopped:
                node.wills.connected_elsewhere(client_id, int(time.time() * 1000) + 1 << 16)

    def deputy(self, client_id: str) -> str:
        for node in self.nodes.values():
            session = node.server.sessions.get(client_id)
            if session is not None:
                return session.will_deputy
        return ""

    # ---- wills -----------------------------------------------------------------------------------------------------

    @property
    def published(self) -> Counter[bytes]:
        found = Counter(self.done)
        for name in self.nodes:
            found.update(payload for _, payload in self.disks[name].published)
        return found

    def is_up(self) -> bool:
        return all(link.phase == UP for wire in self.wires.values() for link in wire.links)
