"""Rows of the table of advice, and the documents in them. Needs nothing but the standard library.

Theory. A job may be killed between making advice and sending it, and does the batch again then. So advice is a function
of its batch and nothing else: its number is the sum of the positions that the batch was made up to, which only grows,
its time is that of the data, and its bytes are the same whenever it is made. Nodes ignore a number that is not newer.
If a store is taken away the sum falls; nodes then take no advice until what they have has expired.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

VERSION: Final = 1
WEIGHTS: Final = "weights"
SPLIT: Final = "split"
TREE: Final = "tree"
KEYS: Final = {WEIGHTS: "weights", SPLIT: "parts", TREE: "tree"}
"""What is advised stands under this key of the document."""

Row = dict[str, Any]
"""With the columns of ADVICE."""


@dataclass(frozen=True)
class Basis:
    """What a batch of advice is made from: all up to these `positions` by store, and up to `made` by the clock of the
    data, not by that of who makes it."""

    positions: Mapping[str, int]
    made: datetime

    def __post_init__(self) -> None:
        if self.made.tzinfo is None:
            raise ValueError(f"{self.made!r} has no time zone; say it, such as datetime(2026, 1, 31, tzinfo=UTC)")
        if any(type(each) is not int or each < 0 for each in self.positions.values()) or self.number < 1:
            raise ValueError(f"{dict(self.positions)!r} are no positions: whole numbers by store, not all of them 0")

    @property
    def number(self) -> int:
        return sum(self.positions.values())


@dataclass(frozen=True)
class Proposal:
    """Of kind and subject: what to do, and why in words and figures."""

    kind: str
    subject: str
    content: Any
    why: str


def row_of(proposal: Proposal, basis: Basis, life: float) -> Row:
    document = {
        "version": VERSION,
        "number": basis.number,
        "made": basis.made.isoformat(),
        "expires": (basis.made + timedelta(seconds=life)).isoformat(),
        KEYS[proposal.kind]: proposal.content,
        "why": proposal.why,
    }
    return {
        "made": basis.made,
        "kind": proposal.kind,
        "subject": proposal.subject,
        "advice": json.dumps(document, sort_keys=True, ensure_ascii=False),
        "why": proposal.why,
        "number": basis.number,
    }


def newest(rows: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Row]:
    """Of each subject the row with the greatest number."""
    found: dict[str, Row] = {}
    for row in rows:
        known = found.get(row["subject"])
        if row["kind"] == kind and (known is None or known["number"] < row["number"]):
            found[row["subject"]] = dict(row)
    return found


def worth_saying(
    proposals: Iterable[Proposal],
    last: Mapping[str, Row],
    basis: Basis,
    life: float,
    differs: Callable[[Proposal, Any], bool],
) -> list[Row]:
    """Rows of the proposals that `differs` from what the last advice said (None: there is none that holds), or that
    renew it before it ends. A proposal that says no more than None would is not renewed."""
    rows = []
    for each in proposals:
        before = last.get(each.subject)
        said = None
        due = False
        if before is not None:
            document = json.loads(before["advice"])
            age = (basis.made - datetime.fromisoformat(document["made"])).total_seconds()
            holds = basis.made < datetime.fromisoformat(document["expires"])
            said = document[KEYS[each.kind]] if holds else None
            due = holds and age >= life / 2 and differs(each, None)
        if due or differs(each, said):
            rows.append(row_of(each, basis, life))
    return rows
