"""The report of an experiment of `headwater reproduce`: the only place that shows and writes what was found.

An experiment makes a `Report`: tables and figures for people, records for programs (the paper's figure beside ours) and
the data behind them. A `Reporter` says what is run where, and in the end shows the tables on the terminal, writes the
records to the file of `--json`, and all of it into the folder of `--out`:

    STEM.md        machine, versions and seed; tables; figures. A page that is there keeps its text: only the part
                   between two marks is replaced.
    STEM.json      {"machine": facts, …the experiment's own data…, "results": records}
    *.csv, *.svg   every message, every trial; figures
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater_lab.figure import FigureError
from headwater_lab.reproduce.page import Table, markdown, marks, rich_table
from headwater_lab.results import Record, update, write_json

if TYPE_CHECKING:
    from rich.console import Console

PAGE: Final = 160
"""Columns of the output if it does not go to a terminal."""


class Sheet(NamedTuple):
    """A CSV file."""

    name: str
    head: Sequence[str]
    rows: Iterable[Sequence[object]]

    def write(self, folder: Path) -> Path:
        file = folder / self.name
        with file.open("w", newline="") as sink:
            writer = csv.writer(sink)
            writer.writerow(self.head)
            writer.writerows(self.rows)
        return file


@dataclass(frozen=True)
class Report:
    """All that was found by `headwater reproduce NAME`."""

    name: str
    facts: Mapping[str, str]
    """Machine, versions, seed."""
    tables: Sequence[Table]
    records: Sequence[Record]
    data: Mapping[str, object]
    draw: Callable[[Path], list[Path]]
    """Writes figures into a folder and says which; FigureError if it cannot."""
    sheets: Sequence[Sheet] = ()
    stem: str = ""
    """Of the files, if it is not the name."""
    page: str = ""
    """The page's file, if it is not STEM.md."""
    title: str = ""
    """Of a new page, if it is not the name."""

    def write(self, folder: Path) -> list[Path]:
        """Page, data and figures; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = self.stem or self.name
        page, data = folder / (self.page or f"{stem}.md"), folder / f"{stem}.json"
        try:
            pictures = self.draw(folder)
        except FigureError as problem:
            print(problem, file=sys.stderr)
            pictures = []
        title = f"# {self.title or self.name.capitalize()}"
        update(page, self._text(pictures), marks(self.name), title)
        write_json(data, {"machine": self.facts, **self.data, "results": self.records})
        return [page, data, *(sheet.write(folder) for sheet in self.sheets), *pictures]

    def _text(self, pictures: Sequence[Path]) -> str:
        parts = ["\n".join(f"- {name}: {value}" for name, value in self.facts.items())]
        parts += [markdown(table) for table in self.tables]
        parts += [f"![{file.stem}]({file.name})" for file in pictures]
        return "\n\n".join(parts)


class Reporter:
    """On the terminal, into a file for programs, into a folder for people."""

    def __init__(self, json_file: Path | None, folder: Path | None) -> None:
        """Before the experiment, so that nobody waits for results that cannot be written: OSError."""
        from rich.console import Console

        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if json_file is not None:
            json_file.touch()
        self._json = json_file
        self._folder = folder
        terminal = Console()
        self.console: Console = terminal if terminal.is_terminal else Console(width=PAGE)

    def begin(self, facts: Mapping[str, str]) -> None:
        self._say("\n".join(f"{name}: {value}" for name, value in facts.items()))

    def end(self, report: Report) -> None:
        if self._json is not None:
            write_json(self._json, report.records)
        for table in report.tables:
            self.console.print()
            self.console.print(rich_table(table))
        if self._folder is not None:
            for file in report.write(self._folder):
                self._say(f"wrote {file}")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)
