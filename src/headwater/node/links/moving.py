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
then, and counted: the client may have had them.

A crash in the middle of a move finds it on disk, with the session (`record`). Held messages are on disk with the
others of the session, so after such a crash they may come before what the old node still has.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.message import NEVER, Delivery, Message
from headwater.node.links.end import PeerEnd
from headwater.node.links.retaining import packet_of
from headwater.node.persistence.records import subscription_in, subscription_record
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.plane.counters import SESSION_ENDED
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.messages import Begin, End, Marker, Messages, Move, Moved, Ready, Subscriptions, Switch
from headwater.session.outbound import Flight
from headwater.session.session import RecoveredMove, Session, SessionMove
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Publish
from headwater.wire.primitives import ANY_NUMBER, FOR_EVER
from headwater.wire.reasons import SESSION_TAKEN_OVER

if TYPE_CHECKING:
    from headwater.node.persistence.journal import Journal

log = logging.getLogger("headwater.cluster")

MANY: Final = 64
MUCH: Final = 256 << 10
"""Messages, and bytes of them or of subscriptions, in one letter."""


class Leaving(SessionMove):
    """At the old node."""

    def __init__(self, moving: Moving, session: Session, move: Move) -> None:
        self.moving = moving
        self.session = session
        self.move = move
        self.to = move.stamp.node
        self.marked: set[str] = set()
        self.tails: list[str] = []
        """Nodes that have marked their streams, which the new node is still to be told."""
        self.is_shipping = False

    def offered(self, delivery: Delivery) -> bool:
        if delivery.qos == 0 or (delivery.group is None and self.moving.source in self.marked):
            return True
        self.moving.ship_soon(self)
        return False

    def record(self) -> dict[str, object]:
        return {"to": self.to, "stamp": list(self.move.stamp), "marked": sorted(self.marked), "tails": self.tails}


class Part:
    """What one old node has of a session. `is_base`: the session itself, and not only messages for one that began anew
    before that node could be asked."""

    def __init__(self, move: Move, is_base: bool) -> None:
        self.move = move
        self.is_base = is_base
        self.marked: set[str] = set()
        """Nodes whose streams to this one are behind the cut."""
        self.tails: set[str] = set()
        """Nodes of which the old one has sent all."""
        self.has_ended = False
        """The old node has forgotten the session."""

    def record(self) -> dict[str, object]:
        marked, tails = sorted(self.marked), sorted(self.tails)
        found: dict[str, object] = {"stamp": list(self.move.stamp), "base": self.is_base}
        return {**found, "marked": marked, "tails": tails, "ended": self.has_ended}


class Arriving(SessionMove):
    """At the new node."""

    def __init__(self, moving: Moving, session: Session) -> None:
        self.moving = moving
        self.session = session
        self.parts: dict[str, Part] = {}
        """By old node."""
        self.held: list[tuple[str, Delivery]] = []
        self.is_whole = False
        """All subscriptions are here."""
        self.is_taking = False
        """What is offered comes from an old node."""

    def offered(self, delivery: Delivery) -> bool:
        if delivery.qos == 0 or self.is_taking or delivery.group is not None:
            return False
        source = self.moving.source
        if not self.is_behind_the_cut(source):
            return True  # an old node gets it
        if self.is_complete(source):
            return False
        journal = self.moving.journal
        if journal is not None and self.session.durable:
            journal.keep(self.session.number, delivery)
        self.held.append((source, delivery))
        return True

    def is_behind_the_cut(self, node: str) -> bool:
        return all(node in part.marked for part in self.parts.values())

    def is_complete(self, node: str) -> bool:
        """Whether all that this node published before the cut is here. Nobody waits for what an older session has."""
        return all(node in part.tails for part in self.parts.values() if part.is_base)

    def can_be_served(self, nodes: list[str]) -> bool:
        """Whether nothing of what these nodes published is still to come by an old one."""
        return self.is_whole and all(self.is_behind_the_cut(node) and self.is_complete(node) for node in nodes)

    def has_its_own(self) -> bool:
        """Whether all that old nodes had when they were asked is here."""
        return self.is_whole and all(old in part.tails for old, part in self.parts.items() if part.is_base)

    def record(self) -> dict[str, object]:
        return {"from": {old: part.record() for old, part in self.parts.items()}, "whole": self.is_whole}


