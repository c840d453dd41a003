"""What all experiments of `headwater reproduce` do around the experiment: say what is run where, and show and keep what
was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater_lab.reproduce.page import Table, rich_table

if TYPE_CHECKING:
    from rich.console import Console

PAGE: Final = 160
"""Columns of the output if it does not go to a terminal."""


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

    def end(
        self, records: Sequence[Mapping[str, Any]], tables: Iterable[Table], write: Callable[[Path], Iterable[Path]]
    ) -> None:
        """`write` puts files into a folder and says which."""
        if self._json is not None:
            self._json.write_text(json.dumps(records, indent=1) + "\n")
        for table in tables:
            self.console.print()
            self.console.print(rich_table(table))
        if self._folder is not None:
            for file in write(self._folder):
                self._say(f"wrote {file}")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)
