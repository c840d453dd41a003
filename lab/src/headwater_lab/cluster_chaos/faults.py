"""What is done to a cluster: each fault has a beginning, a time that it lasts, and an end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from headwater.disk.crash_points import BROKER_POINTS

if TYPE_CHECKING:
    from headwater_lab.cluster_chaos.episode import ClusterEpisode

LONGEST: Final = 2.5
"""Times the patience of links, that a fault lasts at most."""
POINT_LIMIT: Final = 1.5
"""Seconds in which a crash point has to be reached, else the node is killed there and then."""
BOUNDS: Final = {**dict.fromkeys(BROKER_POINTS, 60), "in-recovery": 6, "after-recovery": 1}


class FaultOf:
    """`nodes` are those that it is about; two faults at a time have no node in common."""

    kind = ""

    def __init__(self, episode: ClusterEpisode, random: Random, nodes: list[str]) -> None:
        self.episode = episode
        self.random = random
        self.nodes = nodes

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.nodes)}"

    @property
    def lasts(self) -> float:
        """Seconds, often beyond the patience of links."""
        patience = self.episode.patience_of_links
        return self.random.choice((self.random.uniform(0, 0.5), self.random.uniform(0.5, LONGEST) * patience))

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def healed(self) -> None:
        """Messages get everywhere again."""


class Kill(FaultOf):
    kind = "kill -9"

    def begin(self) -> None:
        self.episode.kill(self.nodes[0])

    def end(self) -> None:
        self.episode.start(self.nodes[0])


class KillAtPoint(Kill):
    """The node is started with a crash point ahead of it, and dies there."""

    kind = "kill -9 at a crash point"

    def begin(self) -> None:
        node = self.nodes[0]
        point = self.random.choice(sorted(BOUNDS))
        self.episode.kill(node)
        if self.episode.start(node, f"{point}:{self.random.randint(1, BOUNDS[point])}"):
            self.episode.world.run_until(self.episode.nodes[node].died, POINT_LIMIT)
        self.episode.kill(node)


class KillTwo(FaultOf):
    kind = "kill -9 of two nodes"

    def begin(self) -> None:
        for node in self.nodes:
            self.episode.kill(node)

    def end(self) -> None:
        for node in self.nodes:
            self.episode.start(node)


class Move(Kill):
    kind = "kill -9, back at another port"

    def end(self) -> None:
        self.episode.nodes[self.nodes[0]].move()
        super().end()


class Freeze(FaultOf):
    kind = "SIGSTOP"

    def begin(self) -> None:
        self.episode.nodes[self.nodes[0]].signal(signal.SIGSTOP)

    def end(self) -> None:
        self.episode.nodes[self.nodes[0]].signal(signal.SIGCONT)


class Terminate(FaultOf):
    kind = "SIGTERM"

    def begin(self) -> None:
        self.episode.terminate(self.nodes[0])

    def end(self) -> None:
        self.episode.start(self.nodes[0])


class Cut(FaultOf):
    kind = "link cut"

    def begin(self) -> None:
        one, other = self.nodes
        self.episode.network.cut(one, other)
        self.episode.network.cut(other, one)

    def end(self) -> None:
        one, other = self.nodes
        self.episode.network.heal(one, other)
        self.episode.network.heal(other, one)


class CutOneWay(Cut):
    kind = "link cut in one direction"

    def begin(self) -> None:
        self.episode.network.cut(*self.nodes)


class Isolate(FaultOf):
    """A node is cut off from all others."""

    kind = "node cut off"

    def _each(self, order: Callable[[str, str], None]) -> None:
        one = self.nodes[0]
        for other in self.episode.nodes:
            if other != one:
                order(one, other)
                order(other, one)

    def begin(self) -> None:
        self._each(self.episode.network.cut)

    def end(self) -> None:
        self._each(self.episode.network.heal)


class Reset(FaultOf):
    kind = "link reset"
    lasts = 0.0

    def begin(self) -> None:
        self.episode.network.reset(*self.nodes)

    def end(self) -> None:
        pass


class Leave(FaultOf):
    kind = "leave and join again"

    def begin(self) -> None:
        self.episode.part(self.nodes[0])
        self.episode.nodes[self.nodes[0]].order("leave")

    def end(self) -> None:
        node = self.nodes[0]
        others = [each.address for name, each in self.episode.nodes.items() if name != node]
        self.episode.nodes[node].order("join", *others)

    def healed(self) -> None:
        self.episode.rejoin(self.nodes[0])


class Forget(FaultOf):
    """A dead node is forgotten by the others, and comes back."""

    kind = "dead node forgotten"

    def begin(self) -> None:
        node = self.nodes[0]
        self.episode.part(node)
        self.episode.kill(node)
        self.episode.forget(node)

    def end(self) -> None:
        self.episode.start(self.nodes[0])

    def healed(self) -> None:
        self.episode.rejoin(self.nodes[0])


ONE: Final = (Kill, KillAtPoint, KillAtPoint, Move, Freeze, Terminate, Isolate)
TWO: Final = (Cut, CutOneWay, Reset, KillTwo)
APART: Final = (Leave, Forget)

KINDS: Final = {kind.kind: kind for kind in (*ONE, *TWO, *APART)}


class Faults:
    """Each kind in its turn, in random order; those in which a node parts come seldom, or never. `only`: these."""

    def __init__(self, apart: bool, only: tuple[type[FaultOf], ...] = ()) -> None:
        self._kinds = only or (*ONE, *TWO, *ONE, *TWO, *(APART if apart else ()))
        self._turns: list[type[FaultOf]] = []

    def choose(self, episode: ClusterEpisode, random: Random, free: list[str]) -> FaultOf:
        """One for some of these nodes."""
        if not self._turns:
            self._turns = list(self._kinds)
            random.shuffle(self._turns)
        kinds = [kind for kind in self._turns if kind in ONE] if len(free) < 3 else self._turns
        kind = kinds[-1] if kinds else Freeze
        if kind in self._turns:
            self._turns.remove(kind)
        return kind(episode, random, random.sample(free, 2 if kind in TWO else 1))
