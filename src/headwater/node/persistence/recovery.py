"""From what is on disk to a broker that goes on where the last one ended, however that was.

The order matters little, because the disk has the broker as it was at the end of some turn: sessions, their
subscriptions, shared groups, then the deliveries in the order in which they came, then retained messages. The content
of messages that wait stays on disk until its turn comes (`AWAY`). Clients that were connected are not any more: their
sessions' time begins now, and so does the delay of their wills. In a cluster both begin when the links do (`WillGate`):
another node may have published a will meanwhile.
"""

from __future__ import annotations

import gc
import json
import struct
import time
from typing import Any, NamedTuple, cast

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import StorageError
from headwater.message import NEVER, Delivery
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.journal import Journal
from headwater.node.persistence.records import (
    DELIVERY,
    GROUP,
    MESSAGE,
    RECEIVED,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    delivery_in,
    message_in,
    number_in,
    subscription_in,
    will_in,
)
from headwater.node.protocol.server import Server
from headwater.routing.shared import Group
from headwater.routing.topics import split_shared
from headwater.session.journaled import AWAY, DurableDelivery, JournaledMessage
from headwater.session.outbound import Flight
from headwater.session.session import RecoveredMove, Session
from headwater.session.waiting import DeliveryQueue
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.primitives import FOR_EVER


class Recovered(NamedTuple):
    sessions: int
    subscriptions: int
    deliveries: int
    retained: int
    left_out: int
    """Retained messages on disk for which there is no room; they stay there."""

    def __str__(self) -> str:
        return (
            f"{self.sessions:,} sessions, {self.subscriptions:,} subscriptions, {self.deliveries:,} messages for them, "
            f"{self.retained:,} retained messages"
        )


