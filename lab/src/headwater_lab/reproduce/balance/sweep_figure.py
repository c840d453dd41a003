"""The figure of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headwater_lab.balance_figures import COLOURS
from headwater_lab.figure import Picture, save
from headwater_lab.reproduce.balance.sweep_tables import Summary

LEAST_MS: Final = 0.01
"""What is below has no place on a logarithmic scale."""
VISIBLE: Final = 1.1
"""A band is drawn if the greatest of the seeds' means is so many times the least."""


def draw(summaries: Sequence[Summary], file: Path) -> list[Path]:
    """Mean latency against load: a row of panels per way and variation, a column per group; a band spans the seeds.
    FigureError: matplotlib is not installed."""
    lines = list(dict.fromkeys((each.setting.way, each.setting.varying) for each in summaries))
    groups = list(dict.fromkeys(each.setting.members for each in summaries))
    size = (2.6 * len(groups) + 0.8, 2.2 * len(lines) + 0.8)
    return save([Picture(file, size, lambda figure: _draw(figure, summaries, lines, groups))], font_size=8)


def _draw(figure: Any, summaries: Sequence[Summary], lines: list[tuple[str, float]], groups: list[str]) -> None:
    panels = figure.subplots(len(lines), len(groups), sharex=True, sharey=True, squeeze=False)
    for row, line in zip(panels, lines, strict=True):
        for axes, members in zip(row, groups, strict=True):
            some = [each for each in summaries if each.setting.members == members]
            _draw_panel(axes, [each for each in some if (each.setting.way, each.setting.varying) == line])
            axes.set_title(f"{members} ms, {line[0]}{', times vary' if line[1] else ''}", fontsize=8)
        row[0].set_ylabel(f"mean latency, ms (≥ {LEAST_MS:g})")
    for axes in panels[-1]:
        axes.set_xlabel("load, %")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(7, 2 * len(groups)),
        fontsize=8,
    )


def _draw_panel(axes: Any, some: Sequence[Summary]) -> None:
    for name, colour in COLOURS.items():
        ours = sorted((each for each in some if each.dispatcher == name), key=lambda each: each.setting.load)
        loads = [100.0 * each.setting.load for each in ours]
        means, low, high = (
            [max(getattr(each, what), LEAST_MS) for each in ours] for what in ("mean_ms", "least_ms", "greatest_ms")
        )
        style = "--" if name == "bound" else "-"
        axes.plot(loads, means, style, marker=".", color=colour, label=name)
        if any(most > VISIBLE * least for least, most in zip(low, high, strict=True)):
            axes.fill_between(loads, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(which="major", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
