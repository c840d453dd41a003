"""What both ends of a session's move need of the node that they are at (moving.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.node.links.end import PeerEnd
from headwater.node.plane.counters import SESSION_ENDED
from headwater.node.protocol.server import Server
from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.messages import Move
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.node.persistence.journal import Journal

MUCH: Final = 256 << 10
"""Bytes of messages, subscriptions or sessions that are said at once."""


class Moves:
    """`letter` sends one; `latest` is the latest claim of a client that is known; `progress` is called when a session
    that arrives may be ready for its client."""

    def __init__(
        self,
        server: Server,
        node: str,
        ends: dict[str, PeerEnd],
        letter: Callable[[str, said.Message], bool],
        latest: Callable[[str], Stamp],
        progress: Callable[[str], None],
    ) -> None:
        self.server = server
        self.node = node
        self.ends = ends
        self.letter = letter
        self.latest = latest
        self.progress = progress
        self.flush: Callable[[], None] = _nothing
        """Tells all nodes what clients here want, now."""
        self.left: dict[Move, str] = {}
        """Those that are under way from here, with where they go."""
        self.moved_in = 0
        self.moved_out = 0
        self.dropped = 0
        """Messages of sessions that began anew elsewhere before these could be delivered, or have ended."""

    @property
    def source(self) -> str:
        """Where what is being published comes from."""
        return self.server.came_from or self.node

    @property
    def journal(self) -> Journal | None:
        return self.server.journal

    def left_for(self, client_id: str) -> Stamp:
        """The claim by which a client's session is leaving, or none."""
        return max((each.stamp for each in self.left if each.client_id == client_id), default=NEVER_WRITTEN)

    def newer(self, move: Move) -> Stamp | None:
        """The latest claim of this client that is known, if it is later than that of the move."""
        found = max(self.latest(move.client_id), self.left_for(move.client_id))
        return found if found > move.stamp else None

    def drop(self, count: int) -> None:
        self.dropped += count
        self.server.stats.drops[SESSION_ENDED] += count

    def changed(self, session: Session) -> None:
        """Its move has gone on: for the disk."""
        if self.journal is not None:
            self.journal.session_changed(session)


def _nothing() -> None:
    pass
