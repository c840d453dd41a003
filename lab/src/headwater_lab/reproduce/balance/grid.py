"""The thesis's experiment over a grid of its parameters, on a virtual clock: points, and what is measured at one.

The thesis has two groups, of 25/25/25 and 25/25/50 ms, at one load each. Here are more groups, more loads, times that
vary, and as many seeds as one wants: they give the phases of the report timers and, where times vary, the times. Every
dispatcher gets the very same messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from headwater_lab.balance_scenarios import SHOWN, group, told
from headwater_lab.balance_simulation import simulate

DURATION: Final = 15.0
"""Seconds of the virtual clock, as in the thesis."""
GROUPS: Final = (
    (0.025, 0.025, 0.025),
    (0.025, 0.025, 0.050),
    (0.025, 0.050, 0.100),
    (0.010, 0.020, 0.040, 0.080),
    (0.025, 0.025, 0.025, 0.025, 0.200),
)
LOADS: Final = (0.50, 0.70, 0.83, 0.90, 0.96)
"""Parts of what a group can do; 83 and 96 % are the thesis's."""
VARYING: Final = (0.0, 0.3)
"""Sigma of the log-normal factor of a message's time; 0 is the thesis's."""
WAYS: Final = ("reports", "acks")


@dataclass(frozen=True)
class Setting:
    """`services` are the members' seconds per message, `way` is how they tell how they are doing."""

    services: tuple[float, ...]
    load: float
    varying: float
    way: str

    @property
    def members(self) -> str:
        return "/".join(f"{1000.0 * each:g}" for each in self.services)


@dataclass(frozen=True)
class GridPoint:
    setting: Setting
    dispatcher: str
    seed: int


@dataclass(frozen=True)
class Measured:
    """Latencies are from a message's creation until a member takes it, in milliseconds."""

    mean_ms: float
    p50_ms: float
    p99_ms: float
    fairness: float
    reports: int


def points(seeds: Sequence[int], quick: bool = False) -> list[GridPoint]:
    """The quick ones are the thesis's two groups, without times that vary."""
    groups, varying = (GROUPS[:2], VARYING[:1]) if quick else (GROUPS, VARYING)
    settings = [Setting(*each) for each in product(groups, LOADS, varying, WAYS)]
    return [GridPoint(*each) for each in product(settings, SHOWN, seeds)]


def run_point(point: GridPoint) -> Measured:
    setting = point.setting
    scenario = replace(group(setting.services, setting.load, DURATION), varying=setting.varying)
    [case] = told("grid", setting.members, scenario, setting.way)
    outcome = simulate(case.seeded(point.seed), point.dispatcher, point.seed)
    return Measured(
        1000.0 * outcome.mean,
        1000.0 * outcome.quantile(0.5),
        1000.0 * outcome.quantile(0.99),
        outcome.fairness,
        outcome.reports,
    )