class Moving:
    """`letter` sends one; `flush` tells all nodes what clients here want, now; `progress` is called when a session that
    arrives may be ready for its client; `latest` is the latest claim of a client that is known."""

    def __init__(
        self,
        server: Server,
        node: str,
        ends: dict[str, PeerEnd],
        letter: Callable[[str, said.Message], bool],
        flush: Callable[[], None],
        progress: Callable[[str], None],
        latest: Callable[[str], Stamp],
    ) -> None:
        self.server = server
        self.node = node
        self.ends = ends
        self.letter = letter
        self.flush = flush
        self.progress = progress
        self.latest = latest
        self.leaving: dict[Move, Leaving] = {}
        self.moved_in = 0
        self.moved_out = 0
        self.dropped = 0
        """Messages of sessions that began anew elsewhere before these could be delivered."""

    @property
    def source(self) -> str:
        """Where what is being published comes from."""
        return self.server.came_from or self.node

    @property
    def journal(self) -> Journal | None:
        return self.server.journal

    def start(self) -> None:
        """Go on with what was on disk."""
        server = self.server
        for session in server.moved:
            fields = cast(RecoveredMove, session.moving).fields
            leaving = Leaving(self, session, _move_in(session, fields))
            leaving.marked = set(cast("list[str]", fields["marked"]))
            leaving.tails = list(cast("list[str]", fields["tails"]))
            session.moving = self.leaving[leaving.move] = leaving
            self.ship_soon(leaving)
        server.moved = []
        for session in server.sessions.values():
            if isinstance(session.moving, RecoveredMove):
                session.moving = self._restored(session, session.moving.fields)

    def _restored(self, session: Session, fields: dict[str, Any]) -> Arriving:
        arriving = Arriving(self, session)
        for old, kept in fields["from"].items():
            part = arriving.parts[old] = Part(_move_in(session, kept), kept["base"])
            part.marked, part.tails, part.has_ended = set(kept["marked"]), set(kept["tails"]), kept["ended"]
        arriving.is_whole = fields["whole"]
        return arriving

    # ---- the old node ------------------------------------------------------------------------------------------------

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
        session.moving = leaving
        session.expires_at = NEVER
        self._write(leaving, remaining)
        server.retained_sender.forget(session)
        server.sharing.again(server.sharing.take_back(session, True))
        if self.journal is not None:
            self.journal.session_changed(session)
        self.moved_out += 1
        log.debug("the session of %.200r moves to node %s", session.client_id, leaving.to)
        self.ship_soon(leaving)
        return True

    def _write(self, leaving: Leaving, remaining: int) -> None:
        session, move = leaving.session, leaving.move
        received = tuple(sorted(session.received))
        self.letter(
            leaving.to,
            Begin(
                *(move, session.expiry_interval, remaining, session.outbound.next_id, session.username),
                *(received, session.lineage),
            ),
        )
        some: list[tuple[str, bytes]] = []
        size = 0
        for name, subscription in session.subscriptions.items():
            some.append((name, subscription_record(subscription)))
            size += len(name) + 16
            if size > MUCH:
                self.letter(leaving.to, Subscriptions(move, tuple(some)))
                some, size = [], 0
        self.letter(leaving.to, Subscriptions(move, tuple(some)))
        self.letter(leaving.to, Ready(move))

    def ship_soon(self, leaving: Leaving) -> None:
        if not leaving.is_shipping:
            leaving.is_shipping = True
            self.server.background.add(_Shipping(self, leaving))

    def ship_some(self, leaving: Leaving) -> bool:
        """Whether there is more, and room for it."""
        end = self.ends.get(leaving.to)
        if end is None or not end.spool.has_room():
            leaving.is_shipping = False  # until `beat`
            return False
        found = self._take_some(leaving.session)
        if found:
            self.letter(leaving.to, Messages(leaving.move, tuple(found), leaving.session.lineage))
            return True
        leaving.is_shipping = False
        for node in leaving.tails:
            self.letter(leaving.to, said.Tail(leaving.move, node))
        if leaving.tails and self.journal is not None:
            self.journal.session_changed(leaving.session)
        leaving.tails = []
        if all(node in leaving.marked for node in (self.node, *self.ends)):
            self._left(leaving)
        return False

    def _take_some(self, session: Session) -> list[Moved]:
        outbound, delivering = session.outbound, self.server.delivering
        found: list[Moved] = []
        size = 0
        while len(found) < MANY and size < MUCH:
            if outbound.flights:
                packet_id = next(iter(outbound.flights))
                moved = self._flight(session, packet_id, outbound.flights[packet_id])
            else:
                first = outbound.first(self.server.hot.now)
                if first is None:
                    break
                delivery = outbound.take()
                delivering.fetch(delivery)
                moved = self._moved(delivery, 0)
                delivering.forget(delivery)
            found.append(moved)
            size += len(moved.packet)
        for delivery in outbound.take_given_up():
            delivering.dropped(session, delivery, delivering.why_given_up(delivery))
        return found

    def _flight(self, session: Session, packet_id: int, flight: Flight) -> Moved:
        delivering = self.server.delivering
        if flight.released:
            moved = Moved(2, False, True, packet_id, (), "", b"")
        else:
            delivery = session.flight_delivery(flight)
            delivery.journaled = flight.journaled
            delivering.fetch(delivery)
            delivery.journaled = None
            moved = self._moved(delivery, packet_id)
        session.outbound.take_flight(packet_id)
        delivering.landed(flight)
        return moved

    def _moved(self, delivery: Delivery, packet_id: int) -> Moved:
        message = delivery.message
        packet = packet_of(message, self.server.hot.now)
        identifiers = tuple(delivery.identifiers or ())
        return Moved(delivery.qos, delivery.retain, False, packet_id, identifiers, message.publisher, packet)

    def _left(self, leaving: Leaving) -> None:
        """All is with the new node. What waits for a group in which nobody else is here is the session's."""
        server, session = self.server, leaving.session
        for group in server.router.groups.of(session):
            queue = server.sharing.queues.get(group)
            if queue is not None and len(group) == 1:
                while queue.first(server.hot.now) is not None:
                    delivery = queue.take()
                    server.delivering.fetch(delivery)
                    self.letter(leaving.to, Messages(leaving.move, (self._moved(delivery, 0),), session.lineage))
                    server.delivering.forget(delivery)
        self.letter(leaving.to, End(leaving.move))
        del self.leaving[leaving.move]
        session.moving = None
        server.ending.remove(session)

    def mark(self, leaving: Leaving, node: str) -> None:
        """Nothing behind this point of what comes from that node is for the session that leaves."""
        if node not in leaving.marked:
            leaving.marked.add(node)
            leaving.tails.append(node)
            if self.journal is not None:
                self.journal.session_changed(leaving.session)
            self.ship_soon(leaving)

    # ---- every node --------------------------------------------------------------------------------------------------

    def switch(self, switch: Switch) -> None:
        """From here on, what this node sends is the new node's affair."""
        self.flush()
        for node in dict.fromkeys((switch.old, switch.move.stamp.node)):
            if node != self.node:
                self.letter(node, Marker(switch.move))
        leaving = self.leaving.get(switch.move)
        if leaving is not None and switch.old == self.node:
            self.mark(leaving, self.node)

    # ---- the new node ------------------------------------------------------------------------------------------------

    def _arriving(self, client_id: str) -> Arriving | None:
        session = self.server.sessions.get(client_id)
        found = None if session is None else session.moving
        return found if isinstance(found, Arriving) else None

    def _part(self, old: str, move: Move) -> tuple[Arriving, Part] | None:
        arriving = self._arriving(move.client_id)
        part = None if arriving is None else arriving.parts.get(old)
        return None if arriving is None or part is None or part.move != move else (arriving, part)

    def begin(self, old: str, begin: Begin) -> None:
        move = begin.move
        session = self.server.sessions.get(move.client_id)
        if session is not None:
            self._merge(session).parts.setdefault(old, Part(move, False))
            return
        newer = self._newer(move)
        if newer is None or newer.node in (old, self.node):  # else it has moved on: its messages follow it
            self._make(begin).parts[old] = Part(move, True)

    def _make(self, begin: Begin) -> Arriving:
        server = self.server
        session = server.attaching.new_session(begin.move.client_id)
        session.expiry_interval = min(begin.expiry, server.config.max_session_expiry)
        session.username = begin.username
        session.claim_time, session.claim_node = begin.move.stamp
        session.lineage = begin.lineage
        session.received = set(begin.received)
        session.outbound.next_id = begin.next_id
        arriving = session.moving = Arriving(self, session)
        if self.journal is not None:
            self.journal.attached(session)
            for packet_id in begin.received:
                self.journal.received(session, packet_id)
        if session.expiry_interval != FOR_EVER:
            server.ending.expire_at(session, server.hot.now + max(1, begin.remaining))
        return arriving

    def _merge(self, session: Session) -> Arriving:
        """The client has a session here already, which is to get the messages of another one."""
        if isinstance(session.moving, Arriving):
            return session.moving
        arriving = session.moving = Arriving(self, session)
        arriving.is_whole = True
        self._reached_otherwise(session)
        return arriving

    def anew(self, session: Session, move: Move, olds: list[str]) -> None:
        """The session begins here; these nodes, which cannot be asked, have an older one of its client."""
        arriving = self._merge(session)
        for old in olds:
            arriving.parts[old] = Part(move, False)
            self.letter(old, said.Claimed(move, False))
            self._ask_for_the_cut(arriving, old)

    def subscriptions(self, old: str, taken: Subscriptions) -> None:
        found = self._part(old, taken.move)
        if found is None or not found[1].is_base:
            return
        server, session = self.server, found[0].session
        for name, record in taken.subscriptions:
            try:
                subscription = subscription_in(name, record)
            except (ValueError, struct.error) as error:
                raise MalformedFrame(f"malformed subscription of a session: {error}") from None
            session.subscriptions[name] = subscription
            server.subscribing.restore(session, subscription)
            server.subscribing.keep(session, name, subscription)

    def ready(self, old: str, move: Move) -> None:
        found = self._part(old, move)
        if found is None:
            return
        arriving, session = found[0], found[0].session
        if found[1].is_base:
            arriving.is_whole = True
            self.server.access.restored(session)
            self.server.access.quotas.restored(session)
            self.moved_in += 1
        if self.node not in found[1].marked:
            self._ask_for_the_cut(arriving, old)

    def _ask_for_the_cut(self, arriving: Arriving, old: str) -> None:
        part = arriving.parts[old]
        self.flush()
        for node in self.ends:
            self.letter(node, Switch(part.move, old))
        self.letter(old, Marker(part.move))
        part.marked.add(self.node)
        self._changed(arriving)

    def messages(self, taken: Messages) -> None:
        """What an old node had, or gets still."""
        session = self.server.sessions.get(taken.move.client_id)
        if session is None:
            self._send_on(taken)
            return
        if taken.move.stamp.time < session.clean_time:
            self._drop(len(taken.messages))
            return
        arriving = self._arriving(taken.move.client_id)
        if arriving is not None:
            arriving.is_taking = True
        try:
            for moved in taken.messages:
                self._take(session, moved, taken.lineage == session.lineage)
        finally:
            if arriving is not None:
                arriving.is_taking = False

    def _send_on(self, taken: Messages) -> None:
        """The session has moved on, or has ended."""
        newer = self._newer(taken.move)
        on = taken._replace(hops=taken.hops + 1)
        if newer is None or on.hops > said.MAX_HOPS or not self.letter(newer.node, on):
            self._drop(len(taken.messages))

    def _drop(self, count: int) -> None:
        self.dropped += count
        self.server.stats.drops[SESSION_ENDED] += count

    def _newer(self, move: Move) -> Stamp | None:
        """The latest claim of this client that is known, if it is later than that of the move."""
        found = max(self.latest(move.client_id), self.left_for(move.client_id))
        return found if found > move.stamp else None

    def left_for(self, client_id: str) -> Stamp:
        """The claim by which a client's session is leaving, or none."""
        return max((each.stamp for each in self.leaving if each.client_id == client_id), default=NEVER_WRITTEN)

    def _take(self, session: Session, moved: Moved, is_same: bool) -> None:
        """`is_same`: it is of this session, and not of an older one of the client."""
        if moved.packet_id and is_same and moved.packet_id not in session.outbound.flights:
            self._restore_flight(session, moved)
        elif moved.released:
            pass  # the client has had it
        elif moved.packet_id and moved.qos == 2:
            self._drop(1)  # it may have had it
        else:
            delivery = Delivery(self._message(moved), moved.qos, moved.retain, list(moved.identifiers) or None)
            self.server.delivering.offer(session, delivery)

    def _message(self, moved: Moved) -> Message:
        packet = moved.packet
        start = 2
        while start <= len(packet) and packet[start - 1] & 0x80:
            start += 1
        try:
            publish = decode(packet[0], packet[start:], V5, FROM_CLIENT, ANY_NUMBER)
        except (RemoteProtocolError, IndexError) as error:
            raise MalformedFrame(f"malformed message of a session: {error}") from None
        if not isinstance(publish, Publish) or not publish.topic:
            raise MalformedFrame("malformed message of a session")
        return message_of(publish, moved.publisher, self.server.hot.now)

    def _restore_flight(self, session: Session, moved: Moved) -> None:
        message = Message("-", b"", 2) if moved.released else self._message(moved)
        delivery = Delivery(message, moved.qos, moved.retain, list(moved.identifiers) or None)
        flight = Flight(moved.qos, None if moved.released else delivery, b"", b"", 0, 0)
        flight.released = moved.released
        journal = self.journal
        if journal is not None and session.durable:
            entry = flight.journaled = journal.keep(session.number, delivery)
            delivery.journaled = None
            journal.flown(entry, moved.packet_id)
            if moved.released:
                journal.released(entry)
        next_id = session.outbound.next_id
        session.outbound.restore_flight(moved.packet_id, flight)
        session.outbound.next_id = next_id
        if session.connection is not None:
            session.outbound.quota -= 1
            self.server.delivering.resend(cast(Channel, session.connection), session, [moved.packet_id])

    def marked(self, node: str, move: Move) -> None:
        """A Marker has come from that node."""
        leaving = self.leaving.get(move)
        if leaving is not None:
            self.mark(leaving, node)
        arriving = self._arriving(move.client_id)
        if arriving is not None:
            for part in arriving.parts.values():
                if part.move == move and node not in part.marked:
                    part.marked.add(node)
                    self._changed(arriving)
                    return

    def tail(self, old: str, tail: said.Tail) -> None:
        found = self._part(old, tail.move)
        if found is not None:
            found[1].tails.add(tail.node)
            self._changed(found[0])

    def end(self, old: str, move: Move) -> None:
        found = self._part(old, move)
        if found is not None:
            found[1].has_ended = True
            self._changed(found[0])

    def give_up(self, arriving: Arriving, old: str) -> None:
        """Nothing more is expected from this old node."""
        del arriving.parts[old]
        self._changed(arriving)

    def _changed(self, arriving: Arriving) -> None:
        session = arriving.session
        for old, part in list(arriving.parts.items()):
            # What is in front of a Marker that is still to come was with the old node.
            if part.has_ended and all(node in part.marked for node in self.ends):
                del arriving.parts[old]
        if not arriving.parts:
            session.moving = None
            self._reached_otherwise(session)
        held, arriving.held = arriving.held, []
        for source, delivery in held:
            if arriving.is_complete(source):
                self.server.delivering.forget(delivery)
                arriving.is_taking = True
                self.server.delivering.offer(session, delivery)
                arriving.is_taking = False
            else:
                arriving.held.append((source, delivery))
        if self.journal is not None:
            self.journal.session_changed(session)
        self.progress(session.client_id)

    def _reached_otherwise(self, session: Session) -> None:
        """What leads to it has to be found anew."""
        self.server.presence_changed(session, session.connection is not None)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def joined(self, node: str) -> None:
        """A node is linked that may not have been asked for the cut."""
        for session in list(self.server.sessions.values()):
            if isinstance(session.moving, Arriving):
                for old, part in session.moving.parts.items():
                    if node not in part.marked and self.node in part.marked:
                        self.letter(node, Switch(part.move, old))

    def forgotten(self, node: str) -> None:
        """Nothing comes from it any more."""
        for leaving in list(self.leaving.values()):
            if leaving.to == node:
                self._lost(leaving)
            else:
                self.mark(leaving, node)
        for session in list(self.server.sessions.values()):
            arriving = session.moving
            if isinstance(arriving, Arriving):
                arriving.parts.pop(node, None)
                for part in arriving.parts.values():
                    part.marked.add(node)
                    part.tails.add(node)
                self._changed(arriving)

    def _lost(self, leaving: Leaving) -> None:
        """The new node is gone for good, and the session with it."""
        del self.leaving[leaving.move]
        leaving.session.moving = None
        log.warning(
            "node %s was forgotten, and with it the session of %.200r, which had moved there",
            *(leaving.to, leaving.session.client_id),
        )
        self.server.ending.remove(leaving.session)

    def beat(self) -> None:
        for leaving in list(self.leaving.values()):
            self.ship_soon(leaving)


class _Shipping(BackgroundTask):
    def __init__(self, moving: Moving, leaving: Leaving) -> None:
        self.moving = moving
        self.leaving = leaving

    def piece(self) -> bool:
        return self.moving.leaving.get(self.leaving.move) is self.leaving and self.moving.ship_some(self.leaving)


def _move_in(session: Session, fields: dict[str, object]) -> Move:
    time, node = cast("tuple[int, str]", fields["stamp"])
    return Move(session.client_id, Stamp(time, node))
