"""What is done to an edge besides what is done to any cluster: nodes die at named steps, those of a move above all, or
stand still there.

A step has its turn until it has struck. Who gets there is known beforehand for most: the claim is the new owner's, the
end the old one's; views change at all nodes.
"""

from __future__ import annotations

import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from headwater.disk.crash_points import BROKER_POINTS, EDGE_POINTS
from headwater_lab.chaos.episode import STORED_BOUNDS
from headwater_lab.cluster_chaos.faults import (
    Cut,
    CutOneWay,
    FaultOf,
    Freeze,
    Isolate,
    Kill,
    KillTwo,
    Partition,
    Reset,
    RollingRestart,
    Terminate,
)
from headwater_lab.edge_chaos.moving import choose, owners_now
from headwater_lab.edge_chaos.nodes import JOIN, EdgeNode

if TYPE_CHECKING:
    from headwater_lab.cluster_chaos.episode import ClusterEpisode
    from headwater_lab.edge_chaos.episode import EdgeEpisode

STEP_LIMIT: Final = 4.0
"""Seconds in which a step of a move has to be reached, else the node is killed there and then."""
POINT_LIMIT: Final = 1.5
OF_NEW_OWNER: Final = ("edge-before-claim", "edge-claimed")
OF_OLD_OWNER: Final = ("edge-before-end",)
TRIES: Final = 8
"""Orders that are given until a step is reached."""
RARE: Final = ("store-in-seal", "store-after-seal")
"""A block has 131,072 messages: `chaos` and `store-chaos` are about these."""
POINTS: Final = {point: most for point, most in STORED_BOUNDS.items() if point not in RARE}


class Steps:
    """Of all episodes of a campaign: each in its turn, in random order; one that was not reached comes again."""

    def __init__(self, points: tuple[str, ...]) -> None:
        self._points = points
        self._turns: list[str] = []

    def next(self, random: Random) -> str:
        if not self._turns:
            self._turns = list(self._points)
            random.shuffle(self._turns)
        return self._turns.pop()

    def missed(self, point: str) -> None:
        self._turns.insert(0, point)


def edge_of(episode: ClusterEpisode) -> EdgeEpisode:
    from headwater_lab.edge_chaos.episode import EdgeEpisode

    assert isinstance(episode, EdgeEpisode)
    return episode


class AtStep(FaultOf):
    """Somebody gets to a step of a move, and something happens there. Its kind is the step, if it came to that."""

    is_alone = True
    turns: Steps

    def arm(self, node: EdgeNode, point: str) -> None:
        raise NotImplementedError

    def has_struck(self, node: EdgeNode) -> bool:
        raise NotImplementedError

    def name(self, point: str) -> str:
        return point

    def begin(self) -> None:
        point = self.turns.next(self.random)
        node = self._approach(point)
        self.nodes = [node.name]
        if self.has_struck(node):
            self.kind = self.name(point)
        else:
            self.turns.missed(point)
        node.deaths.withdraw()

    def _approach(self, point: str) -> EdgeNode:
        """Orders of moves until somebody is at the point, or for long enough; who it is."""
        edge = edge_of(self.episode)
        node = edge.edge_node(self.random.choice(list(edge.nodes)))
        for _ in range(TRIES):
            node.deaths.withdraw()
            if self.has_struck(node):
                return node
            status = edge.status()
            if self.has_struck(node):
                return node  # while somebody else was asked
            filter, to = choose(self.random, status, edge.delivering)
            had = [each for each in owners_now(status, filter) if each != to]
            if (point in OF_NEW_OWNER and to == JOIN) or (point in OF_OLD_OWNER and not had):
                continue
            candidates = [to] if point in OF_NEW_OWNER else had if point in OF_OLD_OWNER else list(edge.nodes)
            node = edge.edge_node(self.random.choice(candidates))
            self.arm(node, point)
            edge.order(filter, to)
            if edge.world.run_until(partial(self.has_struck, node), STEP_LIMIT / TRIES):
                return node
        edge.world.run_until(partial(self.has_struck, node), STEP_LIMIT / 2)
        return node


