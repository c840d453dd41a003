"""What the runs come to: latencies, lines through CPU samples, CPU per message, what is missing."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, linear_regression
from typing import Final, NamedTuple

from headwater_lab.reproduce.edge.devices import Sent
from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import Line, Load, Scenario
from headwater_lab.reproduce.edge.trial import EdgeOutcome, Samples

NUMBER: Final = b'"number":'
MOST_LOGGED: Final = 1000
"""Readings of which the logs are kept; those of the higher rates are large, and say no more."""


class Measured(NamedTuple):
    """What is kept of a run; of the logs themselves only if they are small (`logs`). `numbers` and `latencies`, in
    milliseconds, are those of the readings that came by MQTT, in the order in which they came; if devices have moved,
    of those that were forwarded from edge to edge alone, as in the paper. `last` is that of the last reading, None if
    it did not come."""

    scenario: Scenario
    load: Load
    seed: int
    sent: Sent
    cpu: dict[str, Samples]
    used: dict[str, float]
    made: int
    by_mqtt: int
    by_rest: int
    numbers: array[int]
    latencies: array[float]
    last: float | None
    missing: int
    unequal: int
    logs: EdgeOutcome | None

    @property
    def label(self) -> str:
        return label_of(self.scenario, self.load)


def label_of(scenario: Scenario, load: Load) -> str:
    """How results are named: by scenario, and by rate if it is not the paper's. Without a scenario it is the first."""
    if not load.name:
        return scenario.name
    return load.name if scenario.number == 1 else f"{scenario.name}/{load.name}"


def measured(outcome: EdgeOutcome) -> Measured:
    all_latencies = latencies(outcome)
    counted = [
        (number, latency)
        for each, number, latency in zip(outcome.mqtt, numbers(outcome), all_latencies, strict=True)
        if not outcome.scenario.moved or outcome.scenario.is_forwarded(each.topic)
    ]
    return Measured(
        scenario=outcome.scenario,
        load=outcome.load,
        seed=outcome.seed,
        sent=outcome.sent,
        cpu=outcome.cpu,
        used=outcome.used,
        made=len(outcome.made),
        by_mqtt=len(outcome.mqtt),
        by_rest=len(outcome.rest),
        numbers=array("q", [number for number, _ in counted]),
        latencies=array("d", [latency for _, latency in counted]),
        last=dict(counted).get(len(outcome.made) - 1),
        missing=missing(outcome),
        unequal=unequal(outcome),
        logs=outcome if len(outcome.made) <= MOST_LOGGED else None,
    )


class TierSummary(NamedTuple):
    """`per_message`: µs of a processor for each reading that the devices made, whichever tier took it. `cpu` is the
    line through the means of the runs' samples."""

    name: str
    cpu: Line
    cpu_mean: float
    per_message: float


class Summary(NamedTuple):
    """A scenario at one load, all its runs together. Milliseconds; `last` are those of the last readings of the runs,
    the paper's 400th. `cpu` is the line through the means of the samples of runs and delivery tiers, as the paper's.
    `missing`: readings that MQTT or REST did not bring as they were made, `unequal` positions at which MQTT and REST
    differ. `measured`: messages whose latency counts."""

    scenario: Scenario
    load: Load
    runs: int
    measured: int
    mean: float
    median: float
    p99: float
    most: float
    last: tuple[float, ...]
    cpu: Line
    cpu_mean: float
    tiers: tuple[TierSummary, ...]
    missing: int
    unequal: int
    sent_late: float

    @property
    def label(self) -> str:
        return label_of(self.scenario, self.load)

    @property
    def per_message(self) -> float:
        """µs of a processor that a message takes at all tiers together."""
        return sum(tier.per_message for tier in self.tiers)

    @property
    def per_message_delivery(self) -> float:
        """The same, at the delivery tiers."""
        names = {tier.name for tier in self.scenario.delivery}
        return sum(tier.per_message for tier in self.tiers if tier.name in names)


def latencies(outcome: EdgeOutcome) -> list[float]:
    """Of each reading that came by MQTT, in milliseconds, in the order in which they came."""
    begin, rate = outcome.begin.at, outcome.load.rate
    return [
        1000.0 * (each.at - begin - number / rate) for each, number in zip(outcome.mqtt, numbers(outcome), strict=True)
    ]


def numbers(outcome: EdgeOutcome) -> list[int]:
    return [number_of(each.payload) for each in outcome.mqtt]


def number_of(payload: bytes) -> int:
    """Of a reading."""
    return int(payload.partition(NUMBER)[2].partition(b",")[0])


