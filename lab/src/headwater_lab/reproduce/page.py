"""Tables for the terminal and for a page, and the marks of the part of a page that a program writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """The first column is text; the others are figures, unless `is_text`."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    is_text: bool = False


def markdown(table: Table) -> str:
    rule = ("---", *["---" if table.is_text else "---:"] * (len(table.head) - 1))
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.head, rule, *table.rows)]
    return f"**{table.title}**\n\n" + "\n".join(lines)


def rich_table(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(table.title), title_justify="left")
    for number, name in enumerate(table.head):
        shown.add_column(Text(name), justify="right" if number and not table.is_text else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def marks(name: str) -> tuple[str, str]:
    """What is before and behind the part of a page that `headwater reproduce name` writes."""
    command = f"headwater reproduce {name} --out FOLDER"
    begin = f"<!-- reproduce {name}: begin; this part is written by {command} -->"
    return begin, f"<!-- reproduce {name}: end -->"
