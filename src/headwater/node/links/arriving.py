"""The new node of a session that moves: it takes it, asks for the cut, and knows which message is whose (moving.py)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from headwater.message import Delivery, Message
from headwater.node.links.holding import served_by
from headwater.node.links.known import DOUBTED, is_same, meets
from headwater.node.links.moves import Moves
from headwater.node.links.unloading import take_some
from headwater.node.persistence.records import subscription_in
from headwater.node.plane.channel import Channel
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import Stamp
from headwater.peering.sessions.messages import (
    MAX_HOPS,
    Begin,
    Claimed,
    Cut,
    Marker,
    Messages,
    Move,
    Moved,
    Ready,
    Subscriptions,
    Switch,
    Tail,
)
from headwater.session.outbound import Flight
from headwater.session.session import Session, SessionMove
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Publish
from headwater.wire.primitives import ANY_NUMBER, FOR_EVER

if TYPE_CHECKING:
    from headwater.node.links.departing import Departures


class Part:
    """What one old node has of a session. `is_base`: the session itself, and not only messages for one that began anew
    before that node could be asked."""

    def __init__(self, old: str, move: Move, is_base: bool) -> None:
        self.old = old
        self.move = move
        self.is_base = is_base
        self.marked: set[str] = set()
        """Nodes whose streams to this one are behind the cut."""
        self.tails: set[str] = set()
        """Nodes of which the old one has sent all."""
        self.has_ended = False
        """The old node has forgotten the session."""
        self.is_cut = True
        """Its messages are not also those of the session here. Else they may be: QoS 2 among them is dropped."""
        self.has_come = is_base
        """QoS 2 of it may be in the session here."""
        self.before: tuple[Cut, ...] = ()
        """Moves that the old node has not seen the end of."""

    def record(self) -> dict[str, object]:
        found: dict[str, object] = {"old": self.old, "stamp": list(self.move.stamp), "base": self.is_base}
        found.update(marked=sorted(self.marked), tails=sorted(self.tails), ended=self.has_ended, cut=self.is_cut)
        found["come"] = self.has_come
        found["before"] = [[*cut.stamp, cut.old] for cut in self.before]
        return found


class Arriving(SessionMove):
    """At the new node."""

    def __init__(self, moves: Moves, session: Session) -> None:
        self.moves = moves
        self.session = session
        self.parts: dict[tuple[str, Move], Part] = {}
        """By old node and the claim by which it gave it."""
        self.held: list[tuple[str, Delivery]] = []
        self.is_whole = False
        """All subscriptions are here."""
        self.is_taking = False
        """What is offered comes from an old node."""
        self.goes_on: Callable[[], None] | None = None
        """The session has moved on already. Called when less is still to come."""

    def offered(self, delivery: Delivery) -> bool:
        if delivery.qos == 0 or self.is_taking or delivery.group is not None:
            return False
        return self.keeps_off(self.moves.source, delivery)

    def keeps_off(self, source: str, delivery: Delivery) -> bool:
        """Whether what comes from that node is not for the session, or not yet."""
        if not self.is_behind_the_cut(source):
            return True  # an old node gets it
        if self.is_complete(source):
            return False
        self.hold(source, delivery)
        return True

    def cuts(self) -> tuple[Cut, ...]:
        """The moves that are not over, in their order."""
        found = [(*part.before, Cut(part.move.stamp, part.old)) for part in self.parts.values()]
        return tuple(dict.fromkeys(cut for cuts in found for cut in cuts))

    def hold(self, source: str, delivery: Delivery) -> None:
        journal = self.moves.journal
        if journal is not None and self.session.durable:
            journal.keep(self.session.number, delivery)
        self.held.append((source, delivery))

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
        return self.is_whole and all(part.old in part.tails for part in self.parts.values() if part.is_base)

    def record(self) -> dict[str, object]:
        return {"from": [part.record() for part in self.parts.values()], "whole": self.is_whole}

    def add(self, part: Part) -> Part:
        self.parts[part.old, part.move] = part
        return part


class Arrivals:
    def __init__(self, moves: Moves, departures: Departures) -> None:
        self.moves = moves
        self.departures = departures
        self.server = moves.server

    def restored(self, session: Session, fields: dict[str, Any]) -> Arriving:
        """One that was on its way here when the process ended."""
        arriving = Arriving(self.moves, session)
        for kept in fields["from"]:
            part = arriving.add(Part(kept["old"], move_in(session, kept), kept["base"]))
            part.marked, part.tails, part.has_ended = set(kept["marked"]), set(kept["tails"]), kept["ended"]
            part.is_cut, part.has_come = kept.get("cut", True), kept.get("come", True)
            part.before = tuple(Cut(Stamp(time, node), old) for time, node, old in kept.get("before", ()))
        arriving.is_whole = fields["whole"]
        return arriving

    def _arriving(self, client_id: str) -> Arriving | None:
        session = self.server.sessions.get(client_id)
        found = None if session is None else session.moving
        return found if isinstance(found, Arriving) else None

    def _part(self, old: str, move: Move) -> tuple[Arriving, Part] | None:
        arriving = self.departures.behind.get((old, move)) or self._arriving(move.client_id)
        part = None if arriving is None else arriving.parts.get((old, move))
        return None if arriving is None or part is None else (arriving, part)

    def knows(self, old: str, move: Move) -> bool:
        """The first of it has come from that node, and not the last."""
        return self._part(old, move) is not None

    def _all(self) -> list[Arriving]:
        found = [each.moving for each in self.server.sessions.values() if isinstance(each.moving, Arriving)]
        return [*found, *dict.fromkeys(self.departures.behind.values())]

    def begin(self, old: str, begin: Begin) -> None:
        move = begin.move
        session = self.server.sessions.get(move.client_id)
        if session is not None and session.connection is None and served_by(session) < begin.served:
            self._replace(session, old, begin)
            return
        if session is not None:
            self._join(session, old, begin)
            return
        newer = self.moves.newer(move)
        if newer is None or newer.node in (old, self.moves.node):  # else it has moved on: its messages follow it
            self._make(begin).add(Part(old, move, True))

    def _make(self, begin: Begin) -> Arriving:
        server = self.server
        session = server.attaching.new_session(begin.move.client_id)
        session.expiry_interval = min(begin.expiry, server.config.max_session_expiry)
        session.username = begin.username
        session.claim_time, session.claim_node = begin.move.stamp
        session.lineage = begin.lineage
        session.served_time, session.served_node = begin.served
        session.received = set(begin.received)
        session.outbound.next_id = begin.next_id
        arriving = session.moving = Arriving(self.moves, session)
        journal = self.moves.journal
        if journal is not None:
            journal.attached(session)
            for packet_id in begin.received:
                journal.received(session, packet_id)
        if session.expiry_interval != FOR_EVER:
            server.ending.expire_at(session, server.hot.now + max(1, begin.remaining))
        return arriving

    def _replace(self, before: Session, old: str, begin: Begin) -> None:
        """The client has an older session here, of which it knows nothing any more: it was served by the other one
        since. What is here are messages for that."""
        server = self.server
        waiting = before.moving
        before.moving = None
        server.ending.called_off(before)
        server.ending.discard_will(before)
        del server.sessions[before.client_id]
        server.sharing.again(server.sharing.take_back(before, True))
        taken = []
        while some := take_some(server, before):
            taken += some
        arriving = self._make(begin)
        meets(arriving.session, before.lineage)
        if isinstance(waiting, Arriving):
            for part in waiting.parts.values():
                part.is_base = part.is_cut = False
                arriving.add(part)
        arriving.add(Part(old, begin.move, True))
        arriving.is_taking = True
        for moved in taken:
            self._take(arriving.session, moved, False, False)
        arriving.is_taking = False
        if isinstance(waiting, Arriving):
            for source, delivery in waiting.held:
                server.delivering.forget(delivery)
                if delivery.qos == 2:
                    self.moves.drop(1)  # the other session has it as well, if it was to have it
                else:
                    arriving.hold(source, delivery)
        server.ending.remove(before)

    def _join(self, session: Session, old: str, begin: Begin) -> None:
        """An older session comes. Where it does not follow the claim by which the newer one began (`anew`), both have
        had the messages since."""
        meets(session, begin.lineage)
        arriving = self._merge(session)
        part = arriving.parts.get((old, begin.move))
        if part is None or begin.lineage.startswith(DOUBTED):
            (part or arriving.add(Part(old, begin.move, False))).is_cut = False

    def _merge(self, session: Session) -> Arriving:
        """The client has a session here already, which is to get the messages of another one."""
        if isinstance(session.moving, Arriving):
            return session.moving
        arriving = session.moving = Arriving(self.moves, session)
        arriving.is_whole = True
        self._reached_otherwise(session)
        return arriving

    def anew(self, session: Session, move: Move, olds: list[str], is_alone: bool) -> None:
        """The session begins here; these nodes, which cannot be asked, have an older one of its client. `is_alone`: one
        of them, and no other node has anything of the client: what is in front of the cut is in that one only."""
        arriving = self._merge(session)
        for old in olds:
            part = arriving.add(Part(old, move, False))
            part.is_cut = is_alone
            self.moves.letter(old, Claimed(move, False))
            self._ask_for_the_cut(arriving, part)

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

    def ready(self, old: str, ready: Ready) -> None:
        found = self._part(old, ready.move)
        part = Part(old, ready.move, False) if found is None else found[1]
        part.before = ready.before
        if found is None:
            self._ask_all(part)  # it has moved on, and the old node waits for the cut
            return
        arriving, session = found[0], found[0].session
        if found[1].is_base:
            arriving.is_whole = True
            self.server.access.restored(session)
            self.server.access.quotas.restored(session)
            self.moves.moved_in += 1
        if self.moves.node not in found[1].marked:
            self._ask_for_the_cut(arriving, found[1])
        elif not part.is_base or part.has_ended:
            # Marks may have come before this session was there, and been forgotten; or were for another one.
            self._ask_all(part)

    def _ask_for_the_cut(self, arriving: Arriving, part: Part) -> None:
        self._ask_all(part)
        part.marked.add(self.moves.node)
        self._changed(arriving)

    def _ask_all(self, part: Part) -> None:
        self.moves.flush()
        for node in self.moves.ends:
            self.moves.letter(node, Switch(part.move, part.old, part.before))
        self.mark_before(part.move.client_id, part.before)
        self.moves.letter(part.old, Marker(part.move, part.old))

    def mark_before(self, client_id: str, cuts: tuple[Cut, ...]) -> None:
        """More than once does no harm."""
        for cut in cuts:
            self.mark(Move(client_id, cut.stamp), cut.old)

    def mark(self, move: Move, old: str) -> None:
        """What this node sends from here on is the affair of the new node of that move, and not of the old one."""
        node = self.moves.node
        for other in dict.fromkeys((old, move.stamp.node)):
            if other != node:
                self.moves.letter(other, Marker(move, old))
        if old == node:
            self.departures.marked(node, move)
        self.marked(node, move, old)

    def messages(self, taken: Messages) -> None:
        """What an old node had, or gets still."""
        session = self.server.sessions.get(taken.move.client_id)
        if session is None:
            self._send_on(taken)
            return
        if taken.move.stamp.time < session.clean_time:
            self.moves.drop(len(taken.messages))
            return
        arriving = self._arriving(taken.move.client_id)
        if arriving is not None:
            arriving.is_taking = True
        parts = [] if arriving is None else [part for part in arriving.parts.values() if part.move == taken.move]
        is_cut = bool(parts) and all(part.is_cut for part in parts)
        for part in parts:
            if not part.has_come:
                part.has_come = True
                self.moves.changed(session)
        is_of_it = is_same(taken.lineage, session.lineage)
        try:
            for moved in taken.messages:
                self._take(session, moved, is_of_it, is_cut)
        finally:
            if arriving is not None:
                arriving.is_taking = False

    def _send_on(self, taken: Messages) -> None:
        """The session has moved on, or has ended."""
        left_for = self.moves.left_for(taken.move.client_id)  # first where the session went from here: for the order
        newer = left_for if left_for > taken.move.stamp else self.moves.newer(taken.move)
        on = taken._replace(hops=taken.hops + 1)
        if newer is None or on.hops > MAX_HOPS or not self.moves.letter(newer.node, on):
            self.moves.drop(len(taken.messages))

    def _take(self, session: Session, moved: Moved, is_of_it: bool, is_cut: bool) -> None:
        """`is_of_it`: it is of this session, and not of an older one of the client. `is_cut`: if so, it is not here
        already."""
        if moved.packet_id and is_of_it and moved.packet_id not in session.outbound.flights:
            self._restore_flight(session, moved)
        elif moved.released:
            pass  # the client has had it
        elif moved.qos == 2 and not is_of_it and (moved.packet_id or not is_cut):
            self.moves.drop(1)  # it may have had it
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
        journal = self.moves.journal
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

    def marked(self, node: str, move: Move, old: str) -> None:
        """That node has marked its streams."""
        found = self._part(old, move)
        if found is not None and node not in found[1].marked:
            found[1].marked.add(node)
            self._changed(found[0])

    def tail(self, old: str, tail: Tail) -> None:
        found = self._part(old, tail.move)
        if found is not None:
            found[1].tails.add(tail.node)
            self._changed(found[0])

    def end(self, old: str, move: Move) -> None:
        found = self._part(old, move)
        if found is not None:
            found[1].has_ended = True
            self._changed(found[0])

    def look_at(self, arriving: Arriving) -> None:
        """Less of it is waited for."""
        self._changed(arriving)

    def wait_no_more(self, arriving: Arriving, part: Part) -> None:
        """The session is used without what is still to come of it; that comes later, and once."""
        part.is_base = False
        self._changed(arriving)

    def give_up(self, arriving: Arriving, part: Part) -> None:
        """Nothing more is expected of this part."""
        arriving.parts.pop((part.old, part.move), None)
        self._changed(arriving)

    def _changed(self, arriving: Arriving) -> None:
        session = arriving.session
        for key, part in list(arriving.parts.items()):
            # What is in front of a Marker that is still to come was with the old node.
            if part.has_ended and all(node in part.marked for node in self.moves.ends):
                del arriving.parts[key]
        if not arriving.parts and arriving.goes_on is None:
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
        if arriving.goes_on is not None:
            arriving.goes_on()
        self.moves.changed(session)
        self.moves.progress(session.client_id)

    def _reached_otherwise(self, session: Session) -> None:
        """What leads to it has to be found anew."""
        self.server.presence_changed(session, session.connection is not None)

    def joined(self, node: str) -> None:
        """A node is linked that may not have been asked for the cut."""
        for arriving in self._all():
            for part in arriving.parts.values():
                is_asked = self.moves.node in part.marked
                if part.old == node and not part.is_base and not part.has_ended:
                    self.moves.letter(node, Claimed(part.move, False))  # a restart may have forgotten it
                    if is_asked:
                        self._ask_all(part)  # and marks, if nothing of the session was there when they came
                elif node not in part.marked and is_asked:
                    self.moves.letter(node, Switch(part.move, part.old, part.before))

    def forgotten(self, node: str) -> None:
        """Nothing comes from it any more."""
        for arriving in self._all():
            for part in [part for part in arriving.parts.values() if part.old == node]:
                del arriving.parts[part.old, part.move]
            for part in arriving.parts.values():
                part.marked.add(node)
                part.tails.add(node)
            self._changed(arriving)


def move_in(session: Session, fields: dict[str, Any]) -> Move:
    """Of what is on disk."""
    time, node = fields["stamp"]
    return Move(session.client_id, Stamp(time, node))
