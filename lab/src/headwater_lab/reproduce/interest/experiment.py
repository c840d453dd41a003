"""`headwater reproduce interest`: the grid of figures 4 to 6, here or on Spark, and what a folder gets of it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater_lab import machine
from headwater_lab.figure import FigureError
from headwater_lab.reproduce.computing import progress, session
from headwater_lab.reproduce.interest.pictures import draw_all
from headwater_lab.reproduce.interest.plan import METHODS, TRIALS, Point, points
from headwater_lab.reproduce.interest.results import Row, records, rows, tables
from headwater_lab.reproduce.interest.trial import Measured, run_point
from headwater_lab.reproduce.page import insert, markdown
from headwater_lab.reproduce.reporter import Reporter
from headwater_lab.sweep import sweep

NAME: Final = "interest"
DENIED: Final = 1
"""Exit status when a mended method has denied a topic that is wanted."""


def run(
    quick: bool,
    json_file: Path | None,
    folder: Path | None,
    seed: int = 1,
    trials: int = TRIALS,
    master: str | None = None,
) -> int:
    """Compute, print, write; the exit status. Raises PointFailed, NoSpark, NoJava, OSError."""
    reporter = Reporter(json_file, folder)
    grid = points(quick, trials, seed)
    facts = machine.describe(f"headwater reproduce interest{' --quick' if quick else ''}")
    del facts["mosquitto"]
    facts |= {"computed": master or "in this process", "seed": str(seed), "trials of each": str(trials)}
    reporter.begin(facts)
    with session(master, "headwater reproduce interest", folder) as spark, progress(reporter, len(grid)) as watch:
        measured = sweep(run_point, grid, spark, watch)
    found = rows(grid, measured)
    reporter.end(records(found), tables(found), lambda place: write(facts, grid, measured, found, place))
    return DENIED if any(_denied(row) for row in found) else 0


def _denied(row: Row) -> bool:
    return any(count for method, count in zip(METHODS, row.denied, strict=True) if not method.endswith("-paper"))


def write(
    facts: dict[str, str], grid: Sequence[Point], measured: Sequence[Measured], found: Sequence[Row], folder: Path
) -> list[Path]:
    """Tables, figures, every trial and the means; returns the files. A page that is there keeps its text."""
    page, trials, data = (folder / f"{NAME}.{kind}" for kind in ("md", "csv", "json"))
    try:
        pictures = draw_all(found, folder)
    except FigureError as problem:
        print(problem, file=sys.stderr)
        pictures = []
    parts = ["\n".join(f"- {name}: {value}" for name, value in facts.items())]
    parts += [markdown(table) for table in tables(found)]
    parts += [f"![{file.stem}]({file.name})" for file in pictures]
    page.write_text(insert(page.read_text() if page.exists() else "", "\n\n".join(parts), NAME))
    with trials.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["setup", "parameter", "value", "trial", "wanted", *METHODS])
        for point, each in zip(grid, measured, strict=True):
            label = (point.setup, point.parameter, f"{point.value:g}", point.trial, int(each.is_wanted))
            writer.writerow([*label, *each.probes])
    content = {"machine": facts, "rows": [row._asdict() for row in found], "results": records(found)}
    data.write_text(json.dumps(content, indent=1) + "\n")
    return [page, trials, data, *pictures]
