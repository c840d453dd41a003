"""What a subscription remembers of messages that it was sent, for `changed` and `limit`: by topic, and bounded.

Theory. Of each topic there are the values that were looked at and a window of time with the messages in it. Topics are
in the order in which they were last sent something. If there is no room for one more topic, the one that was sent
something longest ago is forgotten; if there is no room at all, nothing is remembered. Whatever is forgotten counts as
never sent: so more is let through than was asked for, and never less.

The bytes count in a budget that all memories of a node share.
"""

from __future__ import annotations

from typing import Final

from headwater.message import text_size
from headwater.routing.conditions.kept import LONGEST
from headwater.routing.conditions.values import ABSENT

MOST_TOPICS: Final = 10_000
"""Of one subscription."""
ENTRY: Final = 400
"""Bytes of the objects for one topic."""
VALUE: Final = 80 + LONGEST
"""Bytes of one value, at most but for wide characters."""
MEMORY: Final = 512
"""Bytes of a memory without topics."""


class MemoryBudget:
    """Bytes that may be used by all memories, and are."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.forgotten = 0
        """Topics that gave way to others, or were not remembered."""


class Sent:
    """Of one topic: the values of the last message that was let through, and those let through since `since`."""

    def __init__(self, size: int) -> None:
        self.values: list[object] = []
        self.since = 0.0
        self.count = 0
        self.size = size


class Memory:
    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.by_topic: dict[str, Sent] = {}

    def of(self, topic: str) -> Sent | None:
        return self.by_topic.get(topic)

    def sent(self, topic: str, values: list[object], window: float, now: float) -> None:
        """A message is let through; `window`: seconds of the limit, 0.0: there is none."""
        entry = self.by_topic.pop(topic, None)
        if entry is None:
            entry = self._new(topic, len(values))
            if entry is None:
                return
            entry.since = now
        self.by_topic[topic] = entry  # as the last one
        kept = entry.values
        # A field that this message does not have is compared with what it had before.
        entry.values = [
            kept[place] if value is ABSENT and place < len(kept) else value for place, value in enumerate(values)
        ]
        if window and not entry.since <= now < entry.since + window:
            entry.since = now
            entry.count = 0
        entry.count += 1

    def _new(self, topic: str, values: int) -> Sent | None:
        size = ENTRY + text_size(topic) + values * VALUE
        budget = self.budget
        while self.by_topic and (len(self.by_topic) >= MOST_TOPICS or budget.used + size > budget.limit):
            self._forget(next(iter(self.by_topic)))
            budget.forgotten += 1
        if budget.used + size > budget.limit:
            budget.forgotten += 1
            return None
        budget.used += size
        return Sent(size)

    def _forget(self, topic: str) -> None:
        entry = self.by_topic.pop(topic)
        self.budget.used -= entry.size

    def clear(self) -> None:
        """The subscription has ended."""
        for entry in self.by_topic.values():
            self.budget.used -= entry.size
        self.by_topic = {}
