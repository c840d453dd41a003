"""A fleet behind one group: `scripts/bench shared-fleet`, or `python -m headwater_lab.shared_fleet`.

The set-up that EMQ publishes for shared subscriptions: 1,000 publishers with one message a second each, 5 subscribers
in one group, QoS 1, 16 bytes of payload, for a minute. The publishers take turns, so that a message comes every
millisecond: nearly every packet wakes the broker up by itself. Memory is the most that was resident, connections
and program included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from headwater_lab import campaign
from headwater_lab.contest import MOSQUITTO, Case, ContestOutcome
from headwater_lab.report import number, table

OURS: Final = ("adaptive", "round_robin")
TRAFFIC: Final = (
    "--share workers --topics 1 --publishers 1000 --subscribers 5 --qos 1 --payload 16 --rate 1000 --burst 1"
)


def cases(mqtt: int | None, quick: bool) -> list[Case]:
    """One, in MQTT 5.0 unless told otherwise. Quick is only shorter."""
    what = "1,000 publishers, 1 message/s each, group of 5, QoS 1, 16 B"
    return [Case("fleet", what, tuple(TRAFFIC.split()), mqtt or 5)]


def line(outcome: ContestOutcome) -> str:
    """One contender after the other, for the terminal."""
    said = [
        f"{name}: {number(outcome.median(name))} µs CPU, mean {outcome.median(name, 'mean'):.0f} "
        f"p50 {outcome.median(name, 'p50'):.0f} p99 {outcome.median(name, 'p99'):.0f} µs, "
        f"{outcome.median(name, 'rate'):,.0f}/s, {outcome.median(name, 'peak_bytes') / 2**20:.1f} MiB"
        for name in outcome.samples
    ]
    return "; ".join(said)


def markdown(outcomes: Sequence[ContestOutcome]) -> str:
    """The table and what is to be said against it."""
    head = ["broker", "CPU: Mosquitto / this", "µs CPU / message", "mean µs", "p50 µs", "p99 µs", "messages/s", "lost"]
    lines = [cells for outcome in outcomes if not outcome.error for cells in _lines(outcome)]
    return f"{table([*head, 'MiB'], lines)}\n\n{campaign.losses(outcomes, _against)}"


def _lines(outcome: ContestOutcome) -> list[list[str]]:
    names = {"adaptive": "ours, adaptive", "round_robin": "ours, round robin", MOSQUITTO: "Mosquitto"}
    return [
        [
            names[name],
            campaign.ratio(outcome, MOSQUITTO, name),
            number(outcome.median(name)),
            *(f"{outcome.median(name, figure):.0f}" for figure in ("mean", "p50", "p99")),
            f"{outcome.median(name, 'rate'):,.0f}",
            str(outcome.violations(name).get("lost", 0)),
            f"{outcome.median(name, 'peak_bytes') / 2**20:.1f}",
        ]
        for name in (*OURS, MOSQUITTO)
    ]


def _against(outcome: ContestOutcome) -> list[str]:
    said = []
    for figure, name in (("us", "CPU"), ("mean", "mean latency"), ("p99", "p99"), ("peak_bytes", "memory")):
        if outcome.ratio(MOSQUITTO, OURS[0], figure) < 1:
            said.append(f"Mosquitto is ahead in {name}: {campaign.ratio(outcome, MOSQUITTO, OURS[0], figure)}")
    return said


BENCHMARK: Final = campaign.Benchmark(
    name="shared-fleet",
    about=__doc__,
    cases=cases,
    line=line,
    markdown=markdown,
    dispatchers=OURS,
    rounds=2,
    seconds=60.0,
    quick_seconds=10.0,
)


if __name__ == "__main__":
    sys.exit(campaign.main(BENCHMARK))
