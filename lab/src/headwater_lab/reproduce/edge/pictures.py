"""The paper's figures 9 (CPU over time) and 11 (latency), drawn from our data, and the latency of every reading.

The paper prints its own figures without numbers; what it states in text and tables is drawn in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from headwater_lab.figure import Picture, plain, save
from headwater_lab.reproduce.edge.plan import PAPER_CPU, PAPER_LATENCY
from headwater_lab.reproduce.edge.results import Measured, Summary, mean_samples, summarised

COLOURS: Final = ("#2a7f62", "#3b6fb6", "#c0392b")
PAPER: Final = "#9a9a9a"
LABELS: Final = {1: "paper, scenario 1", 2: "2", 5: "3, 4, 5", 6: "6"}
"""Of the paper's lines, some of which lie on each other."""
MOST_POINTS: Final = 4000
LEAST: Final = 0.05
"""Milliseconds at the foot of logarithmic scales."""


def draw_all(runs: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the figures and return their files. FigureError: matplotlib is not installed."""
    wanted = {
        "edge-9-cpu": ((7.5, 3.6), _cpu),
        "edge-11-latency": ((7.5, 3.2), _latency),
        "edge-latency-by-reading": ((9, 3.0), _latency_by_reading),
    }
    return save(
        Picture(folder / f"{name}.svg", size, partial(draw, runs=runs)) for name, (size, draw) in wanted.items()
    )


def _cpu(figure: Any, runs: Sequence[Measured]) -> None:
    """Figure 9: mean of the runs every half second, and the line through it; the paper's lines in grey."""
    axes = figure.add_subplot()
    longest = 0.0
    for colour, each in zip(COLOURS, summarised(runs), strict=False):
        samples = mean_samples([run.cpu for run in runs if run.scenario == each.scenario])
        if not samples:
            continue
        across = [x for x, _ in samples]
        longest = max(longest, across[-1])
        axes.plot(across, [y for _, y in samples], ".", color=colour, markersize=4)
        axes.plot(across, [each.cpu(x) for x in across], color=colour, label=each.scenario.name)
    for number, line in PAPER_CPU.items():
        ends = [0.0, longest]
        width = 2.0 if number == 1 else 0.7
        axes.plot(ends, [line(x) for x in ends], color=PAPER, linewidth=width)
        if number in LABELS:
            axes.annotate(LABELS[number], (longest, line(longest)), fontsize=7, color=PAPER, va="bottom", ha="right")
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of a processor")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside upper left", frameon=False, ncols=4, fontsize=8)
    plain(axes)


def _latency(figure: Any, runs: Sequence[Measured]) -> None:
    """Figure 11: the last reading's latency, mean (bar) and most (mark) of the runs; what the paper says in grey."""
    axes = figure.add_subplot()
    found: list[Summary] = summarised(runs)
    bars = [(each.scenario.name, fmean(each.last), max(each.last), COLOURS[0]) for each in found if each.last]
    bars += [(f"paper {number}", value, value, PAPER) for number, value in PAPER_LATENCY.items()]
    for place, (_, mean, most, colour) in enumerate(bars):
        axes.bar(place, mean, 0.6, color=colour)
        axes.plot([place - 0.3, place + 0.3], [most, most], color="black", linewidth=1)
        axes.text(place, max(mean, most) * 1.1, f"{mean:.2g}", ha="center", fontsize=8)
    axes.set_xticks(range(len(bars)), [name for name, *_ in bars])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(LEAST, max([100.0, *(most * 3 for _, _, most, _ in bars)]))
    axes.set_ylabel("latency of the last reading (ms)")
    plain(axes)


def _latency_by_reading(figure: Any, runs: Sequence[Measured]) -> None:
    """Every reading of the first runs; of many, some."""
    first = {run.scenario: run for run in reversed(runs)}
    shown = list(reversed(first.values()))
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, run, colour in zip(panels, shown, COLOURS, strict=False):
        step = max(1, len(run.latencies) // MOST_POINTS)
        times = [max(each, LEAST) for each in run.latencies[::step]]
        axes.plot(run.numbers[::step], times, ".", color=colour, markersize=2.5, rasterized=True)
        axes.set_title(run.scenario.name, loc="left", fontsize=9)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("reading")
        plain(axes)
    panels[0].set_ylabel("latency (ms)")
