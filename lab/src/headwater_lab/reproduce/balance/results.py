"""What the trials came to: figures of merit, bars, and the list for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from headwater_lab.balance_simulation import Scenario, Worker, simulate
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.plan import (
    ADAPTIVE_QOS1,
    CLAIRVOYANT,
    CLAIRVOYANT_QOS1,
    PAPER_MEANS,
    SCENARIO1,
    SCENARIO2,
    SCENARIO2_10MS,
    STEADY,
    MemberRow,
    Setting,
)
from headwater_lab.reproduce.balance.timetable import Taken
from headwater_lab.results import Record, record

BOUND: Final = "bound"
JITTER: Final = 0.2
"""Milliseconds. Two means of scenario 1, where nobody ever waits, are equal if they differ by less: all there is to
measure there is the way through sockets and processes, and how the machine was busy with other things."""


@dataclass(frozen=True)
class Summary:
    """One contender in one setting, over all its phases; times in milliseconds. `means` has one for each phase."""

    setting: Setting
    name: str
    mean: float
    median: float
    p99: float
    means: tuple[float, ...]
    messages: int
    lost: int
    reports: int

    @property
    def key(self) -> str:
        return f"{self.setting.name}/{self.name}"

    @property
    def paper(self) -> float | None:
        return PAPER_MEANS.get(self.key)


@dataclass(frozen=True)
class Bar:
    """Something promised: a ratio (or difference) and what it may be at most."""

    what: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


@dataclass(frozen=True)
class Noise:
    """How late Python woke up, and how long the way took, in milliseconds: mean and 99 % quantile. `sending`: from a
    message's creation to its sending; `way`: from there until an idle member had it; `waking`: from the end of a
    member's work until it took the next message."""

    sending: tuple[float, float]
    way: tuple[float, float]
    waking: tuple[float, float]


def summaries(results: Sequence[Result]) -> list[Summary]:
    """One for each contender and setting, in order of their first trial."""
    grouped: dict[tuple[Setting, str], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.trial.setting, result.trial.contender.name), []).append(result)
    return [_summary(*key, trials) for key, trials in grouped.items()]


def _summary(setting: Setting, name: str, trials: list[Result]) -> Summary:
    each = [_latencies(trial.outcome.taken) for trial in trials]
    latencies = sorted(latency for one in each for latency in one)
    return Summary(
        setting,
        name,
        mean=fmean(latencies),
        median=quantile(latencies, 0.5),
        p99=quantile(latencies, 0.99),
        means=tuple(fmean(one) for one in each),
        messages=len(latencies),
        lost=sum(trial.outcome.lost for trial in trials),
        reports=sum(len(trial.told) for trial in trials),
    )


def _latencies(taken: Iterable[Taken]) -> list[float]:
    return [1000.0 * each.latency for each in taken]


def quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[int(part * (len(ordered) - 1))]


def bound(setting: Setting, duration: float) -> float:
    """Milliseconds: the mean that a clairvoyant dispatcher has in the simulation, where no way takes any time."""
    workers = tuple(Worker(service) for service in setting.services)
    return 1000.0 * simulate(Scenario(setting.name, workers, setting.period, duration, reports=0.0), BOUND).mean


def bars(found: Sequence[Summary], bounds: dict[str, float]) -> list[Bar]:
    """What is promised, as far as it was run."""
    mean = {each.key: each.mean for each in found}
    two = SCENARIO2.name
    wanted = [
        (f"{two}/adaptive", f"{two}/{CLAIRVOYANT}", 2.5),
        (f"{two}/{ADAPTIVE_QOS1}", f"{two}/{CLAIRVOYANT_QOS1}", 2.5),
        (f"{two}/{CLAIRVOYANT}", f"{two}/{BOUND}", 2.0),
        (f"{two}/{CLAIRVOYANT_QOS1}", f"{two}/{BOUND}", 2.0),
    ]
    known = {**mean, **bounds}
    ratios = [
        Bar(f"{over} / {under}", known[over] / known[under], limit)
        for over, under, limit in wanted
        if over in known and under in known
    ]
    one = SCENARIO1.name
    ours, theirs = mean.get(f"{one}/adaptive"), mean.get(f"{one}/round_robin")
    if ours is not None and theirs is not None:
        ratios.append(Bar(f"{one}/adaptive - {one}/round_robin (ms)", ours - theirs, JITTER))
    return ratios


def steady_rows(result: Result) -> list[MemberRow]:
    """A row for each member, as in the thesis's tables 7 and 8."""
    rows = []
    for member in range(len(result.trial.setting.services)):
        taken = [each for each in result.outcome.taken if each.member == member and each.number in STEADY]
        latencies = _latencies(taken)
        if latencies:
            row = MemberRow(len(taken), min(latencies), max(latencies), fmean(latencies), pstdev(latencies))
        else:
            row = MemberRow(0, 0.0, 0.0, 0.0, 0.0)
        rows.append(row)
    return rows


def member_means(trials: Sequence[Result]) -> list[float]:
    """Mean latency of each member's messages, in milliseconds; 0.0 for one that got none."""
    members = range(len(trials[0].trial.setting.services))
    taken = [each for trial in trials for each in trial.outcome.taken]
    mine = [_latencies(each for each in taken if each.member == member) for member in members]
    return [fmean(each) if each else 0.0 for each in mine]


def noise(results: Iterable[Result]) -> Noise:
    sending: list[float] = []
    way: list[float] = []
    waking: list[float] = []
    for result in results:
        free_at = [0.0] * len(result.trial.setting.services)
        for each in result.outcome.taken:
            sending.append(1000.0 * (each.sent - each.created))
            if not each.waited:
                way.append(1000.0 * (each.seen - each.sent))
            elif each.seen >= free_at[each.member]:  # not so for what was left at the end, which was not waited for
                waking.append(1000.0 * (each.seen - free_at[each.member]))
            free_at[each.member] = each.start + result.trial.setting.services[each.member]
    return Noise(_mean_and_p99(sending), _mean_and_p99(way), _mean_and_p99(waking))


def _mean_and_p99(values: list[float]) -> tuple[float, float]:
    return (fmean(values), quantile(sorted(values), 0.99)) if values else (0.0, 0.0)


def records(found: Sequence[Summary], bounds: dict[str, float]) -> list[Record]:
    """The list for programs."""
    listed: list[Record] = []
    for setting in (SCENARIO1, SCENARIO2, SCENARIO2_10MS):
        for each in found:
            if each.setting == setting:
                listed.append(record(f"{each.key}/mean_ms", each.paper, each.mean, "ms", 3))
        key = f"{setting.name}/{BOUND}"
        if key in bounds:
            listed.append(record(f"{key}/mean_ms", None, bounds[key], "ms", 3))
    return listed
