"""A heap of queues whose places are known, so that any of them can be moved or taken out in O(log n)."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headwater.routing.dispatchers.member_queue import NOWHERE, MemberQueue


def _before(one: MemberQueue, other: MemberQueue) -> bool:
    if one.level != other.level:
        return one.level < other.level
    return one.key < other.key


@final
class LineHeap:
    """The first queue is the one of the lowest level, and there of the lowest key. A queue is in one heap at most."""

    def __init__(self) -> None:
        self.queues: list[MemberQueue] = []

    def add(self, queue: MemberQueue) -> None:
        queue.place = len(self.queues)
        self.queues.append(queue)
        self._rise(queue)

    def remove(self, queue: MemberQueue) -> None:
        last = self.queues.pop()
        place = queue.place
        queue.place = NOWHERE
        if last is not queue:
            last.place = place
            self.queues[place] = last
            self.moved(last)

    def moved(self, queue: MemberQueue) -> None:
        """Its level or key has changed."""
        at = queue.place
        self._rise(queue)
        if queue.place == at:
            self._sink(queue)

    def _rise(self, queue: MemberQueue) -> None:
        at = queue.place
        if at == 0:
            return
        queues = self.queues
        while at > 0:
            up: i64 = (at - 1) >> 1
            above = queues[up]
            if not _before(queue, above):
                break
            queues[at] = above
            above.place = at
            at = up
        queues[at] = queue
        queue.place = at

    def _sink(self, queue: MemberQueue) -> None:
        queues = self.queues
        count: i64 = len(queues)
        at = queue.place
        below: i64 = 2 * at + 1
        while below < count:
            lower = queues[below]
            if below + 1 < count:
                other = queues[below + 1]
                if _before(other, lower):
                    lower = other
                    below += 1
            if not _before(lower, queue):
                break
            queues[at] = lower
            lower.place = at
            at = below
            below = 2 * at + 1
        queues[at] = queue
        queue.place = at
