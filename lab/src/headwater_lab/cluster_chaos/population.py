"""Who takes part: at each node publishers and subscribers of both versions, one of each that is never away, and one
that gets all wills; and clients that move (roving.py)."""

from __future__ import annotations

from typing import Final

from headwater.wire.packets import V5, V311
from headwater_lab.chaos.publisher import Publisher
from headwater_lab.chaos.subscriber import Subscriber
from headwater_lab.cluster_chaos.roving import settle_down
from headwater_lab.cluster_chaos.world import ClusterWorld

EVENTS: Final = [f"events/{number}" for number in range(3)]
STEADY: Final = "steady"
STEADY_RATE: Final = 15.0


class SteadyPublisher(Publisher):
    """Is never away, and sends small messages of QoS 1: whether they arrive elsewhere tells whether a cluster is
    healed."""

    def connected(self, present: bool) -> None:
        super().connected(present)
        self.next_at = 0.0

    def act(self, now: float) -> None:
        if not self.calm and now >= self.next_at:
            self.next_at = now + 1 / self.rate
            if len(self.flights) < 20:
                self.publish(self.topics[0], 1)

    def _size(self) -> int:
        return 16


class SteadySubscriber(Subscriber):
    """Is never away, and acknowledges at once."""

    def connected(self, present: bool) -> None:
        super().connected(present)
        self.laziness = 0.0

    def act(self, now: float) -> None:
        pass


def populate(world: ClusterWorld, rate: float, roving: bool) -> None:
    """`rate`: messages per second of each publisher in a cluster of three; what is delivered grows with the square of
    the nodes, and the driver is one process."""
    each = rate * (3 / len(world.nodes)) ** 2
    for node in world.nodes:
        world.clients += [
            Publisher(world, f"pub-3@{node}", V311, EVENTS, each),
            Publisher(world, f"pub-5@{node}", V5, EVENTS, each),
            Subscriber(world, f"sub-1@{node}", V311, {"events/#": 1}),
            Subscriber(world, f"sub-2@{node}", V5, {"events/#": 2}, window=10),
            Subscriber(world, f"sub-each@{node}", V311, dict.fromkeys(EVENTS, 2)),
            SteadyPublisher(world, f"{STEADY}-pub@{node}", V311, [f"{STEADY}/{node}"], STEADY_RATE),
            SteadySubscriber(world, f"{STEADY}-sub@{node}", V5, {f"{STEADY}/#": 1}),
        ]
        if roving:
            world.clients.append(SteadySubscriber(world, f"{STEADY}-wills@{node}", V5, {"wills/#": 2}))
    if roving:
        settle_down(world, rate)
