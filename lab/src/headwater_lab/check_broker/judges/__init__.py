"""Judges: pure functions from a history to findings, each with how much it has looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headwater_lab.check_broker.history import Observation, Operation
from headwater_lab.check_broker.promises import Promise


@dataclass(slots=True)
class Finding:
    """What contradicts a promise: in words, and the entries that show it."""

    text: str
    entries: Sequence[Operation | Observation]


@dataclass(slots=True)
class Verdict:
    """`looked_at` counts what could have contradicted the promise; `undecided` says why something was not judged."""

    promise: Promise
    looked_at: int = 0
    findings: list[Finding] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    beside: dict[str, int] = field(default_factory=dict)
    """What was counted and is allowed."""

    def find(self, text: str, entries: Iterable[Operation | Observation]) -> None:
        self.findings.append(Finding(text, list(entries)))
