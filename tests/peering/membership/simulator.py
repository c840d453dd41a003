"""A cluster in memory: seeded delays, loss, cuts, crashes, and clocks that run at different speeds.

Everything follows from the seed. Time is in seconds of nobody in particular; each node has a clock of its own.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from random import Random

from headwater.peering.membership.membership import Membership
from headwater.peering.membership.roster import Change, State, Timing

TIMING = Timing(forget_after=600.0, tombstone_life=60.0)


class SimulatedNode:
    def __init__(self, name: str, membership: Membership, address: str, rate: float, offset: float) -> None:
        self.name = name
        self.membership = membership
        self.address = address
        self.rate = rate
        self.offset = offset
        self.works = True
        """Whether its data plane advances."""
        self.pause = 0.0
        """How much longer it sleeps between ticks than it should, at most; it reads only when it ticks."""
        self.stopped = False
        """It neither ticks nor reads, as after SIGSTOP."""
        self.deaf = 0.0
        """Which part of what is sent to it is lost."""
        self.inbox: list[tuple[str, bytes]] = []
        self.data_plane = 0
        self.changes: list[tuple[float, Change]] = []

    def clock(self, time: float) -> float:
        return self.offset + time * self.rate


class Simulator:
    def __init__(self, seed: int, *, loss: float = 0.0, delay: tuple[float, float] = (0.001, 0.05)) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.loss = loss
        self.delay = delay
        self.nodes: dict[str, SimulatedNode] = {}
        self.cuts: set[tuple[str, str]] = set()
        """Ways, from and to, on which nothing arrives."""
        self.bytes = 0
        self.messages = 0
        self.largest = 0
        self.seeds = ["a0:1", "a1:1"]
        self.generations: Counter[str] = Counter()
        self.remembered: dict[str, list[str]] = {}
        """What nodes keep of others' addresses when they crash."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def start(self, number: int, address: str | None = None, rate: float = 1.0) -> SimulatedNode:
        """A node by number; it is found at `a<number>:1` if nothing else is said. Started again, it has the same id."""
        name, address = f"node-{number}", address or f"a{number}:1"
        self.generations[name] += 1
        rng = Random(self.rng.random())
        membership = Membership("lab", name, self.generations[name], address, rng, TIMING)
        membership.seek([*self.seeds, *self.remembered.get(name, [])])
        node = SimulatedNode(name, membership, address, rate, self.rng.uniform(0, 1e6))
        self.nodes[name] = node
        self._at(self.rng.uniform(0, TIMING.interval), lambda: self._tick(node))
        return node

    def start_many(self, number: int, rates: tuple[float, float] = (1.0, 1.0)) -> None:
        for each in range(number):
            self.start(each, rate=self.rng.uniform(*rates))

    def crash(self, number: int) -> None:
        name = f"node-{number}"
        self.remembered[name] = self.nodes.pop(name).membership.addresses()

    def cut(self, some: Iterable[int], others: Iterable[int], both: bool = True) -> None:
        others = list(others)
        for one in some:
            for other in others:
                self.cuts.add((f"node-{one}", f"node-{other}"))
                if both:
                    self.cuts.add((f"node-{other}", f"node-{one}"))

    def run(self, ticks: float) -> None:
        end = self.now + ticks * TIMING.interval
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], most: int) -> int:
        """The ticks that it took, of at most so many."""
        for ticks in range(most):
            if condition():
                return ticks
            self.run(1)
        assert condition(), f"not within {most} ticks"
        return most

    # What is true in the end.

    def converged(self) -> bool:
        """Every running node holds exactly the running ones for live, and has the same maps of them."""
        maps = {name: self._map(node, name) for name, node in self.nodes.items()}
        for name, node in self.nodes.items():
            if node.membership.live() != sorted(self.nodes.keys() - {name}):
                return False
            if any(self._map(node, other) != values for other, values in maps.items()):
                return False
        return True

    def all_say(self, number: int, state: State | None) -> bool:
        name = f"node-{number}"
        return all(each.membership.state_of(name) == state for each in self.nodes.values() if each.name != name)

    def wrong_alarms(self, kind: State, since: float = 0.0) -> int:
        """How often a node that runs was taken for this by another one that runs."""
        changes = [each for node in self.nodes.values() for time, each in node.changes if time >= since]
        # Suspected is also who is new here and has not shown progress yet: no alarm.
        alarms = [each for each in changes if kind == State.DEAD or each.reason in ("silent", "stalled")]
        return sum(each.after == kind and each.node in self.nodes for each in alarms)

    def _map(self, node: SimulatedNode, of: str) -> dict[str, bytes]:
        view = {each.node: each for each in node.membership.view(node.clock(self.now))}
        return view[of].values if of in view else {}

    # How it runs.

    def _at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), action))

    def _is_running(self, node: SimulatedNode) -> bool:
        return self.nodes.get(node.name) is node

    def _tick(self, node: SimulatedNode) -> None:
        if not self._is_running(node):
            return
        if node.stopped:
            self._at(0.1, lambda: self._tick(node))
            return
        node.data_plane += node.works
        for each in node.membership.tick(node.clock(self.now), node.data_plane):
            self._send(node, each.address, each.data)
        inbox, node.inbox = node.inbox, []
        for sender, data in inbox:
            self._read(node, sender, data)
        self._note(node)
        self._at(TIMING.interval / node.rate + self.rng.uniform(0, node.pause), lambda: self._tick(node))

    def _send(self, node: SimulatedNode, address: str, data: bytes) -> None:
        self.bytes += len(data)
        self.messages += 1
        self.largest = max(self.largest, len(data))
        to = next((each for each in self.nodes.values() if each.address == address), None)
        if to is None or (node.name, to.name) in self.cuts:
            return
        if self.rng.random() >= self.loss and (not to.deaf or self.rng.random() >= to.deaf):
            self._at(self.rng.uniform(*self.delay), lambda: self._arrive(to, node.address, data))

    def _arrive(self, node: SimulatedNode, sender: str, data: bytes) -> None:
        if not self._is_running(node):
            return
        if node.pause or node.stopped:
            node.inbox.append((sender, data))
        else:
            self._read(node, sender, data)
            self._note(node)

    def _read(self, node: SimulatedNode, sender: str, data: bytes) -> None:
        answer = node.membership.receive(data, node.clock(self.now))
        if answer is not None:
            self._send(node, sender, answer)

    def _note(self, node: SimulatedNode) -> None:
        node.changes += [(self.now, each) for each in node.membership.take_changes()]
