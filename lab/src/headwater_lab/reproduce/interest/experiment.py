"""`headwater reproduce interest`: the grid of figures 4 to 6, here or on Spark, and what a folder gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater_lab import machine
from headwater_lab.reproduce.computing import progress, session
from headwater_lab.reproduce.interest.pictures import draw_all
from headwater_lab.reproduce.interest.plan import METHODS, TRIALS, Point, points
from headwater_lab.reproduce.interest.results import Row, records, rows, tables
from headwater_lab.reproduce.interest.trial import Measured, run_point
from headwater_lab.reproduce.reporter import Report, Reporter, Sheet
from headwater_lab.sweep import sweep

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
    facts = machine.describe(f"headwater reproduce interest{' --quick' if quick else ''}", mosquitto=False)
    facts |= {"computed": master or "in this process", "seed": str(seed), "trials of each": str(trials)}
    reporter.begin(facts)
    with session(master, "headwater reproduce interest", folder) as spark, progress(reporter, len(grid)) as watch:
        measured = sweep(run_point, grid, spark, watch)
    found = rows(grid, measured)
    reporter.end(report(facts, grid, measured, found))
    return DENIED if any(_denied(row) for row in found) else 0


def _denied(row: Row) -> bool:
    return any(count for method, count in zip(METHODS, row.denied, strict=True) if not method.endswith("-paper"))


def report(facts: dict[str, str], grid: Sequence[Point], measured: Sequence[Measured], found: Sequence[Row]) -> Report:
    """Tables, figures, every trial and the means."""
    lines = (
        (point.setup, point.parameter, f"{point.value:g}", point.trial, int(each.is_wanted), *each.probes)
        for point, each in zip(grid, measured, strict=True)
    )
    return Report(
        "interest",
        facts,
        tables(found),
        records(found),
        data={"rows": [row._asdict() for row in found]},
        draw=lambda folder: draw_all(found, folder),
        sheets=[Sheet("interest.csv", ("setup", "parameter", "value", "trial", "wanted", *METHODS), lines)],
    )
