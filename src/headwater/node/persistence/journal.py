"""What has changed and is not on disk yet, and the acknowledgements that wait for it.

Theory. An acknowledgement is a promise, so it may not leave before what it promises is on disk ("output commit").
Waiting for a disk takes as long as thousands of packets, so nobody waits alone ("group commit"): while one commit is on
its way, changes collect for the next, and what depends on them is withheld.

    packet -> change, of commit n; the answer is written to a channel whose barrier becomes n
    end of turn -> if no commit runs, all changes become batch n; a thread writes and syncs it; changes are of n+1 now
    batch n is on disk -> bytes withheld up to barrier n are sent

Only channels that were promised something wait; QoS 0 and QoS 1 on their way to subscribers do not, unless they go to
the delivery store first (node/delivery/coordinator.py). What has a barrier: PUBACK, PUBREC, PUBCOMP, CONNACK, SUBACK,
UNSUBACK; PUBREL, because after it the receiver forgets the packet id; and a PUBLISH with QoS 2, because the message may
never go out again with another id, or to another member of its group.
Commits are in the order of changes and atomic, so what is found after a crash is the broker as it was at the end of
some turn, at or after the last promise.

A delivery that is done before the commit it belongs to has begun leaves no trace: with subscribers that keep up, much
of the traffic never comes to the disk, and its acknowledgements wait for nothing but the commit before.

With durability `async` nothing has a barrier, and commits begin `interval` seconds after the first change.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, cast

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
from headwater.node.plane.channel import Channel
from headwater.node.plane.turn import Journaling, Turn
from headwater.routing.retained import Retained
from headwater.routing.shared import Group
from headwater.session.journaled import AWAY, DurableDelivery, JournaledMessage
from headwater.session.session import Session
from headwater.session.waiting import Budget, DeliveryQueue

MANY: Final = 512
"""Changed deliveries from which on `async` does not wait for its interval."""
MUCH: Final = 1 << 20
"""Bytes for the delivery store from which on it does not, either."""
NEVER_WITHHELD: Final = 1 << 62


class Journal(Journaling):
    def __init__(self, turn: Turn, retained: Retained, budget: Budget, committer: Committer) -> None:
        self.turn = turn
        self.retained = retained
        self.budget = budget
        self.committer = committer
        self.interval = 0.0
        self.memory = 0
        """Bytes that may wait in memory before the content of more is put away."""
        self.sequence = 1
        """The commit that a change made now will be part of."""
        self.next_number = 1
        self.running = False
        self.scheduled = False
        self.changed = False
        self.commits = 0
        self.syncs = 0
        self.seconds = 0.0
        """That commits have taken."""
        self._deliveries: dict[DurableDelivery, None] = {}
        self._deletes: list[bytes] = []
        self._gone_for_good = False
        self._together = False
        self._sessions: dict[Session, None] = {}
        self._records: dict[bytes, bytes | None] = {}
        self._queues: dict[int, DeliveryQueue] = {}
        """Of the sessions and groups, by their numbers."""
        self._listeners: deque[tuple[int, Callable[[], None]]] = deque()
        """To be told when a commit is on disk."""
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

    # ---- promises ----------------------------------------------------------------------------------------------

    def promise(self, channel: Channel) -> None:
        """What was written to the channel in this turn depends on what has changed until now."""
        channel.barrier = self.sequence
        self.turn.changed = True

    def promise_gone(self, channel: Channel) -> None:
        """The same, if it depends on what is done, too: after a crash that must not be found again."""
        self._gone_for_good = True
        self.promise(channel)

    def tell_when_durable(self, tell: Callable[[], None]) -> None:
        """As `promise`, for those who have no channel: `tell` is called when all that has changed until now is on disk,
        with `async` at once."""
        if self.interval > 0.0:
            tell()
        else:
            self._listeners.append((self.sequence, tell))
            self.turn.changed = True

    def failed(self) -> None:
        """The disk has failed: nothing will be durable any more. Nobody is left waiting for it."""
        self._tell(NEVER_WITHHELD)

    def _tell(self, sequence: int) -> None:
        while self._listeners and self._listeners[0][0] <= sequence:
            self._listeners.popleft()[1]()

    # ---- commits -----------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        self.turn.changed = False
        self.changed = True
        if self.running:
            return
        if self.interval > 0.0 and len(self._deliveries) < MANY and not self._is_urgent():
            if not self.scheduled:
                self.scheduled = True
                self.committer.later(self.interval)
            return
        self.begin()

    def _is_urgent(self) -> bool:
        if self.contributor is not None and self.contributor.is_owed():
            return True
        return self.coordinator is not None and self.coordinator.intake.taken.size >= MUCH

    def go_together(self) -> None:
        """Some of what has changed must not be missing where the store has the messages of this commit."""
        self._together = True

    def begin(self) -> None:
        """Start a commit of all that has changed, unless one is on its way."""
        self.scheduled = False
        if self.running or not self.changed:
            return
        self.changed = False
        try:
            batch = self._batch()
        except Exception as error:
            self.running = True  # for ever: some of it counts as written now, and is not
            self.committer.give_up(error)
            return
        self.sequence += 1
        if batch.puts or batch.deletes or batch.taken is not None:
            self.running = True
            self.commits += 1
            self.syncs += batch.promises
            self.committer.start(batch)
        else:
            self._durable(batch.sequence)
            if self.contributor is not None:
                self.contributor.on_disk(batch.sequence)

    def finished(self, batch: Batch) -> None:
        """The batch is on disk."""
        self.running = False
        if batch.taken is not None and self.coordinator is not None:
            self.coordinator.on_disk(batch.taken)
        self._durable(batch.sequence)
        if self.contributor is not None:
            self.contributor.on_disk(batch.sequence)
        if self.budget.used > self.memory:
            for entry in batch.waiting:
                self._put_away(entry)
        if self.changed:
            self.changed = False
            self.turn.changed = True

    def _durable(self, sequence: int) -> None:
        if self.interval == 0.0:
            self.turn.durable = sequence
            if self.turn.withholding:
                self.turn.release()
            self._tell(sequence)

    def _put_away(self, entry: DurableDelivery) -> None:
        delivery = entry.delivery
        queue = self._queues.get(entry.owner)
        if delivery is not None and queue is not None and delivery.message is not AWAY and entry.packet_id == 0:
            queue.put_away(delivery)
            entry.journaled.message = None
            entry.journaled.head = entry.journaled.tail = b""

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
