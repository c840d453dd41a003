"""What a shared group costs the broker: `scripts/bench shared-cost`, or `python -m headwater_lab.shared_cost`.

CPU time of the broker per delivered message with the dispatcher `adaptive` over that with `round_robin`, and
Mosquitto's over `adaptive`. Ten publishers, one topic, one group of 3 or 1,000 members, which acknowledge at once.
deep: each publisher has many messages under way and sends in batches. lock: each publisher waits until its message has
come to a member before it sends the next. Every message must come to exactly one member, and no member may see a
publisher go back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from headwater_lab import campaign
from headwater_lab.contest import MOSQUITTO, Case, ContestOutcome
from headwater_lab.report import number, table

PUBLISHERS: Final = 10
GOALS: Final = {3: 1.3, 1000: 2.0}
"""The most that a message with `adaptive` is meant to cost, as a multiple of `round_robin`, by members."""

DISPATCHERS: Final = ("adaptive", "round_robin")

_WINDOWS: Final = {
    ("deep", 0): "--window 1000",
    ("deep", 1): "--window 100",
    ("lock", 0): "--window 1 --burst 1",
    ("lock", 1): "--window 1 --burst 1",
}


def cases(mqtt: int | None, quick: bool) -> list[Case]:
    """Both regimes with both QoS, for a small and a large group; of both versions a quick run has one."""
    versions = [mqtt] if mqtt else [4] if quick else [4, 5]
    return [
        _case(regime, qos, members, version) for version in versions for members in GOALS for (regime, qos) in _WINDOWS
    ]


def _case(regime: str, qos: int, members: int, mqtt: int) -> Case:
    options = f"--share workers --topics 1 --publishers {PUBLISHERS} --subscribers {members} --qos {qos}"
    return Case(
        key=f"{regime}/qos{qos}/{members}{'/mqtt5' if mqtt == 5 else ''}",
        what=f"{regime}, QoS {qos}, {members:,} members",
        options=(*options.split(), *_WINDOWS[regime, qos].split()),
        mqtt=mqtt,
        goal=GOALS[members],
    )


def line(outcome: ContestOutcome) -> str:
    """Costs, then ratios of the first contender's to the others', for the terminal."""
    names = list(outcome.samples)
    costs = "  ".join(f"{name} {number(outcome.median(name)):>7}" for name in names)
    ratios = "  ".join(
        f"/{name} {outcome.ratio(names[0], name):5.2f} ±{outcome.spread(names[0], name):5.2f}" for name in names[1:]
    )
    return f"µs: {costs}   {names[0]} {ratios}{'  ABOVE THE GOAL' if is_above_goal(outcome) else ''}"


def is_above_goal(outcome: ContestOutcome) -> bool:
    """Whether `adaptive` costs more than it is meant to; not if one of the two did not run."""
    if outcome.case.goal is None or not set(DISPATCHERS) <= set(outcome.samples):
        return False
    return outcome.ratio(*DISPATCHERS) > outcome.case.goal


def markdown(outcomes: Sequence[ContestOutcome]) -> str:
    """The table and what is to be said against it."""
    head = ["traffic", "MQTT", "adaptive / round robin", "goal", "Mosquitto / adaptive", "µs adaptive"]
    head += ["µs round robin", "µs Mosquitto", "messages/s adaptive", "round robin", "Mosquitto"]
    return f"{table(head, [_cells(outcome) for outcome in outcomes])}\n\n{campaign.losses(outcomes, _against)}"


def _cells(outcome: ContestOutcome) -> list[str]:
    case = outcome.case
    cells = [case.what, case.version]
    if outcome.error:
        return [*cells, "failed", *[""] * 8]
    contenders = (*DISPATCHERS, MOSQUITTO)
    cells += [
        campaign.ratio(outcome, *DISPATCHERS),
        f"≤ {case.goal:g}",
        campaign.ratio(outcome, MOSQUITTO, DISPATCHERS[0]),
    ]
    cells += [number(outcome.median(name)) for name in contenders]
    return cells + [f"{outcome.median(name, 'rate'):,.0f}" for name in contenders]


def _against(outcome: ContestOutcome) -> list[str]:
    said = []
    if is_above_goal(outcome):
        said.append(f"adaptive is above its goal: {campaign.ratio(outcome, *DISPATCHERS)}")
    if outcome.ratio(MOSQUITTO, DISPATCHERS[0]) < 1:
        said.append(f"Mosquitto is ahead: {campaign.ratio(outcome, MOSQUITTO, DISPATCHERS[0])}")
    return said


BENCHMARK: Final = campaign.Benchmark(
    name="shared-cost",
    about=__doc__,
    cases=cases,
    line=line,
    markdown=markdown,
    dispatchers=DISPATCHERS,
    rounds=5,
    seconds=2.0,
    quick_seconds=0.5,
)


if __name__ == "__main__":
    sys.exit(campaign.main(BENCHMARK))
