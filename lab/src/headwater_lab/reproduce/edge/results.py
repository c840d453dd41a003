"""What the runs come to: latencies, the line through the CPU samples, what is missing; and the list for programs."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, linear_regression
from typing import Final, NamedTuple

from headwater_lab.reproduce.edge.devices import Sent
from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import LATE, PAPER_CPU, SCENARIO1, Line, Scenario
from headwater_lab.reproduce.edge.trial import EdgeOutcome
from headwater_lab.results import Record, record

NUMBER: Final = b'"number":'
MOST_LOGGED: Final = 1000
"""Readings of which the logs are kept; those of the higher rates are large, and say no more."""


class Measured(NamedTuple):
    """What is kept of a run; of the logs themselves only if they are small (`logs`). `numbers` and `latencies`, in
    milliseconds, are those of the readings that came by MQTT, in the order in which they came."""

    scenario: Scenario
    seed: int
    sent: Sent
    cpu: list[tuple[float, float]]
    made: int
    by_rest: int
    numbers: array[int]
    latencies: array[float]
    missing: int
    unequal: int
    logs: EdgeOutcome | None


def measured(outcome: EdgeOutcome) -> Measured:
    return Measured(
        scenario=outcome.scenario,
        seed=outcome.seed,
        sent=outcome.sent,
        cpu=outcome.cpu,
        made=len(outcome.made),
        by_rest=len(outcome.rest),
        numbers=array("q", [number_of(each.payload) for each in outcome.mqtt]),
        latencies=array("d", latencies(outcome)),
        missing=missing(outcome),
        unequal=unequal(outcome),
        logs=outcome if len(outcome.made) <= MOST_LOGGED else None,
    )


class Summary(NamedTuple):
    """A scenario, all its runs together. Milliseconds; `last` are those of the last readings of the runs, the paper's
    400th. `cpu` is the line through the means of the runs' samples, as the paper's. `missing`: readings that MQTT or
    REST did not bring as they were made, `unequal` positions at which MQTT and REST differ."""

    scenario: Scenario
    runs: int
    mean: float
    median: float
    p99: float
    most: float
    last: tuple[float, ...]
    cpu: Line
    cpu_mean: float
    missing: int
    unequal: int
    sent_late: float


def latencies(outcome: EdgeOutcome) -> list[float]:
    """Of each reading that came by MQTT, in milliseconds, in the order in which they came."""
    begin, rate = outcome.begin.at, outcome.scenario.rate
    return [1000.0 * (each.at - begin - number_of(each.payload) / rate) for each in outcome.mqtt]


def number_of(payload: bytes) -> int:
    """Of a reading."""
    return int(payload.partition(NUMBER)[2].partition(b",")[0])


def missing(outcome: EdgeOutcome) -> int:
    """Readings that were made and that are not in both other logs, byte for byte, or that are there more often."""
    mqtt = Counter((each.topic, each.payload) for each in outcome.mqtt)
    rest = Counter((each.topic, each.payload) for each in outcome.rest)
    made = Counter(outcome.made)
    return max(_difference(made, mqtt), _difference(made, rest))


def _difference(one: Counter[tuple[str, bytes]], other: Counter[tuple[str, bytes]]) -> int:
    return max(sum((one - other).values()), sum((other - one).values()))


def unequal(outcome: EdgeOutcome) -> int:
    """Positions at which one log has something else than the other, or nothing."""
    mqtt = {(each.position, each.topic, each.payload) for each in outcome.mqtt}
    rest = {(each.position, each.topic, each.payload) for each in outcome.rest}
    return len({each[0] for each in mqtt ^ rest})


def fitted(runs: Sequence[Sequence[tuple[float, float]]]) -> Line:
    """The line through the means of the samples that the runs took at the same time."""
    means = mean_samples(runs)
    if len(means) < 2:
        return Line(0.0, means[0][1] if means else 0.0)
    slope, intercept = linear_regression(*zip(*means, strict=True))
    return Line(slope, intercept)


def mean_samples(runs: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [(fmean(x for x, _ in at), fmean(y for _, y in at)) for at in zip(*runs, strict=False)]


def summarised(runs: Iterable[Measured]) -> list[Summary]:
    by_scenario: dict[Scenario, list[Measured]] = {}
    for run in runs:
        by_scenario.setdefault(run.scenario, []).append(run)
    return [_summary(scenario, group) for scenario, group in by_scenario.items()]


def _summary(scenario: Scenario, runs: list[Measured]) -> Summary:
    everything = sorted(each for run in runs for each in run.latencies) or [0.0]
    samples = [run.cpu for run in runs]
    return Summary(
        scenario=scenario,
        runs=len(runs),
        mean=fmean(everything),
        median=everything[len(everything) // 2],
        p99=everything[int(0.99 * (len(everything) - 1))],
        most=everything[-1],
        last=tuple(run.latencies[-1] for run in runs if run.latencies),
        cpu=fitted(samples),
        cpu_mean=fmean(y for run in samples for _, y in run) if any(samples) else 0.0,
        missing=sum(run.missing for run in runs),
        unequal=sum(run.unequal for run in runs),
        sent_late=1000.0 * max(run.sent.latest for run in runs),
    )


def late_missing(outcome: LateOutcome) -> int:
    """Readings that the late cloud has not, has twice, or has in another order than they were made."""
    copies = [(copy.topic, copy.payload) for copy in outcome.copies]
    if copies == outcome.made:
        return 0
    return max(1, _difference(Counter(outcome.made), Counter(copies)))


def records(found: Sequence[Summary], late: LateOutcome | None) -> list[Record]:
    """The list for programs; names are stable."""
    listed: list[Record] = []
    for each in found:
        listed += _records(each)
    if late is not None:
        listed += [
            record(f"{LATE}/made", None, len(late.made), "messages"),
            record(f"{LATE}/before_start", None, late.before, "messages"),
            record(f"{LATE}/recovered", None, late.report.recovered, "messages"),
            record(f"{LATE}/live", None, late.report.live, "messages"),
            record(f"{LATE}/missing", 0, late_missing(late), "messages"),
        ]
    return listed


def _records(each: Summary) -> list[Record]:
    name = each.scenario.name
    is_papers = name == SCENARIO1
    slope, intercept = (PAPER_CPU[1].slope, PAPER_CPU[1].intercept) if is_papers else (None, None)
    none = 0 if is_papers else None
    return [
        record(f"{name}/rate", 20 if is_papers else None, each.scenario.rate, "messages/s"),
        record(f"{name}/latency_mean_ms", None, each.mean, "ms"),
        record(f"{name}/latency_p99_ms", None, each.p99, "ms"),
        record(f"{name}/latency_max_ms", None, each.most, "ms"),
        record(f"{name}/latency_last_mean_ms", None, fmean(each.last) if each.last else 0.0, "ms"),
        record(f"{name}/latency_last_max_ms", None, max(each.last, default=0.0), "ms"),
        record(f"{name}/cpu_slope", slope, each.cpu.slope, "%/s"),
        record(f"{name}/cpu_intercept", intercept, each.cpu.intercept, "%"),
        record(f"{name}/cpu_mean", None, each.cpu_mean, "%"),
        record(f"{name}/missing", none, each.missing, "messages"),
        record(f"{name}/unequal", none, each.unequal, "positions"),
    ]
