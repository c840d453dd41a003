"""`headwater reproduce balance --sweep`: the grid, computed here or on Spark, and what a folder gets of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from headwater_lab import machine
from headwater_lab.reproduce.balance.grid import GridPoint, Measured, points, run_point
from headwater_lab.reproduce.balance.sweep_figure import draw
from headwater_lab.reproduce.balance.sweep_tables import Summary, records, summarise, tables
from headwater_lab.reproduce.computing import progress, session
from headwater_lab.reproduce.reporter import Report, Reporter, Sheet
from headwater_lab.sweep import sweep

TITLE: Final = "Shared subscriptions with members of unequal speed, over a grid"
COLUMNS: Final = ("members_ms", "load", "varying", "way", "dispatcher", "seed")


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
    reporter.end(report(facts, grid, measured, summaries))
    return 0


def _facts(master: str | None, first_seed: int, seeds: int, trials: int) -> dict[str, str]:
    facts = machine.describe("headwater reproduce balance --sweep", mosquitto=False)
    last = first_seed + seeds - 1
    return {**facts, "computed": master or "in this process", "seeds": f"{first_seed}–{last}", "trials": f"{trials:,}"}


def report(
    facts: dict[str, str], grid: Sequence[GridPoint], measured: Sequence[Measured], summaries: Sequence[Summary]
) -> Report:
    """Tables, every trial, the summaries and the figure."""
    names = [each.name for each in fields(Measured)]
    return Report(
        "balance --sweep",
        facts,
        tables(summaries),
        records(summaries),
        data={"summaries": [{**asdict(each), "name": each.name} for each in summaries]},
        draw=lambda folder: draw(summaries, folder / "balance-sweep.svg"),
        sheets=[Sheet("balance-sweep.csv", [*COLUMNS, *names], _trials(grid, measured, names))],
        stem="balance-sweep",
        title=TITLE,
    )


def _trials(grid: Sequence[GridPoint], measured: Sequence[Measured], names: list[str]) -> Iterator[list[object]]:
    for point, each in zip(grid, measured, strict=True):
        setting = point.setting
        what = [setting.members, setting.load, setting.varying, setting.way, point.dispatcher, point.seed]
        yield [*what, *(getattr(each, name) for name in names)]
