"""The tables of the experiment, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import PAPER_CPU, PAPER_LATENCY, PAPER_LEVEL, PAPER_TIERS, Line, Scenario
from headwater_lab.reproduce.edge.results import Summary, late_missing
from headwater_lab.reproduce.edge.rivals import rival_tables
from headwater_lab.reproduce.page import Table


def all_tables(found: Sequence[Summary], lates: Sequence[LateOutcome]) -> list[Table]:
    papers = [each for each in found if not each.load.name]
    higher = [each for each in found if each.load.name]
    tables = [scenario_table([each.scenario for each in papers]), cpu_table(papers), tier_table(papers)]
    tables += [latency_table(papers)]
    if higher:
        tables += [rate_table(found), higher_latency_table(higher)]
    tables += [logs_table(found, lates)]
    return [*tables, late_table(lates), *rival_tables()] if lates else [*tables, *rival_tables()]


def scenario_table(scenarios: Sequence[Scenario]) -> Table:
    rows = []
    for each in scenarios:
        receiving, delivery = PAPER_TIERS[each.number]
        edges = len({tier.edge for tier in each.tiers})
        ours = (str(len(each.receiving)), f"{edges}×{len(each.delivery) // edges}") if each.is_split else ("–", "–")
        forwarded = f"{len(each.moved) * 2} of 20" if each.moved else "none"
        rows.append((_title(each), receiving, delivery, *ours, str(len(each.tiers)), forwarded))
    head = ("scenario", "paper: receiving", "paper: delivery", "receiving", "delivery", "nodes", "devices elsewhere")
    return Table("the paper's table 4: scenarios", head, rows)


def cpu_table(found: Sequence[Summary]) -> Table:
    rows = [
        (
            _title(each.scenario),
            equation(PAPER_CPU[each.scenario.number]),
            f"about {PAPER_LEVEL[each.scenario.number]:.0f}",
            equation(each.cpu),
            f"{each.cpu_mean:.1f}",
        )
        for each in found
    ]
    head = ("a delivery tier, % of a processor after x seconds", "paper", "paper: level", "ours", "ours, mean")
    return Table("the paper's table 5: CPU, every 0.5 s, with a linear fit", head, rows)


def tier_table(found: Sequence[Summary]) -> Table:
    """Each node by itself."""
    rows = [
        (f"{each.scenario.name}: {tier.name}", equation(tier.cpu), f"{tier.cpu_mean:.1f}")
        for each in found
        if each.scenario.is_split
        for tier in each.tiers
    ]
    return Table("CPU of each tier (r: receiving, d: delivery)", ("tier", "ours", "ours, mean"), rows)


def latency_table(found: Sequence[Summary]) -> Table:
    """At the paper's rate: figure 11."""
    rows = []
    for each in found:
        paper = PAPER_LATENCY.get(each.scenario.number)
        rows.append((_title(each.scenario), "" if paper is None else f"about {paper:.0f}", *_latencies(each)))
    return Table("latency (the paper's figure 11)", (_LATENCY, "paper, last: mean", *_LATENCIES), rows)


def higher_latency_table(found: Sequence[Summary]) -> Table:
    return Table(
        "latency at higher rates", (_LATENCY, *_LATENCIES), [(each.label, *_latencies(each)) for each in found]
    )


_LATENCY: Final = "from reading to cloud by MQTT, ms"
_LATENCIES: Final = ("mean", "p50", "p99", "max", "last: mean", "last: max", "sent late")


def _latencies(each: Summary) -> tuple[str, ...]:
    last = (fmean(each.last), max(each.last)) if each.last else (0.0, 0.0)
    return tuple(f"{value:.2f}" for value in (each.mean, each.median, each.p99, each.most, *last, each.sent_late))


def rate_table(found: Sequence[Summary]) -> Table:
    """CPU per message, at all tiers and at the delivery tiers, by rate."""
    by_scenario: dict[int, list[Summary]] = {}
    for each in found:
        by_scenario.setdefault(each.scenario.number, []).append(each)
    rates = list(dict.fromkeys(each.load.factor for each in found))
    rows = []
    for group in by_scenario.values():
        by_rate = {each.load.factor: each for each in group}
        cells = [
            f"{by_rate[rate].per_message:,.0f} ({by_rate[rate].per_message_delivery:,.0f})" if rate in by_rate else ""
            for rate in rates
        ]
        rows.append((_title(group[0].scenario), *cells))
    head = ("µs of a processor per message, all tiers (delivery tiers)", *(f"{rate:,} ×" for rate in rates))
    return Table("CPU per message at the paper's rate and at higher ones", head, rows)


def logs_table(found: Sequence[Summary], lates: Sequence[LateOutcome]) -> Table:
    rows = []
    for each in found:
        made = f"{each.load.readings:,} × {each.runs}"
        paper = "" if each.load.name else "0"
        words = each.label if each.load.name else _title(each.scenario)
        rows.append((words, made, paper, str(each.missing), str(each.unequal)))
    for scenario, group in by_scenario(lates):
        made = f"{group[0].load.readings:,} × {len(group)}"
        rows.append((f"a late cloud, {scenario.name}", made, "0", str(sum(map(late_missing, group))), ""))
    head = ("devices, MQTT and REST", "made", "missing: paper", "missing", "positions that differ")
    return Table("equality of the logs", head, rows)


def late_table(lates: Sequence[LateOutcome]) -> Table:
    rows = []
    for scenario, group in by_scenario(lates):
        figures = (
            sum(len(late.made) for late in group),
            *(sum(each) for each in zip(*((late.before, late.recovered, late.live) for late in group), strict=True)),
        )
        rows.append((_title(scenario), *(f"{value:,}" for value in figures)))
    head = ("a cloud that starts when half is made", "made", "before it started", "by REST", "by MQTT")
    return Table("the late cloud", head, rows)


def by_scenario(lates: Sequence[LateOutcome]) -> list[tuple[Scenario, list[LateOutcome]]]:
    found: dict[int, list[LateOutcome]] = {}
    for late in lates:
        found.setdefault(late.scenario.number, []).append(late)
    return [(found[number][0].scenario, found[number]) for number in sorted(found)]


def _title(scenario: Scenario) -> str:
    return f"{scenario.number}: {scenario.title}"


def equation(line: Line) -> str:
    slope = f"{abs(line.slope):.2f}"
    sign = "−" if line.slope < 0 and slope != "0.00" else ""
    return f"y = {sign}{slope}x + {line.intercept:.2f}"
