"""What is to be forwarded and how, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headwater.edge.forwarding.lanes import NOT_OURS, Bounds
from headwater.routing.topics import matches

MOST_TOPICS = 65_536
"""Topics whose class is remembered."""


@dataclass(frozen=True)
class Wishes:
    """`priorities` are filters, the most urgent first; what matches none of them comes last. `rate` and `rate_bytes`
    bound a backlog, a second; `delay` is what it may add to the way of others. `start`: with what the store has, or
    with what comes from now on, if the forward is new."""

    filters: tuple[str, ...] = ("#",)
    priorities: tuple[str, ...] = ()
    qos: Literal[1, 2] = 1
    rate: float | None = None
    rate_bytes: float | None = None
    delay: float = 0.1
    start: Literal["first", "next"] = "first"
    retry_for: float = 86_400.0
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def only(self) -> str | None:
        """What a store is asked for: one filter, or all."""
        return self.filters[0] if len(self.filters) == 1 else None

    def filter_of(self, urgency: int) -> str | None:
        """The same for messages of one class."""
        return self.priorities[urgency] if urgency < len(self.priorities) else self.only


class Classes:
    """The class of a topic, found once."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= MOST_TOPICS:
                self._known.clear()
            found = self._known[topic] = self._find(topic)
        return found

    def _find(self, topic: str) -> int:
        wishes = self._wishes
        if not any(matches(filter, topic) for filter in wishes.filters):
            return NOT_OURS
        for urgency, filter in enumerate(wishes.priorities):
            if matches(filter, topic):
                return urgency
        return len(wishes.priorities)


@dataclass
class Counts:
    """Since the start. `sent_again`: was under way when the line broke or the process ended, so the target may have
    had it. `skipped` was not for the target, or not any more, by why."""

    forwarded: int = 0
    bytes_forwarded: int = 0
    sent_again: int = 0
    refused: int = 0
    given_up: int = 0
    lost: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
