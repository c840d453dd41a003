"""What is run, and what the paper found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.fleet.devices import Fleet

TOPICS: Final = ("temperature/room{n}", "humidity/room{n}")
FILTERS: Final = ("temperature/#", "humidity/#")
ROOMS: Final = 10
PERIOD: Final = 0.05
"""Seconds between two readings of the whole fleet, in the paper."""
READINGS: Final = 400
SAMPLE: Final = 0.5
"""Seconds between two samples of CPU time."""
RUNS: Final = 3
SHORT: Final = 3.0
LONG: Final = 20.0
"""Seconds at the higher rates: in a quick run, and else as long as the paper's 400 readings take."""


@dataclass(frozen=True)
class Scenario:
    """`factor`: how many times the paper's rate."""

    name: str
    title: str
    factor: int
    readings: int
    runs: int

    @property
    def rate(self) -> float:
        return self.factor / PERIOD

    @property
    def seconds(self) -> float:
        return self.readings / self.rate

    def fleet(self, seed: int) -> Fleet:
        return Fleet(TOPICS, ROOMS, self.rate, seed)


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
"""By scenario: the paper's table 5. Its edge is a Raspberry Pi with one core of 700 MHz."""
PAPER_LATENCY: Final = {2: 30.0, 5: 29.0}
"""Milliseconds from reading to cloud, mean of its three runs, for the 400th reading: what its text says of figure 11.
It has none for scenario 1."""
LATE: Final = "late"
SCENARIO1: Final = "scenario1"


def scenarios(quick: bool) -> list[Scenario]:
    seconds = SHORT if quick else LONG
    runs = 1 if quick else RUNS
    return [
        Scenario(SCENARIO1, "scenario 1: one edge, a reading every 50 ms", 1, READINGS, runs),
        *(
            Scenario(f"x{factor}", f"the same at {factor:,} × the rate", factor, round(seconds * factor / PERIOD), runs)
            for factor in (100, 1000)
        ),
    ]


def late(quick: bool) -> Scenario:
    """The cloud that starts late; in a quick run at ten times the rate, so that it does not take long."""
    return Scenario(LATE, "a cloud that starts when half of the readings are made", 10 if quick else 1, READINGS, 1)
