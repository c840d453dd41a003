"""Devices at receiving nodes, some of which move, and subscribers of the cloud at delivery nodes; at each node, as in
any cluster, a publisher and a subscriber that are never away, whose messages tell whether all is well again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.wire.packets import V5, V311
from headwater_lab.chaos.client import Client
from headwater_lab.chaos.history import Event
from headwater_lab.chaos.publisher import Publisher
from headwater_lab.chaos.subscriber import Subscriber
from headwater_lab.cluster_chaos.nodes import ClusterNode
from headwater_lab.cluster_chaos.population import STEADY, STEADY_RATE, SteadyPublisher, SteadySubscriber
from headwater_lab.cluster_chaos.roving import RovingPublisher
from headwater_lab.cluster_chaos.world import ClusterWorld, node_of
from headwater_lab.edge_chaos.layout import TOPICS, Place

ROVERS: Final = 3


@dataclass(slots=True)
class Arrived(Event):
    """CONNACK came to a client that moves."""

    client: str
    node: str


@dataclass(slots=True)
class Ended(Event):
    """The node ended the connection of a client, or is gone."""

    client: str
    node: str


class EdgeWorld(ClusterWorld):
    """Devices are at receiving nodes."""

    def __init__(self, seed: int, nodes: dict[str, ClusterNode], receiving: set[str]) -> None:
        super().__init__(seed, nodes)
        self._receiving = receiving

    def open_nodes(self) -> list[str]:
        return [node for node in super().open_nodes() if node in self._receiving]

    def ended(self, client: Client) -> None:
        self.note(Ended(self.now, client.name, node_of(client)))


class Device(Publisher):
    """What it sends does not expire: it has to be stored, however long it is under way."""

    lifetimes = ()

    def _qos(self, topic: str) -> int:
        return self.random.choices((0, 1, 2), (4, 10, 10))[0]


class RovingDevice(RovingPublisher, Device):
    def connected(self, present: bool) -> None:
        super().connected(present)
        self.note(Arrived(self.world.now, self.name, self.node))


def populate(world: EdgeWorld, places: dict[str, Place], rate: float) -> None:
    """`rate`: messages per second of each device."""
    topics = list(TOPICS)
    for node, place in places.items():
        world.clients += [
            SteadyPublisher(world, f"{STEADY}-pub@{node}", V311, [f"{STEADY}/{node}"], STEADY_RATE),
            SteadySubscriber(world, f"{STEADY}-sub@{node}", V5, {f"{STEADY}/#": 1}),
        ]
        if place.receives:
            world.clients += [
                Device(world, f"device-3@{node}", V311, topics, rate),
                Device(world, f"device-5@{node}", V5, topics, rate),
            ]
        if place.delivers:
            world.clients += [
                Subscriber(world, f"cloud-1@{node}", V311, {"plant/#": 1, "stray/#": 2}),
                Subscriber(world, f"cloud-2@{node}", V5, {"plant/#": 2}, window=20),
            ]
    world.clients += [RovingDevice(world, f"rover-{number}", V311, topics, rate) for number in range(ROVERS)]
