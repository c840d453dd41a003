"""How far this node has applied what a peer's spool owed it: the receiver's end of `spool.py`.

Theory. A run's messages have consecutive positions. `received` is the last one that was applied in memory; the record
(`spool`, `received`) goes into the same batch on disk as what follows from the messages: deliveries that sessions are
owed, entries in spools of other links, windows. `committed` is the last one that is on disk with all that; only that is
acknowledged, as the peer drops what is. A link that breaks is resumed behind `received`; a node that dies comes back
with `committed`, and gets the rest again.
"""

from __future__ import annotations

from headwater.peering.frames.frame import Ack, MalformedFrame, Resume, Run, Spool


class Applied:
    """Of one peer; with what was on disk, if there is something."""

    def __init__(self, spool: int = 0, position: int = 0) -> None:
        self.spool = spool
        self.received = position
        self._committed = position
        self._acknowledged = position
        self._is_begun = False

    def begin(self, greeting: Spool) -> Resume:
        """The link is up and the peer has said what it has; the answer to it. Raises MalformedFrame."""
        if greeting.first < 1:
            raise MalformedFrame(f"a spool that begins at {greeting.first}")
        if greeting.spool != self.spool or greeting.first > self.received + 1:
            # Another life of the peer's spool; or this node has lost what it had acknowledged.
            self.spool = greeting.spool
            self.received = self._committed = greeting.first - 1
        self._acknowledged = min(self._committed, greeting.first - 1)
        self._is_begun = True
        return Resume(self.spool, self.received)

    def cut(self) -> None:
        """The link is down; what is under way is committed all the same."""
        self._is_begun = False

    def known(self, run: Run) -> int:
        """How many of the run's messages, from its first on, have been applied already. Raises MalformedFrame if some
        are missing before it."""
        if run.position > self.received + 1:
            raise MalformedFrame(f"position {run.position} behind {self.received}")
        return min(run.messages, self.received + 1 - run.position)

    def take(self, run: Run) -> int:
        """As `known`; the others count as applied now."""
        known = self.known(run)
        self.received = max(self.received, run.position + run.messages - 1)
        return known

    def committed(self, position: int) -> None:
        """All up to there is on disk with what follows from it."""
        self._committed = max(self._committed, position)

    def due(self) -> Ack | None:
        """The acknowledgement that the peer lacks: to be sent once per turn. None before the link is resumed."""
        if not self._is_begun or self._committed <= self._acknowledged:
            return None
        self._acknowledged = self._committed
        return Ack(self._committed)
