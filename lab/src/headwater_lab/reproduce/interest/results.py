"""Means over trials, tables of them, and the list for programs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from headwater_lab.reproduce.interest.plan import FIGURES, METHODS, PAPER, SETUPS, Point
from headwater_lab.reproduce.interest.trial import Measured
from headwater_lab.reproduce.page import Table
from headwater_lab.results import Record, record


class Row(NamedTuple):
    """Of one set-up and value: mean questions by method; trials with a topic that was wanted; needless yes by method,
    and topics that were wanted and denied."""

    setup: str
    parameter: str
    value: float
    probes: tuple[float, ...]
    trials: int
    wanted: int
    needless: tuple[int, ...]
    denied: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.setup}/{self.parameter}={self.value:g}"


def rows(points: Sequence[Point], measured: Sequence[Measured]) -> list[Row]:
    by_row: dict[tuple[str, str, float], list[Measured]] = {}
    for point, each in zip(points, measured, strict=True):
        by_row.setdefault((point.setup, point.parameter, point.value), []).append(each)
    return [_row(key, several) for key, several in by_row.items()]


def _row(key: tuple[str, str, float], several: list[Measured]) -> Row:
    def count(which: bool) -> tuple[int, ...]:
        """Answers that are not what is so, of topics that are wanted, or not."""
        return tuple(
            sum(each.found[at] != which for each in several if each.is_wanted == which) for at in range(len(METHODS))
        )

    probes = tuple(fmean(each.probes[at] for each in several) for at in range(len(METHODS)))
    wanted = sum(each.is_wanted for each in several)
    return Row(*key, probes, len(several), wanted, count(False), count(True))


def records(found: Sequence[Row]) -> list[Record]:
    listed: list[Record] = []
    for row in found:
        for method, ours in zip(METHODS, row.probes, strict=True):
            name = f"{row.name}/{method}/probes"
            listed.append(record(name, PAPER.get(name), ours, "probes", 3))
    return listed


def tables(found: Sequence[Row]) -> list[Table]:
    made = []
    for setup, meaning in SETUPS.items():
        for parameter in dict.fromkeys(row.parameter for row in found):
            chosen = [row for row in found if (row.setup, row.parameter) == (setup, parameter)]
            if not chosen:
                continue
            lines = [(f"{row.value:g}", *(_figure(row, at) for at in range(len(METHODS)))) for row in chosen]
            title = f"figure {FIGURES[setup]}, set-up {setup} ({meaning}): mean questions for one topic, by {parameter}"
            made.append(Table(title, (parameter, *METHODS), lines))
    return made


def _figure(row: Row, at: int) -> str:
    paper = PAPER.get(f"{row.name}/{METHODS[at]}/probes")
    ours = f"{row.probes[at]:,.1f}"
    return ours if paper is None else f"{ours} (paper {paper:,.1f})"
