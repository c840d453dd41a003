"""One edge over many faults and moves, up to the last drain and the verdict."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headwater.edge.status import EdgeStatus
from headwater_lab.chaos.checker import Violation
from headwater_lab.chaos.lives import BrokerFailed
from headwater_lab.cluster_chaos.checker import STUCK
from headwater_lab.cluster_chaos.episode import ClusterEpisode, Setup
from headwater_lab.cluster_chaos.faults import FaultOf, Faults
from headwater_lab.cluster_chaos.nodes import ClusterNode
from headwater_lab.edge_chaos.checker import PIPELINE, UNREADABLE, UNSETTLED, EdgeChecker
from headwater_lab.edge_chaos.faults import KINDS
from headwater_lab.edge_chaos.layout import LAYOUTS, SIZES, Place
from headwater_lab.edge_chaos.moving import Moved, Order, Settling, choose
from headwater_lab.edge_chaos.nodes import JOIN, EdgeNode
from headwater_lab.edge_chaos.pauses import Waits, waits
from headwater_lab.edge_chaos.pipeline import Follower
from headwater_lab.edge_chaos.population import EdgeWorld, populate
from headwater_lab.edge_chaos.stores import Shown, StoredRow, edge_by_rest, rows_by_rest, rows_on_disk
from headwater_lab.kill_campaign import EpisodeOutcome

MOVES_BEFORE: Final = 0.7
"""How often a move is ordered just before a fault, and how often while it lasts."""
MOVES_MEANWHILE: Final = 0.6
IN_PEACE: Final = 2
"""Moves after each fault, when all is well again."""
SETTLED_LIMIT: Final = 30.0
"""Seconds in which a move comes to its end when nothing is wrong."""
WHOLE: Final = ""
"""In place of a node: all of the edge."""
MOST: Final = 5
"""Differences of a kind that are told."""


@dataclass(frozen=True, slots=True)
class EdgeSetup:
    """`broken`: what delivery nodes do wrong, "" for nothing; `rate`: messages a second of each device."""

    cluster: Setup
    broken: str = ""
    rate: float = 20.0
    pipeline: bool = False
    """Runs all the time; REST is then served all the time, too, else only in the end."""


class EdgeEpisode(ClusterEpisode):
    world: EdgeWorld

    def __init__(self, seed: int, folder: Path, setup: EdgeSetup, faults: Faults) -> None:
        self._of_edge = setup
        self.places: dict[str, Place] = {}
        self.harmed: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """When something befell a node that ends its connections."""
        self._orders: list[Order] = []
        self._seen = EdgeStatus("", "")
        """What a node said last."""
        self.waits = Waits([], [])
        self.qos0: dict[str, int] = {}
        self.last_status: EdgeStatus | None = None
        self._by_rest: dict[str, list[Shown]] = {}
        self._follower: Follower | None = None
        super().__init__(seed, folder, setup.cluster, faults)

    def run(self, faults: int) -> EpisodeOutcome:
        try:
            return super().run(faults)
        finally:
            if self._follower is not None:
                self._follower.close()

    def link(self) -> None:
        super().link()
        if self._of_edge.pipeline and self._follower is None:
            urls = [_url(self.edge_node(name).rest) for name in self.delivering]
            self._follower = Follower(self.folder, urls)

    # ---- what it is made of --------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        self.places = LAYOUTS[self.setup.size or self.random.choice(SIZES)]
        return list(self.places)

    def make_node(self, name: str) -> ClusterNode:
        broken = self._of_edge.broken
        return EdgeNode(name, self.places[name], self.folder, self.network, self.setup.disk, broken)

    def make_world(self, seed: int) -> EdgeWorld:
        return EdgeWorld(seed, self.nodes, {name for name, place in self.places.items() if place.receives})

    def populate(self) -> None:
        populate(self.world, self.places, self._of_edge.rate)

    def settings_of(self, name: str) -> dict[str, Any]:
        return self.places[name].settings() | (self._rest(name) if self._of_edge.pipeline else {})

    def _rest(self, name: str) -> dict[str, Any]:
        if not self.places[name].delivers:
            return {}
        port = self.edge_node(name).rest
        return {"rest.enabled": True, "rest.host": "127.0.0.1", "rest.port": port, "edge.rest": _url(port)}

    def edge_node(self, name: str) -> EdgeNode:
        node = self.nodes[name]
        assert isinstance(node, EdgeNode)
        return node

    @property
    def delivering(self) -> list[str]:
        return [name for name, place in self.places.items() if place.delivers]

    # ---- what befalls nodes --------------------------------------------------------------------------------------

    def kill(self, name: str, since: float | None = None) -> None:
        """`since`: it may have died by itself since then."""
        now = time.monotonic()
        self.harmed[name].append((now if since is None else since, now))
        super().kill(name)

    def terminate(self, name: str) -> None:
        began = time.monotonic()
        super().terminate(name)
        self.harmed[name].append((began, time.monotonic()))

    # ---- moves ---------------------------------------------------------------------------------------------------

    def status(self) -> EdgeStatus:
        """As one of those sees it that live. It must not be stopped."""
        while True:
            node = self.random.choice(self._living())
            try:
                self._seen = node.edge()
                return self._seen
            except (BrokerFailed, BrokenPipeError):
                if not node.died():  # else it was just about to die at a step
                    raise

    def _living(self) -> list[EdgeNode]:
        return [node for node in map(self.edge_node, self.nodes) if node.lives]

    def order(self, filter: str, to: str) -> Order:
        order = Order(self.random.choice(self._living()), filter, to)
        self._orders.append(order)
        return order

    def begin(self, fault: FaultOf) -> None:
        """Moves are ordered by what was known last: most are taken, some refused, some never heard."""
        if not fault.is_alone and self.random.random() < MOVES_BEFORE:
            self._order_blindly()
            self.world.run_until(lambda: False, self.random.choice((0.0, 0.01, 0.05, 0.2)))
        super().begin(fault)

    def endure(self, fault: FaultOf) -> None:
        if not fault.is_alone and self.random.random() < MOVES_MEANWHILE:
            self.world.run_until(lambda: False, fault.lasts / 4)
            self._order_blindly()
        super().endure(fault)

    def _order_blindly(self) -> None:
        if self._living():
            self.order(*choose(self.random, self._seen, self.delivering))

    def in_peace(self) -> None:
        if self._follower is not None:
            self._follower.tend()
        for _ in range(IN_PEACE):
            self._settle_moves()
            filter, to = choose(self.random, self.status(), self.delivering)
            since = time.monotonic()
            order = self.order(filter, to)
            if not self.world.run_until(lambda order=order: order.outcome() is not None, SETTLED_LIMIT):  # type: ignore[misc]
                raise BrokerFailed(f"nothing is wrong, and nobody answers an order to move {filter} to {to}")
            self._settle_moves()
            if order.outcome():
                self.outcome.counts["moves in peace"] += 1
                self.outcome.waited("move", time.monotonic() - since)
                self.world.note(Moved(time.monotonic(), filter, to, since))
            self.world.run_until(lambda: False, self.random.uniform(0, 0.2))

    def _settle_moves(self) -> None:
        settling = Settling(self._living())
        if not self.world.run_until(settling.is_over, SETTLED_LIMIT):
            raise BrokerFailed(f"nothing is wrong, and after {SETTLED_LIMIT:g} s moves are {UNSETTLED}: {settling}")
        self._seen = settling.found[0]

    # ---- the end -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        self._settle_moves()

    def come_back(self) -> None:
        """With REST, which is asked for all there is."""
        for name in self.nodes:
            self.nodes[name].settings |= self._rest(name)
        super().come_back()
        self._settle_moves()
        self.last_status = self._all_stretches()
        for name in self.delivering:
            self._by_rest[name] = self._read_rest(name, "store")
        if not self.network.network_of(next(iter(self.nodes))):  # in a namespace, a node reaches no REST of others
            self._by_rest[WHOLE] = self._read_rest(self.random.choice(self.delivering), "edge")

    def _all_stretches(self) -> EdgeStatus:
        """Each node has all of its own; of others, as many as they tell."""
        said = [self.edge_node(name).edge() for name in self.nodes]
        return replace(said[0], stores=tuple(row for each in said for row in each.stores if row.node == each.node))

    def _read_rest(self, name: str, scope: str) -> list[Shown]:
        """REST begins a moment after MQTT."""
        assert self.last_status is not None
        port = self.edge_node(name).rest
        store = next(each.store for each in self.last_status.nodes if each.node == name)
        deadline = time.monotonic() + SETTLED_LIMIT
        while True:
            try:
                if edge_by_rest(port)["node"] != name:
                    raise BrokerFailed(f"REST of {name} says that it is another node")
                return rows_by_rest(port, scope, store)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise BrokerFailed(f"REST of {name}: {error}") from None
                time.sleep(0.1)

    def judge(self) -> list[Violation]:
        assert self.last_status is not None
        found = super().judge()
        if self._follower is not None:
            texts = list(self._follower.finish())
            found += [Violation(PIPELINE, len(self.world.history.events), text) for text in texts]
            self.outcome.counts["rows of bronze"] = self._follower.rows
            self.outcome.counts["rounds of the pipeline"] = self._follower.rounds
            self.outcome.counts["pipeline started again"] = self._follower.failures
        for name in self.nodes:
            self.terminate(name)
        stored: list[StoredRow] = []
        for name in self.delivering:
            node = self.nodes[name]
            stored += rows_on_disk(name, node.data, node.log)
        broken = [at for name in self.nodes for at in self.edge_node(name).ends_of_links()]
        checker = EdgeChecker(self.world.history, stored, self.last_status, self.harmed, broken)
        found += checker.check()
        found += self._differences(stored)
        self.qos0 = dict(checker.qos0)
        self.waits = waits(self.world.history)
        self.outcome.counts["stored"] = len(stored)
        if self._follower is not None and self._follower.rows != len(stored):
            text = f"bronze has {self._follower.rows} messages, and the stores have {len(stored)}"
            found.append(Violation(PIPELINE, len(self.world.history.events), text))
        return found

    def _differences(self, stored: list[StoredRow]) -> list[Violation]:
        """Between disks and REST: of each store, and of the whole edge, asked at one node."""
        wrong = []
        for name, shown in self._by_rest.items():
            on_disk = {_shown(each) for each in stored if name in (WHOLE, each.node)}
            what = "the edge" if name == WHOLE else name
            wrong += [f"{what} has {each} on disk, and not by REST" for each in sorted(on_disk - set(shown))[:MOST]]
            wrong += [f"{what} has {each} by REST, and not on disk" for each in sorted(set(shown) - on_disk)[:MOST]]
            if len(shown) != len(set(shown)):
                wrong.append(f"{what} shows {len(shown) - len(set(shown))} messages twice by REST")
        return [Violation(UNREADABLE, len(self.world.history.events), text) for text in wrong]

    def count(self) -> None:
        super().count()
        counts = self.outcome.counts
        counts["orders"] = len(self._orders)
        counts["orders taken"] = sum(order.outcome() is True for order in self._orders)
        counts["joins taken"] = sum(order.outcome() is True and order.to == JOIN for order in self._orders)
        counts["qos 0 sent"] = self.qos0.get("sent", 0)
        counts["qos 0 not there"] = self.qos0.get("not there", 0)


def _shown(stored: StoredRow) -> Shown:
    return stored.store, stored.row.position, stored.row.topic, stored.row.message


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def kind_of(failure: str) -> str:
    """Of a violation, of what an episode ended with."""
    if UNSETTLED in failure:
        return UNSETTLED
    return "node" if "its log ends with" in failure else STUCK


def edge_faults(only: tuple[type[FaultOf], ...] = ()) -> Faults:
    return Faults(apart=False, small=False, only=only or KINDS)
