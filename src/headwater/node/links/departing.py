"""The old node of a session that moves: it writes it into letters, and forgets it behind the cut (moving.py)."""

from __future__ import annotations

import logging
from typing import Any, Final, cast

from headwater.message import NEVER, Delivery
from headwater.node.links.arriving import Arriving
from headwater.node.links.holding import served_by
from headwater.node.links.moves import MUCH, Moves
from headwater.node.links.unloading import moved_of, take_some
from headwater.node.persistence.records import subscription_record
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.peering.sessions.messages import Begin, End, Messages, Move, Ready, Subscriptions, Tail
from headwater.session.session import Session, SessionMove
from headwater.wire.reasons import SESSION_TAKEN_OVER

log = logging.getLogger("headwater.cluster")

MOST_EARLY: Final = 10_000


class Leaving(SessionMove):
    """At the old node."""

    def __init__(self, departures: Departures, session: Session, move: Move) -> None:
        self.departures = departures
        self.session = session
        self.move = move
        self.to = move.stamp.node
        self.marked: set[str] = set()
        self.tails: list[str] = []
        """Nodes that have marked their streams, which the new node is still to be told."""
        self.is_shipping = False
        self.arriving: Arriving | None = None
        """It goes on before it was here altogether: what is still to come."""

    def offered(self, delivery: Delivery) -> bool:
        if delivery.qos == 0:
            return True
        arriving, source = self.arriving, self.departures.moves.source
        if delivery.group is None and (arriving is None or not arriving.is_taking):
            if source in self.marked:
                return True
            if arriving is not None and arriving.keeps_off(source, delivery):
                return True
        self.departures.ship_soon(self)
        return False

    def record(self) -> dict[str, object]:
        found: dict[str, object] = {
            "to": self.to,
            "stamp": list(self.move.stamp),
            "marked": sorted(self.marked),
            "tails": self.tails,
        }
        return found if self.arriving is None else {**found, "behind": self.arriving.record()}


