"""Publishers, brokers and subscribers in four arrangements: `scripts/bench topologies`.

Eight publishers and: one broker with one subscriber (SGL-SGL), or with a shared group of two (SGL-SHD); two brokers
with one subscriber each (MLT-SGL), or with a group of two each (MLT-SHD), the publishers spread over them as by DNS
round robin. The arrangements are those of Banno and Yoshizawa (IEICE technical report on Internet architecture,
vol. 121, no. 201, 2021), who measured throughput and latency with clients on machines of their own. Here everything
shares one machine, so two brokers cannot have twice the CPU.

full: every publisher has 100 messages under way, so latency is mostly the time in queues, and messages under way
divided by throughput. paced: 4,000 messages/s in all, one by one.
Every broker has a topic of its own, so the two need not know each other; a launcher of connected ones fits as well.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater_lab import campaign
from headwater_lab.contest import MOSQUITTO, Case, ContestOutcome
from headwater_lab.report import number, table

PUBLISHERS: Final = 8
OURS: Final = "adaptive"


@dataclass(frozen=True)
class Topology:
    """`subscribers` are those of all brokers; `shared`: those of a broker are one group."""

    name: str
    brokers: int
    subscribers: int
    shared: bool


TOPOLOGIES: Final = (
    Topology("SGL-SGL", 1, 1, shared=False),
    Topology("SGL-SHD", 1, 2, shared=True),
    Topology("MLT-SGL", 2, 2, shared=False),
    Topology("MLT-SHD", 2, 4, shared=True),
)
REGIMES: Final = {
    ("full", 0): "--window 100 --latency --qos 0",
    ("full", 1): "--window 100 --latency --qos 1",
    ("paced", 0): "--rate 4000 --qos 0",
}


def cases(mqtt: int | None, quick: bool) -> list[Case]:
    """Every topology in every regime, in MQTT 5.0 unless told otherwise. Quick is only shorter."""
    return [_case(topology, regime, qos, mqtt or 5) for regime, qos in REGIMES for topology in TOPOLOGIES]


def _case(topology: Topology, regime: str, qos: int, mqtt: int) -> Case:
    options = f"--publishers {PUBLISHERS} --subscribers {topology.subscribers} --topics {topology.brokers}"
    if topology.shared:
        options += " --share workers"
    return Case(
        key=f"{regime}/qos{qos}/{topology.name}",
        what=f"{topology.name}, {regime}, QoS {qos}",
        options=(*options.split(), *REGIMES[regime, qos].split()),
        mqtt=mqtt,
        brokers=topology.brokers,
    )


def line(outcome: ContestOutcome) -> str:
    """One contender after the other, for the terminal."""
    said = [
        f"{name}: {outcome.median(name, 'rate'):,.0f}/s, mean {outcome.median(name, 'mean'):,.0f} "
        f"p99 {outcome.median(name, 'p99'):,.0f} µs, {number(outcome.median(name))} µs CPU"
        for name in outcome.samples
    ]
    return "; ".join(said)


def markdown(outcomes: Sequence[ContestOutcome]) -> str:
    """The table and what is to be said against it."""
    head = ["topology", "CPU: Mosquitto / ours", "messages/s ours", "Mosquitto", "mean µs ours", "Mosquitto"]
    head += ["p99 µs ours", "Mosquitto", "µs CPU ours", "Mosquitto"]
    return f"{table(head, [_cells(outcome) for outcome in outcomes])}\n\n{campaign.losses(outcomes, _against)}"


def _cells(outcome: ContestOutcome) -> list[str]:
    if outcome.error:
        return [outcome.case.what, "failed", *[""] * 8]
    cells = [outcome.case.what, campaign.ratio(outcome, MOSQUITTO, OURS)]
    for figure in ("rate", "mean", "p99"):
        cells += [f"{outcome.median(name, figure):,.0f}" for name in (OURS, MOSQUITTO)]
    return cells + [number(outcome.median(name)) for name in (OURS, MOSQUITTO)]


def _against(outcome: ContestOutcome) -> list[str]:
    said = []
    for figure, name in (("us", "CPU"), ("mean", "mean latency"), ("p99", "p99")):
        if outcome.ratio(MOSQUITTO, OURS, figure) < 1:
            said.append(f"Mosquitto is ahead in {name}: {campaign.ratio(outcome, MOSQUITTO, OURS, figure)}")
    if outcome.ratio(OURS, MOSQUITTO, "rate") < 0.99:
        said.append(f"Mosquitto is ahead in throughput: {campaign.ratio(outcome, OURS, MOSQUITTO, 'rate')}")
    return said


BENCHMARK: Final = campaign.Benchmark(
    name="topologies",
    about=__doc__,
    cases=cases,
    line=line,
    markdown=markdown,
    dispatchers=(OURS,),
    rounds=5,
    seconds=2.0,
    quick_seconds=0.5,
)


if __name__ == "__main__":
    sys.exit(campaign.main(BENCHMARK))