def missing(outcome: EdgeOutcome) -> int:
    """Readings that were made and that are not in both other logs, byte for byte and at the tier that owns the topic,
    or that are there more often."""
    owners = {topic: outcome.scenario.owner(topic) for topic, _ in outcome.made}
    made = Counter((owners[topic], topic, payload) for topic, payload in outcome.made)
    mqtt = Counter((each.tier, each.topic, each.payload) for each in outcome.mqtt)
    rest = Counter((each.tier, each.copy.topic, each.copy.payload) for each in outcome.rest)
    return max(_difference(made, mqtt), _difference(made, rest))


def _difference(one: Counter[tuple[int, str, bytes]], other: Counter[tuple[int, str, bytes]]) -> int:
    return max(sum((one - other).values()), sum((other - one).values()))


def unequal(outcome: EdgeOutcome) -> int:
    """Positions at which one log has something else than the other, or nothing."""
    mqtt = {(each.tier, each.position, each.topic, each.payload) for each in outcome.mqtt}
    rest = {(each.tier, each.copy.position, each.copy.topic, each.copy.payload) for each in outcome.rest}
    return len({each[:2] for each in mqtt ^ rest})


def fitted(runs: Sequence[Samples]) -> Line:
    """The line through the means of the samples that were taken at the same time."""
    means = mean_samples(runs)
    if len(means) < 2:
        return Line(0.0, means[0][1] if means else 0.0)
    slope, intercept = linear_regression(*zip(*means, strict=True))
    return Line(slope, intercept)


def mean_samples(runs: Sequence[Samples]) -> Samples:
    return [(fmean(x for x, _ in at), fmean(y for _, y in at)) for at in zip(*runs, strict=False)]


def delivery_samples(runs: Iterable[Measured]) -> list[Samples]:
    """Of all delivery tiers in all these runs."""
    return [run.cpu[tier.name] for run in runs for tier in run.scenario.delivery]


def summarised(runs: Iterable[Measured]) -> list[Summary]:
    found: dict[tuple[Scenario, Load], list[Measured]] = {}
    for run in runs:
        found.setdefault((run.scenario, run.load), []).append(run)
    return [_summary(*each, group) for each, group in sorted(found.items(), key=_order)]


def _order(found: tuple[tuple[Scenario, Load], list[Measured]]) -> tuple[int, int]:
    scenario, load = found[0]
    return load.factor, scenario.number


def _summary(scenario: Scenario, load: Load, runs: list[Measured]) -> Summary:
    everything = sorted(each for run in runs for each in run.latencies) or [0.0]
    samples = delivery_samples(runs)
    return Summary(
        scenario=scenario,
        load=load,
        runs=len(runs),
        measured=sum(len(run.latencies) for run in runs),
        mean=fmean(everything),
        median=everything[len(everything) // 2],
        p99=everything[int(0.99 * (len(everything) - 1))],
        most=everything[-1],
        last=tuple(run.last for run in runs if run.last is not None),
        cpu=fitted(samples),
        cpu_mean=_level(samples),
        tiers=tuple(_tier_summary(tier.name, runs) for tier in scenario.tiers),
        missing=sum(run.missing for run in runs),
        unequal=sum(run.unequal for run in runs),
        sent_late=1000.0 * max(run.sent.latest for run in runs),
    )


def _tier_summary(name: str, runs: Sequence[Measured]) -> TierSummary:
    samples = [run.cpu[name] for run in runs]
    made = sum(run.made for run in runs)
    return TierSummary(name, fitted(samples), _level(samples), 1e6 * sum(run.used[name] for run in runs) / made)


def _level(samples: Sequence[Samples]) -> float:
    percents = [percent for run in samples for _, percent in run]
    return fmean(percents) if percents else 0.0


def late_missing(outcome: LateOutcome) -> int:
    """Readings that the late cloud has not, has twice, or has in another order than they were made. Order is promised
    for what was published at one node and is stored by one; elsewhere it is not looked at."""
    made, copies = defaultdict(list), defaultdict(list)
    scenario = outcome.scenario
    places = {topic: (scenario.owner(topic), scenario.receiver(topic)) for topic, _ in outcome.made}
    for topic, payload in outcome.made:
        made[places[topic]].append((topic, payload))
    for tier, rows in enumerate(outcome.copies):
        for copy in rows:
            receiver = places[copy.topic][1] if copy.topic in places else -1
            copies[tier, receiver].append((copy.topic, copy.payload))
    return sum(_sequence_difference(made[place], copies[place]) for place in made.keys() | copies.keys())


def _sequence_difference(made: list[tuple[str, bytes]], copies: list[tuple[str, bytes]]) -> int:
    if copies == made:
        return 0
    one, other = Counter(made), Counter(copies)
    return max(1, sum((one - other).values()), sum((other - one).values()))
