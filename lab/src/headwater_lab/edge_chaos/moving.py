"""Splits and joins as they are ordered from outside: which, whether they were taken, and how far they are.

The driver never waits for an answer in one place: nodes answer in files, which are looked at between turns of the
clients. So orders may be given to a node that is about to die, or is stopped.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from headwater.edge.ownership import covers
from headwater.edge.status import EdgeStatus, decode
from headwater_lab.chaos.history import Event
from headwater_lab.edge_chaos.layout import FILTERS
from headwater_lab.edge_chaos.nodes import JOIN, EdgeNode, answered

JOINS: Final = 0.3
"""How often a filter is joined, if it can be."""


@dataclass(slots=True)
class Moved(Event):
    """A filter went to another node while nothing was wrong; `at` is when all was done, `since` when it was ordered."""

    filter: str
    node: str
    since: float


class Order:
    """To have a node own a filter; `to` may be JOIN."""

    def __init__(self, at: EdgeNode, filter: str, to: str) -> None:
        self.filter = filter
        self.to = to
        self._file: Path | None = None
        with contextlib.suppress(BrokenPipeError):  # it is dead, and nobody knows yet
            self._file = at.request("own", filter, to)

    def outcome(self) -> bool | None:
        """Whether it was taken; None: not answered yet, or never."""
        found = None if self._file is None else answered(self._file)
        return None if found is None else bool(found["done"])

    def text(self) -> str:
        found = None if self._file is None else answered(self._file)
        return "no answer" if found is None else str(found["text"])


class Settling:
    """Whether all nodes say that nothing is on its way, and the same of who owns what: asked again and again."""

    def __init__(self, nodes: list[EdgeNode]) -> None:
        self._nodes = nodes
        self._asked: list[Path] = []
        self.found: list[EdgeStatus] = []
        """What they said last."""

    def is_over(self) -> bool:
        if not self._asked:
            self._asked = [node.request("edge") for node in self._nodes]
            return False
        answers = [answered(file) for file in self._asked]
        if any(each is None for each in answers):
            return False
        for file in self._asked:
            file.unlink()
        self._asked = []
        self.found = [decode(each) for each in answers]
        return self.is_settled() and len({_owners(each) for each in self.found}) == 1

    def is_settled(self) -> bool:
        return not any(each.moves for each in self.found)

    def __str__(self) -> str:
        moves = {
            f"{each.filter} to {each.target} {each.step}, waits for {', '.join(each.waits_for) or 'nobody'}"
            for status in self.found
            for each in status.moves
        }
        if moves:
            return "; ".join(sorted(moves))
        return "; ".join(f"{each.node} says {dict(_owners(each))}" for each in self.found)


def _owners(status: EdgeStatus) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((each.filter, each.node) for each in status.ownership))


def choose(random: Random, status: EdgeStatus, deliver: list[str]) -> tuple[str, str]:
    """A filter that is not on its way, and a node that does not have it, or JOIN."""
    under_way = {each.filter for each in status.moves}
    filter = random.choice([each for each in FILTERS if each not in under_way] or FILTERS)
    owner = status.owner_of(filter)
    if owner and filter != "plant/#" and random.random() < JOINS:
        return filter, JOIN
    return filter, random.choice([node for node in deliver if node != owner])


def owners_now(status: EdgeStatus, filter: str) -> list[str]:
    """Nodes that have a filter, or the one around it."""
    exact = status.owner_of(filter)
    if exact:
        return [exact]
    return [each.node for each in status.ownership if covers(each.filter, filter)]
