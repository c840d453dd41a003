"""Tables that fit the terminal: what gives way is chosen, and is seen to have given way.

Theory. A column is one of five kinds. `WHOLE` (numbers, times, positions) is never cut: half a number is another one.
`BULK` (payloads, documents) is cut first, down to a few characters. Then `TEXT` is cut at its end and `TAIL` (topics,
which their last levels tell apart) at its beginning, the widest first, down to `LEAST`. Each cut shows as `…`. If that
is not enough, columns of bulk are left out, and then those that are `SPARE`, numbers that matter less than others, the
last one first; and if that is not enough either, lines are longer than the terminal, which wraps them. Where there is
no terminal, nothing is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

BETWEEN: Final = 2
"""Spaces between columns."""
LEAST: Final = 16
"""Characters of a text, below which it is not cut further."""
LEAST_BULK: Final = 8
SHOWN: Final = 100
"""Characters of a cell, wherever it is shown."""
UNLIMITED: Final = 10_000
"""Columns of what is no terminal: nobody wants a table cut off that goes into a file."""


class Kind(Enum):
    WHOLE = auto()
    TEXT = auto()
    TAIL = auto()
    BULK = auto()
    SPARE = auto()


KINDS: Final = {
    **dict.fromkeys(("topic", "filter", "shared group", "name"), Kind.TAIL),
    **dict.fromkeys(("payload", "document", "data", "raw", "properties", "why", "text", "advice"), Kind.BULK),
    **dict.fromkeys(("position", "time", "arrival", "value", "table", "complete until"), Kind.WHOLE),
}
"""Of columns by their names, where that says more than what is in them."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind = Kind.TEXT
    right: bool = False
    """Stands on the right, as numbers do."""


def number(name: str, kind: Kind = Kind.WHOLE) -> Column:
    return Column(name, kind, right=True)


class Fitted:
    """A table for rich, as wide as there is room. Cells are texts; a Text has a style of its own."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self.columns = list(columns)
        self.rows: list[list[Text]] = []

    def add(self, *cells: str | Text) -> None:
        """Cells that are missing at the end are empty."""
        row = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        self.rows.append([*row, *(Text() for _ in self.columns[len(row) :])])

    def left_out(self, width: int) -> list[str]:
        """Names of the columns for which there is no room."""
        return [column.name for column, room in zip(self.columns, self._fit(width), strict=True) if room == 0]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._fit(options.max_width)
        names = [Text(column.name, style="dim") for column in self.columns]
        for row in (names, *self.rows):
            line = Text(no_wrap=True, overflow="ignore")
            for column, cell, width in zip(self.columns, row, widths, strict=True):
                if width:
                    line.append_text(_in_place(cell, column, width)).append(" " * BETWEEN)
            line.rstrip()
            yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _fit(self, room: int) -> list[int]:
        """How wide each column is; 0: it is left out."""
        cells = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        widths = [
            max(cell_len(column.name), *(cell_len(cell.plain) for cell in each), 1)
            for column, each in zip(self.columns, cells, strict=True)
        ]
        texts, bulk = [*self._of(Kind.TEXT), *self._of(Kind.TAIL)], self._of(Kind.BULK)
        spare = self._of(Kind.SPARE)
        fitted = widths.copy()
        _shrink(fitted, bulk, LEAST_BULK, room)
        _shrink(fitted, texts, LEAST, room)
        while (bulk or spare) and _total(fitted) > room:  # what is left out makes room for the others
            widths[(bulk or spare).pop()] = 0
            fitted = widths.copy()
            _shrink(fitted, bulk, LEAST_BULK, room)
            _shrink(fitted, texts, LEAST, room)
        return fitted

    def _of(self, kind: Kind) -> list[int]:
        return [number for number, column in enumerate(self.columns) if column.kind == kind]


def _total(widths: Sequence[int]) -> int:
    return sum(width + BETWEEN for width in widths if width) - BETWEEN


def _shrink(widths: list[int], which: Sequence[int], least: int, room: int) -> None:
    """The widest of these gives way first, until all fit or are at their least."""
    while (over := _total(widths) - room) > 0 and which:
        order = sorted({widths[each] for each in which}, reverse=True)
        widest = [each for each in which if widths[each] == order[0]]
        if order[0] <= least:
            return
        target = max(least, order[1] if len(order) > 1 else least, order[0] - -(-over // len(widest)))
        for each in widest:
            widths[each] = target


def _in_place(cell: Text, column: Column, width: int) -> Text:
    plain, long = cell.plain, cell_len(cell.plain)
    if long > width:
        cut = _end(plain, width - 1) if column.kind == Kind.TAIL else set_cell_size(plain, width - 1)
        cell = Text(f"…{cut}" if column.kind == Kind.TAIL else f"{cut}…", style=cell.style)
        long = cell_len(cell.plain)
    space = Text(" " * max(0, width - long))
    return space.append_text(cell) if column.right else cell.copy().append_text(space)


def _end(text: str, width: int) -> str:
    """The last characters of a text that are so wide."""
    while cell_len(text) > width:
        text = text[1:]
    return text


def printable(text: str) -> str:
    """A text may hold anything, also what a terminal would obey."""
    return "".join(each if each.isprintable() else "·" for each in text)


def shortened(text: str) -> str:
    """For a cell of a table."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def show(table: Fitted) -> list[str]:
    """Print it, and return the names of the columns for which there was no room."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=UNLIMITED)
    console.print(table, crop=False)
    return table.left_out(console.width)


def column_of(name: str, values: Iterable[Any]) -> Column:
    """By its name, and by what is in it: numbers stand on the right and are never cut."""
    found = [each for each in values if each is not None]
    if found and all(isinstance(each, int | float) for each in found):
        return number(name)
    kind = KINDS.get(name, Kind.WHOLE if name.endswith(("_time", "_start", "_end")) else Kind.TEXT)
    return Column(name, kind)
