"""The tables of the experiment, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import PAPER_CPU, PAPER_LATENCY, SCENARIO1, Line
from headwater_lab.reproduce.edge.results import Summary, late_missing
from headwater_lab.reproduce.page import Table


def latency_table(found: Sequence[Summary]) -> Table:
    rows = [
        (
            each.scenario.title,
            *(f"{value:.2f}" for value in (each.mean, each.median, each.p99, each.most)),
            f"{fmean(each.last) if each.last else 0.0:.2f}",
            f"{max(each.last, default=0.0):.2f}",
            f"{each.sent_late:.2f}",
        )
        for each in found
    ]
    rows += [
        (f"paper, its scenario {number} (it has none for 1)", "", "", "", "", f"about {value:.0f}", "", "")
        for number, value in PAPER_LATENCY.items()
    ]
    head = ("from reading to cloud by MQTT, ms", "mean", "p50", "p99", "max", "last: mean", "last: max", "sent late")
    return Table("latency", head, rows)


def cpu_table(found: Sequence[Summary]) -> Table:
    rows = []
    for each in found:
        paper = _equation(PAPER_CPU[1]) if each.scenario.name == SCENARIO1 else ""
        rows.append((each.scenario.title, paper, _equation(each.cpu), f"{each.cpu_mean:.1f}"))
    head = ("node, % of a processor after x seconds", "paper", "ours", "ours, mean")
    return Table("CPU, every 0.5 s, with a linear fit", head, rows)


def logs_table(found: Sequence[Summary], late: LateOutcome | None) -> Table:
    rows = []
    for each in found:
        paper = "0" if each.scenario.name == SCENARIO1 else ""
        made = f"{each.scenario.readings:,} × {each.runs}"
        rows.append((each.scenario.title, made, paper, str(each.missing), str(each.unequal)))
    if late is not None:
        rows.append((late.scenario.title, f"{len(late.made):,}", "0", str(late_missing(late)), ""))
    head = ("devices, MQTT and REST", "made", "missing: paper", "missing", "positions that differ")
    return Table("equality of the logs", head, rows)


def late_table(late: LateOutcome) -> Table:
    report = late.report
    row = ("messages", *(f"{value:,}" for value in (len(late.made), late.before, report.recovered, report.live)))
    head = ("a cloud that starts late", "made", "before it started", "by REST", "by MQTT")
    return Table("the late cloud", head, [(*row,)])


def all_tables(found: Sequence[Summary], late: LateOutcome | None) -> list[Table]:
    tables = [latency_table(found), cpu_table(found), logs_table(found, late)]
    return [*tables, late_table(late)] if late is not None else tables


def _equation(line: Line) -> str:
    sign = "−" if line.slope < 0 else ""
    return f"y = {sign}{abs(line.slope):.2f}x + {line.intercept:.2f}"
