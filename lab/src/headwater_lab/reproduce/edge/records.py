"""The list for programs. Names are stable."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import PAPER_CPU, PAPER_LATENCY, PAPER_LEVEL
from headwater_lab.reproduce.edge.results import Summary, late_missing
from headwater_lab.results import Record, record

LATE: Final = "late"
"""Of the first scenario; the others have their numbers behind it, and so has the first."""
PAPER_RATE: Final = 20.0


def records(found: Sequence[Summary], lates: Sequence[LateOutcome]) -> list[Record]:
    listed: list[Record] = []
    for each in found:
        listed += _measured(each)
    for number in dict.fromkeys(late.scenario.number for late in lates):
        of_scenario = [late for late in lates if late.scenario.number == number]
        if number == 1:
            listed += _late(LATE, of_scenario)
        listed += _late(f"{LATE}{number}", of_scenario)
    return listed


def _measured(each: Summary) -> list[Record]:
    name, number = each.label, each.scenario.number
    is_papers = not each.load.name
    line = PAPER_CPU[number] if is_papers else None
    none = 0 if is_papers else None
    listed = [
        record(f"{name}/rate", PAPER_RATE if is_papers else None, each.load.rate, "messages/s"),
        record(f"{name}/latency_mean_ms", None, each.mean, "ms"),
        record(f"{name}/latency_p99_ms", None, each.p99, "ms"),
        record(f"{name}/latency_max_ms", None, each.most, "ms"),
        record(
            f"{name}/latency_last_mean_ms",
            PAPER_LATENCY.get(number) if is_papers else None,
            fmean(each.last) if each.last else 0.0,
            "ms",
        ),
        record(f"{name}/latency_last_max_ms", None, max(each.last, default=0.0), "ms"),
        record(f"{name}/latency_messages", None, each.measured, "messages"),
        record(f"{name}/cpu_slope", line.slope if line else None, each.cpu.slope, "%/s"),
        record(f"{name}/cpu_intercept", line.intercept if line else None, each.cpu.intercept, "%"),
        record(f"{name}/cpu_mean", PAPER_LEVEL[number] if is_papers else None, each.cpu_mean, "%"),
        record(f"{name}/cpu_per_message_us", None, each.per_message, "µs"),
        record(f"{name}/cpu_per_message_delivery_us", None, each.per_message_delivery, "µs"),
        record(f"{name}/missing", none, each.missing, "messages"),
        record(f"{name}/unequal", none, each.unequal, "positions"),
    ]
    for tier in each.tiers if each.scenario.is_split else ():
        listed += [
            record(f"{name}/{tier.name}/cpu_slope", None, tier.cpu.slope, "%/s"),
            record(f"{name}/{tier.name}/cpu_intercept", None, tier.cpu.intercept, "%"),
            record(f"{name}/{tier.name}/cpu_mean", None, tier.cpu_mean, "%"),
        ]
    return listed


def _late(name: str, lates: Sequence[LateOutcome]) -> list[Record]:
    return [
        record(f"{name}/made", None, sum(len(late.made) for late in lates), "messages"),
        record(f"{name}/before_start", None, sum(late.before for late in lates), "messages"),
        record(f"{name}/recovered", None, sum(late.recovered for late in lates), "messages"),
        record(f"{name}/live", None, sum(late.live for late in lates), "messages"),
        record(f"{name}/missing", 0, sum(map(late_missing, lates)), "messages"),
    ]
