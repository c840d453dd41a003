"""Nodes of edges without sockets, clock or gossip: who declares what is carried by the test."""

from __future__ import annotations

from typing import Any

from headwater.node.config import Config
from headwater.node.edge_settings import EdgeSettings
from headwater.node.links.links import Links
from headwater.node.links.owning import Owning
from headwater.node.links.settings import ClusterSettings
from headwater.peering.membership.membership import MemberView
from headwater.peering.membership.roster import State
from headwater.store.entry import Entry
from headwater.store.memory import MemoryStore
from tests.node.delivery.storing import StoringBroker, connected
from tests.node.links.memory import ROOMY, Net, Node, Wire
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker

LIVES = iter(range(1, 1 << 30))
"""Boots: a node's next life has a later one."""


class EdgeNode(Node):
    """With a store if it is a delivery node, else with a disk alone."""

    broker: DurableBroker

    def __init__(self, name: str, broker: DurableBroker | None = None, edge: str = "north", **more: Any) -> None:
        self.name = name
        self.edge = {"name": edge, **more}
        delivers = "delivery" in more.get("roles", ["delivery"])
        config = Config(**ROOMY)
        if broker is None:
            broker = (
                StoringBroker(config=config, kept=MemoryStore(f"s-{name}")) if delivers else DurableBroker(None, config)
            )
        self.broker = broker
        self.server = broker.server
        self.settings = ClusterSettings(name="test", node=name)
        self.links = Links(self.server, self.settings, name, next(LIVES), b"")
        self.links.sessions = None
        self.left: list[str] = []
        self.links.node_left = self.left.append
        self.owning = Owning(self.links, EdgeSettings(**self.edge))
        self.values: dict[str, bytes] = {}
        self.owning.declared = self._declared
        self.links.join_edge(self.owning)
        self.known: dict[str, dict[str, bytes]] = {}

    def begin(self, others: list[str]) -> None:
        for other in others:
            self.links.join(other, is_known=True)
        self.links.start()
        self.values = self.owning.values()
        self.broker.turn()

    def _declared(self, values: dict[str, bytes]) -> None:
        self.values = values

    def hears(self, other: EdgeNode) -> bool:
        """Gossip: what another node declares, or has heard of others; whether that was news."""
        news = other.known.get(other.name) != other.values or self.known.get(other.name) != other.values
        if not news:
            return False
        self.known[other.name] = dict(other.values)
        other.known[other.name] = dict(other.values)
        self.owning.look_at(
            [
                MemberView(
                    other.name, State.LIVE, 1, "", 0.0, 0.0, "", {**other.values, "mqtt": f"{other.name}:1883".encode()}
                )
            ]
        )
        self.broker.turn()
        return True

    @property
    def waits(self) -> bool:
        """Whether something that has come is not applied."""
        return any(link.receiving is not None and link.receiving.held for link in self.links.up.values())

    @property
    def rows(self) -> list[Entry]:
        return self.broker.rows() if isinstance(self.broker, StoringBroker) else []

    def stored(self) -> list[tuple[str, bytes]]:
        return [(row.topic, row.payload) for row in self.rows]


class EdgeNet(Net):
    """All nodes linked with all; gossip goes along."""

    nodes: list[EdgeNode]  # type: ignore[assignment]

    def __init__(self, *nodes: EdgeNode) -> None:
        super().__init__(*nodes)
        self.at: dict[frozenset[str], Wire] = {}
        for node in self.nodes:
            node.begin([each.name for each in self.nodes if each is not node])
        for number, one in enumerate(self.nodes):
            for other in self.nodes[number + 1 :]:
                self.connect(one, other)
        self.settle()

    def connect(self, one: EdgeNode, other: EdgeNode) -> None:
        self.at[frozenset((one.name, other.name))] = self.link(one, other)

    def cut(self, one: str, other: str) -> None:
        wire = self.at.pop(frozenset((one, other)))
        wire.cut()
        self.wires.remove(wire)

    def node(self, name: str) -> EdgeNode:
        return next(each for each in self.nodes if each.name == name)

    def gossip(self) -> bool:
        is_news = False
        for one in self.nodes:
            for other in self.nodes:
                if one is not other and frozenset((one.name, other.name)) in self.at:
                    is_news = one.hears(other) or is_news
        return is_news

    def settle(self) -> None:
        super().settle()
        patience = 10
        for _ in range(200):
            if not self.gossip():
                if not patience or not any(node.waits for node in self.nodes):
                    return
                patience -= 1
                for node in self.nodes:
                    node.broker.later(0.03)
            super().settle()
        raise AssertionError("it does not come to an end")

    def later(self, seconds: float) -> None:
        for node in self.nodes:
            node.broker.later(seconds)
        self.settle()

    def order(self, at: str, filter: str, to: str, joins: bool = False, is_dry: bool = False) -> list[tuple[bool, str]]:
        """What comes of it, once all is quiet."""
        node, answers = self.node(at), []
        node.owning.order(to, filter, joins, is_dry, lambda *answer: answers.append(answer))
        node.broker.turn()
        self.settle()
        return answers

    def crash(self, name: str, keep: int | None = 0) -> EdgeNode:
        """The power of a node goes and comes back; of what was not synced, `keep` batches are there."""
        before = self.node(name)
        for pair in [each for each in self.at if name in each]:
            self.cut(*pair)
        broker = before.broker.crash(keep)
        more = dict(before.edge)
        node = EdgeNode(name, broker, more.pop("name"), **more)
        self.nodes[self.nodes.index(before)] = node
        node.begin([each.name for each in self.nodes if each is not node])
        for other in self.nodes:
            if other is not node:
                self.connect(node, other)
        return node


def client_of(node: EdgeNode, client_id: str, version: int = 5) -> Client:
    return connected(node.broker, client_id, version)
