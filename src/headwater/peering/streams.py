"""One node's interest as a stream of numbered steps, wherever it is held: at the node, at its peers, at relays.

The node itself numbers the steps of each of its lives (`Stamp`: boot, number). A step is a change by its method, other
neighbours, or everything anew. Whoever has a stamp and gets the next step has the next stamp; the last steps are kept
for those who missed some, and everything can be had at any time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.peering.frames.frame import (
    NOTHING,
    PART,
    Change,
    InterestFrame,
    Neighbours,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
)
from headwater.peering.methods.method import Announcement, Hearing

KEPT_STEPS: Final = 256
KEPT_BYTES: Final = 1 << 20
"""Of steps that are kept for those who missed some; beyond, they get everything."""


class Stream:
    """`content` is None while nothing is known for sure; whoever is in `doubts` is sending something newer."""

    def __init__(self, origin: str, stamp: Stamp = NOTHING, content: Announcement | Hearing | None = None) -> None:
        self.origin = origin
        self.stamp = stamp
        self.content = content
        self.neighbours: tuple[str, ...] = ()
        self.doubts: set[str] = set()
        self._steps: deque[Change | Neighbours] = deque()
        self._bytes = 0

    @property
    def is_sure(self) -> bool:
        return self.content is not None and not self.doubts

    def begin(self, stamp: Stamp, content: Announcement | Hearing, neighbours: tuple[str, ...]) -> None:
        """Everything anew."""
        self.stamp = stamp
        self.content = content
        self.neighbours = neighbours
        self._steps.clear()
        self._bytes = 0

    def lose(self) -> None:
        """What is here is no good."""
        self.stamp = NOTHING
        self.content = None
        self._steps.clear()
        self._bytes = 0

    def step(self, frame: Change | Neighbours) -> None:
        """What has been applied."""
        self.stamp = frame.stamp
        if isinstance(frame, Neighbours):
            self.neighbours = frame.neighbours
        self._steps.append(frame)
        self._bytes += _size(frame)
        while len(self._steps) > KEPT_STEPS or self._bytes > KEPT_BYTES:
            self._bytes -= _size(self._steps.popleft())

    def missing(self, since: Stamp) -> list[InterestFrame]:
        """What somebody who has that much lacks; nothing, if there is nothing to be had here."""
        if self.content is None or since >= self.stamp:
            return []
        if since.boot == self.stamp.boot and self._steps and self._steps[0].stamp.number <= since.number + 1:
            return [step for step in self._steps if step.stamp.number > since.number]
        data = self.content.whole()
        begin = StateBegin(self.origin, self.stamp, self.content.method, self.neighbours, len(data))
        return [begin, *(StatePart(data[at : at + PART]) for at in range(0, len(data), PART)), StateEnd()]

    def wants(self, topic: str) -> bool:
        """Yes while it is not sure."""
        content = self.content
        return not isinstance(content, Hearing) or bool(self.doubts) or content.wants(topic)


def _size(frame: Change | Neighbours) -> int:
    return len(frame.data) if isinstance(frame, Change) else 32 * len(frame.neighbours)
