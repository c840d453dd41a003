"""The paper's figures 4, 5 and 6, drawn from our data; what the paper says in numbers as crosses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater_lab.figure import Picture, save
from headwater_lab.reproduce.interest.plan import FIGURES, METHODS, PAPER, SETUPS
from headwater_lab.reproduce.interest.results import Row

COLOURS: Final = {"bf": "#9a9a9a", "bfp": "#3b6fb6", "prefix": "#c0392b", "summary": "#2a7f62"}
LABELS: Final = {
    "n_t": "filters",
    "n_lv": "levels",
    "p_wc": "share with wildcards",
    "l_wc": "first level that may have one",
}


def draw_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """A figure for each set-up, a panel for each parameter. FigureError: matplotlib is not installed."""
    of = {setup: [row for row in rows if row.setup == setup] for setup in FIGURES}
    return save(
        Picture(folder / f"interest-{number}-{setup}.svg", (11, 3.2), partial(_draw, setup=setup, rows=of[setup]))
        for setup, number in FIGURES.items()
        if of[setup]
    )


def _draw(figure: Any, setup: str, rows: Sequence[Row]) -> None:
    parameters = list(dict.fromkeys(row.parameter for row in rows))
    panels = figure.subplots(1, len(parameters), sharey=True, squeeze=False)[0]
    for axes, parameter in zip(panels, parameters, strict=True):
        chosen = [row for row in rows if row.parameter == parameter]
        for at, method in enumerate(METHODS):
            colour = COLOURS[method.removesuffix("-paper")]
            style = "--" if method.endswith("-paper") else "-"
            across = [row.value for row in chosen]
            axes.plot(across, [row.probes[at] for row in chosen], style, marker=".", color=colour, label=method)
            papers = [(row.value, PAPER.get(f"{row.name}/{method}/probes")) for row in chosen]
            for value, paper in papers:
                if paper is not None:
                    axes.plot([value], [paper], "x", color="#000000", markersize=7)
        axes.set_yscale("log")
        axes.set_xlabel(LABELS[parameter])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.suptitle(f"set-up {setup}: {SETUPS[setup]}", fontsize=9)
    panels[0].set_ylabel("questions for one topic")
    panels[-1].legend(frameon=False, fontsize=7)
