"""`flood`: a node wants everything. Nothing to keep or to tell; each node carries what is published at all of them.

Best where subscribers of most topics are everywhere. It is also what a node is taken for whose interest is too large.
"""

from __future__ import annotations

from typing import Final

from headwater.peering.methods.method import Announcement, Hearing, Told
from headwater.routing.feed import RouteChange

FLOOD: Final = "flood"


class FloodAnnouncement(Announcement):
    method = FLOOD

    def note(self, change: RouteChange, now: float) -> None:
        """It is wanted already."""

    def due(self, now: float) -> list[Told]:
        return []

    def whole(self) -> bytes:
        return b""


class FloodHearing(Hearing):
    method = FLOOD

    def take(self, told: Told) -> list[str] | None:
        """Anything: it may be the changes of a node whose interest was too large."""
        return []

    def whole(self) -> bytes:
        return b""

    def wants(self, topic: str) -> bool:
        return True