class KillAtStep(AtStep):
    kind = "kill -9 in a move"
    turns = Steps(EDGE_POINTS)

    def arm(self, node: EdgeNode, point: str) -> None:
        node.deaths.give(f"{point}:1")

    def has_struck(self, node: EdgeNode) -> bool:
        return node.died()

    def begin(self) -> None:
        began = time.monotonic()
        super().begin()
        edge_of(self.episode).kill(self.nodes[0], began)

    def end(self) -> None:
        self.episode.start(self.nodes[0])


class HoldAtStep(AtStep):
    """It stands still there, as a machine does that is out of breath, and goes on later."""

    kind = "held in a move"
    turns = Steps(EDGE_POINTS)
    _struck = False

    def arm(self, node: EdgeNode, point: str) -> None:
        node.deaths.hold(point)

    def has_struck(self, node: EdgeNode) -> bool:
        self._struck = self._struck or bool(node.deaths.struck())
        return self._struck

    def name(self, point: str) -> str:
        return f"held at {point}"

    def end(self) -> None:
        edge_of(self.episode).edge_node(self.nodes[0]).deaths.go_on()


class KillAtCommit(FaultOf):
    """At a point of any commit, of sessions or of messages; recovery, at the start after another kill."""

    kind = "kill -9 at a commit"
    is_alone = True
    turns = Steps(tuple(POINTS))

    def begin(self) -> None:
        edge, began = edge_of(self.episode), time.monotonic()
        point = self.turns.next(self.random)
        stores = point not in BROKER_POINTS
        victim = self.random.choice(edge.delivering if stores else list(edge.nodes))
        self.nodes = [victim]
        order = f"{point}:{self.random.randint(1, POINTS[point])}"
        node = edge.edge_node(victim)
        if "recovery" in point:
            edge.kill(victim)
            has_struck = not edge.start(victim, order) or edge.world.run_until(node.died, POINT_LIMIT)
        else:
            node.deaths.give(order)
            has_struck = edge.world.run_until(node.died, POINT_LIMIT)
            node.deaths.withdraw()
        if has_struck:
            self.kind = point
        else:
            self.turns.missed(point)
        edge.kill(victim, began)

    def end(self) -> None:
        self.episode.start(self.nodes[0])


class CutFromOldOwner(FaultOf):
    """What is published at a node does not get to the old owner, while the filter goes on to a new one."""

    kind = "old owner cut off in a move"
    is_alone = True

    def begin(self) -> None:
        edge = edge_of(self.episode)
        status = edge.status()
        receiving = [name for name, place in edge.places.items() if place.receives]
        for _ in range(TRIES):
            filter, to = choose(self.random, status, edge.delivering)
            had = [each for each in owners_now(status, filter) if each != to]
            if had:
                break
        else:
            had = edge.delivering
        old = self.random.choice(had)
        self.nodes = [self.random.choice([each for each in receiving if each != old]), old]
        edge.network.cut(*self.nodes)
        edge.world.run_until(lambda: False, self.random.uniform(0.05, 0.3))
        edge.order(filter, to)

    def end(self) -> None:
        self.episode.network.heal(*self.nodes)


ONE: Final = (Kill, Freeze, Terminate, Isolate)
TWO: Final = (Cut, CutOneWay, Reset, KillTwo)
ALL: Final = (Partition, RollingRestart)
OFTEN: Final = (*(KillAtStep,) * 6, *(HoldAtStep,) * 2, *(CutFromOldOwner,) * 2, *(KillAtCommit,) * 3)
KINDS: Final[tuple[type[FaultOf], ...]] = (*OFTEN, *ONE, *TWO, *ALL)
BY_NAME: Final[dict[str, type[FaultOf]]] = {kind.kind: kind for kind in KINDS}