class Departures:
    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self.server = moves.server
        self.leaving: dict[Move, Leaving] = {}
        self.behind: dict[tuple[str, Move], Arriving] = {}
        """Parts of sessions that have gone on before all of these was here."""
        self._early: dict[Move, list[str]] = {}
        """Nodes that have marked their streams for a move of which there is nothing here yet: an older session may
        still come, and go that way."""

    def restore(self, session: Session, move: Move, fields: dict[str, Any]) -> Leaving:
        """One that was on its way when the process ended."""
        leaving = Leaving(self, session, move)
        leaving.marked, leaving.tails = set(fields["marked"]), list(fields["tails"])
        session.moving = self.leaving[move] = leaving
        self.moves.left[move] = leaving.to
        self.ship_soon(leaving)
        return leaving

    def go_on_behind(self, leaving: Leaving, arriving: Arriving) -> None:
        """What is still to come of the session goes the same way as the session."""
        leaving.arriving = arriving
        arriving.goes_on = lambda: self._went_on(leaving, arriving)
        self.behind.update(dict.fromkeys(arriving.parts, arriving))

    def _went_on(self, leaving: Leaving, arriving: Arriving) -> None:
        """There is less to come."""
        self.behind = {key: each for key, each in self.behind.items() if each is not arriving or key in arriving.parts}
        if not arriving.parts:
            leaving.arriving = None
        self.ship_soon(leaving)

    def leave(self, session: Session, move: Move) -> bool:
        """Send it to the node that has claimed it; False: nothing of it outlives its connection."""
        server = self.server
        if session.connection is not None:
            server.disconnect(cast(Channel, session.connection), SESSION_TAKEN_OVER)
            if server.sessions.get(session.client_id) is not session:
                return False
        remaining = session.expiry_interval
        if session.expires_at != NEVER:
            remaining = max(1, int(session.expires_at - server.hot.now))
        server.ending.called_off(session)
        server.ending.discard_will(session)
        del server.sessions[session.client_id]
        leaving = self.leaving[move] = Leaving(self, session, move)
        self.moves.left[move] = leaving.to
        before, session.moving = session.moving, leaving
        if isinstance(before, Arriving):
            self.go_on_behind(leaving, before)
        for node in self._early.pop(move, ()):
            self.mark(leaving, node)
        session.expires_at = NEVER
        self._write(leaving, remaining)
        server.retained_sender.forget(session)
        server.sharing.again(server.sharing.take_back(session, True))
        self.moves.changed(session)
        self.moves.moved_out += 1
        log.debug("the session of %.200r moves to node %s", session.client_id, leaving.to)
        self.ship_soon(leaving)
        return True

    def _write(self, leaving: Leaving, remaining: int) -> None:
        session, move = leaving.session, leaving.move
        received = tuple(sorted(session.received))
        self.moves.letter(
            leaving.to,
            Begin(
                *(move, session.expiry_interval, remaining, session.outbound.next_id, session.username),
                *(received, session.lineage, served_by(session)),
            ),
        )
        some: list[tuple[str, bytes]] = []
        size = 0
        for name, subscription in session.subscriptions.items():
            some.append((name, subscription_record(subscription)))
            size += len(name) + 16
            if size > MUCH:
                self.moves.letter(leaving.to, Subscriptions(move, tuple(some)))
                some, size = [], 0
        self.moves.letter(leaving.to, Subscriptions(move, tuple(some)))
        self.moves.letter(leaving.to, Ready(move, () if leaving.arriving is None else leaving.arriving.cuts()))

    def ship_soon(self, leaving: Leaving) -> None:
        if not leaving.is_shipping:
            leaving.is_shipping = True
            self.server.background.add(_Shipping(self, leaving))

    def ship_some(self, leaving: Leaving) -> bool:
        """Whether there is more, and room for it."""
        end = self.moves.ends.get(leaving.to)
        if end is None or not end.spool.has_room():
            leaving.is_shipping = False  # until `beat`
            return False
        found = take_some(self.server, leaving.session)
        if found:
            self.moves.letter(leaving.to, Messages(leaving.move, tuple(found), leaving.session.lineage))
            return True
        leaving.is_shipping = False
        arriving = leaving.arriving
        tails = [node for node in leaving.tails if arriving is None or arriving.is_complete(node)]
        for node in tails:
            self.moves.letter(leaving.to, Tail(leaving.move, node))
        if tails:
            leaving.tails = [node for node in leaving.tails if node not in tails]
            self.moves.changed(leaving.session)
        if arriving is None and all(node in leaving.marked for node in (self.moves.node, *self.moves.ends)):
            self._left(leaving)
        return False

    def _left(self, leaving: Leaving) -> None:
        """All is with the new node. What waits for a group in which nobody else is here is the session's."""
        server, session = self.server, leaving.session
        for group in server.router.groups.of(session):
            queue, member = server.sharing.queues.get(group), group.member(session)
            if queue is not None and len(group) == 1 and member is not None and not group.is_held:
                while queue.first(server.hot.now) is not None:
                    delivery = queue.take()
                    server.delivering.fetch(delivery)
                    given = server.sharing.delivery(group, member, delivery.message)  # with the QoS that was granted
                    if given.qos:
                        moved = (moved_of(server, given, 0),)
                        self.moves.letter(leaving.to, Messages(leaving.move, moved, session.lineage))
                    server.delivering.forget(delivery)
        self.moves.letter(leaving.to, End(leaving.move))
        del self.leaving[leaving.move]
        del self.moves.left[leaving.move]
        session.moving = None
        server.ending.remove(session)

    def marked(self, node: str, move: Move) -> None:
        """A Marker has come from that node."""
        leaving = self.leaving.get(move)
        if leaving is not None:
            self.mark(leaving, node)
            return
        self._early.setdefault(move, []).append(node)
        if len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]

    def mark(self, leaving: Leaving, node: str) -> None:
        """Nothing behind this point of what comes from that node is for the session that leaves."""
        if node not in leaving.marked:
            leaving.marked.add(node)
            leaving.tails.append(node)
            self.moves.changed(leaving.session)
            self.ship_soon(leaving)

    def forgotten(self, node: str) -> None:
        """It is no member any more: nothing comes from it."""
        for leaving in list(self.leaving.values()):
            if leaving.to == node:
                self._lost(leaving)
            else:
                self.mark(leaving, node)

    def _lost(self, leaving: Leaving) -> None:
        """The new node is gone for good, and the session with it."""
        del self.leaving[leaving.move]
        del self.moves.left[leaving.move]
        leaving.session.moving = None
        self.behind = {key: each for key, each in self.behind.items() if each is not leaving.arriving}
        log.warning(
            "node %s was forgotten, and with it the session of %.200r, which had moved there",
            *(leaving.to, leaving.session.client_id),
        )
        self.server.ending.remove(leaving.session)

    def beat(self) -> None:
        for leaving in list(self.leaving.values()):
            self.ship_soon(leaving)


class _Shipping(BackgroundTask):
    def __init__(self, departures: Departures, leaving: Leaving) -> None:
        self.departures = departures
        self.leaving = leaving

    def piece(self) -> bool:
        departures, leaving = self.departures, self.leaving
        return departures.leaving.get(leaving.move) is leaving and departures.ship_some(leaving)
