"""The scenarios of the balance simulation, and the table of their outcomes.

python -m headwater.bench.balance_scenarios [part [dispatcher ...]]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headwater.bench.balance_simulation import Scenario, Worker, simulate

SHOWN: Final = ("round_robin", "random", "least_pending", "score", "score_mended", "adaptive", "bound")
EQUAL: Final = (Worker(0.025), Worker(0.025), Worker(0.025))
UNEQUAL: Final = (Worker(0.025), Worker(0.025), Worker(0.050))
PERIODS: Final = (0.0104, 0.0100)


def _both_ways(scenario: Scenario) -> Iterator[Scenario]:
    """With QoS 0 and reports, and with QoS 1 by members that never report."""
    yield replace(scenario, name=f"{scenario.name}, reports")
    yield replace(scenario, name=f"{scenario.name}, acks", qos=1, reports=0.0)


def _paper() -> Iterator[Scenario]:
    for number, workers in ((1, EQUAL), (2, UNEQUAL)):
        for period in PERIODS:
            yield from _both_ways(Scenario(f"scenario {number}, {period * 1000:.1f} ms", workers, period, 15.0))


def _troubles() -> Iterator[Scenario]:
    yield Scenario("reports before messages", UNEQUAL, 0.0104, 15.0, begins=2.4)
    slowing = Worker(0.025, slow=((5.0, 10.0, 4.0),))
    yield from _both_ways(Scenario("one of 4 slows 4x, 5..10 s", (slowing, *EQUAL), 0.0104, 20.0))
    freezing = Worker(0.025, frozen=((5.0, 8.0),))
    yield from _both_ways(Scenario("one of 4 freezes, 5..8 s", (freezing, *EQUAL), 0.0104, 20.0))
    visitors = (Worker(0.025, joins=3.0, leaves=9.0), Worker(0.050, joins=5.0), Worker(0.0125, leaves=6.0))
    yield from _both_ways(Scenario("members join and leave", (*UNEQUAL, *visitors), 0.0104, 15.0))
    far = Worker(0.025, delay=0.050)
    for count in (4, 3):
        remote = Scenario(f"one of {count} is 50 ms away", (*EQUAL[: count - 1], far), 0.0104, 15.0)
        yield from _both_ways(remote)
        yield replace(remote, name=f"{remote.name}, reports, known", way_known=True)
    yield Scenario("half of the reports lost", UNEQUAL, 0.0104, 15.0, lost=0.5)
    yield Scenario("reports up to 500 ms late", UNEQUAL, 0.0104, 15.0, late=0.5)
    varying = Scenario("times vary (sigma 0.5)", UNEQUAL, 0.0120, 30.0, varying=0.5, random_arrivals=True)
    yield from _both_ways(varying)


def _intervals() -> Iterator[Scenario]:
    for interval in (0.05, 0.2, 1.0, 5.0, 10.0):
        for early in (True, False):
            name = f"reports every {interval:g} s{' and early' if early else ''}"
            yield Scenario(name, UNEQUAL, 0.0104, 30.0, reports=interval, early=early)


def crowd(count: int, utilisation: float, messages: int = 6000) -> Scenario:
    """Members with log-normal processing times, of which the group as a whole is used to some part."""
    chance = random.Random(count)
    workers = tuple(Worker(chance.lognormvariate(-3.0, 0.7)) for _ in range(count))
    rate = utilisation * sum(1.0 / worker.service for worker in workers)
    duration = max(messages, 30 * count) / rate
    name = f"{count} members, {utilisation:.0%}"
    return Scenario(name, workers, 1.0 / rate, duration, varying=0.3, random_arrivals=True)


def _crowds() -> Iterator[Scenario]:
    for count in (3, 30, 1000):
        for utilisation in (0.5, 0.8, 0.95):
            yield from _both_ways(crowd(count, utilisation))


PARTS: Final = {"paper": _paper, "troubles": _troubles, "intervals": _intervals, "crowds": _crowds}


def scenarios(part: str = "") -> list[Scenario]:
    """All of a part, or of all parts."""
    return [each for name, made in PARTS.items() if part in ("", name) for each in made()]


def main() -> None:
    print(f"{'scenario':44} {'dispatcher':14} {'mean':>9} {'p50':>9} {'p99':>9} {'fair':>5} reports   (ms)")
    for scenario in scenarios(sys.argv[1] if len(sys.argv) > 1 else ""):
        for name in sys.argv[2:] or SHOWN:
            got = simulate(scenario, name)
            values = " ".join(f"{1000 * each:9.1f}" for each in (got.mean, got.quantile(0.5), got.quantile(0.99)))
            print(f"{scenario.name:44} {name:14} {values} {got.fairness:5.2f} {got.reports:7}", flush=True)


if __name__ == "__main__":
    main()
