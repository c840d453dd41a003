"""Runs the scenarios of shared groups, and writes what came of them: a table, figures, data."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from headwater_lab import machine
from headwater_lab.balance_brokers import brokers
from headwater_lab.balance_figures import draw_all
from headwater_lab.balance_scenarios import SEEDS, SHOWN, Case, cases
from headwater_lab.balance_simulation import SimulationOutcome, simulate
from headwater_lab.balance_tables import PARTS, Row, losses, markdown, progress_line, summary
from headwater_lab.figure import FigureError
from headwater_lab.report import update
from headwater_lab.results import write_json


def row(case: Case, dispatcher: str, outcomes: Sequence[SimulationOutcome]) -> Row:
    means = [1000.0 * outcome.mean for outcome in outcomes]
    member_seconds = case.scenario.duration * len(case.scenario.workers)
    return Row(
        *(case.part, case.key, case.way, case.scenario.name, dispatcher),
        mean_ms=fmean(means),
        spread_ms=(max(means) - min(means)) / 2.0,
        p50_ms=1000.0 * fmean(outcome.quantile(0.5) for outcome in outcomes),
        p99_ms=1000.0 * fmean(outcome.quantile(0.99) for outcome in outcomes),
        fairness=fmean(outcome.fairness for outcome in outcomes),
        reports_per_second=fmean(outcome.reports for outcome in outcomes) / member_seconds,
    )


def run(some: Iterable[Case], seeds: Sequence[int], tell: Callable[[Row], None]) -> list[Row]:
    """Every case with every dispatcher and seed."""
    rows: list[Row] = []
    for case in some:
        # Of the intervals only `adaptive` is of interest: the others were shown at 1 s.
        for name in ("score", "adaptive", "bound") if case.part == "intervals" else SHOWN:
            if case.part == "crowds" and len(case.scenario.workers) >= 1_000:
                outcomes = [simulate(case.seeded(seed), name, seed) for seed in seeds[:2]]
            else:
                outcomes = [simulate(case.seeded(seed), name, seed) for seed in seeds]
            rows.append(row(case, name, outcomes))
            tell(rows[-1])
    return rows


def run_brokers(seeds: Sequence[int], tell: Callable[[Row], None]) -> list[Row]:
    rows = []
    for case, names in brokers():
        for name, simulated in names.items():
            rows.append(row(case, name, [simulated(seed) for seed in seeds]))
            tell(rows[-1])
    return rows


# ---- the command -----------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench balance-scenarios", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two seeds, smaller crowds, fewer intervals")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, with the machine")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write tables and figures there")
    parser.add_argument("--doc", type=Path, metavar="FILE", help="renew the bench's part of that page")
    parser.add_argument("--report-cost", type=Path, metavar="FILE", help="what scripts/bench report-cost --json wrote")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="simulate nothing: use that --json")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(words)
    began = time.monotonic()
    parts = options.part or PARTS
    seeds = SEEDS[:2] if options.quick else SEEDS
    if options.source:
        content: dict[str, Any] = json.loads(options.source.read_text())
        rows = [Row(**each) for each in content["rows"] if each["part"] in parts]
    else:
        rows = run([case for case in cases(options.quick) if case.part in parts], seeds, _print_row)
        if "brokers" in parts:
            rows += run_brokers(seeds, _print_row)
        content = {"machine": machine.describe(""), "seeds": seeds, "rows": [asdict(each) for each in rows]}
    if options.json:
        write_json(options.json, content)
    cost = json.loads(options.report_cost.read_text()) if options.report_cost else None
    if options.doc:
        update(options.doc, summary(rows, cost), "balance-scenarios")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "balance-scenarios-figures.md").write_text(markdown(rows))
        try:
            draw_all(content["rows"], cost, options.out)
        except FigureError as problem:
            print(problem)
    for line in losses([each for each in rows if each.part != "intervals"]):
        print("lost:", line)
    print(f"{len(rows)} rows in {time.monotonic() - began:.0f} s")


def _print_row(one: Row) -> None:
    print(progress_line(one), flush=True)
