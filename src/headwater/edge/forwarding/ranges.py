"""Sets of positions as ranges: what is owed to the other side, and what of it is in memory.

A range is half open, `start` ≤ position < `stop`; they lie in order, and never touch each other. So neighbours that are
added one by one are one range, and a set costs memory by its gaps, however many positions it has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class Ranges:
    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __len__(self) -> int:
        """How many ranges."""
        return len(self._starts)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._starts, position)
        return at > 0 and position < self._stops[at - 1]

    @property
    def first(self) -> int | None:
        return self._starts[0] if self._starts else None

    def count(self) -> int:
        """How many positions."""
        return sum(self._stops) - sum(self._starts)

    def add(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        low = bisect_left(self._stops, start)
        high = bisect_right(self._starts, stop)
        if low < high:
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def remove(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        low = bisect_right(self._stops, start)
        high = bisect_left(self._starts, stop)
        if low >= high:
            return
        left = [(self._starts[low], start)] if self._starts[low] < start else []
        right = [(stop, self._stops[high - 1])] if self._stops[high - 1] > stop else []
        kept = left + right
        self._starts[low:high] = [each[0] for each in kept]
        self._stops[low:high] = [each[1] for each in kept]

    def within(self, start: int, stop: int) -> list[Range]:
        """The parts that lie there."""
        low, high = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        parts = zip(self._starts[low:high], self._stops[low:high], strict=True)
        return [(max(start, each), min(stop, end)) for each, end in parts]

    def first_outside(self, other: Ranges) -> Range | None:
        """The first stretch that the other set has nothing of."""
        for start, stop in zip(self._starts, self._stops, strict=True):
            begin = start
            for taken, end in other.within(start, stop):
                if taken > begin:
                    return begin, taken
                begin = end
            if begin < stop:
                return begin, stop
        return None

    def without(self, other: Ranges) -> Ranges:
        left = Ranges(self)
        for start, stop in other:
            left.remove(start, stop)
        return left


def union(sets: Iterable[Ranges]) -> Ranges:
    """What any of them has."""
    return Ranges(each for ranges in sets for each in ranges)
