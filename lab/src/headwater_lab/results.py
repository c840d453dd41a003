"""What all benchmarks, campaigns and experiments leave behind: figures, result files, parts of pages.

A figure has a name, what the paper has for it, what we have, and a unit. A result file is JSON, docs/results/NAME-DATE
if the run was a whole one. A page of the documentation is written by hand, but for what is between two marks.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

Record = dict[str, object]
"""A figure for programs. Names are stable."""


def record(name: str, paper: float | None, ours: float, unit: str, digits: int = 4) -> Record:
    return {"name": name, "paper": paper, "ours": round(ours, digits), "unit": unit}


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def dated(folder: Path, name: str, kind: str = "json") -> Path:
    """The file of today's run, in a folder that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{datetime.now(UTC):%Y-%m-%d}.{kind}"


def keep(docs: Path, name: str, content: object) -> None:
    """Among the results of the documentation."""
    write_json(dated(docs / "results", name), content)


def insert(document: str, generated: str, marks: tuple[str, str], title: str) -> str:
    """The document with the part between the marks replaced, or added at its end if it has none. `title` is for one
    that is empty."""
    first, last = marks
    before, begin, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if begin and not end:
        raise ValueError(f"the document has {first!r} but not {last!r}")
    if not begin:
        before, after = (document.rstrip() or title) + "\n\n", "\n"
    return f"{before}{first}\n\n{generated.rstrip()}\n\n{last}{after}"


def update(page: Path, generated: str, marks: tuple[str, str], title: str) -> None:
    """The same with a file, which need not be there."""
    page.write_text(insert(page.read_text() if page.exists() else "", generated, marks, title))
