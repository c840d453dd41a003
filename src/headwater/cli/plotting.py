"""Plots of an answer: in the terminal with dots of Braille, or in a file by matplotlib.

The first column is x, a time or a number; columns of numbers behind it are lines; a column of text splits them, one
line for each of its values.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

HEIGHT: Final = 16
"""Lines of a plot in the terminal."""
LABELS: Final = 11
"""Characters for the numbers beside it."""
COLOURS: Final = ("cyan", "yellow", "magenta", "green", "red", "blue", "white")
MOST_LINES: Final = 12
DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Of a character of Braille, which bit is which of its four rows and two columns."""


class PlotError(ValueError):
    """That cannot be drawn; the text says why."""


class Lines(NamedTuple):
    """Points by the name of their line; x is seconds since 1970 if it is a time."""

    x: str
    is_time: bool
    points: dict[str, list[tuple[float, float]]]


def lines_of(answer: pa.Table, columns: Sequence[str]) -> Lines:
    """Raises PlotError."""
    names = list(columns) or list(answer.column_names)
    for name in names:
        if name not in answer.column_names:
            raise PlotError(f"the answer has no column {name!r}; it has {', '.join(answer.column_names)}")
    rows = answer.select(names).to_pylist()
    x, *others = names
    values = [name for name in others if _is_numeric(rows, name)]
    splits = [name for name in others if name not in values]
    if not values:
        raise PlotError("a plot needs a column of times or numbers, and one of numbers: --plot window_end,mean")
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        at = _number(row[x])
        if at is None:
            raise PlotError(f"{x} is {row[x]!r}, neither a time nor a number")
        of = " ".join(str(row[name]) for name in splits)
        for name in values:
            if row[name] is not None:
                key = " ".join(filter(None, (of, name if len(values) > 1 or not of else "")))
                points.setdefault(key, []).append((at, float(row[name])))
    if not points:
        raise PlotError("there is nothing to draw")
    if len(points) > MOST_LINES:
        raise PlotError(f"{len(points)} lines are too many to tell apart; choose at most {MOST_LINES}")
    is_time = isinstance(rows[0][x], date)
    return Lines(x, is_time, {name: sorted(points[name]) for name in sorted(points)})


def _is_numeric(rows: list[dict[str, Any]], name: str) -> bool:
    found = [row[name] for row in rows if row[name] is not None]
    return bool(found) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in found)


def _number(value: Any) -> float | None:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return float(value) if isinstance(value, int | float) else None


# ---- in the terminal ---------------------------------------------------------------------------------------------


def draw(lines: Lines, width: int) -> Text:
    """As wide as that."""
    from rich.text import Text

    columns = max(10, width - LABELS - 1)
    every = [point for line in lines.points.values() for point in line]
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    cells = [[0] * columns for _ in range(HEIGHT)]
    owner: dict[tuple[int, int], int] = {}
    for number, line in enumerate(lines.points.values()):
        for x, y in _filled(line, left, right, low, high, columns):
            cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]
            owner[y // 4, x // 2] = number
    text = Text()
    for row in range(HEIGHT):
        label = f"{high - (high - low) * row / (HEIGHT - 1):.5g}" if row % 5 == 0 else ""
        text.append(f"{label:>{LABELS - 1}} │", style="dim")
        for column in range(columns):
            colour = COLOURS[owner.get((row, column), 0) % len(COLOURS)]
            text.append(chr(0x2800 + cells[row][column]) if cells[row][column] else " ", style=colour)
        text.append("\n")
    first, last = _label(lines, left), _label(lines, right)
    text.append(" " * LABELS + first + last.rjust(columns - len(first)) + "\n", style="dim")
    for number, name in enumerate(lines.points):
        text.append(f"{'' if number else ' ' * LABELS}── {name}   ", style=COLOURS[number % len(COLOURS)])
    return text


def _filled(
    line: list[tuple[float, float]], left: float, right: float, low: float, high: float, columns: int
) -> list[tuple[int, int]]:
    """Dots of a line, and those between its points, from the top left."""
    wide, tall = columns * 2 - 1, HEIGHT * 4 - 1
    places = [
        (
            round((x - left) / (right - left) * wide) if right > left else wide // 2,
            round((high - y) / (high - low) * tall) if high > low else tall // 2,
        )
        for x, y in line
    ]
    dots = set(places)
    for (x1, y1), (x2, y2) in itertools.pairwise(places):
        steps = max(abs(x2 - x1), abs(y2 - y1))
        dots.update((x1 + (x2 - x1) * n // steps, y1 + (y2 - y1) * n // steps) for n in range(1, steps))
    return sorted(dots)


def _label(lines: Lines, x: float) -> str:
    return f"{datetime.fromtimestamp(x, UTC):%Y-%m-%d %H:%M:%S}" if lines.is_time else f"{x:.6g}"


# ---- in a file ---------------------------------------------------------------------------------------------------


def save(lines: Lines, path: Path) -> None:
    """As its name ends: .svg, .png, .pdf. Raises PlotError, ImportError if matplotlib is missing."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.dates
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    try:
        for name, line in lines.points.items():
            xs = [datetime.fromtimestamp(x, UTC) if lines.is_time else x for x, _ in line]
            axes.plot(xs, [y for _, y in line], label=name, linewidth=1.2)  # type: ignore[arg-type] # it takes times
        if lines.is_time:
            locator = matplotlib.dates.AutoDateLocator()  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_locator(locator)
            formatter = matplotlib.dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_formatter(formatter)
        axes.set_xlabel(lines.x)
        axes.grid(alpha=0.3)
        axes.legend()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        figure.savefig(path)
    except ValueError as error:  # such as a format that it does not know
        raise PlotError(str(error)) from None
    finally:
        pyplot.close(figure)
