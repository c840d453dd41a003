"""The figures of docs/balance-scenarios.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater.client.ping import StatusPingSender
from headwater.wire.status import StatusReport, encode_status
from headwater_lab.balance_scenarios import FOUR
from headwater_lab.figure import Picture, save

COLOURS: Final = {
    "round_robin": "#c0392b",
    "random": "#d98c1f",
    "least_pending": "#8e6bb0",
    "score": "#3b7dd8",
    "score_mended": "#7fb2ea",
    "adaptive": "#2a7f62",
    "bound": "#555555",
}
KINDS: Final = {"steady": "scenario 2", "varying": "times vary", "frozen": "one freezes for 3 s"}
KIND_COLOURS: Final = {"steady": "#2a7f62", "varying": "#3b7dd8", "frozen": "#c0392b"}
MANY: Final = 1_000  # members of the panel of the broker's CPU
PINGRESP: Final = 2  # bytes
HEADERS: Final = 3 * (20 + 20 + 12)  # bytes: two segments with data and an acknowledgement; IPv4, TCP, timestamps

Rows = Sequence[Mapping[str, Any]]


def report_bytes() -> int:
    """Of a report with its answer, without TCP and IP: what the ready ping sender says of three messages waiting."""
    sender = StatusPingSender()
    sender.waiting = 3
    sender.processed(FOUR[0] + 0.000123)
    return len(encode_status(StatusReport(sender.payload()))) + PINGRESP


def cpu_percent(per_second: float, report_cost: Mapping[str, Any]) -> float:
    """Of a core, for so many reports in all: interpolated between the rates that were measured, where one costs the
    less the more come at once."""
    measured = [(c["per_second"], c["microseconds"]) for c in report_cost["costs"] if c["what"] == "report"]
    below = max((each for each in measured if each[0] <= per_second), default=min(measured))
    above = min((each for each in measured if each[0] >= per_second), default=max(measured))
    part = (per_second - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
    microseconds: float = below[1] + part * (above[1] - below[1])
    return per_second * microseconds / 1e4


def draw_all(rows: Rows, report_cost: Mapping[str, Any] | None, folder: Path) -> None:
    """Write those that there are rows for. FigureError: matplotlib is not installed."""
    crowds, intervals = ([row for row in rows if row["part"] == part] for part in ("crowds", "intervals"))
    pictures = []
    if crowds:
        pictures.append(Picture(folder / "balance-crowds.svg", (9, 5.5), partial(_draw_crowds, rows=crowds)))
    if intervals:
        draw = partial(_draw_intervals, rows=intervals, report_cost=report_cost)
        pictures.append(Picture(folder / "balance-intervals.svg", (9, 3.6), draw))
    save(pictures)


def _draw_crowds(figure: Any, rows: Rows) -> None:
    """Mean latency against the number of members: a row of panels per way, a column per utilisation."""
    ways = list(dict.fromkeys(row["way"] for row in rows))
    used = list(dict.fromkeys(row["key"].partition("-")[2] for row in rows))
    panels = figure.subplots(len(ways), len(used), sharex=True, sharey=True, squeeze=False)
    for line, way in zip(panels, ways, strict=True):
        for axes, part in zip(line, used, strict=True):
            for name, colour in COLOURS.items():
                some = [row for row in rows if row["way"] == way and row["dispatcher"] == name]
                points = [
                    (int(row["key"].partition("-")[0]), max(row["mean_ms"], 0.01))
                    for row in some
                    if row["key"].endswith(f"-{part}")
                ]
                style = "--" if name == "bound" else "-"
                axes.plot(*zip(*points, strict=True), style, marker=".", color=colour, label=name)
            axes.set_title(f"{way}, used to {part}", fontsize=9)
            _finish(axes)
    for axes in panels[-1]:
        axes.set_xlabel("members")
    for line in panels:
        line[0].set_ylabel("mean latency, ms (≥ 0.01)")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=8)


def _draw_intervals(figure: Any, rows: Rows, report_cost: Mapping[str, Any] | None) -> None:
    """Latency over the bound's, bytes per second and member, CPU of the broker: against the report interval."""
    panels = figure.subplots(1, 3 if report_cost else 2, sharex=True)
    size = report_bytes()
    for kind, what in KINDS.items():
        for early in (True, False):
            ours = _sweep(rows, kind, early, "adaptive")
            bound = dict(_sweep(rows, kind, early, "bound", "mean_ms"))
            style = {"color": KIND_COLOURS[kind], "linestyle": "-" if early else ":", "marker": "."}
            label = f"{what}{', early' if early else ''}"
            panels[0].plot(*_columns([(x, row["mean_ms"] / bound[x]) for x, row in ours]), label=label, **style)
            rates = [(x, row["reports_per_second"]) for x, row in ours]
            panels[1].plot(*_columns([(x, rate * size) for x, rate in rates]), **style)
            if report_cost:
                panels[2].plot(*_columns([(x, cpu_percent(MANY * rate, report_cost)) for x, rate in rates]), **style)
    panels[0].set_title("mean latency of adaptive / bound", fontsize=9)
    panels[0].legend(frameon=False, fontsize=7)
    panels[1].set_title("bytes/s per member (MQTT)", fontsize=9)
    if report_cost:
        panels[2].set_title("broker CPU for 1,000 members, %", fontsize=9)
    for axes in panels:
        axes.set_xlabel("report interval, s")
        _finish(axes)
    if report_cost:
        panels[2].set_ylim(1.0, 100.0)


def _sweep(rows: Rows, kind: str, early: bool, dispatcher: str, value: str = "") -> list[tuple[float, Any]]:
    found = []
    for row in rows:
        what, _, rest = row["key"].partition("-")
        interval, _, is_early = rest.partition("-")
        if what == kind and bool(is_early) == early and row["dispatcher"] == dispatcher:
            found.append((float(interval), row[value] if value else row))
    return found


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _finish(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.grid(which="major", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
