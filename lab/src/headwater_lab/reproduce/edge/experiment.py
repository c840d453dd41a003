"""The whole experiment: run everything, say how it goes, write down what came out."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater_lab import machine
from headwater_lab.reproduce.computing import stages
from headwater_lab.reproduce.edge import plan
from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.late import run_late
from headwater_lab.reproduce.edge.plan import Scenario
from headwater_lab.reproduce.edge.results import Measured, measured
from headwater_lab.reproduce.edge.trial import run_trial
from headwater_lab.reproduce.edge.written import report
from headwater_lab.reproduce.process import preload
from headwater_lab.reproduce.reporter import Reporter

if TYPE_CHECKING:
    from rich.console import Console

LOST: Final = 1
"""Exit status when messages did not arrive, or the logs differ."""
NEEDED: Final = ("rocksdict", "fastapi", "uvicorn", "pyarrow", "orjson", "numpy")


class ExperimentError(Exception):
    """It cannot be run here."""


def run(quick: bool, json_file: Path | None, folder: Path | None, seed: int | None = None) -> int:
    """Run, print, write; returns the exit status, which tells whether messages were lost, not whether it was fast."""
    reporter = Reporter(json_file, folder)
    _check()
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    facts = machine.describe(f"headwater reproduce edge{' --quick' if quick else ''}", mosquitto=False)
    facts["seed"] = str(seed)
    reporter.begin(facts)
    findings = experiment(plan.scenarios(quick), plan.late(quick), facts, seed, reporter.console)
    reporter.end(report(findings))
    if findings.wrong:
        print(f"{findings.wrong} messages are missing or differ", file=sys.stderr)
    return LOST if findings.wrong else 0


def experiment(
    scenarios: Sequence[Scenario], late: Scenario, facts: dict[str, str], seed: int, console: Console
) -> Findings:
    """All runs, one after the other, each with a seed of its own."""
    preload(["headwater_lab.reproduce.edge.cloud", "headwater_lab.reproduce.edge.devices"])
    runs = [scenario for scenario in scenarios for _ in range(scenario.runs)]
    found: list[Measured] = []
    with stages(console, sum(each.seconds for each in [*runs, late])) as stage:
        for number, scenario in enumerate(runs):
            watch = stage(f"{scenario.title} ({number + 1} of {len(runs) + 1})", scenario.seconds)
            found.append(measured(run_trial(scenario, seed + number, watch)))
        return Findings(facts, found, run_late(late, seed + len(runs), stage(late.title, late.seconds)))


def _check() -> None:
    """Find out before the run whether it can be done."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ExperimentError(f"a node needs {', '.join(missing)} (pip install headwater-lab)")
