"""The whole experiment: run the batches, say how it goes, write down what came out."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater_lab import machine
from headwater_lab.reproduce.balance import campaign, plan
from headwater_lab.reproduce.balance.campaign import Result
from headwater_lab.reproduce.balance.findings import Findings
from headwater_lab.reproduce.balance.results import BOUND, bound
from headwater_lab.reproduce.balance.written import write
from headwater_lab.reproduce.reporter import Reporter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

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
    reporter.end(findings.records(), findings.tables(), lambda place: write(findings, place))
    if findings.lost:
        print(f"{findings.lost} messages were lost", file=sys.stderr)
    return LOST if findings.lost else 0


def _check() -> None:
    """Find out before the run whether it can be done."""
    if importlib.util.find_spec("paho") is None:
        raise ExperimentError("the plain members are paho-mqtt's clients (pip install headwater-lab)")


def _facts(seed: int, quick: bool) -> dict[str, str]:
    facts = machine.describe(f"headwater reproduce balance{' --quick' if quick else ''}")
    del facts["mosquitto"]
    try:
        facts["paho-mqtt"] = version("paho-mqtt")
    except PackageNotFoundError:
        facts["paho-mqtt"] = "unknown"
    facts["seed"] = str(seed)
    return facts


def _experiment(batches: Sequence[Sequence[plan.Trial]], facts: dict[str, str], console: Console) -> Findings:
    campaign.prepare()
    results: list[Result] = []
    with _progress(console) as progress:
        whole = progress.add_task("all", total=sum(campaign.batch_seconds(batch) for batch in batches))
        before = 0.0
        for number, batch in enumerate(batches):
            names = dict.fromkeys(trial.setting.name for trial in batch)
            words = f"{', '.join(names)}: {len(batch)} brokers ({number + 1} of {len(batches)})"
            results += campaign.run_batch(batch, _advance(progress, whole, before, words))
            before += campaign.batch_seconds(batch)
            progress.update(whole, completed=before)
    settings = dict.fromkeys((trial.setting, trial.duration) for batch in batches for trial in batch)
    bounds = {f"{setting.name}/{BOUND}": bound(setting, duration) for setting, duration in settings}
    scheduling = ", ".join(sorted({result.outcome.scheduling for result in results}))
    return Findings({**facts, "scheduling": scheduling}, results, bounds)


def _advance(progress: Progress, task: TaskID, before: float, words: str) -> campaign.Watch:
    def advance(seconds: float) -> None:
        progress.update(task, completed=before + seconds, description=words)

    return advance


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # A few times a second is enough, and leaves the machine to those who are measured.
    with Progress(*columns, console=console, refresh_per_second=2) as progress:
        yield progress
