"""One cluster over many faults, up to the last drain and the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater.node.links.settings import ClusterSettings
from headwater.wire.packets import V311
from headwater_lab.chaos.checker import Violation
from headwater_lab.chaos.draining import Drain, count
from headwater_lab.chaos.history import Acknowledged, Received, Sent, Settled
from headwater_lab.chaos.lives import BrokerFailed
from headwater_lab.chaos.subscriber import Subscriber
from headwater_lab.chaos.visitors import Prober
from headwater_lab.cluster_chaos.checker import BEGINS, Calm, ClusterChecker, Fault, Parted, Rejoined
from headwater_lab.cluster_chaos.faults import ALONE, APART, LONGEST, FaultOf, Faults
from headwater_lab.cluster_chaos.healing import Healing
from headwater_lab.cluster_chaos.namespaces import Namespaces
from headwater_lab.cluster_chaos.nodes import ClusterNode
from headwater_lab.cluster_chaos.population import populate
from headwater_lab.cluster_chaos.relay import Relay
from headwater_lab.cluster_chaos.roving import REGISTER, Rover
from headwater_lab.cluster_chaos.small_disk import mount, unmount
from headwater_lab.cluster_chaos.world import ClusterWorld
from headwater_lab.kill_campaign import EpisodeOutcome

NODES: Final = "abcdefg"
SIZES: Final = (3, 3, 4, 5, 7)
"""Of clusters, unless one is said."""
NETWORKS: Final[dict[str, type[Relay] | type[Namespaces]]] = {"relay": Relay, "namespaces": Namespaces}
MESH: Final = "mesh"
SHAPES: Final = {
    MESH: {},
    "ring": {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]},
    "line": {"a": ["b"], "b": ["a", "c"], "c": ["b"]},
}
"""Who of three is linked with whom, by `cluster.neighbours`: messages are relayed, and sessions and groups are each
node's own. In a mesh, all."""
HEAL_LIMIT: Final = 60.0
"""Seconds within which a cluster has to be healed."""
LINK_LIMIT: Final = 30.0
STOP_LIMIT: Final = 60.0
SILENCE: Final = 12.0
"""Seconds in which nothing at all happens, after which nothing will."""
TWO_AT_A_TIME: Final = 0.25
TWO_FAULTS: Final = "two faults at a time"
NOT_HEALED: Final = 0.2
"""How often the next fault does not wait until the cluster is healed."""
HOPS: Final = 3
"""Moves whose time is taken after each fault."""
HOP_LIMIT: Final = 15.0
AGREE_LIMIT: Final = 45.0
"""Seconds after which all nodes have the same retained messages: nodes compare them every half minute."""
WILL_AFTER: Final = "will_after"
WAIT: Final = "wait"
CLEAN: Final = "clean"
SESSION_LOST: Final = (WAIT, CLEAN)


@dataclass(frozen=True, slots=True)
class Setup:
    """What all episodes of a campaign have in common."""

    disk: str
    network: str
    shape: str
    heartbeat: float
    patience: float
    size: int = 0
    """Nodes; 0: 3 to 7."""
    small_disks: bool = False
    session_lost: str = WAIT
    """`cluster.session_lost`; "": drawn."""


