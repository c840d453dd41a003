"""Figures as SVG files, for all of the lab; and that of docs/performance.md, every ratio as a bar."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater_lab.compare import Row

AHEAD: Final = "#2a7f62"
BEHIND: Final = "#c0392b"
FLOOR: Final = "#333333"


class FigureError(Exception):
    """matplotlib is not installed."""


class Picture(NamedTuple):
    """`draw` gets an empty figure of matplotlib; the size is in inches."""

    file: Path
    size: tuple[float, float]
    draw: Callable[[Any], None]


def save(pictures: Iterable[Picture], font_size: int = 9) -> list[Path]:
    """Write them, and return their files. FigureError: matplotlib is not installed."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise FigureError("figures need matplotlib (pip install headwater-lab)") from None
    files = []
    # Without dates and random ids, a file changes only when the data do.
    with matplotlib.rc_context({"svg.hashsalt": "headwater", "svg.fonttype": "none", "font.size": font_size}):
        for picture in pictures:
            figure = figures.Figure(figsize=picture.size, layout="constrained")
            picture.draw(figure)
            figure.savefig(picture.file, format="svg", dpi=150, metadata={"Date": None})
            files.append(picture.file)
    return files


def plain(axes: Any) -> None:
    """Horizontal lines behind the data, and no frame."""
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw(rows: Sequence[Row], file: Path) -> None:
    """One bar per row that has a result; the spread as a whisker, the floor as a tick. FigureError."""
    rows = [row for row in rows if not row.error]
    save([Picture(file, (9, 1.6 + 0.27 * len(rows)), lambda figure: _draw_bars(figure.add_subplot(), rows))])


def _draw_bars(axes: Any, rows: Sequence[Row]) -> None:
    places = range(len(rows))
    ratios = [row.ratio for row in rows]
    # A whisker that would cross zero has no place on a logarithmic scale.
    whiskers = [[min(row.spread, row.ratio * 0.9) for row in rows], [row.spread for row in rows]]
    # Bars start at 1, where both brokers are equal: to the right ours is ahead, to the left Mosquitto.
    axes.barh(
        places,
        [ratio - 1 for ratio in ratios],
        left=1,
        color=[AHEAD if ratio >= 1 else BEHIND for ratio in ratios],
        xerr=whiskers,
        error_kw={"ecolor": "#888888", "elinewidth": 1, "capsize": 2},
        height=0.65,
    )
    floors = [(row.case["floor"], place) for place, row in zip(places, rows, strict=True) if row.case["floor"]]
    if floors:
        axes.plot(
            *zip(*floors, strict=True), "|", color=FLOOR, markersize=11, markeredgewidth=1.6, label="floor promised"
        )
        axes.legend(loc="lower right", frameon=False)
    for place, row in zip(places, rows, strict=True):
        beyond = max(row.ratio + row.spread, 1.0) * 1.08
        axes.text(beyond, place, f"{row.ratio:.2f}" if row.ratio < 10 else f"{row.ratio:.0f}", va="center", fontsize=8)
    axes.set_yticks(places, [_label(row) for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min([0.5, *(0.8 * ratio for ratio in ratios)]), max([2.0, *ratios]) * 2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="black", linewidth=1)
    axes.grid(axis="x", which="major", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("Mosquitto's cost / ours (logarithmic; right of 1: ours is ahead)")


def _label(row: Row) -> str:
    return f"{row.case['what']}{', MQTT 5' if row.case['mqtt'] == 5 else ''}"
