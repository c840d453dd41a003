"""Names in their order, to which others are added and from which some are taken, a page of which costs what it holds.

Theory. A sorted list is cheap to read from any name on, and dear to add to: all behind has to move, and sorting a
million names keeps every other thread waiting for most of a second. So the names are in many short sorted lists, with
the last name of each in one more list; a name is found by two bisections and added by moving a thousand names at most
(the lower levels of a B-tree, as in Grant Jenks' sortedcontainers). Each step is short, so that threads take turns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 1000
"""Names of one list; a longer one is divided."""


class SortedNames:
    """Belongs to one thread at a time."""

    def __init__(self) -> None:
        self._lists: list[list[str]] = []
        self._last: list[str] = []
        """Of each list."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: str) -> None:
        """A name that is there already stays once."""
        if not self._lists:
            self._lists, self._last, self._count = [[name]], [name], 1
            return
        at = min(bisect_left(self._last, name), len(self._lists) - 1)
        names = self._lists[at]
        place = bisect_left(names, name)
        if place < len(names) and names[place] == name:
            return
        names.insert(place, name)
        self._count += 1
        self._last[at] = names[-1]
        if len(names) > LONGEST:
            half = len(names) // 2
            self._lists[at : at + 1] = [names[:half], names[half:]]
            self._last[at : at + 1] = [names[half - 1], names[-1]]

    def remove(self, name: str) -> None:
        """One that is not there is no error."""
        at = bisect_left(self._last, name)
        if at == len(self._lists):
            return
        names = self._lists[at]
        place = bisect_left(names, name)
        if names[place] != name:
            return
        del names[place]
        self._count -= 1
        if names:
            self._last[at] = names[-1]
        else:
            del self._lists[at], self._last[at]

    def behind(self, name: str, begin: str = "") -> Iterator[str]:
        """All behind the name, and from `begin` on, in order. Nothing may be changed meanwhile."""
        is_after = bool(name) and name >= begin
        start = name if is_after else begin
        at = bisect_left(self._last, start)
        if at == len(self._lists):
            return
        find = bisect_right if is_after else bisect_left
        names = self._lists[at]
        for index in range(find(names, start), len(names)):
            yield names[index]
        for names in self._lists[at + 1 :]:
            yield from names