class ClusterEpisode:
    def __init__(self, seed: int, folder: Path, setup: Setup, faults: Faults) -> None:
        self.random = Random(seed)
        self.setup = setup
        self.folder = folder
        self.patience_of_links = setup.patience
        self.session_lost = setup.session_lost or self.random.choice(SESSION_LOST)
        is_mesh = setup.shape == MESH
        names = self.names()
        self.network = NETWORKS[setup.network](names, folder / "network.log")
        self.nodes = {name: self.make_node(name) for name in names}
        self._small_disks = setup.small_disks
        self.world = self.make_world(seed)
        self.outcome = EpisodeOutcome(seed)
        self.healed: list[tuple[str, float]] = []
        """By kind of fault, seconds."""
        self._faults = faults
        self.drain = Drain(self.world, SILENCE)
        self._is_peopled = False
        self.populate()
        settings = {
            "cluster.heartbeat": setup.heartbeat,
            "cluster.patience": setup.patience,
            "cluster.method": self.random.choice(("flood", "subscribe", "bloom")),
            "cluster.session_lost": self.session_lost,
            "max_inflight": self.random.choice((3, 1024)),
        }
        if WILL_AFTER in ClusterSettings.model_fields:
            settings[f"cluster.{WILL_AFTER}"] = 2 * setup.patience
        self._neighbours = SHAPES[setup.shape] or {name: [each for each in names if each != name] for name in names}
        for name, node in self.nodes.items():
            relaying = {} if is_mesh else {"cluster.neighbours": self._neighbours[name]}
            node.settings = settings | relaying | self.settings_of(name)
        self.network.delay(self.random.choice((0.0, 0.0, 0.005, 0.05)))

    # ---- what other campaigns with nodes of a cluster do in their own way ---------------------------------------

    def names(self) -> list[str]:
        if self.setup.shape != MESH:
            return list(NODES[:3])
        return list(NODES[: self.setup.size or self.random.choice(SIZES)])

    def make_node(self, name: str) -> ClusterNode:
        return ClusterNode(name, self.folder, self.network, self.setup.disk)

    def make_world(self, seed: int) -> ClusterWorld:
        return ClusterWorld(seed, self.nodes)

    def populate(self) -> None:
        populate(self.world, rate=15, roving=self.setup.shape == MESH)

    def settings_of(self, name: str) -> dict[str, Any]:
        """Of one node, besides what all have."""
        return {}

    def settle(self) -> None:
        """All has been delivered: wait for what the nodes have to agree on."""
        self._compare()

    def judge(self) -> list[Violation]:
        """After the peaceful end."""
        return self.checker().check()

    # ---- from start to end -------------------------------------------------------------------------------------

    def run(self, faults: int) -> EpisodeOutcome:
        try:
            for name, node in self.nodes.items():
                if self._small_disks:
                    mount(node.data)
                self.start(name)
            self.link()
            self._subscribe()
            self.world.run_until(lambda: False, 0.5)
            while (left := faults - self.outcome.kills.total()) > 0:
                self._suffer(left)
            self._drain()
            self.count()
            return self.outcome
        finally:
            self.world.close()
            for node in self.nodes.values():
                node.close()
                if self._small_disks:
                    unmount(node.data)
            self.network.close()

    # ---- the beginning -----------------------------------------------------------------------------------------

    def link(self) -> None:
        """All nodes with each other: what is subscribed to from then on is known everywhere when it is acknowledged."""
        deadline = time.monotonic() + LINK_LIMIT
        while not all(node.is_linked_with(self._neighbours[name]) for name, node in self.nodes.items()):
            if time.monotonic() > deadline:
                raise BrokerFailed("nodes are not linked with each other")
            if self._is_peopled:
                self.world.run_until(lambda: False, 0.02)
            else:
                time.sleep(0.02)

    def _subscribe(self) -> None:
        self._is_peopled = True
        subscribers = [each for each in self.world.clients if isinstance(each, Subscriber)]
        for client in self.world.clients:
            client.wake = 0 if client in subscribers else self.world.now + LINK_LIMIT
            client.calm = True
        done = self.world.run_until(lambda: all(each.subscribed and not each.asked for each in subscribers), LINK_LIMIT)
        if not done:
            raise BrokerFailed("subscriptions are not acknowledged")
        for client in self.world.clients:
            client.wake = self.world.now
            client.calm = False

    # ---- faults ------------------------------------------------------------------------------------------------

    def _suffer(self, left: int) -> None:
        """One fault, or two that overlap; then the cluster heals, or has no time to."""
        self._calm(False)
        free = list(self.nodes)
        faults = [self._faults.choose(self, self.random, free)]
        is_alone = type(faults[0]) in ALONE or faults[0].is_alone or left < 2
        if not is_alone and self.random.random() < TWO_AT_A_TIME:
            free = [node for node in free if node not in faults[0].nodes]
            faults.append(self._faults.choose(self, self.random, free))
        for fault in faults:
            self.begin(fault)
        for fault in self.random.sample(faults, len(faults)):
            fault.end()
            self._note(f"is over: {fault}")
            self.outcome.kills[fault.kind] += 1
        self._heal(faults)

    def begin(self, fault: FaultOf) -> None:
        self._note(f"{BEGINS}{fault}")
        fault.begin()
        self.endure(fault)

    def endure(self, fault: FaultOf) -> None:
        self.world.run_until(lambda: False, fault.lasts)

    def _heal(self, faults: list[FaultOf]) -> None:
        if self.random.random() < NOT_HEALED and type(faults[0]) not in APART:
            self.world.run_until(lambda: False, self.random.uniform(0, 0.5))
            return
        healing = Healing(self.world.history, time.monotonic(), list(self.nodes))
        kind = faults[0].kind if len(faults) == 1 else TWO_FAULTS
        if not self.world.run_until(healing.is_over, HEAL_LIMIT):
            raise BrokerFailed(f"healing: nothing came from {healing} {HEAL_LIMIT:g} s after {faults[0]}")
        for fault in faults:
            fault.healed()
        self.outcome.waited("healing", healing.seconds)
        self.healed.append((kind, healing.seconds))
        self._note(f"healed after {healing.seconds:.2f} s")
        self._hop()
        self.in_peace()
        self.world.run_until(lambda: False, self.random.uniform(0, 0.3))

    def in_peace(self) -> None:
        """Nothing is wrong now."""

    def _hop(self) -> None:
        """Clients move while nothing is wrong, and the time is taken."""
        settled = self.world.run_until(lambda: all(each.ready for each in self.rovers()), HOP_LIMIT)
        if not settled:
            away = ", ".join(f"{each.name}: {each.state()}" for each in self.rovers() if not each.ready)
            raise BrokerFailed(f"healed, and {HOP_LIMIT:g} s later clients are not connected: {away}")
        self._calm(True)
        hopping = self.random.sample(self.rovers(), min(HOPS, len(self.rovers())))
        for each in hopping:
            each.hop()
        if not self.world.run_until(lambda: not any(each.hops for each in hopping), HOP_LIMIT):
            names = ", ".join(each.name for each in hopping if each.hops)
            raise BrokerFailed(f"nothing is wrong, and after {HOP_LIMIT:g} s these have not moved: {names}")

    def rovers(self) -> list[Rover]:
        return [each for each in self.world.clients if isinstance(each, Rover)]

    def _calm(self, is_calm: bool) -> None:
        self.world.note(Calm(time.monotonic(), is_calm))

    def _note(self, text: str) -> None:
        self.world.note(Fault(time.monotonic(), text))

    def kill(self, name: str) -> None:
        self.nodes[name].kill()
        self.world.node_died(name)

    def start(self, name: str, crash_at: str = "") -> bool:
        """False if it died at the crash point before it listened."""
        self.world.life += 1
        listens = self.nodes[name].start(crash_at)
        self.world.now = time.monotonic()
        if listens:
            self.outcome.waited("start", self.nodes[name].seconds_to_listen)
            for client in self.world.clients_of(name):
                client.wake = min(client.wake, self.world.now)
        return listens

    def terminate(self, name: str) -> None:
        node = self.nodes[name]
        node.stop()
        if not self.world.run_until(node.stopped, STOP_LIMIT):
            raise BrokerFailed(f"node {name} was to stop, and did not")
        node.port = 0
        self.world.node_died(name)

    def part(self, name: str) -> None:
        """A node is about to leave: what it is owed has to be there before, and sessions that move have gone."""
        self.world.closed.add(name)
        for rover in self.rovers():
            if rover.node == name:
                rover.cut(0.0)
        self.drain.calm(True)
        self.drain.finish("came to its end before a node left")
        self.drain.until_quiet(lambda: not any(self.checker().lost()))
        self.world.note(Parted(self.world.now, name))
        self.drain.calm(False)

    def forget(self, name: str) -> None:
        """All others, as soon as they hold it for dead."""
        others = [node for other, node in self.nodes.items() if other != name]

        def is_forgotten() -> bool:
            for node in others:
                node.order("forget", name)
            return all(name not in [each["node"] for each in node.view()["nodes"]] for node in others)

        deadline = time.monotonic() + LINK_LIMIT + 60 * self.patience_of_links
        while not is_forgotten():
            if time.monotonic() > deadline:
                raise BrokerFailed(f"node {name} cannot be forgotten")
            self.world.run_until(lambda: False, 0.2)

    def rejoin(self, name: str) -> None:
        self.link()
        self.world.note(Rejoined(time.monotonic(), name))
        self.world.closed.discard(name)

    # ---- the end -----------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        began = time.monotonic()
        self.drain.end_of_clients()
        self.drain.until_quiet(lambda: not any(self.checker().lost()))
        self.outcome.waited("drain", time.monotonic() - began)
        self.settle()
        self.come_back()
        self.outcome.wrong += [str(each) for each in self.judge()]
        for node in self.nodes.values():
            self.outcome.wrong += [f"node: {node.name}: {line}" for line in node.complaints()]

    def _compare(self) -> None:
        """Retained messages of all nodes, until they are the same or should be."""
        probers = [Prober(self.world, f"probe@{name}", V311, f"{REGISTER}/#") for name in self.nodes]
        for each in probers:
            each.calm = True
        self.world.clients += probers
        self.drain.finish("was shown what is retained")
        deadline = time.monotonic() + AGREE_LIMIT
        while any(each.found != probers[0].found for each in probers) and time.monotonic() < deadline:
            for each in probers:
                each.look_again()
            self.drain.finish("was shown what is retained")

    def come_back(self) -> None:
        """After a peaceful end nothing is left to deliver."""
        self.world.note(Settled(self.world.now))
        self._calm(False)  # nodes start one after the other
        for name in self.nodes:
            self.terminate(name)
        for name in self.nodes:
            self.start(name)
        self.link()
        self.drain.finish("came back after a peaceful end")
        self.drain.until_quiet(lambda: True)

    def checker(self) -> ClusterChecker:
        on_the_way = 2 * LONGEST * self.patience_of_links
        return ClusterChecker(self.world.history, on_the_way, self.session_lost == CLEAN)

    def count(self) -> None:
        count(self.outcome.counts, self.world.history, Sent, Acknowledged, Received)
        self.outcome.counts["moves"] = sum(each.moves for each in self.rovers())
        wills = {note.message for note in self.world.history.notes.values() if note.will}
        came = {each.message for each in self.world.history.events if isinstance(each, Received)}
        self.outcome.counts["wills"] = len(wills & came)
        self.outcome.counts["begun anew"] = sum(each.begun_anew for each in self.rovers())
