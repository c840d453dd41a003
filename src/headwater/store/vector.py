"""Positions of several stores as one cursor, and the order in which their messages are one stream.

Theory. A position means something in its own store only, so how far somebody has come in many is one position for
each. Each store's messages stay in the order of their positions; between stores the earlier arrival comes first, and
of two that arrived at the same moment the one whose store's id is less. Clocks of two nodes may differ, so arrivals
alone could put what a topic's new store has before the rest of what its old one had: precedences (`directory.py`) hold
the new store back until the old one has passed the position of the move. What can be said depends on the heads of all
stores, so a merge that lacks one store's next message says so instead of guessing.

A cursor is written `id:position,id:position`, in the order of the ids, and fits into an address.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headwater.store.directory import Precedence

MOST_STORES: Final = 32
"""Of a cursor, and so of one question that is answered from many."""
LARGEST: Final = (1 << 63) - 1
ONE: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}:[0-9]{1,19}"
PATTERN: Final = re.compile(rf"{ONE}(,{ONE})*,?")
LONGEST: Final = MOST_STORES * (64 + 1 + 19 + 1)
"""Characters."""

Vector = dict[str, int]
"""For each store the last position that somebody has; 0: none."""
Row = Mapping[str, Any]
"""A message as JSON has it; `position` and `arrival` are looked at."""


class MalformedVector(ValueError):
    """The text says why."""


def written(vector: Mapping[str, int]) -> str:
    """A cursor of a single store ends with a comma, so that it is told from a position."""
    parts = [f"{id}:{position}" for id, position in sorted(vector.items())]
    return f"{parts[0]}," if len(parts) == 1 else ",".join(parts)


def is_vector(text: str) -> bool:
    """Whether it was meant as one: positions have no comma."""
    return "," in text


def vector_of(text: str) -> Vector:
    """Raises MalformedVector."""
    if len(text) > LONGEST:
        raise MalformedVector(f"a cursor has at most {MOST_STORES} stores, and {LONGEST} characters")
    if not PATTERN.fullmatch(text):
        raise MalformedVector("a cursor is written id:position,id:position")
    found: Vector = {}
    for part in text.rstrip(",").split(","):
        id, _, number = part.partition(":")
        if id in found:
            raise MalformedVector(f"the cursor names the store {id} twice")
        found[id] = int(number)
        if found[id] > LARGEST:
            raise MalformedVector(f"the position of the store {id} is beyond any position")
    if len(found) > MOST_STORES:
        raise MalformedVector(f"a cursor has at most {MOST_STORES} stores")
    return found


class Merge:
    """Messages of many stores as one stream. `begin` says behind which position each store begins, if it is known."""

    def __init__(
        self, stores: Iterable[str], precedences: Iterable[Precedence] = (), begin: Mapping[str, int] | None = None
    ) -> None:
        begin = begin or {}
        self._rows: dict[str, deque[Row]] = {id: deque() for id in sorted(stores)}
        self._ends: dict[str, int] = {}
        self._later: dict[str, list[Precedence]] = {}
        for each in precedences:
            if each.earlier in self._rows and each.later in self._rows:
                self._later.setdefault(each.later, []).append(each)
        self.vector: Vector = {id: begin.get(id, 0) for id in self._rows}
        """How far each store's messages have been taken."""

    def give(self, store: str, rows: Sequence[Row], end: int | None = None) -> None:
        """More of a store, in the order of positions. `end`: there is no more, up to this position, which is 0 if that
        is not known."""
        waiting = self._rows[store]
        if rows and not waiting and not self.vector[store]:
            self.vector[store] = rows[0]["position"] - 1  # what is before is not among what was asked for
        waiting.extend(rows)
        if end is not None:
            self._ends[store] = end
            self._pass_end(store)

    def lacking(self) -> list[str]:
        """The stores that have to give more before anything can be taken."""
        return [id for id, rows in self._rows.items() if not rows and id not in self._ends]

    @property
    def is_over(self) -> bool:
        """Nothing is left, and nothing is to come."""
        return not self.lacking() and not any(self._rows.values())

    def take(self) -> tuple[str, Row] | None:
        """The next message and its store; None: there is none before the lacking stores have given more."""
        if self.lacking():
            return None
        heads = [(rows[0]["arrival"], id) for id, rows in self._rows.items() if rows]
        if not heads:
            return None
        free = [each for each in heads if not self._is_held(each[1])]
        _, store = min(free or heads)  # precedences in a circle are those of a wrong directory: they do not hold
        row = self._rows[store].popleft()
        self.vector[store] = row["position"]
        self._pass_end(store)
        return store, row

    def _is_held(self, store: str) -> bool:
        position = self._rows[store][0]["position"]
        return any(
            position >= each.first
            and bool(self._rows[each.earlier])
            and self._rows[each.earlier][0]["position"] <= each.last
            for each in self._later.get(store, ())
        )

    def _pass_end(self, store: str) -> None:
        """Of what was asked for there is nothing between the last message and the end."""
        if not self._rows[store] and store in self._ends:
            self.vector[store] = max(self.vector[store], self._ends[store])
