"""A run with all that is made of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

from headwater.cli.failure import complain
from headwater_lab import figure, machine, results
from headwater_lab.check_broker.features import CannotRun
from headwater_lab.check_broker.judges.court import judge
from headwater_lab.check_broker.promises import Promise
from headwater_lab.check_broker.report import Report, as_json, text
from headwater_lab.check_broker.run import Settings, run
from headwater_lab.check_broker.timeline import page

KEPT: Final = 0
BROKEN: Final = 1
CANNOT_RUN: Final = 2


class Outputs(NamedTuple):
    json: Path | None = None
    html: Path | None = None
    history: Path | None = None
    show: int = 3


async def check_and_report(settings: Settings, profile: str, promised: frozenset[Promise], outputs: Outputs) -> int:
    """The exit status. The report goes to standard output, progress to standard error."""
    progress = Progress()
    try:
        recorded = await run(settings, progress.tell)
    except CannotRun as problem:
        progress.end()
        complain("check-broker", str(problem))
        return CANNOT_RUN
    progress.tell("judging")
    report = Report(recorded, profile, promised, judge(recorded.history))
    progress.end()
    print(text(report, outputs.show))
    if outputs.history is not None:
        recorded.history.save(outputs.history)
    if outputs.json is not None:
        facts = machine.describe("headwater check-broker", mosquitto=False)
        results.write_json(outputs.json, as_json(report, facts))
    if outputs.html is not None:
        try:
            outputs.html.write_text(page(report), encoding="utf-8")
        except figure.FigureError as problem:
            complain("check-broker", str(problem))
    return BROKEN if report.violations else KEPT


class Progress:
    """On a terminal one line that changes, else a line now and then."""

    EVERY: Final = 5
    """Lines of which one is written where there is no terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._lines = 0

    def tell(self, line: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)
        elif self._lines % self.EVERY == 0:
            print(line, file=sys.stderr, flush=True)
        self._lines += 1

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
