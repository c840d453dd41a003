"""The whole experiment: run everything, say how it goes, write down what came out."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater_lab import machine
from headwater_lab.reproduce.computing import stages
from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.ground import Ground
from headwater_lab.reproduce.edge.late import run_late
from headwater_lab.reproduce.edge.plan import Plan, Scenario, plan
from headwater_lab.reproduce.edge.results import measured
from headwater_lab.reproduce.edge.trial import LEAD, Watch, run_load
from headwater_lab.reproduce.edge.written import report
from headwater_lab.reproduce.process import preload
from headwater_lab.reproduce.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    Stage = Callable[[str, float], Watch]

LOST: Final = 1
"""Exit status when messages did not arrive, or the logs differ."""
NEEDED: Final = ("rocksdict", "fastapi", "uvicorn", "pyarrow", "orjson", "numpy")
START: Final = 1.0
"""Seconds that a node takes to start, about; only for the bar."""


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
    findings = experiment(plan(quick), facts, seed, reporter.console)
    reporter.end(report(findings))
    if findings.wrong:
        print(f"{findings.wrong} messages are missing or differ", file=sys.stderr)
    return LOST if findings.wrong else 0


def experiment(plan: Plan, facts: dict[str, str], seed: int, console: Console) -> Findings:
    """All runs, each with a seed of its own: all scenarios, and then all again."""
    preload(["headwater_lab.reproduce.edge.cloud", "headwater_lab.reproduce.edge.devices"])
    findings = Findings(facts)
    groups = [
        (number, plan.scenarios[at : at + plan.at_once])
        for number in range(1, plan.runs + 1)
        for at in range(0, len(plan.scenarios), plan.at_once)
    ]
    with stages(console, sum(_seconds(plan, group) for _, group in groups)) as stage:
        for number, group in groups:
            _run_group(plan, group, f"run {number} of {plan.runs}, ", findings, seed, stage)
            seed += len(group) * (2 + len(plan.higher))
    return findings


def _run_group(plan: Plan, group: Sequence[Scenario], words: str, findings: Findings, seed: int, stage: Stage) -> None:
    """Scenarios beside each other; what is at higher rates needs the machine for itself."""
    words += ", ".join(scenario.name for scenario in group)
    with ExitStack() as stack:
        starting = stage(f"{words}: starting", _start_seconds(group))
        grounds = []
        for scenario in group:
            grounds.append(stack.enter_context(Ground(scenario)))
            starting(START * sum(len(ground.nodes) for ground in grounds))
        watch = stage(f"{words}: {plan.paper.title}", plan.paper.seconds + LEAD)
        findings.runs += map(measured, run_load(grounds, plan.paper, seed, watch))
        watch = stage(f"{words}: a cloud that is late", plan.late.seconds + LEAD)
        findings.lates += run_late(grounds, plan.late, seed + len(group), watch)
        seed += 2 * len(group)
        for number, ground in enumerate(grounds):
            for load in plan.higher:
                watch = stage(f"{ground.scenario.name}: {load.title}", load.seconds + LEAD)
                findings.runs += map(measured, run_load([ground], load, seed + number, watch))


def _start_seconds(group: Sequence[Scenario]) -> float:
    return START * sum(len(scenario.tiers) for scenario in group)


def _seconds(plan: Plan, group: Sequence[Scenario]) -> float:
    """About."""
    together = [plan.paper, plan.late]
    alone = sum(load.seconds + LEAD for load in plan.higher) * len(group)
    return _start_seconds(group) + sum(load.seconds + LEAD for load in together) + alone


def _check() -> None:
    """Find out before the run whether it can be done."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ExperimentError(f"a node needs {', '.join(missing)} (pip install headwater-lab)")
