"""What is run, and what the paper found.

The paper names numbers of tiers (its table 4), and not which topics go where. Here an edge that has more delivery tiers
divides topics by what is measured (temperature, humidity), and two edges divide them by rooms: even ones in the north,
odd ones in the south. So every half second, of which the paper takes a sample, has something for every tier. Where
devices have moved, those of rooms 5 to 9 publish in the area of the other edge: half of them, of both edges, and the
last one, whose reading is the 400th, is among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from headwater.fleet.devices import Fleet
from headwater.routing.topics import matches

TOPICS: Final = ("temperature/room{n}", "humidity/room{n}")
FILTERS: Final = ("temperature/#", "humidity/#")
ROOMS: Final = 10
PERIOD: Final = 0.05
"""Seconds between two readings of the whole fleet, in the paper."""
READINGS: Final = 400
SAMPLE: Final = 0.5
"""Seconds between two samples of CPU time."""
RUNS: Final = 3
AT_ONCE: Final = 3
"""Scenarios that a quick run has going at the same time, at the paper's rate."""
FACTORS: Final = (100, 1000)
SECONDS: Final = {100: 3.0, 1000: 2.0}
QUICK_SECONDS: Final = {100: 2.0, 1000: 1.0}
"""By factor: how long devices send at higher rates."""
LATE_FACTOR: Final = 5


@dataclass(frozen=True)
class Tier:
    """A node. `owns`: the topics that it stores, to which the cloud subscribes there."""

    name: str
    edge: str
    receives: bool
    delivers: bool
    owns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """`moved`: rooms whose devices publish in the area of the other edge."""

    number: int
    title: str
    tiers: tuple[Tier, ...]
    moved: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"scenario{self.number}"

    @cached_property
    def receiving(self) -> tuple[Tier, ...]:
        return tuple(tier for tier in self.tiers if tier.receives)

    @cached_property
    def delivery(self) -> tuple[Tier, ...]:
        return tuple(tier for tier in self.tiers if tier.delivers)

    @property
    def is_split(self) -> bool:
        return len(self.tiers) > 1

    def owner(self, topic: str) -> int:
        """The delivery tier that stores it: where it is in `delivery`."""
        return next(
            place for place, tier in enumerate(self.delivery) if any(matches(filter, topic) for filter in tier.owns)
        )

    def receiver(self, topic: str) -> int:
        """The receiving tier where its device is: where it is in `receiving`."""
        home = self.delivery[self.owner(topic)].edge
        return next(
            place for place, tier in enumerate(self.receiving) if (tier.edge == home) is not self.is_forwarded(topic)
        )

    def is_forwarded(self, topic: str) -> bool:
        """From one edge to another."""
        return any(topic.endswith(f"/room{room}") for room in self.moved)


@dataclass(frozen=True)
class Load:
    """`factor`: how many times the paper's rate."""

    name: str
    title: str
    factor: int
    readings: int

    @property
    def rate(self) -> float:
        return self.factor / PERIOD

    @property
    def seconds(self) -> float:
        return self.readings / self.rate

    def fleet(self, seed: int) -> Fleet:
        return Fleet(TOPICS, ROOMS, self.rate, seed)


@dataclass(frozen=True)
class Plan:
    """Each run is a scenario with nodes of its own: the paper's load, then a cloud that is late, then higher rates.
    `at_once`: scenarios that share the machine while the first two go on."""

    runs: int
    at_once: int
    paper: Load
    late: Load
    higher: tuple[Load, ...]
    scenarios: tuple[Scenario, ...]


@dataclass(frozen=True)
class Line:
    """y = slope · x + intercept: percent of a processor after x seconds."""

    slope: float
    intercept: float

    def __call__(self, x: float) -> float:
        return self.slope * x + self.intercept


PAPER_CPU: Final = {
    1: Line(0.33, 23.65),
    2: Line(0.16, 29.20),
    3: Line(0.09, 14.33),
    4: Line(0.03, 16.47),
    5: Line(-0.01, 17.16),
    6: Line(0.01, 10.56),
}
"""By scenario: the paper's table 5, of one delivery tier. Its tiers are Raspberry Pis with one core of 700 MHz."""
PAPER_LEVEL: Final = {1: 30.0, 2: 30.0, 3: 20.0, 4: 17.0, 5: 17.0, 6: 10.0}
"""Percent of a processor, by scenario, about: what its text says of figure 9 (30 and more for 1 and 2)."""
PAPER_LATENCY: Final = {2: 30.0, 5: 29.0}
"""Milliseconds from reading to cloud, mean of its three runs, for the 400th reading: what its text says of figure 11.
Of 3 and 4 it says at least 10 less than of 2, of 6 that it is the least of all; it has none for scenario 1."""
PAPER_TIERS: Final = {1: ("–", "–"), 2: ("1", "1"), 3: ("1", "2"), 4: ("2", "1×2"), 5: ("2", "1×2"), 6: ("2", "2×2")}
"""Receiving and delivery tiers, by scenario: its table 4."""

NORTH: Final = tuple(f"+/room{room}" for room in range(0, ROOMS, 2))
SOUTH: Final = tuple(f"+/room{room}" for room in range(1, ROOMS, 2))
MOVED: Final = tuple(range(ROOMS // 2, ROOMS))


def _receiving(edge: str) -> Tier:
    return Tier(f"{edge}-r", edge, receives=True, delivers=False)


def _delivery(edge: str, number: int, owns: tuple[str, ...]) -> Tier:
    return Tier(f"{edge}-d{number}", edge, receives=False, delivers=True, owns=owns)


def _of(kind: str, filters: tuple[str, ...]) -> tuple[str, ...]:
    """What is measured, in these rooms."""
    return tuple(filter.replace("+", kind) for filter in filters)


_ONE_EACH: Final = (
    _receiving("north"),
    _delivery("north", 1, NORTH),
    _receiving("south"),
    _delivery("south", 1, SOUTH),
)
_TWO_EACH: Final = (
    _receiving("north"),
    _delivery("north", 1, _of("temperature", NORTH)),
    _delivery("north", 2, _of("humidity", NORTH)),
    _receiving("south"),
    _delivery("south", 1, _of("temperature", SOUTH)),
    _delivery("south", 2, _of("humidity", SOUTH)),
)
SCENARIOS: Final = (
    Scenario(1, "one edge, not split", (Tier("node", "north", receives=True, delivers=True, owns=FILTERS),)),
    Scenario(2, "1 receiving, 1 delivery tier", (_receiving("north"), _delivery("north", 1, FILTERS))),
    Scenario(
        3,
        "1 receiving, 2 delivery tiers",
        (_receiving("north"), _delivery("north", 1, FILTERS[:1]), _delivery("north", 2, FILTERS[1:])),
    ),
    Scenario(4, "two edges of 1 + 1, nothing between them", _ONE_EACH),
    Scenario(5, "two edges of 1 + 1, with traffic between", _ONE_EACH, MOVED),
    Scenario(6, "two edges of 1 + 2, with traffic between", _TWO_EACH, MOVED),
)


def plan(quick: bool) -> Plan:
    seconds = QUICK_SECONDS if quick else SECONDS
    return Plan(
        runs=1 if quick else RUNS,
        at_once=AT_ONCE if quick else 1,
        paper=Load("", "a reading every 50 ms", 1, READINGS),
        late=Load("late", "a cloud that starts when half of the readings are made", LATE_FACTOR, READINGS),
        higher=tuple(
            Load(f"x{factor}", f"{factor:,} × the rate", factor, round(seconds[factor] * factor / PERIOD))
            for factor in FACTORS
        ),
        scenarios=SCENARIOS,
    )