class Recovery:
    def __init__(self, server: Server, backend: Backend, journal: Journal) -> None:
        self.server = server
        self.backend = backend
        self.journal = journal
        self.now = server.hot.now
        self.offset = time.time() - time.monotonic()
        self.highest = 0
        self.sessions: dict[int, Session] = {}
        self.groups: dict[int, Group | None] = {}
        """By their numbers, and the numbers of those that have ended with None: nobody is in them any more, also
        because those who were have gone with the process."""
        self.nobodys: list[DurableDelivery] = []
        self.journaled: dict[int, JournaledMessage] = {}
        self.wills: list[tuple[Session, dict[str, Any]]] = []
        self.deliveries = 0
        self.left_out = 0
        self.kind = ""

    def run(self) -> Recovered:
        """All of it. StorageError: a record cannot be understood."""
        try:
            for kind, read in (
                ("session", self._read_sessions),
                ("subscription", self._read_subscriptions),
                ("received id", self._read_received),
                ("group", self._read_groups),
                ("delivery", self._read_deliveries),
                ("retained message", self._read_retained),
            ):
                self.kind = kind
                read()
                crash_point("in-recovery")
        except (ValueError, KeyError, IndexError, TypeError, struct.error, RemoteProtocolError) as error:
            raise StorageError(
                f"a {self.kind} in the data folder cannot be understood ({error!r}); restore a backup, or export what "
                "can be read with `headwater export`"
            ) from error
        recovered = Recovered(
            len(self.sessions),
            sum(len(session.subscriptions) for session in self.sessions.values()),
            self.deliveries,
            len(self.server.router.retained),
            self.left_out,
        )
        self.journal.next_number = self.highest + 1
        if self.server.wills is None:
            self._go_on()
        else:
            self.server.wills.recovered(self._go_on)
        crash_point("after-recovery")
        return recovered

    def _number(self, key: bytes, at: int = 1) -> int:
        number = number_in(key, at)
        self.highest = max(self.highest, number)
        return number

    # ---- sessions ----------------------------------------------------------------------------------------------

    def _read_sessions(self) -> None:
        for key, value in self.backend.scan(SESSION):
            fields = json.loads(value)
            session = self._new_session(fields)
            session.number = self._number(key)
            session.durable = not fields.get("will_only", False)
            session.expiry_interval = fields["expiry"]
            session.username = fields.get("user")
            self.journal.restored(session.number, session.outbound)
            self.sessions[session.number] = session
            if "to" not in fields.get("moving", {}):
                self._restore_times(session, fields)

    def _new_session(self, fields: dict[str, Any]) -> Session:
        """One that is leaving is nobody's session any more, and its client may have another one here."""
        sessions = self.server.sessions
        before = sessions.get(fields["id"])
        session = self.server.attaching.new_session(fields["id"])
        claim = fields.get("claim", (0, "", 0, "", 0, ""))
        session.claim_time, session.claim_node, session.clean_time, session.lineage = claim[:4]
        session.served_time, session.served_node = claim[4:] or claim[:2]  # it was not noted apart before
        if "moving" in fields:
            session.moving = RecoveredMove(fields["moving"])
            if "to" in fields["moving"]:
                del sessions[session.client_id]
                self.server.moved.append(session)
        if before is not None:
            sessions[session.client_id] = before
        return session

    def _restore_times(self, session: Session, fields: dict[str, Any]) -> None:
        """`wills` keeps what has to happen once everything is here."""
        if "will" in fields:
            session.will = will_in(fields, self.offset)
            session.will_delay = fields["will_delay"]
            session.will_expiry = fields.get("will_expiry")
            session.will_stamp = fields.get("will_stamp", 0)
            session.will_deputy = fields.get("will_deputy", "")
        if "until" in fields:
            session.expires_at = fields["until"] - self.offset
        elif session.expiry_interval != FOR_EVER:
            session.expires_at = self.now + session.expiry_interval
        self.wills.append((session, fields))

    def _go_on(self) -> None:
        """Sessions whose time is over end, the others wait; wills are published when they are due."""
        ending = self.server.ending
        for session, fields in self.wills:
            if "away" in fields:  # else the last flight says more than what was known when the client came
                session.outbound.next_id = fields.get("next", 1)
            if session.will is not None:
                delay = min(session.will_delay, session.expiry_interval)
                when = fields["will_at"] - self.offset if "will_at" in fields else self.now + delay
                if when <= self.now:
                    ending.publish_will(session)
                else:
                    ending.publish_will_at(session, when)
            if session.expires_at <= self.now:
                ending.remove(session)
            elif session.expires_at != NEVER:
                ending.expire_at(session, session.expires_at)
            if "away" not in fields:
                self.journal.session_changed(session)  # it was connected, and is not any more

    def _read_subscriptions(self) -> None:
        for key, value in self.backend.scan(SUBSCRIPTION):
            number = number_in(key)
            name = key[9:].decode()
            if number not in self.sessions:  # it has ended, and this was still to be removed
                self.journal.unsubscribed(number, name)
                continue
            session = self.sessions[number]
            subscription = session.subscriptions[name] = subscription_in(name, value)
            self.server.subscribing.restore(session, subscription)
        for session in self.sessions.values():
            self.server.access.restored(session)

    def _read_received(self) -> None:
        for key, _ in self.backend.scan(RECEIVED):
            self.sessions[number_in(key)].received.add(int.from_bytes(key[9:], "big"))
        for session in self.sessions.values():
            self.server.access.quotas.restored(session)

    def _read_groups(self) -> None:
        for key, value in self.backend.scan(GROUP):
            share, filter = json.loads(value)
            group = self.server.router.groups.get(share, filter)
            number = self._number(key)
            if group is None and self.server.config.cluster.enabled:
                group = self.server.router.groups.hold(share, filter)  # others may have members, whom it waits for
            if group is None:
                self.journal.group_is_gone(number)
            else:
                group.number = number
            self.groups[number] = group

    # ---- messages ----------------------------------------------------------------------------------------------

    def _read_deliveries(self) -> None:
        for key, _ in self.backend.scan(MESSAGE):
            number = self._number(key)
            journaled = self.journaled[number] = JournaledMessage(number, None, b"", b"", 0, "")
            journaled.written = True
        for key, value in self.backend.scan(DELIVERY):
            owner = number_in(key)
            message, qos, retain, released, packet_id, size, identifiers, name = delivery_in(value)
            entry = DurableDelivery(self._number(key, 9), owner, self.journaled[message], qos)
            entry.written = True
            entry.journaled.references += 1
            entry.packet_id = packet_id
            entry.released = released
            entry.retain = retain
            entry.identifiers = identifiers
            entry.group = self._group_of(name)
            if owner not in self.sessions:
                # Perhaps it has ended, and this was still to be removed, or a member that is not kept still had it.
                self.groups.setdefault(owner, None)
            self._restore(entry, size)
            self.deliveries += 1
        for journaled in self.journaled.values():
            if journaled.references == 0:
                self.journal.unreferenced(journaled)
        for entry in self.nobodys:
            self.journal.done(entry)

    def _group_of(self, name: str) -> Group | None:
        if not name:
            return None
        share, filter = split_shared(name)
        return None if share is None else self.server.router.groups.get(share, filter)

    def _restore(self, entry: DurableDelivery, size: int) -> None:
        delivery = Delivery(AWAY, entry.qos, entry.retain, entry.identifiers, entry.group)
        delivery.journaled = entry
        session = self.sessions.get(entry.owner)
        if session is not None and entry.group is not None:
            session.in_groups = True
            group = cast(Group, entry.group)
            member = group.member(session)
            if member is not None:
                group.sent(member, size, entry.qos, self.now)
        if session is not None and entry.packet_id:
            flight = Flight(entry.qos, None if entry.released else delivery, b"", b"", 0, 0)
            flight.group = entry.group
            flight.released = entry.released
            flight.journaled = entry
            session.outbound.restore_flight(entry.packet_id, flight)
            return
        queue: DeliveryQueue
        if session is not None:
            queue = session.outbound
        else:
            owner = self.groups[entry.owner]
            if owner is None:
                self.nobodys.append(entry)
                return
            delivery.group = owner
            queue = self.server.sharing.queue(owner)
            self.journal.restored(entry.owner, queue)
        entry.delivery = delivery
        queue.restore(delivery, size)

    def _read_retained(self) -> None:
        retained = self.server.router.retained
        changes, retained.changes = retained.changes, None
        for _, value in self.backend.scan(RETAINED):
            if not retained.put(message_in(value, self.offset)):
                self.left_out += 1
        retained.changes = changes
        self.journal.left_out = self.left_out > 0


def end_moves(server: Server) -> None:
    """This node is in no cluster any more: sessions that were on their way are its own, unless their clients have other
    ones here."""
    ending, now = server.ending, server.hot.now
    left, server.moved = server.moved, []
    for session in left:
        if session.client_id in server.sessions:
            session.moving = None
            ending.remove(session)
            continue
        server.sessions[session.client_id] = session
        if session.expiry_interval != FOR_EVER:
            ending.expire_at(session, now + session.expiry_interval)
    for session in server.sessions.values():
        if session.moving is not None:
            session.moving = None
            if server.journal is not None:
                server.journal.session_changed(session)


def recover(server: Server, backend: Backend, journal: Journal) -> Recovered:
    """Take up what is on disk. StorageError: a record cannot be understood."""
    collecting = gc.isenabled()
    gc.disable()  # millions of objects come, none goes: looking for garbage among them took most of the time
    try:
        return Recovery(server, backend, journal).run()
    finally:
        if collecting:
            gc.enable()
