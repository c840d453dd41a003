"""Messages on their way into a store, in the order of their positions.

The loop that serves clients adds to columns, so that a message costs it some appends and no object of its own; the
thread that commits takes all that has come since its last commit.
"""

from __future__ import annotations

from typing import Final

RETAIN: Final = 4
"""Beside the QoS in a message's flags."""


class Taken:
    """Messages as columns of equal length. The first has position `first`, the others follow without gaps."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.topics: list[bytes] = []
        """UTF-8, as on the wire."""
        self.payloads: list[bytes] = []
        self.flags: list[int] = []
        self.publishers: list[str] = []
        self.arrivals: list[int] = []
        """Microseconds since 1970."""
        self.optional: dict[str, dict[int, bytes]] = {}
        """Optional columns by name (columns.py), by the index of the message; most messages have none."""
        self.size = 0

    def __len__(self) -> int:
        return len(self.topics)


class Intake:
    """`next` is the position that the next message gets."""

    def __init__(self, next: int) -> None:
        self.next = next
        self.taken = Taken(next)

    def take(
        self,
        topic: bytes,
        payload: bytes,
        flags: int,
        publisher: str,
        arrival: int,
        optional: dict[str, bytes] | None = None,
    ) -> int:
        """A message; returns its position, which holds once it is on disk. `optional`: what it has of such columns."""
        taken = self.taken
        if optional:
            for name, piece in optional.items():
                taken.optional.setdefault(name, {})[len(taken.topics)] = piece
                taken.size += len(piece)
        taken.topics.append(topic)
        taken.payloads.append(payload)
        taken.flags.append(flags)
        taken.publishers.append(publisher)
        taken.arrivals.append(arrival)
        taken.size += len(topic) + len(payload) + 100
        position = self.next
        self.next = position + 1
        return position

    def hand_over(self) -> Taken | None:
        """All that has been taken since the last time; None if that is nothing."""
        taken = self.taken
        if not taken.topics:
            return None
        self.taken = Taken(self.next)
        return taken
