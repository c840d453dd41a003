"""A run drawn: a lane for each client, its connections in the colour of their target, faults behind them, and what was
found on top. The page has one drawing of the whole run, and one of the moments around each of the first findings."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headwater_lab import figure
from headwater_lab.check_broker.history import Connect, Ended, Fault, History, Observation, Operation, Outcome, begin_of
from headwater_lab.check_broker.judges import Finding
from headwater_lab.check_broker.promises import WORDS
from headwater_lab.check_broker.report import MOST_FINDINGS, Report, Status, story, text, what

COLOURS: Final = ("#4878a8", "#c98a2b", "#5a9a68", "#8d6cab", "#a0616a", "#5f9ea0")
FAULT: Final = "#f3d6d3"
WRONG: Final = "#c0392b"
DRAWN: Final = 2
"""Findings of each promise that are drawn."""
AROUND: Final = 0.5
"""Seconds before and after a finding's entries."""


def draw_run(report: Report, file: Path) -> None:
    """The whole run as SVG. Raises figure.FigureError."""
    history = report.recorded.history
    broken = [
        entry
        for verdict in report.verdicts
        for finding in verdict.findings
        if report.status(verdict) is Status.BROKEN
        for entry in finding.entries
    ]
    clients = list(dict.fromkeys(each.client for each in history.of(Connect)))
    _save(report, file, clients, broken, (0.0, history.lasted))


def draw_finding(report: Report, finding: Finding, file: Path) -> None:
    """The moments around a finding."""
    clients = list(dict.fromkeys(entry.client for entry in finding.entries if entry.client))
    times = [time for entry in finding.entries for time in (begin_of(entry), _end_of(entry))]
    _save(report, file, clients, finding.entries, (min(times) - AROUND, max(times) + AROUND), named=True)


def _save(
    report: Report,
    file: Path,
    clients: list[str],
    marked: Sequence[Operation | Observation],
    window: tuple[float, float],
    named: bool = False,
) -> None:
    def draw(figure: Any) -> None:
        _draw(figure.add_subplot(), report, clients, marked, window, named)

    figure.save([figure.Picture(file, (11, 1.2 + 0.26 * max(3, len(clients))), draw)], font_size=8)


def _draw(
    axes: Any,
    report: Report,
    clients: list[str],
    marked: Sequence[Operation | Observation],
    window: tuple[float, float],
    named: bool,
) -> None:
    history = report.recorded.history
    lanes = {client: lane for lane, client in enumerate(clients)}
    for fault in history.of(Fault):
        end = window[1] if fault.ended is None else fault.ended
        if fault.began < window[1] and end > window[0]:
            axes.axvspan(fault.began, end, color=FAULT, zorder=0)
            axes.text(max(fault.began, window[0]), len(lanes) - 0.4, fault.name, color=WRONG, fontsize=7, va="top")
    colours = {
        str(target): COLOURS[number % len(COLOURS)] for number, target in enumerate(report.recorded.settings.targets)
    }
    for connect, end in connections(history, window[1]):
        if connect.client in lanes and connect.began < window[1] and end > window[0]:
            axes.broken_barh(
                [(connect.began, end - connect.began)],
                (lanes[connect.client] - 0.3, 0.6),
                color=colours.get(connect.target, "#999999"),
                alpha=0.35,
                linewidth=0,
            )
    shown = [entry for entry in marked if entry.client in lanes]
    for entry in shown:
        axes.plot(
            [begin_of(entry), _end_of(entry)],
            [lanes[entry.client]] * 2,
            color=WRONG,
            marker=".",
            markersize=4,
            zorder=3,
        )
        if named:
            axes.annotate(what(entry)[:60], (begin_of(entry), lanes[entry.client] + 0.42), fontsize=6, color="#333333")
    for target, colour in colours.items():
        axes.plot([], [], color=colour, alpha=0.5, linewidth=6, label=target)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.12), ncols=6, frameon=False, fontsize=7)
    axes.set_yticks(list(lanes.values()), list(lanes))
    axes.set_ylim(len(lanes) - 0.3, -0.7)
    axes.set_xlim(*window)
    axes.set_xlabel("seconds")
    axes.spines[["top", "right"]].set_visible(False)


def connections(history: History, until: float) -> list[tuple[Connect, float]]:
    """Each connection that was accepted, with when it ended."""
    ends = {each.connection: each.at for each in history.of(Ended)}
    return [(each, ends.get(each.connection, until)) for each in history.of(Connect) if each.outcome is Outcome.OK]


def _end_of(entry: Operation | Observation) -> float:
    if isinstance(entry, Observation):
        return entry.at
    return entry.began if entry.ended is None else entry.ended


def page(report: Report) -> str:
    """All as one HTML page. Raises figure.FigureError."""
    with tempfile.TemporaryDirectory(prefix="headwater-check-") as folder:
        file = Path(folder) / "timeline.svg"
        draw_run(report, file)
        parts = [f"<h1>check-broker</h1><pre>{html.escape(text(report, shown=0))}</pre>"]
        parts.append(f"<h2>The run</h2>{_inline(file)}")
        for verdict in report.verdicts:
            if not verdict.findings:
                continue
            status = html.escape(report.status(verdict))
            parts.append(
                f"<h2>{status}: {html.escape(verdict.promise)}</h2><p>{html.escape(WORDS[verdict.promise])}</p>"
            )
            for number, finding in enumerate(verdict.findings[:MOST_FINDINGS]):
                lines = html.escape("\n".join(story(finding)))
                parts.append(f"<h3>{html.escape(finding.text)}</h3><pre>{lines}</pre>")
                if number < DRAWN:
                    draw_finding(report, finding, file)
                    parts.append(_inline(file))
    style = "body{font:14px sans-serif;max-width:75em;margin:2em auto}pre{overflow:auto;background:#f6f6f6;padding:1em}"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>check-broker</title><style>{style}</style>'
    return head + "\n".join(parts) + "</html>\n"


def _inline(file: Path) -> str:
    drawing = file.read_text(encoding="utf-8")
    return drawing[drawing.index("<svg") :]
