"""How long publishers waited for PUBACK or PUBREC while a filter moved and nothing was wrong, and while none moved.

The time is that of the driver, which serves all clients in one thread: what it is late itself is in both.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from headwater_lab.chaos.history import Acknowledged, History, Sent
from headwater_lab.cluster_chaos.checker import Calm
from headwater_lab.cluster_chaos.world import stays
from headwater_lab.edge_chaos.moving import Moved

AFTER: Final = 0.1
"""Seconds after a move that still count as its own."""


class Waits(NamedTuple):
    """Seconds from PUBLISH to its acknowledgement."""

    moving: list[float]
    still: list[float]


def waits(history: History) -> Waits:
    moves = [(event.since, event.at + AFTER) for event in history.events if isinstance(event, Moved)]
    calm = calm_times(history)
    sent: dict[int, float] = {}
    times = Counter(event.message for event in history.events if isinstance(event, Sent))
    found = Waits([], [])
    for event in history.events:
        if isinstance(event, Sent):
            sent.setdefault(event.message, event.at)
        elif isinstance(event, Acknowledged) and times[event.message] == 1:
            since, until = sent[event.message], event.at
            if not stays(history.notes[event.message].publisher):
                continue
            if any(since < end and until > begin for begin, end in moves):
                found.moving.append(until - since)
            elif any(begin < since and until < end for begin, end in calm):
                found.still.append(until - since)
    return found


def calm_times(history: History) -> list[tuple[float, float]]:
    """When nothing was wrong, from when to when."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for event in history.events:
        if isinstance(event, Calm):
            if event.is_calm and since is None:
                since = event.at
            elif not event.is_calm and since is not None:
                found.append((since, event.at))
                since = None
    return found
