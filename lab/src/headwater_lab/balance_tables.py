"""The outcomes of the balance scenarios as text: progress lines, tables, and what they say against `adaptive`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater_lab.balance_figures import KINDS, MANY, cpu_percent, report_bytes

PARTS: Final = ("paper", "troubles", "connection only", "crowds", "intervals", "brokers")
TITLES: Final = {
    "paper": "The paper's scenarios",
    "troubles": "Troubles",
    "connection only": "Neither reports nor acknowledgements",
    "crowds": "3 to 1,000 members",
    "intervals": "Report intervals",
    "brokers": "20 subscribers at 3 brokers",
}


@dataclass(frozen=True)
class Row:
    """One scenario with one dispatcher: means over the seeds, and half of what lies between the seeds' means."""

    part: str
    key: str
    way: str
    name: str
    dispatcher: str
    mean_ms: float
    spread_ms: float
    p50_ms: float
    p99_ms: float
    fairness: float
    reports_per_second: float  # and member

    @property
    def scenario(self) -> str:
        return f"{self.name}, {self.way}" if self.way else self.name


def progress_line(one: Row) -> str:
    return (
        f"{one.scenario[:60]:60} {one.dispatcher:22} {one.mean_ms:9.1f} ±{one.spread_ms:7.1f} "
        f"{one.p50_ms:9.1f} {one.p99_ms:9.1f} {one.fairness:5.2f}"
    )


def means_table(rows: Sequence[Row]) -> str:
    """A line per scenario, a column per dispatcher: mean latency and its spread; the best but the bound is bold."""
    names = list(dict.fromkeys(each.dispatcher for each in rows))
    lines = ["| mean latency, ms | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for scenario in dict.fromkeys(each.scenario for each in rows):
        of = {each.dispatcher: each for each in rows if each.scenario == scenario}
        best = min(each.mean_ms for name, each in of.items() if name != "bound")
        cells = [_cell(of[name], best) if name in of else "" for name in names]
        lines.append(f"| {scenario} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(one: Row, best: float) -> str:
    text = _ms(one.mean_ms)
    if one.spread_ms >= 0.05 * one.mean_ms and one.spread_ms >= 0.05:
        text += f" ± {_ms(one.spread_ms)}"
    return f"**{text}**" if one.mean_ms <= best and one.dispatcher != "bound" else text


def full_table(rows: Sequence[Row]) -> str:
    lines = ["| scenario | dispatcher | mean ms | p50 | p99 | fairness |", "|---|---|---:|---:|---:|---:|"]
    for one in rows:
        cells = f"{_ms(one.mean_ms)} ± {_ms(one.spread_ms)} | {_ms(one.p50_ms)} | {_ms(one.p99_ms)}"
        lines.append(f"| {one.scenario} | {one.dispatcher} | {cells} | {one.fairness:.2f} |")
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10.0 else f"{value:.1f}" if value < 100.0 else f"{value:,.0f}"


def losses(rows: Sequence[Row]) -> list[str]:
    """Where another dispatcher has a lower mean or p99 than `adaptive`, by more than a twentieth and 0.1 ms."""
    said = []
    for scenario in dict.fromkeys(each.scenario for each in rows):
        of = {each.dispatcher: each for each in rows if each.scenario == scenario}
        ours = of.pop("adaptive", None)
        of.pop("bound", None)
        if ours is None:
            continue
        means = _better({name: each.mean_ms for name, each in of.items()}, ours.mean_ms)
        ends = _better({name: each.p99_ms for name, each in of.items()}, ours.p99_ms)
        said += [f"{scenario}: mean {_ms(ours.mean_ms)} ms, {means}"] if means else []
        said += [f"{scenario}: p99 {_ms(ours.p99_ms)} ms, {ends}"] if ends else []
    return said


def _better(others: dict[str, float], ours: float) -> str:
    better = {name: value for name, value in others.items() if value < min(0.95 * ours, ours - 0.1)}
    return ", ".join(f"{name} {_ms(value)}" for name, value in sorted(better.items(), key=lambda item: item[1]))


def intervals_table(rows: Sequence[Row], report_cost: Mapping[str, Any] | None) -> str:
    """What `adaptive` makes of each report interval, and its price for a group of 1,000 with times that vary."""
    found = {(each.key, each.dispatcher): each for each in rows}
    intervals = sorted({float(each.key.split("-")[1]) for each in rows})
    head = ["reports every", *(f"{what}, ms" for what in KINDS.values()), "reports/s", "bytes/s", "CPU %"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for early in ("-early", ""):
        for interval in intervals:
            some = [found[f"{kind}-{interval:g}{early}", "adaptive"] for kind in KINDS]
            rate = some[1].reports_per_second
            cpu = f"{cpu_percent(MANY * rate, report_cost):.1f}" if report_cost else ""
            cells = [*(_cell(one, -1.0) for one in some), f"{rate:.1f}", f"{rate * report_bytes():.0f}", cpu]
            lines.append(f"| {interval:g} s{' and early' if early else ''} | " + " | ".join(cells) + " |")
    bounds = [f"{_ms(found[f'{kind}-{intervals[0]:g}', 'bound'].mean_ms)}" for kind in KINDS]
    return "\n".join([*lines, "| bound | " + " | ".join(bounds) + " | | | |"])


def summary(rows: Sequence[Row], report_cost: Mapping[str, Any] | None) -> str:
    """The part of docs/balance-scenarios.md that is written by the bench."""
    parts = []
    for part in PARTS:
        some = [each for each in rows if each.part == part]
        if some:
            parts.append(f"### {TITLES[part]}")
            parts += [f"![{TITLES[part]}](balance-{part}.svg)"] if part in ("crowds", "intervals") else []
            parts.append(intervals_table(some, report_cost) if part == "intervals" else means_table(some))
    lost = "\n".join(f"- {line}" for line in losses([each for each in rows if each.part != "intervals"]))
    return "\n\n".join([*parts, "### Where adaptive loses", lost or "Nowhere."]) + "\n"


def markdown(rows: Sequence[Row], report_cost: Mapping[str, Any] | None = None) -> str:
    """All figures: what the summary leaves out are p50, p99 and fairness."""
    parts = [
        f"## {TITLES[part]}\n\n{full_table(some)}" for part in PARTS if (some := [e for e in rows if e.part == part])
    ]
    return "\n\n".join(["# Balance scenarios, all figures", *parts]) + "\n"
