"""The whole experiment: run the batches, say how it goes, write down what came out."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater_lab import machine
from headwater_lab.reproduce.balance import campaign, plan
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.findings import Findings
from headwater_lab.reproduce.balance.results import BOUND, bound
from headwater_lab.reproduce.balance.written import report
from headwater_lab.reproduce.computing import stages
from headwater_lab.reproduce.reporter import Reporter

if TYPE_CHECKING:
    from rich.console import Console

LOST: Final = 1
"""Exit status when messages did not arrive."""


class ExperimentError(Exception):
    """It cannot be run here."""


def run(
    quick: bool, json_file: Path | None, folder: Path | None, seed: int | None = None, duration: float = plan.DURATION
) -> int:
    """Run, print, write; returns the exit status, which tells whether messages were lost, not whether it was fast."""
    reporter = Reporter(json_file, folder)
    _check()
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    facts = _facts(seed, quick)
    reporter.begin(facts)
    findings = _experiment(plan.batches(quick, seed, duration), facts, reporter.console)
    reporter.end(report(findings))
    if findings.lost:
        print(f"{findings.lost} messages were lost", file=sys.stderr)
    return LOST if findings.lost else 0


def _check() -> None:
    """Find out before the run whether it can be done."""
    if importlib.util.find_spec("paho") is None:
        raise ExperimentError("the plain members are paho-mqtt's clients (pip install headwater-lab)")


def _facts(seed: int, quick: bool) -> dict[str, str]:
    facts = machine.describe(f"headwater reproduce balance{' --quick' if quick else ''}", mosquitto=False)
    try:
        facts["paho-mqtt"] = version("paho-mqtt")
    except PackageNotFoundError:
        facts["paho-mqtt"] = "unknown"
    facts["seed"] = str(seed)
    return facts


def _experiment(batches: Sequence[Sequence[plan.Trial]], facts: dict[str, str], console: Console) -> Findings:
    campaign.prepare()
    results: list[Result] = []
    with stages(console, sum(campaign.batch_seconds(batch) for batch in batches)) as stage:
        for number, batch in enumerate(batches):
            names = dict.fromkeys(trial.setting.name for trial in batch)
            words = f"{', '.join(names)}: {len(batch)} brokers ({number + 1} of {len(batches)})"
            results += campaign.run_batch(batch, stage(words, campaign.batch_seconds(batch)))
    settings = dict.fromkeys((trial.setting, trial.duration) for batch in batches for trial in batch)
    bounds = {f"{setting.name}/{BOUND}": bound(setting, duration) for setting, duration in settings}
    scheduling = ", ".join(sorted({result.outcome.scheduling for result in results}))
    return Findings({**facts, "scheduling": scheduling}, results, bounds)
