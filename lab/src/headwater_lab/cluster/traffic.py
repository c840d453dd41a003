"""Traffic for several arrangements of nodes in turns, and what a message cost the nodes of each."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from headwater.fleet.process import RunningBroker
from headwater_lab.contest import Case, ContestOutcome, interleave
from headwater_lab.load import LoadError, LoadGenerator, Result


class Arrangement(NamedTuple):
    """Where publishers and subscribers are, client number i of each kind at node i modulo nodes; whose CPU time is
    measured; what goes on beside the traffic; and what the traffic has instead of the case's options."""

    publish_at: Sequence[RunningBroker]
    subscribe_at: Sequence[RunningBroker]
    measured: Sequence[RunningBroker]
    meanwhile: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    instead: Sequence[str] = ()


Arranged = Arrangement | Callable[[], Arrangement]
"""The same in all rounds, or made for each."""


def all_at(nodes: Sequence[RunningBroker]) -> Arrangement:
    return Arrangement(nodes, nodes, nodes)


def crossing(nodes: Sequence[RunningBroker]) -> Arrangement:
    """Everything that is published at the first node goes to the second."""
    return Arrangement(nodes[:1], nodes[1:2], nodes)


def in_turns(nodes: Sequence[RunningBroker]) -> Callable[[], Arrangement]:
    """All clients at one of them, in each round at the next one; all are measured."""
    turns = itertools.cycle(nodes)

    def arrange() -> Arrangement:
        node = [next(turns)]
        return Arrangement(node, node, nodes)

    return arrange


class Course(NamedTuple):
    """How traffic is made: so many rounds, so many seconds each."""

    load: LoadGenerator
    rounds: int
    seconds: float
    warmup: float

    def run(self, case: Case, arrangements: Mapping[str, Arranged]) -> ContestOutcome:
        """LoadError: it could not be measured."""

        def sample(name: str) -> Result:
            found = arrangements[name]
            return self._sample(case, found if isinstance(found, Arrangement) else found())

        return ContestOutcome(case, interleave(list(arrangements), self.rounds, sample))

    def _sample(self, case: Case, there: Arrangement) -> Result:
        pids = ",".join(str(pid) for node in there.measured for pid in node.pids())
        options = [*case.options, *there.instead, "--mqtt", str(case.mqtt), "--broker-pids", pids]
        options += ["--seconds", str(self.seconds), "--warmup", str(self.warmup)]
        options += ["--publisher-port", ",".join(str(node.port) for node in there.publish_at)]
        try:
            with there.meanwhile():
                limit = self.seconds + self.warmup + 60
                return self.load.run("traffic", [node.port for node in there.subscribe_at], options, limit=limit)
        except LoadError:
            for node in {*there.publish_at, *there.subscribe_at}:
                node.check_alive()  # if it has died, that is what should be reported
            raise
