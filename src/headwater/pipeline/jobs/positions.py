"""Sets of positions as ranges, of each store: (first, last), ends included.

Needs nothing but the standard library: executors import it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

Range = tuple[int, int]
Ranges = dict[str, list[Range]]
"""Of each store, in order; they neither touch nor overlap."""


def union(ranges: Iterable[tuple[str, int, int]], within: int = 0) -> Ranges:
    """All positions of these; ranges with up to `within` positions between them are one, with those."""
    found: Ranges = {}
    for store, first, last in sorted(ranges):
        theirs = found.setdefault(store, [])
        if theirs and first <= theirs[-1][1] + 1 + within:
            theirs[-1] = (theirs[-1][0], max(last, theirs[-1][1]))
        else:
            theirs.append((first, last))
    return found


def without(ranges: Ranges, others: Mapping[str, Sequence[Range]]) -> Ranges:
    """The positions that are not among the others, which are in order, too."""
    found: Ranges = {}
    for store, theirs in ranges.items():
        gone = others.get(store, ())
        left: list[Range] = []
        at = 0
        for begin, last in theirs:
            first = begin
            while at < len(gone) and gone[at][1] < first:
                at += 1
            next = at
            while next < len(gone) and gone[next][0] <= last:
                if first < gone[next][0]:
                    left.append((first, gone[next][0] - 1))
                first = max(first, gone[next][1] + 1)
                next += 1
            if first <= last:
                left.append((first, last))
        if left:
            found[store] = left
    return found


def count(ranges: Mapping[str, Sequence[Range]]) -> int:
    return sum(last - first + 1 for theirs in ranges.values() for first, last in theirs)


def flat(ranges: Mapping[str, Sequence[Range]]) -> list[tuple[str, int, int]]:
    return [(store, first, last) for store, theirs in ranges.items() for first, last in theirs]


class Members:
    """Whether a position is in a set. Can be pickled."""

    def __init__(self, ranges: Mapping[str, Sequence[Range]]) -> None:
        self._firsts = {store: [first for first, _ in theirs] for store, theirs in ranges.items()}
        self._lasts = {store: [last for _, last in theirs] for store, theirs in ranges.items()}

    def has(self, store: str, position: int) -> bool:
        at = bisect_right(self._firsts.get(store, ()), position) - 1
        return at >= 0 and position <= self._lasts[store][at]

    def has_all(self, store: str, first: int, last: int) -> bool:
        """Whether all positions of a range are."""
        at = bisect_right(self._firsts.get(store, ()), first) - 1
        return at >= 0 and last <= self._lasts[store][at]
