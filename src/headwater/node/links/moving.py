"""A session moves to the node where its client is, and no message of QoS 1 or 2 is lost or delivered twice on the way.

Theory. While a session moves, both nodes have its subscriptions, so both get its messages: some by the old node alone,
some by both, in the end by the new one alone. A cut says which is whose, as in Chandy and Lamport's snapshots (1985),
with the streams of QoS 1 and 2 between nodes, which are in order and survive cuts and kills, as channels:

    old   freezes the session and writes it into letters to the new node: what leaves its disk is in the letters by the
          same commit. What still comes for it goes the same way.
    new   has the session with its subscriptions, tells all nodes of these (frames), and then asks all for the cut:
          Switch, a letter. Frames come before letters, so whoever gets the Switch knows the subscriptions.
    each  node P, old and new included, answers with a Marker in its stream to the old node, and one in that to the new
          one. What P published before is in front of both, what it publishes later is behind both.
    old   takes from P what is in front of its Marker, and nothing behind it; then it tells the new node that P's part
          is complete (Tail). Tails of all: End, and the session is forgotten here.
    new   takes from P nothing that is in front of its Marker; what is behind it waits for P's Tail.

So each message is taken at exactly one of the two, and in order. A node that cannot be reached marks its streams when
it is back: until then, what comes from it comes by the old node. If the old node cannot be reached, the same cut is
made for a session that begins anew at the new node (`cluster.session_lost = "clean"`), and what the old one has comes
when it is back: only messages then, because the client was told that its session is gone. Flights of QoS 2 are dropped
then, and counted: the client may have had them (known.py). So is all of QoS 2 where a third session may have had it.

A session moves on before all is over, since a node may be away for long: it is enough that nothing is missing of the
nodes that are linked. What is open of the earlier move stays with the node in the middle: it passes on what the first
one still has, and says that a node's part is complete when both are. A node marks its streams for the earlier move
first, whichever Switch comes first: so no message is taken twice.

A crash in the middle of a move finds it on disk, with the session (`record`). Held messages are on disk with the
others of the session, so after such a crash they may come before what the old node still has.
"""

from __future__ import annotations

from typing import Any, cast

from headwater.node.links.arriving import Arrivals, move_in
from headwater.node.links.departing import Departures
from headwater.node.links.moves import Moves
from headwater.peering.sessions.messages import Marker, Switch
from headwater.session.session import RecoveredMove


class Moving:
    """All moves that this node has a part in."""

    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self.departures = Departures(moves)
        self.arrivals = Arrivals(moves, self.departures)

    def start(self) -> None:
        """Go on with what was on disk."""
        server = self.moves.server
        for session in server.moved:
            fields: dict[str, Any] = cast(RecoveredMove, session.moving).fields
            leaving = self.departures.restore(session, move_in(session, fields), fields)
            if "behind" in fields:
                self.departures.go_on_behind(leaving, self.arrivals.restored(session, fields["behind"]))
        server.moved = []
        for session in server.sessions.values():
            if isinstance(session.moving, RecoveredMove):
                session.moving = self.arrivals.restored(session, session.moving.fields)

    def switch(self, switch: Switch) -> None:
        """From here on, what this node sends is the new node's affair."""
        self.moves.flush()
        self.arrivals.mark_before(switch.move.client_id, switch.before)
        self.arrivals.mark(switch.move, switch.old)

    def marked(self, node: str, marker: Marker) -> None:
        """It has come from that node."""
        if marker.old == self.moves.node:
            self.departures.marked(node, marker.move)
        self.arrivals.marked(node, marker.move, marker.old)

    def forgotten(self, node: str) -> None:
        """It is no member any more."""
        self.departures.forgotten(node)
        self.arrivals.forgotten(node)
