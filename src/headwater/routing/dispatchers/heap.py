"""A heap of lines whose places are known, so that any of them can be moved or taken out in O(log n)."""

from __future__ import annotations

from headwater.routing.dispatchers.line import Line


def _before(one: Line, other: Line) -> bool:
    if one.level != other.level:
        return one.level < other.level
    return one.key < other.key


class LineHeap:
    """The first line is the one of the lowest level, and there of the lowest key. A line is in one heap at most."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        line.heap = self
        line.place = len(self.lines)
        self.lines.append(line)
        self._rise(line)

    def remove(self, line: Line) -> None:
        last = self.lines.pop()
        line.heap = None
        if last is not line:
            last.place = line.place
            self.lines[line.place] = last
            self.moved(last)

    def moved(self, line: Line) -> None:
        """Its level or key has changed."""
        at = line.place
        self._rise(line)
        if line.place == at:
            self._sink(line)

    def _rise(self, line: Line) -> None:
        lines = self.lines
        at = line.place
        while at > 0:
            above = lines[(at - 1) >> 1]
            if not _before(line, above):
                break
            lines[at] = above
            above.place, at = at, above.place
        lines[at] = line
        line.place = at

    def _sink(self, line: Line) -> None:
        lines = self.lines
        count = len(lines)
        at = line.place
        while True:
            below = 2 * at + 1
            if below >= count:
                break
            if below + 1 < count and _before(lines[below + 1], lines[below]):
                below += 1
            lower = lines[below]
            if not _before(lower, line):
                break
            lines[at] = lower
            lower.place, at = at, below
        lines[at] = line
        line.place = at
