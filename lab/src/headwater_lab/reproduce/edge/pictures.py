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
from headwater_lab.reproduce.edge.results import Measured, Summary, delivery_samples, fitted, mean_samples, summarised

COLOURS: Final = ("#2a7f62", "#3b6fb6", "#c0392b", "#b8860b")
"""Of tiers; the first is ours where there is only one."""
PAPER: Final = "#9a9a9a"
COLUMNS: Final = 3
MOST_POINTS: Final = 4000
LEAST: Final = 0.05
"""Milliseconds at the foot of logarithmic scales."""


def draw_all(runs: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the figures and return their files. FigureError: matplotlib is not installed."""
    papers = [run for run in runs if not run.load.name]
    wanted = {
        "edge-9-cpu": ((9, 5.0), _cpu, papers),
        "edge-11-latency": ((7.5, 3.2), _latency, papers),
        "edge-latency-by-reading": ((9, 5.0), _latency_by_reading, papers),
        "edge-cpu-per-message": ((7.5, 3.2), _per_message, runs),
    }
    return save(
        Picture(folder / f"{name}.svg", size, partial(draw, runs=shown)) for name, (size, draw, shown) in wanted.items()
    )


def _panels(figure: Any, runs: Sequence[Measured]) -> list[tuple[Any, list[Measured]]]:
    """One for each scenario, with a title, and its runs."""
    by_number: dict[int, list[Measured]] = {}
    for run in sorted(runs, key=lambda run: run.scenario.number):
        by_number.setdefault(run.scenario.number, []).append(run)
    rows = max(1, -(-len(by_number) // COLUMNS))
    columns = min(COLUMNS, max(1, len(by_number)))
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    found = list(zip(axes, by_number.values(), strict=False))
    for each in axes[len(found) :]:
        each.set_visible(False)
    for each, group in found:
        scenario = group[0].scenario
        each.set_title(f"{scenario.number}: {scenario.title}", loc="left", fontsize=8)
        plain(each)
    return found


def _cpu(figure: Any, runs: Sequence[Measured]) -> None:
    """Figure 9: each delivery tier's mean of the runs every half second, and one line through all; the paper's line in
    grey."""
    for axes, group in _panels(figure, runs):
        scenario = group[0].scenario
        longest = 0.0
        for colour, tier in zip(COLOURS, scenario.delivery, strict=False):
            samples = mean_samples([run.cpu[tier.name] for run in group])
            longest = max([longest, *(x for x, _ in samples)])
            name = tier.name if scenario.is_split else None
            axes.plot([x for x, _ in samples], [y for _, y in samples], ".", color=colour, markersize=3, label=name)
        ends = [0.0, longest]
        line = fitted(delivery_samples(group))
        axes.plot(ends, [line(x) for x in ends], color="black", linewidth=1)
        paper = PAPER_CPU[scenario.number]
        axes.plot(ends, [paper(x) for x in ends], color=PAPER, linewidth=2)
        axes.annotate("paper", (longest, paper(longest)), fontsize=7, color=PAPER, va="bottom", ha="right")
        if scenario.is_split:
            axes.legend(frameon=False, fontsize=7)
    for axes in figure.axes:  # when all is drawn: they have one scale
        axes.set_ylim(bottom=0)
    figure.supxlabel("seconds", fontsize=9)
    figure.supylabel("% of a processor", fontsize=9)


def _latency(figure: Any, runs: Sequence[Measured]) -> None:
    """Figure 11: the last reading's latency, mean (bar) and most (mark) of the runs; what the paper says in grey."""
    axes = figure.add_subplot()
    found: list[Summary] = summarised(runs)
    bars: list[tuple[str, float, float, str]] = []
    for each in found:
        if each.last:
            bars.append((str(each.scenario.number), fmean(each.last), max(each.last), COLOURS[0]))
        paper = PAPER_LATENCY.get(each.scenario.number)
        if paper is not None:
            bars.append((f"paper {each.scenario.number}", paper, paper, PAPER))
    for place, (_, mean, most, colour) in enumerate(bars):
        axes.bar(place, mean, 0.6, color=colour)
        axes.plot([place - 0.3, place + 0.3], [most, most], color="black", linewidth=1)
        axes.text(place, max(mean, most) * 1.1, f"{mean:.2g}", ha="center", fontsize=8)
    axes.set_xticks(range(len(bars)), [name for name, *_ in bars])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(LEAST, max([100.0, *(most * 3 for _, _, most, _ in bars)]))
    axes.set_xlabel("scenario")
    axes.set_ylabel("latency of the last reading (ms)")
    plain(axes)


def _latency_by_reading(figure: Any, runs: Sequence[Measured]) -> None:
    """Every reading of the first runs; of many, some."""
    for axes, group in _panels(figure, runs):
        run = group[0]
        step = max(1, len(run.latencies) // MOST_POINTS)
        times = [max(each, LEAST) for each in run.latencies[::step]]
        axes.plot(run.numbers[::step], times, ".", color=COLOURS[0], markersize=2.5)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    figure.supxlabel("reading", fontsize=9)
    figure.supylabel("latency (ms)", fontsize=9)


def _per_message(figure: Any, runs: Sequence[Measured]) -> None:
    """What a message takes of a processor at all tiers (bar) and at the delivery tiers (mark), by rate."""
    axes = figure.add_subplot()
    found = summarised(runs)
    factors = list(dict.fromkeys(each.load.factor for each in found))
    for each in found:
        rate = factors.index(each.load.factor)
        place = each.scenario.number + 0.27 * (rate - (len(factors) - 1) / 2)
        is_first = each.scenario.number == found[0].scenario.number
        label = f"{each.load.factor:,} × the paper's rate" if is_first else None
        axes.bar(place, each.per_message, 0.24, color=COLOURS[rate % len(COLOURS)], label=label)
        if each.scenario.is_split:
            axes.plot([place - 0.12, place + 0.12], [each.per_message_delivery] * 2, color="black", linewidth=1)
        axes.text(place, each.per_message * 1.1, f"{each.per_message:.0f}", ha="center", fontsize=7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(1.0, max([10.0, *(3 * each.per_message for each in found)]))
    axes.set_xlabel("scenario")
    axes.set_ylabel("µs of a processor per message")
    figure.legend(loc="outside upper left", frameon=False, ncols=3, fontsize=8)
    plain(axes)
