"""The scenarios of shared groups on a virtual clock, and the bench that runs them.

python -m headwater_lab.balance_scenarios [--quick] [--part NAME] [--json FILE] [--out FOLDER] [--doc FILE]

Every scenario is run with several seeds, which give the phases of the report timers, the arrivals and the processing
times; every dispatcher gets the very same messages. Members tell how they are doing in one of three ways:

  reports      QoS 0, a status report every second and early ones
  acks         QoS 1, members acknowledge when a message is done, and never report
  connection   QoS 0 and no reports: what waits to be sent is looked at every 100 ms

The scenarios `paper` are the ones `adaptive` was made with. The others are of the same kinds as those it was tuned on,
but with members, times and seeds that were not used for that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headwater_lab.balance_simulation import Scenario, Worker

SHOWN: Final = ("round_robin", "random", "least_pending", "score", "score_mended", "adaptive", "bound")
EQUAL: Final = (Worker(0.025), Worker(0.025), Worker(0.025))
UNEQUAL: Final = (Worker(0.025), Worker(0.025), Worker(0.050))
PERIODS: Final = (0.0104, 0.0100)
SEEDS: Final = (201, 202, 203, 204, 205)
INTERVALS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FOUR: Final = (0.018, 0.022, 0.031, 0.044)  # seconds per message of the group that trouble comes to


@dataclass(frozen=True)
class Case:
    """A scenario in one of the ways in which members tell. `key` names it for programs."""

    part: str
    key: str
    way: str
    scenario: Scenario

    def seeded(self, seed: int) -> Scenario:
        """Its scenario with the phase of that seed."""
        return replace(self.scenario, phase=random.Random(seed).random())


def told(part: str, key: str, scenario: Scenario, *ways: str) -> Iterator[Case]:
    """The scenario in each of the ways."""
    for way in ways:
        yield Case(part, key, way, _in_way(scenario, way))


def _in_way(scenario: Scenario, way: str) -> Scenario:
    if way == "reports":
        return scenario
    if way == "acks":
        return replace(scenario, qos=1, reports=0.0)
    return replace(scenario, reports=0.0, samples=0.1)


def group(services: Sequence[float], utilisation: float, duration: float, name: str = "") -> Scenario:
    """A group of which that part is used, with processing times that vary by some percent."""
    rate = utilisation * sum(1.0 / service for service in services)
    return Scenario(name, tuple(Worker(service) for service in services), 1.0 / rate, duration, varying=0.05)


def _but_first(scenario: Scenario, **changes: object) -> Scenario:
    first = replace(scenario.workers[0], **changes)  # type: ignore[arg-type]
    return replace(scenario, workers=(first, *scenario.workers[1:]))


def _paper() -> Iterator[Case]:
    for number, workers in ((1, EQUAL), (2, UNEQUAL)):
        for period in PERIODS:
            name = f"scenario {number}, a message every {period * 1000:.1f} ms"
            key = f"scenario{number}" + ("" if period == PERIODS[0] else "-10ms")
            yield from told("paper", key, Scenario(name, workers, period, 15.0), "reports", "acks")
    late = Scenario("scenario 2, reports before the first message", UNEQUAL, PERIODS[0], 17.4, begins=2.4)
    yield from told("paper", "scenario2-late", late, "reports")


def _troubles() -> Iterator[Case]:
    steady = group(FOUR, 0.7, 20.0)
    slow = _but_first(replace(steady, name="the fastest of 4 slows down 4 x for 6 s"), slow=((6.0, 12.0, 4.0),))
    yield from told("troubles", "slow", slow, "reports", "acks")
    frozen = _but_first(replace(steady, name="the fastest of 4 freezes for 3 s"), frozen=((7.0, 10.0),))
    yield from told("troubles", "frozen", frozen, "reports", "acks")
    visitors = (Worker(0.020, joins=4.0, leaves=11.0), Worker(0.060, joins=6.0), Worker(0.012, leaves=8.0))
    visited = replace(steady, name="members join and leave", workers=(*steady.workers, *visitors))
    yield from told("troubles", "visits", replace(visited, period=steady.period / 1.2), "reports", "acks")
    for utilisation in (0.6, 0.9):
        far = group(FOUR, utilisation, 20.0, f"one of 4 is 50 ms away, used to {utilisation:.0%}")
        far = _but_first(far, delay=0.050)
        yield from told("troubles", f"far-{utilisation:.0%}", far, "reports", "acks")
        known = replace(far, name=f"{far.name}, TCP tells the way", way_known=True)
        yield from told("troubles", f"far-known-{utilisation:.0%}", known, "reports", "acks")
    busy = group(FOUR, 0.9, 20.0)
    yield from told("troubles", "lost", replace(busy, name="half of the reports lost", lost=0.5), "reports")
    yield from told("troubles", "late", replace(busy, name="reports up to 500 ms late", late=0.5), "reports")
    varying = group(FOUR, 0.85, 40.0, "times vary (sigma 0.6), random arrivals")
    varying = replace(varying, varying=0.6, random_arrivals=True)
    yield from told("troubles", "varying", varying, "reports", "acks")


def _connections() -> Iterator[Case]:
    """Neither reports nor acknowledgements. A kernel takes 128 kB before anything is to be seen."""
    for size in (100, 10_000):
        scenario = replace(group(FOUR, 0.9, 40.0, f"messages of {size:,} B, used to 90 %"), size=size)
        yield from told("connection only", f"size-{size}", scenario, "connection")
    frozen = replace(group(FOUR, 0.6, 40.0, "messages of 10,000 B, one freezes for 10 s"), size=10_000)
    yield from told("connection only", "frozen", _but_first(frozen, frozen=((7.0, 17.0),)), "connection")


def crowd(count: int, utilisation: float, messages: int = 6000, salt: int = 0) -> Scenario:
    """Members with log-normal processing times, of which the group as a whole is used to some part."""
    chance = random.Random(count + salt)
    workers = tuple(Worker(chance.lognormvariate(-3.0, 0.7)) for _ in range(count))
    rate = utilisation * sum(1.0 / worker.service for worker in workers)
    duration = max(messages, 30 * count) / rate
    name = f"{count:,} members used to {utilisation:.0%}"
    return Scenario(name, workers, 1.0 / rate, duration, varying=0.3, random_arrivals=True)


def _crowds(counts: Sequence[int], messages: int) -> Iterator[Case]:
    for count in counts:
        for utilisation in (0.5, 0.8, 0.95):
            scenario = crowd(count, utilisation, messages, salt=7_000)
            yield from told("crowds", f"{count}-{utilisation:.0%}", scenario, "reports", "acks")


def _intervals(intervals: Sequence[float]) -> Iterator[Case]:
    varying = replace(group(FOUR, 0.85, 40.0), varying=0.6, random_arrivals=True)
    frozen = _but_first(group(FOUR, 0.7, 20.0), frozen=((7.0, 10.0),))
    kinds = (
        ("steady", "scenario 2", Scenario("", UNEQUAL, PERIODS[0], 20.0)),
        ("varying", "times vary", varying),
        ("frozen", "one freezes for 3 s", frozen),
    )
    for key, what, scenario in kinds:
        for interval in intervals:
            for early in (True, False):
                name = f"{what}, reports every {interval:g} s{' and early' if early else ''}"
                one = replace(scenario, name=name, reports=interval, early=early)
                yield Case("intervals", f"{key}-{interval:g}{'-early' if early else ''}", "reports", one)


def cases(quick: bool = False) -> list[Case]:
    """All of them, in the order in which they are shown."""
    counts, messages = ((3, 10, 100), 2_000) if quick else ((3, 10, 100, 1_000), 6_000)
    intervals = (0.05, 1.0, 10.0) if quick else INTERVALS
    return [*_paper(), *_troubles(), *_connections(), *_crowds(counts, messages), *_intervals(intervals)]


def scenarios(part: str = "") -> list[Scenario]:
    """Those of a part, or of all parts."""
    return [case.scenario for case in cases() if part in ("", case.part)]


if __name__ == "__main__":
    from headwater_lab.balance_campaign import main

    main()
