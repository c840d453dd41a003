"""Whether this node is part of the cluster that goes on: linked with a majority of the members, and since when.

Members are those that have ever been linked and were not forgotten, dead ones included. A majority is more than half of
them; of two halves, the one with the smallest node id. Two groups of nodes that have no node in common cannot both be
one, as long as they have the same members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headwater.message import NEVER

GAP: Final = 3.0
"""Heartbeats without one of our own after which this node has been stopped: who knows what the others did."""


class Quorum:
    """`others` are the other members now."""

    def __init__(self, node: str, others: Callable[[], Iterable[str]], heartbeat: float, now: float) -> None:
        self.node = node
        self.linked: set[str] = set()
        self._others = others
        self._heartbeat = heartbeat
        self._started = now
        self._down: dict[str, float] = {}
        self._last_beat = now
        self.since = NEVER
        """Since when this node has been linked with a majority, and has run; NEVER: it is not."""
        self.look(now)

    def link_up(self, node: str, now: float) -> None:
        self.linked.add(node)
        self._down.pop(node, None)
        self.look(now)

    def link_down(self, node: str, now: float) -> None:
        self.linked.discard(node)
        self._down[node] = now
        self.look(now)

    def forgotten(self, node: str, now: float) -> None:
        self._down.setdefault(node, now)
        self.look(now)

    def beat(self, now: float) -> None:
        if now - self._last_beat > GAP * self._heartbeat:
            self.since = NEVER
        self._last_beat = now
        self.look(now)
        self._down = {node: since for node, since in self._down.items() if now - since < 86400.0}

    def look(self, now: float) -> None:
        if not self.is_majority({self.node, *self.linked}):
            self.since = NEVER
        elif self.since == NEVER:
            self.since = now

    def is_majority(self, nodes: set[str]) -> bool:
        members = {self.node, *self._others()}
        found = 2 * len(nodes & members)
        return found > len(members) or (found == len(members) and min(members) in nodes)

    def down_since(self, node: str) -> float:
        """NEVER: it is linked."""
        return NEVER if node in self.linked else self._down.get(node, self._started)
