"""A heap of lines whose places are known, so that any of them can be moved or taken out in O(log n)."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headwater.routing.dispatchers.line import NOWHERE, Line


def _before(one: Line, other: Line) -> bool:
    if one.level != other.level:
        return one.level < other.level
    return one.key < other.key


@final
class LineHeap:
    """The first line is the one of the lowest level, and there of the lowest key. A line is in one heap at most."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        line.place = len(self.lines)
        self.lines.append(line)
        self._rise(line)

    def remove(self, line: Line) -> None:
        last = self.lines.pop()
        place = line.place
        line.place = NOWHERE
        if last is not line:
            last.place = place
            self.lines[place] = last
            self.moved(last)

    def moved(self, line: Line) -> None:
        """Its level or key has changed."""
        at = line.place
        self._rise(line)
        if line.place == at:
            self._sink(line)

    def _rise(self, line: Line) -> None:
        at = line.place
        if at == 0:
            return
        lines = self.lines
        while at > 0:
            up: i64 = (at - 1) >> 1
            above = lines[up]
            if not _before(line, above):
                break
            lines[at] = above
            above.place = at
            at = up
        lines[at] = line
        line.place = at

    def _sink(self, line: Line) -> None:
        lines = self.lines
        count: i64 = len(lines)
        at = line.place
        below: i64 = 2 * at + 1
        while below < count:
            lower = lines[below]
            if below + 1 < count:
                other = lines[below + 1]
                if _before(other, lower):
                    lower = other
                    below += 1
            if not _before(lower, line):
                break
            lines[at] = lower
            lower.place = at
            at = below
            below = 2 * at + 1
        lines[at] = line
        line.place = at
