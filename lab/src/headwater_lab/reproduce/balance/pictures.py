"""The five figures of the thesis's evaluation (its numbers 43 to 47), drawn from our data.

It prints its own figures without numbers; what it states in text and tables is drawn beside ours in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater_lab.figure import Picture, plain, save
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.plan import (
    CLAIRVOYANT,
    PAPER_MEANS,
    PAPER_STEADY,
    SCENARIO1,
    SCENARIO2,
    STEADY,
    Setting,
)
from headwater_lab.reproduce.balance.results import member_means

MEMBER_COLOURS: Final = ("#2a7f62", "#3b6fb6", "#c0392b")
BARS: Final = {
    "random": "#b8a04a",
    "round_robin": "#8a6fae",
    "score": "#3b6fb6",
    "adaptive": "#2a7f62",
    CLAIRVOYANT: "#333333",
}
THESIS: Final = "#9a9a9a"
LEAST: Final = 0.1
"""Milliseconds at the foot of logarithmic scales."""


def draw_all(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write the figures that there is data for, and return their files. FigureError: matplotlib is not installed."""
    one, two = _first_trials(results, SCENARIO1), _first_trials(results, SCENARIO2)
    wanted = {
        "balance-43-scenario1-latency": ((7, 3.4), one, _latency_per_member),
        "balance-44-scenario2-latency": ((7, 3.4), two, _latency_per_member),
        "balance-45-dispatches": ((9, 3.0), two, _dispatches),
        "balance-46-processing-time": ((9, 3.0), two, _processing_time),
        "balance-47-latency-by-message": ((9, 6.5), two, _latency_by_message),
    }
    return save(
        Picture(folder / f"{name}.svg", size, partial(draw, trials=trials))
        for name, (size, trials, draw) in wanted.items()
        if trials
    )


def _first_trials(results: Sequence[Result], setting: Setting) -> dict[str, Result]:
    """By contender's name, the trial with the first phase."""
    return {each.trial.contender.name: each for each in reversed(results) if each.trial.setting == setting}


def _latency_per_member(figure: Any, trials: dict[str, Result]) -> None:
    """Figures 43 and 44: mean latency of each member's messages; the last group is all messages, with the thesis's."""
    axes = figure.add_subplot()
    shown = [name for name in BARS if name in trials]
    setting = next(iter(trials.values())).trial.setting
    groups = len(setting.services) + 1
    width = 0.8 / len(shown)
    for place, name in enumerate(shown):
        latencies = [each.latency * 1000.0 for each in trials[name].outcome.taken]
        values = [*member_means([trials[name]]), sum(latencies) / len(latencies)]
        places = [group + (place - (len(shown) - 1) / 2) * width for group in range(groups)]
        axes.bar(places, values, width * 0.92, color=BARS[name], label=name)
        paper = PAPER_MEANS.get(f"{setting.name}/{name}")
        if paper is not None:
            mark = [places[-1] - width / 2, places[-1] + width / 2]
            axes.plot(mark, [paper, paper], color=THESIS, linewidth=2.5)
    if any(f"{setting.name}/{name}" in PAPER_MEANS for name in shown):
        axes.plot([], [], color=THESIS, linewidth=2.5, label="thesis")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    labels = [f"member {number}\n{service * 1000:g} ms" for number, service in enumerate(setting.services)]
    axes.set_xticks(range(groups), [*labels, "all\nmessages"])
    axes.set_ylabel("mean latency (ms)")
    axes.set_ylim(bottom=LEAST)
    figure.legend(loc="outside upper left", frameon=False, ncols=6, fontsize=8)
    plain(axes)


def _dispatches(figure: Any, trials: dict[str, Result]) -> None:
    """Figure 45: messages sent to each member in each second."""
    shown = [name for name in ("score", "adaptive", CLAIRVOYANT) if name in trials]
    for axes, name in zip(_panels(figure, 1, len(shown)), shown, strict=True):
        trial = trials[name]
        seconds = int(trial.trial.duration)
        for member in range(len(trial.trial.setting.services)):
            counts = [0] * (seconds + 1)
            for each in trial.outcome.taken:
                if each.member == member:
                    counts[min(seconds, int(each.created - trial.outcome.begin))] += 1
            _line(axes, [second + 0.5 for second in range(seconds)], counts[:seconds], member, marker="o")
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel("seconds")
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("messages per second")
    figure.axes[-1].legend(frameon=False, fontsize=8)


def _processing_time(figure: Any, trials: dict[str, Result]) -> None:
    """Figure 46: the time per message that the broker believes in (t_p in the thesis), after each report."""
    shown = [name for name in ("score", "score_mended", "adaptive") if name in trials]
    for axes, name in zip(_panels(figure, 1, len(shown)), shown, strict=True):
        trial = trials[name]
        for member in range(len(trial.trial.setting.services)):
            mine = [told for told in trial.told if told.member == member]
            times = [told.at - trial.outcome.begin for told in mine]
            _line(axes, times, [1000.0 * told.believed for told in mine], member, marker=".")
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel("seconds")
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("believed ms per message")
    figure.axes[-1].legend(frameon=False, fontsize=8)


def _latency_by_message(figure: Any, trials: dict[str, Result]) -> None:
    """Figure 47: latency of each message by its number; the thesis's means of its steady state as grey lines."""
    shown = [name for name in ("score", "score_mended", "adaptive", CLAIRVOYANT) if name in trials]
    for axes, name in zip(_panels(figure, 2, (len(shown) + 1) // 2), shown, strict=False):
        taken = trials[name].outcome.taken
        for member, colour in enumerate(MEMBER_COLOURS[: len(trials[name].trial.setting.services)]):
            mine = [each for each in taken if each.member == member]
            axes.plot(
                [each.number for each in mine],
                [max(each.latency * 1000.0, LEAST) for each in mine],
                ".",
                color=colour,
                markersize=2.5,
                rasterized=True,  # thousands of points as shapes would be a large file
                label=f"member {member}",
            )
        for row in PAPER_STEADY.get(name, ()):
            axes.plot([STEADY.start, STEADY.stop], [row.mean, row.mean], color=THESIS, linewidth=1.5)
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(bottom=LEAST)
        axes.set_xlabel("message")
        axes.set_ylabel("latency (ms)")
    figure.axes[-1].plot([], [], color=THESIS, linewidth=1.5, label="thesis, means of its members")
    figure.axes[-1].legend(frameon=False, fontsize=8, markerscale=3)


def _panels(figure: Any, rows: int, columns: int) -> list[Any]:
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    listed = [axes for row in panels for axes in row]
    for axes in listed:
        plain(axes)
    return listed


def _line(axes: Any, across: Sequence[float], up: Sequence[float], member: int, marker: str) -> None:
    colour = MEMBER_COLOURS[member % len(MEMBER_COLOURS)]
    axes.plot(across, up, marker=marker, markersize=4, linewidth=1, color=colour, label=f"member {member}")
