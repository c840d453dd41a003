"""What is done to a cluster: each fault has a beginning, a time that it lasts, and an end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from headwater.disk.crash_points import BROKER_POINTS
from headwater_lab.cluster_chaos.checker import CLOCK, KILL, RESTART, TERMINATE
from headwater_lab.cluster_chaos.small_disk import fill, make_room

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
    is_alone = False
    """It does not come at the same time as another one."""

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
    kind = KILL

    def begin(self) -> None:
        self.episode.kill(self.nodes[0])

    def end(self) -> None:
        self.episode.start(self.nodes[0])


class KillAtPoint(Kill):
    """The node is started with a crash point ahead of it, and dies there."""

    kind = f"{KILL} at a crash point"

    def begin(self) -> None:
        node = self.nodes[0]
        point = self.random.choice(sorted(BOUNDS))
        self.episode.kill(node)
        if self.episode.start(node, f"{point}:{self.random.randint(1, BOUNDS[point])}"):
            self.episode.world.run_until(self.episode.nodes[node].died, POINT_LIMIT)
        self.episode.kill(node)


class KillTwo(FaultOf):
    kind = f"{KILL} of two nodes"

    def begin(self) -> None:
        for node in self.nodes:
            self.episode.kill(node)

    def end(self) -> None:
        for node in self.nodes:
            self.episode.start(node)


class Move(Kill):
    kind = f"{KILL}, back at another port"

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
    kind = TERMINATE

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


class Partition(FaultOf):
    """All nodes are in one of two parts, and neither hears of the other."""

    kind = "partition"

    def begin(self) -> None:
        names = list(self.episode.nodes)
        self._part = self.random.sample(names, self.random.randint(1, len(names) // 2))
        self._each(self.episode.network.cut)

    def _each(self, order: Callable[[str, str], None]) -> None:
        for one in self._part:
            for other in self.episode.nodes:
                if other not in self._part:
                    order(one, other)
                    order(other, one)

    def end(self) -> None:
        self._each(self.episode.network.heal)


class ClockJump(FaultOf):
    """The time of day of a node jumps, ahead or back, by seconds or hours; and stays so, or not."""

    kind = CLOCK

    def begin(self) -> None:
        self._by = self.random.choice((-1, 1)) * 10 ** self.random.uniform(0, 4)
        self.episode.nodes[self.nodes[0]].jump(self._by)

    def end(self) -> None:
        if self.random.random() < 0.5:
            self.episode.nodes[self.nodes[0]].jump(-self._by)


class DiskFull(FaultOf):
    kind = "disk full"

    def begin(self) -> None:
        fill(self.episode.nodes[self.nodes[0]].data)

    def end(self) -> None:
        make_room(self.episode.nodes[self.nodes[0]].data)


class RollingRestart(FaultOf):
    """All nodes, one after the other, as an operator would; each waits until the one before is linked again."""

    kind = RESTART
    lasts = 0.0

    def begin(self) -> None:
        for name in self.random.sample(list(self.episode.nodes), len(self.episode.nodes)):
            self.episode.terminate(name)
            self.episode.start(name)
            self.episode.link()

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


ONE: Final = (Kill, KillAtPoint, KillAtPoint, Move, Freeze, Terminate, Isolate, ClockJump)
SMALL: Final = (DiskFull,)
"""Of nodes with small disks."""
TWO: Final = (Cut, CutOneWay, Reset, KillTwo)
ALL: Final = (Partition, RollingRestart)
APART: Final = (Leave, Forget)
ALONE: Final = (*ALL, *APART)
"""Not at the same time as another fault."""

KINDS: Final = {kind.kind: kind for kind in (*ONE, *SMALL, *TWO, *ALL, *APART)}


class Faults:
    """Each kind in its turn, in random order; those in which a node parts come seldom, or never. `only`: these."""

    def __init__(self, apart: bool, small: bool, only: tuple[type[FaultOf], ...] = ()) -> None:
        own = (*ONE, *(SMALL if small else ()))
        self._kinds = only or (*own, *TWO, *ALL, *own, *TWO, *ALL, *(APART if apart else ()))
        self._turns: list[type[FaultOf]] = []

    def choose(self, episode: ClusterEpisode, random: Random, free: list[str]) -> FaultOf:
        """One for some of these nodes."""
        if not self._turns:
            self._turns = list(self._kinds)
            random.shuffle(self._turns)
        is_second = len(free) < len(episode.nodes)
        for place in reversed(range(len(self._turns))):
            if not is_second or self._turns[place] in (*ONE, *SMALL):
                kind = self._turns.pop(place)
                break
        else:
            kind = Freeze
        return kind(episode, random, random.sample(free, 2 if kind in TWO else 1))
