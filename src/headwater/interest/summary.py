"""A summary that changes: the filters of this broker's own clients.

Theory. `Ledger` knows every fact and how many filters it is of; lines are made from it. A new fact sets its bits; one
that is of no filter any more has its line made again. When more bits are set than the rate of false positives allows
(`sizing`), or a search may meet more facts by mistake than was thought, all lines are made again, more of them. A large
summary grows in small steps, as its size is what others have to keep.

`changed` says which lines are not as they were when somebody last asked what has changed (`sharing`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from headwater.interest.filter import MOST_PROBES, Incompatible, Interest, Owned, Statistics
from headwater.interest.hashing import extended, level_hash
from headwater.interest.ledger import Ledger
from headwater.interest.lines import END, LITERAL, PLUS, REST, fact_hash, line_of, set_positions
from headwater.interest.shared_summary import SharedSummary
from headwater.interest.sizing import capacity, geometry
from headwater.routing.topics import split_shared

RATE: Final = 0.001
LARGE: Final = 4096
"""Lines from which on a summary grows in small steps."""
ROOM: Final = 1.5
ROOM_IF_LARGE: Final = 1.12
"""Who keeps it in step is told all of it each time that it grows: with 1.05, three to five times the bytes of the
filters' texts; with 1.12, about twice, and it is 7 % larger at most."""
SHRINK: Final = 8
"""A summary that could be so many times smaller becomes so."""
KINDS: Final = (LITERAL, PLUS, REST, END)
_PLACE: Final = {kind: at for at, kind in enumerate(KINDS)}


class Fact:
    """That prefixes of `depth` levels, in the line that `home` chooses, have what `kind` says; `hash` is all of it."""

    __slots__ = ("depth", "hash", "home", "kind")

    def __init__(self, depth: int, kind: int, home: int, hash: int) -> None:
        self.depth = depth
        self.kind = kind
        self.home = home
        self.hash = hash


