"""The whole experiment: run everything, say how it goes, write down what came out."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater_lab import machine
from headwater_lab.reproduce.coordination import plan
from headwater_lab.reproduce.coordination.generator import Generator, Trial
from headwater_lab.reproduce.coordination.plan import Course, Setup, Sizes
from headwater_lab.reproduce.coordination.results import Results
from headwater_lab.reproduce.coordination.systems import missing
from headwater_lab.reproduce.coordination.trials import Trials
from headwater_lab.reproduce.coordination.written import report
from headwater_lab.reproduce.reporter import Reporter

if TYPE_CHECKING:
    from rich.console import Console

LOST: Final = 1
"""Exit status when messages did not arrive, or twice, or the slow generator was not noticed."""


class ExperimentError(Exception):
    """It cannot be run as it was asked for."""


def run(
    quick: bool, json_file: Path | None, folder: Path | None, seconds: float = 60.0, only: Sequence[str] = ()
) -> int:
    """Run, print, write; returns the exit status, which tells whether messages were lost, not whether it was fast."""
    reporter = Reporter(json_file, folder)
    setups = chosen(quick, only)
    facts = machine.describe(f"headwater reproduce coordination{' --quick' if quick else f' --seconds {seconds:g}'}")
    reporter.begin(facts)
    results = Results(experiment(setups, plan.QUICK if quick else plan.whole(seconds), reporter.console))
    reporter.end(report(results, facts))
    if results.lost:
        print(f"{results.lost} messages did not come, or twice, or out of order", file=sys.stderr)
    slow_unseen = results.slow is not None and not results.slow.signs.causes
    if slow_unseen:
        print("the slow generator was not noticed", file=sys.stderr)
    return LOST if results.lost or slow_unseen else 0


def chosen(quick: bool, only: Sequence[str]) -> list[Setup]:
    """ExperimentError: a name that is none."""
    if unknown := [name for name in only if name not in plan.SETUPS]:
        raise ExperimentError(f"no set-up {', '.join(unknown)}; there are {', '.join(plan.SETUPS)}")
    if only:
        return [plan.SETUPS[name] for name in only]
    return [each for each in (plan.NAMED if quick else plan.SETUPS.values()) if not _lacking(each)]


def _lacking(setup: Setup) -> bool:
    """Said, and left out: not every machine has all makes."""
    if why := missing(setup):
        print(f"{setup.name} is left out: {why}", file=sys.stderr)
    return bool(why)


def experiment(setups: Sequence[Setup], sizes: Sizes, console: Console) -> list[Trial]:
    """LoadError, BrokerError: it could not be measured."""
    with tempfile.TemporaryDirectory(prefix="headwater-coordination-") as name:

        def tell(words: str, course: Course) -> None:
            console.print(f"{words}: {course.total:g} s", highlight=False, markup=False)

        folder = Path(name)
        return list(Trials(Generator(folder), folder, sizes, tell).run(setups))
