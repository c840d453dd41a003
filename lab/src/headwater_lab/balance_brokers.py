"""The experiment of the capacity dispatcher's paper: 20 subscribers at 3 brokers, of equal and unequal capacity.

M. Matić, M. Antić, S. Ivanović, I. Pap, "Scheduling messages within MQTT shared subscription group in the clustered
cloud architecture", TELFOR 2020, as it is told in the thesis that `score` is from; the paper's own figures are not
known to us, so only its claim can be compared: that choosing by capacity is faster than choosing blindly.

First a broker is chosen, with the probability BR_k / Σ t_i, then a subscriber of that broker; or brokers and
subscribers in turn, as clusters do it that know nothing of each other. The capacities t_i are known beforehand, as the
paper presumes: they are the subscribers' weights. Beside it, the same 20 at one broker, by the dispatchers that learn.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.capacity import Capacity
from headwater.routing.dispatchers.turns import RoundRobin
from headwater_lab.balance_scenarios import Case, group
from headwater_lab.balance_simulation import Run, Scenario, SimulationOutcome, simulate

PLACES: Final = (0,) * 10 + (1,) * 7 + (2,) * 3  # the broker of each of the 20 subscribers
EQUAL_SERVICE: Final = (0.030,) * 20
UNEQUAL_SERVICE: Final = tuple(0.120 / weight for weight in (1, 2, 4, 8) * 5)


class Brokers(Dispatcher):
    """Chooses a broker, then lets that broker's own dispatcher choose."""

    def __init__(self, make: Callable[[], Dispatcher], by_capacity: bool, scenario: Scenario, seed: int) -> None:
        slowest = max(worker.service for worker in scenario.workers)
        self._weights = [round(slowest / worker.service) for worker in scenario.workers]
        self._own = [make() for _ in range(max(PLACES) + 1)]
        self._by_capacity = by_capacity
        self._random = random.Random(seed)
        self._turn = 0
        self._there: list[list[Member]] = [[] for _ in self._own]
        self._members: list[Member] = []

    def joined(self, member: Member) -> None:
        assert isinstance(member.key, int)
        member.weight = self._weights[member.key]
        self._own[PLACES[member.key]].joined(member)

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        if members is not self._members:
            self._members = members
            self._there = [[m for m in members if PLACES[int(str(m.key))] == k] for k in range(len(self._own))]
        broker = self._broker(now)
        return self._own[broker].choose(self._there[broker], topic, publisher, now)

    def _broker(self, now: float) -> int:
        if not self._by_capacity:
            self._turn = (self._turn + 1) % len(self._own)
            return self._turn
        capacities = [
            sum(own.capacity(member, now) for member in there)
            for own, there in zip(self._own, self._there, strict=True)
            if isinstance(own, Capacity)
        ]
        return self._random.choices(range(len(capacities)), capacities)[0]


def _clustered(scenario: Scenario, make: Callable[[], Dispatcher], by_capacity: bool, seed: int) -> SimulationOutcome:
    return Run(scenario, Brokers(make, by_capacity, scenario, seed), seed).outcome()


def brokers() -> Iterator[tuple[Case, dict[str, Callable[[int], SimulationOutcome]]]]:
    """Each case with what is compared in it: name and simulation of a seed."""
    for key, services in (("equal", EQUAL_SERVICE), ("unequal", UNEQUAL_SERVICE)):
        for utilisation in (0.5, 0.8):
            name = f"20 members at 3 brokers, {key} capacities, used to {utilisation:.0%}"
            scenario = replace(group(services, utilisation, 30.0, name), random_arrivals=True)
            blind = replace(scenario, reports=0.0)
            acks = replace(scenario, reports=0.0, qos=1)
            compared: dict[str, Callable[[int], SimulationOutcome]] = {
                "3 brokers, in turn": functools.partial(_clustered, blind, RoundRobin, False),
                "3 brokers, capacity": functools.partial(_clustered, blind, Capacity, True),
                "1 broker, round_robin": functools.partial(simulate, blind, "round_robin"),
                "1 broker, adaptive with reports": functools.partial(simulate, scenario, "adaptive"),
                "1 broker, adaptive with acks": functools.partial(simulate, acks, "adaptive"),
                "bound": functools.partial(simulate, blind, "bound"),
            }
            yield Case("brokers", f"{key}-{utilisation:.0%}", "", scenario), compared