class Summary(SharedSummary, Owned):
    """`p` is the rate of false positives of a look-up; `expected` filters are made room for at once. Summaries that are
    to be merged have the same `seed`; otherwise nobody should know it."""

    def __init__(
        self, expected: int = 0, p: float = RATE, seed: int | None = None, most_probes: int = MOST_PROBES
    ) -> None:
        self.p = p
        self.filters = 0
        self.generation = 0
        """Changes when all lines are made again."""
        self.changed: dict[int, bytes] = {}
        """Lines that are not what they were, and what that was."""
        self._tests = 1
        self._expected = expected
        made = geometry(expected, expected, self._tests, p)
        self._least_lines = made.lines
        super().__init__(secrets.randbits(60) if seed is None else seed, made, b"\0", most_probes)
        self._ledger = Ledger(made.lines)
        self._inner = 0
        self._terminal = 0
        self._counts: list[int] = [0] * len(KINDS)
        """For each number of levels and each kind, of how many filters there is such a fact."""
        self._is_kind_new = False
        self._is_loading = False
        self._expected_tests = 1
        self._room = self._capacity()

    # ---- filters -----------------------------------------------------------------------------------------------

    def add(self, filter: str) -> None:
        for fact in self._facts(filter):
            self._count_kind(fact, 1)
            self._add_fact(fact.home, fact.hash, 1)
        self.filters += 1
        self._set_kinds_if_needed()
        self._grow_if_needed()

    def add_all(self, filters: Iterable[str]) -> None:
        """As `add` does, for many: lines are made once, at the end, and not as bits of them come."""
        self._is_loading = True
        try:
            for filter in filters:
                self.add(filter)
        finally:
            self._is_loading = False
            self._make_lines()

    def remove(self, filter: str) -> None:
        """The last fact is the filter's own: whoever has it has the others."""
        for fact in reversed(self._facts(filter)):
            line = int(line_of(fact.home, self.geometry.lines))
            left = self._ledger.change(line, fact.home, fact.hash, -1)
            self._count_kind(fact, -1)
            if left == 0:
                self._note_size(fact.hash, -1)
                self._put(line, self._ledger.line(line, self.geometry.inner, self.geometry.terminal))
        self.filters -= 1
        self._set_kinds_if_needed()
        if self.geometry.lines > self._least_lines and self._bits() * SHRINK < self._room:
            self._resize()

    def merge(self, other: Interest) -> None:
        """Another one that changes; this one then has the filters of both."""
        if not isinstance(other, Summary) or other.seed != self.seed:
            raise Incompatible("a summary takes the filters of another only if that has the same seed")
        for home, hash, count in list(other._ledger.records()):
            self._add_fact(home, hash, count)
        self._counts.extend([0] * (len(other._counts) - len(self._counts)))
        for at, count in enumerate(other._counts):
            self._counts[at] += count
        self.filters += other.filters
        self._is_kind_new = True
        self._set_kinds_if_needed()
        self._grow_if_needed()

    def _facts(self, filter: str) -> list[Fact]:
        _, inner = split_shared(filter)
        prefix = self._root
        home = prefix >> 30
        lies_with_parent = False
        found = []
        for depth, level in enumerate(inner.encode().split(b"/")):
            kind = REST if level == b"#" else PLUS if level == b"+" else LITERAL
            found.append(Fact(depth, kind, home, int(fact_hash(prefix, kind))))
            if kind == REST:
                return found
            prefix = int(extended(prefix, level_hash(level, self.seed)))
            lies_with_parent = kind == PLUS and not lies_with_parent
            if not lies_with_parent:
                home = prefix >> 30
        found.append(Fact(len(found), END, home, int(fact_hash(prefix, END))))
        return found

    def _add_fact(self, home: int, hash: int, count: int) -> None:
        line = int(line_of(home, self.geometry.lines))
        if self._ledger.change(line, home, hash, count) > count:
            return
        self._note_size(hash, 1)
        if self._is_loading:
            return
        bits = list(self.lines.line(line))
        set_positions(bits, hash, self.geometry.terminal if hash & 1 else self.geometry.inner)
        self._put(line, bytes(bits))

    def _put(self, number: int, line: bytes) -> None:
        before = self.lines.line(number)
        if before != line:
            self.changed.setdefault(number, before)
            self.lines.put(number, line)
            self.forget_answers()

    # ---- what there is at which level --------------------------------------------------------------------------

    def _count_kind(self, fact: Fact, by: int) -> None:
        at = fact.depth * len(KINDS) + _PLACE[fact.kind]
        if at >= len(self._counts):
            self._counts.extend([0] * (at // len(KINDS) * len(KINDS) + len(KINDS) - len(self._counts)))
        before = self._counts[at]
        self._counts[at] = before + by
        if not before or before + by == 0:
            self._is_kind_new = True

    def _set_kinds_if_needed(self) -> None:
        if not self._is_kind_new:
            return
        self._is_kind_new = False
        counts = self._counts
        while len(counts) > len(KINDS) and not any(counts[-len(KINDS) :]):
            del counts[-len(KINDS) :]
        found = []
        for at in range(0, len(counts), len(KINDS)):
            found.append(sum(kind for kind, count in zip(KINDS, counts[at : at + len(KINDS)], strict=True) if count))
        self.kinds = bytes(found)
        self._expected_tests = _expected_tests(self.kinds)
        self.forget_answers()

    # ---- size --------------------------------------------------------------------------------------------------

    def _note_size(self, hash: int, by: int) -> None:
        if hash & 1:
            self._terminal += by
        else:
            self._inner += by

    def _bits(self) -> int:
        return self._inner * self.geometry.inner + self._terminal * self.geometry.terminal

    def _capacity(self) -> int:
        share = self._terminal / max(1, self._inner + self._terminal)
        return capacity(self.geometry, self._tests, self.p, share)

    def _grow_if_needed(self) -> None:
        if self._expected_tests > self._tests:
            self._resize()
        elif self._bits() > self._room:
            self._room = self._capacity()
            if self._bits() > self._room:
                self._resize()

    def _resize(self) -> None:
        while self._tests < self._expected_tests:
            self._tests *= 2
        room = ROOM_IF_LARGE if self.geometry.lines > LARGE else ROOM
        inner, terminal = max(self._expected, self._inner * room), max(self._expected, self._terminal * room)
        made = geometry(int(inner), int(terminal), self._tests, self.p)
        if made != self.geometry:
            self.geometry = made
            self._ledger.resize(made.lines)
            if not self._is_loading:
                self._make_lines()
        self._room = max(self._capacity(), self._bits())

    def _make_lines(self) -> None:
        lines, inner, terminal = self.geometry
        self.lines.fill([self._ledger.line(number, inner, terminal) for number in range(lines)])
        self.changed.clear()
        self.generation += 1
        self.forget_answers()

    def statistics(self) -> Statistics:
        shared = super().statistics()
        ledger = sum(map(getsizeof, self._ledger.buckets)) + getsizeof(self._ledger.buckets)
        return shared._replace(
            filters=self.filters, elements=self._inner + self._terminal, kept_bytes=shared.kept_bytes + ledger
        )


def _expected_tests(kinds: bytes) -> int:
    """Facts that a search which finds nothing asks for and that would end it, roughly: one at each level that has some,
    two behind a level with `+`, where there are two prefixes to stand on."""
    tests = 0
    paths = 1
    for kind in kinds:
        tests += paths if kind & REST else 0
        paths = 2 if kind & PLUS else paths
    return tests + paths
