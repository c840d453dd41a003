"""What has changed and is not on disk yet, as the records that a commit writes.

Theory. A change is noted where it happens, by the object that it is about (a session, a delivery) or by its record, and
written as it is when the commit is put together: what changes ten times in a turn is written once, and a delivery that
is done before the commit begins leaves no trace. Sessions, groups, messages and deliveries have numbers from one row,
which never come again.
"""

from __future__ import annotations

import time
from typing import cast

from headwater.message import Delivery, Message, Subscription
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.persistence.batch import Batch, Committer, Contributor
from headwater.node.persistence.records import (
    GROUP,
    MESSAGE,
    SESSION,
    delivery_key,
    delivery_record,
    group_record,
    message_in,
    message_record,
    number_key,
    received_key,
    record_of,
    retained_key,
    session_record,
    subscription_key,
    subscription_record,
)
from headwater.node.plane.turn import Journaling, Turn
from headwater.routing.retained import Retained
from headwater.routing.shared import Group
from headwater.session.journaled import AWAY, DurableDelivery, JournaledMessage
from headwater.session.session import Session
from headwater.session.waiting import DeliveryQueue


class Changes(Journaling):
    def __init__(self, turn: Turn, retained: Retained, committer: Committer) -> None:
        self.turn = turn
        self.retained = retained
        self.committer = committer
        self.sequence = 1
        """The commit that a change made now will be part of."""
        self.next_number = 1
        self._deliveries: dict[DurableDelivery, None] = {}
        self._deletes: list[bytes] = []
        self._gone_for_good = False
        self._together = False
        self._sessions: dict[Session, None] = {}
        self._records: dict[bytes, bytes | None] = {}
        self._queues: dict[int, DeliveryQueue] = {}
        """Of the sessions and groups, by their numbers."""
        self._retained: dict[str, Message | None] = {}
        retained.changes = self._retained
        self.left_out = False
        """There are retained messages on disk for which there is no room."""
        self.coordinator: Coordinator | None = None
        """Takes messages for the delivery store, which go there with the same commits."""
        self.contributor: Contributor | None = None

    # ---- sessions ----------------------------------------------------------------------------------------------

    def attached(self, session: Session) -> None:
        """A client is there. Its session is kept if it is to outlive the connection, or has a will."""
        if session.number == 0:
            if session.expiry_interval == 0 and session.will is None:
                return
            session.number = self.new_number()
            session.durable = session.expiry_interval > 0
            self._queues[session.number] = session.outbound
        self.session_changed(session)

    def session_changed(self, session: Session) -> None:
        if session.number:
            self._sessions[session] = None
            self._together = True  # it may be the end of a will
            self.turn.changed = True

    def session_ended(self, session: Session) -> None:
        """What else is known of it is ended by others, perhaps later; after a crash, recovery does it."""
        number = session.number
        if number:
            session.number = 0
            session.durable = False
            self._together = True
            self._sessions.pop(session, None)
            self._queues.pop(number, None)
            for packet_id in session.received:
                self._record(received_key(number, packet_id), None)
            self._record(number_key(SESSION, number), None)

    def subscribed(self, session: Session, name: str, subscription: Subscription) -> None:
        if session.durable:
            self._record(subscription_key(session.number, name), subscription_record(subscription))

    def unsubscribed(self, session: int, name: str) -> None:
        """A subscription of the session with this number, which may have ended, has ended."""
        self._record(subscription_key(session, name), None)

    def received(self, session: Session, packet_id: int) -> None:
        """A QoS 2 message came from the client; it must be known if it comes again."""
        if session.durable:
            self._together = True
            self._record(received_key(session.number, packet_id), b"")

    def forgotten(self, session: Session, packet_id: int) -> None:
        if session.durable:
            self._record(received_key(session.number, packet_id), None)

    # ---- shared groups -----------------------------------------------------------------------------------------

    def joined(self, group: Group) -> None:
        """A durable session is a member, so what waits in the group is kept."""
        if group.number == 0:
            group.number = self.new_number()
            self._record(number_key(GROUP, group.number), group_record(group.share, group.filter))

    def group_ended(self, group: Group) -> None:
        if group.number:
            self._queues.pop(group.number, None)
            self._record(number_key(GROUP, group.number), None)
            group.number = 0

    def keep_in_group(self, group: Group, queue: DeliveryQueue, delivery: Delivery) -> None:
        """The delivery waits in the group's queue for any member."""
        if group.number and delivery.qos:
            self._queues[group.number] = queue
            self.keep(group.number, delivery)

    def keep_for_group(self, delivery: Delivery) -> DurableDelivery | None:
        """It waits for, or went to, a member whose session is not kept: after a crash it is the group's again, if that
        is kept."""
        group = cast(Group, delivery.group)
        if group.number == 0:
            return None
        entry = self.keep(group.number, Delivery(delivery.message, delivery.qos, False, None, group))
        entry.delivery = None
        return entry

    # ---- retained messages -------------------------------------------------------------------------------------

    def not_retained(self, message: Message) -> None:
        """There was no room for it, or it is empty and there was nothing to remove. If its topic has one on disk only,
        that is out of date, and this one takes its place there."""
        if self.has_left_out(message.topic):
            self._retained[message.topic] = message if message.payload else None
            self.turn.changed = True

    def has_left_out(self, topic: str) -> bool:
        """Whether the topic has one on disk only."""
        return self.left_out and self.committer.has(retained_key(topic))

    # ---- deliveries --------------------------------------------------------------------------------------------

    def packet(self, head: bytes, tail: bytes, version: int, publisher: str) -> JournaledMessage:
        """A message of the hot path; nothing is written unless a delivery of it is kept."""
        return JournaledMessage(self.new_number(), None, head, tail, version, publisher)

    def keep(self, owner: int, delivery: Delivery) -> DurableDelivery:
        """A delivery of QoS 1 or 2 is now its owner's."""
        message = delivery.message
        journaled = cast("JournaledMessage | None", message.journaled)
        if journaled is None:
            journaled = JournaledMessage(self.new_number(), message, b"", b"", 0, "")
            message.journaled = journaled
        elif journaled.message is None and not journaled.head:
            journaled.message = message  # it was away or done with, and may have to be written again
        entry = self.keep_journaled(owner, journaled, delivery.qos)
        entry.retain = delivery.retain
        entry.identifiers = delivery.identifiers
        entry.group = delivery.group
        entry.delivery = delivery
        delivery.journaled = entry
        return entry

    def keep_journaled(self, owner: int, journaled: JournaledMessage, qos: int) -> DurableDelivery:
        number = self.next_number
        self.next_number = number + 1
        entry = DurableDelivery(number, owner, journaled, qos)
        journaled.references += 1
        self._deliveries[entry] = None
        self.turn.changed = True
        return entry

    def flown(self, entry: DurableDelivery, packet_id: int) -> None:
        """It went out with this packet id."""
        entry.packet_id = packet_id
        entry.delivery = None
        self._deliveries[entry] = None
        self.turn.changed = True

    def released(self, entry: DurableDelivery) -> None:
        """The receiver has the QoS 2 message; what is left is to have it forget the id."""
        entry.released = True
        self._deliveries[entry] = None
        self.turn.changed = True

    def done(self, entry: DurableDelivery) -> None:
        """It has come to its end, whichever."""
        self._deliveries.pop(entry, None)
        entry.delivery = None
        if entry.written:
            self._deletes.append(delivery_key(entry.owner, entry.number))
        journaled = entry.journaled
        journaled.references -= 1
        if journaled.references == 0:
            journaled.message = None  # which knows it, too: without this, both would wait for the garbage collector
            if journaled.written:
                journaled.written = False
                self._deletes.append(number_key(MESSAGE, journaled.number))
                journaled.number = self.new_number()
        self.turn.changed = True

    def fetch(self, delivery: Delivery) -> None:
        """Bring back the content of a message that was put away."""
        if delivery.message is AWAY:
            journaled = cast(DurableDelivery, delivery.journaled).journaled
            delivery.message = self.message_of(journaled)

    def message_of(self, journaled: JournaledMessage) -> Message:
        message = journaled.message
        if message is not None:
            return message
        record = self.committer.read(number_key(MESSAGE, journaled.number))
        if record is None:
            raise RuntimeError(f"message {journaled.number} is not where it was put")
        message = message_in(record, time.time() - time.monotonic())
        message.journaled = journaled
        return message

    # ---- recovery ----------------------------------------------------------------------------------------------

    def restored(self, owner: int, queue: DeliveryQueue) -> None:
        """A session or a group is there that was on disk."""
        self._queues[owner] = queue

    def group_is_gone(self, number: int) -> None:
        """A group is on disk that nobody is in any more."""
        self._record(number_key(GROUP, number), None)

    def unreferenced(self, journaled: JournaledMessage) -> None:
        """A message is on disk that nobody waits for."""
        self._deletes.append(number_key(MESSAGE, journaled.number))
        self.turn.changed = True

    # ---- records -----------------------------------------------------------------------------------------------

    def go_together(self) -> None:
        """Some of what has changed must not be missing where the store has the messages of this commit."""
        self._together = True

    def _record(self, key: bytes, value: bytes | None) -> None:
        self._records[key] = value
        self.turn.changed = True

    def new_number(self) -> int:
        number = self.next_number
        self.next_number = number + 1
        return number

    def _batch(self) -> Batch:
        batch = Batch(self.sequence)
        puts = batch.puts
        offset = time.time() - time.monotonic()
        for entry in self._deliveries:
            journaled = entry.journaled
            if not journaled.written:
                journaled.written = True
                puts.append((number_key(MESSAGE, journaled.number), message_record(journaled, offset)))
            delivery = entry.delivery
            size = 0
            if delivery is not None:
                size = delivery.size
                batch.waiting.append(entry)
            group = "" if entry.group is None else cast(Group, entry.group).name
            puts.append((delivery_key(entry.owner, entry.number), delivery_record(entry, size, group)))
            entry.written = True
        self._deliveries.clear()
        for session in self._sessions:
            puts.append((number_key(SESSION, session.number), session_record(session, offset)))
        self._sessions.clear()
        for key, value in self._records.items():
            if value is None:
                batch.deletes.append(key)
            else:
                puts.append((key, value))
        for topic, message in self._retained.items():
            if message is None:
                batch.deletes.append(retained_key(topic))
            else:
                puts.append((retained_key(topic), record_of(message, offset)))
        if self.contributor is not None:
            self.contributor.fill(batch)
        batch.promises = self._gone_for_good or bool(puts or batch.deletes)
        batch.deletes += self._deletes
        self._records.clear()
        self._retained.clear()
        self._deletes = []
        self._gone_for_good = False
        if self.coordinator is not None:
            batch.taken = self.coordinator.hand_over()
            batch.together = self._together and batch.taken is not None
        self._together = False
        return batch
