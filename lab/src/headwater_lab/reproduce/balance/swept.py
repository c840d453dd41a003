"""`headwater reproduce balance --sweep`: the grid, computed here or on Spark, and what a folder gets of it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from headwater_lab import machine
from headwater_lab.figure import FigureError
from headwater_lab.reproduce.balance.grid import GridPoint, Measured, points, run_point
from headwater_lab.reproduce.balance.sweep_figure import draw
from headwater_lab.reproduce.balance.sweep_tables import Summary, records, summarise, tables
from headwater_lab.reproduce.computing import progress, session
from headwater_lab.reproduce.page import markdown
from headwater_lab.reproduce.reporter import Reporter
from headwater_lab.sweep import sweep

TITLE: Final = "# Shared subscriptions with members of unequal speed, over a grid"


def run(
    quick: bool, json_file: Path | None, folder: Path | None, first_seed: int, seeds: int, master: str | None
) -> int:
    """Compute, print, write; the exit status. Raises PointFailed, NoSpark, NoJava, OSError."""
    reporter = Reporter(json_file, folder)
    grid = points(range(first_seed, first_seed + seeds), quick)
    facts = _facts(master, first_seed, seeds, len(grid))
    reporter.begin(facts)
    with session(master, "headwater reproduce balance", folder) as spark, progress(reporter, len(grid)) as watch:
        measured = sweep(run_point, grid, spark, watch)
    summaries = summarise(grid, measured)
    reporter.end(records(summaries), tables(summaries), lambda place: write(facts, grid, measured, summaries, place))
    return 0


def _facts(master: str | None, first_seed: int, seeds: int, trials: int) -> dict[str, str]:
    facts = machine.describe("headwater reproduce balance --sweep")
    del facts["mosquitto"]
    last = first_seed + seeds - 1
    return {**facts, "computed": master or "in this process", "seeds": f"{first_seed}–{last}", "trials": f"{trials:,}"}


# ---- files -----------------------------------------------------------------------------------------------------


def write(
    facts: dict[str, str],
    grid: Sequence[GridPoint],
    measured: Sequence[Measured],
    summaries: Sequence[Summary],
    folder: Path,
) -> list[Path]:
    """Tables, every trial, the summaries and the figure; returns the files."""
    page, trials, data = (folder / f"balance-sweep.{kind}" for kind in ("md", "csv", "json"))
    head = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    page.write_text("\n\n".join([TITLE, head, *(markdown(table) for table in tables(summaries))]) + "\n")
    _write_trials(trials, grid, measured)
    content = {"machine": facts, "summaries": [{**asdict(each), "name": each.name} for each in summaries]}
    data.write_text(json.dumps(content, indent=1) + "\n")
    try:
        return [page, trials, data, draw(summaries, folder / "balance-sweep.svg")]
    except FigureError as problem:
        print(problem, file=sys.stderr)
        return [page, trials, data]


def _write_trials(file: Path, grid: Sequence[GridPoint], measured: Sequence[Measured]) -> None:
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        names = [each.name for each in fields(Measured)]
        writer.writerow(["members_ms", "load", "varying", "way", "dispatcher", "seed", *names])
        for point, each in zip(grid, measured, strict=True):
            setting = point.setting
            what = [setting.members, setting.load, setting.varying, setting.way, point.dispatcher, point.seed]
            writer.writerow([*what, *(getattr(each, name) for name in names)])
