"""docs/brokers.md: its tables, made of what looks saw, and read again by the tests that look anew."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Final

from headwater import __version__
from headwater_lab.check_broker.contestants import program
from headwater_lab.makes.looks import ALL
from headwater_lab.makes.looks.between import CROSSINGS
from headwater_lab.makes.nodes import INSTALLED, MAKES, Make

ALONE: Final = "alone"
BEHIND: Final = "behind a proxy"
ORDER: Final = (*(each.row for each in CROSSINGS), *(each.row for each in ALL))
Column = Mapping[str, str]
"""What was seen of one make, by row."""


def marks(table: str) -> tuple[str, str]:
    return f"<!-- {table}: begin; this table is written by scripts/brokers_page.py -->", f"<!-- {table}: end -->"


def table(columns: Mapping[str, Column]) -> str:
    """`columns` by make."""
    names = list(columns)
    rows = [row for row in ORDER if any(row in column for column in columns.values())]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {row} | {' | '.join(columns[name].get(row, '') for name in names)} |" for row in rows]
    return "\n".join(lines)


def write(page: str, name: str, columns: Mapping[str, Column]) -> str:
    """The page with this table in its place."""
    begin, end = marks(name)
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{table(columns)}\n\n{end}{after}"


def read(page: str, name: str) -> dict[str, dict[str, str]]:
    """By make, and by row."""
    begin, end = marks(name)
    lines = page.partition(begin)[2].partition(end)[0].strip().splitlines()
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    columns: dict[str, dict[str, str]] = {make: {} for make in head[1:]}
    for row, *cells in rows[1:]:
        for make, cell in zip(head[1:], cells, strict=True):
            columns[make][row] = cell
    return columns


def differing(alone: Mapping[str, Column], behind: Mapping[str, Column]) -> dict[str, Column]:
    """Of what was seen behind a proxy, the rows that some make has not, or otherwise, alone."""
    rows = {row for make, column in behind.items() for row, cell in column.items() if alone[make].get(row) != cell}
    return {make: {row: cell for row, cell in column.items() if row in rows} for make, column in behind.items()}


def version_of(make: Make) -> str:
    """As its package tells it."""
    if make.name == "headwater":
        return __version__
    if not make.version:
        return (INSTALLED / make.name / "version").read_text().strip()
    words = shlex.split(make.version)
    told = subprocess.run(
        [program(words[0], make.name), *words[1:]], capture_output=True, text=True, check=False
    ).stdout
    return told.splitlines()[0].split()[-1].split("-")[0].lstrip("v")


def versions() -> str:
    """A line for each make."""
    return "\n".join(f"- **{make.name}** {version_of(make)}: {make.about}" for make in MAKES)
