"""From a message and a recipient to bytes on a channel, a place in a queue, or nowhere: the ordinary way of a delivery.

    recipient or group -> Delivery (QoS, retain, identifiers) -> offer -> sent now | queued | dropped by a stated policy

Who is told of a drop of QoS 1 or 2: the publisher, before it is acknowledged, where memory is short (admission.py); the
log and the counters, where the policy of a full queue was chosen.
What is offered never overtakes what waits, and what a fan-out of this turn still holds is settled first.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING, Final, cast

from headwater.message import Delivery, Message
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel, Deliver
from headwater.node.plane.counters import EXPIRED, NOT_AUTHORIZED, QUEUE_FULL, SLOW_READER, TOO_LARGE
from headwater.node.plane.sending import HEADERS
from headwater.node.protocol.core import Core
from headwater.routing.dispatcher import Member
from headwater.routing.router import Recipient
from headwater.routing.shared import Group
from headwater.session.connection import CONNECTED
from headwater.session.journaled import AWAY, DurableDelivery
from headwater.session.outbound import MAX_PACKET_ID, Flight
from headwater.session.session import Session
from headwater.session.waiting import DISCONNECT_WHEN_FULL, OVERFLOW, QUEUED, SEND, DeliveryQueue
from headwater.wire.encode import encode
from headwater.wire.packets import Pubrel
from headwater.wire.reasons import QUOTA_EXCEEDED

if TYPE_CHECKING:
    from headwater.node.persistence.journal import Journal
    from headwater.node.protocol.retained_sender import RetainedSender
    from headwater.node.protocol.sharing import Sharing

log = logging.getLogger("headwater.server")

BURST: Final = 1 << 20
"""Bytes above `outbound_buffer` that one turn may write for one reader before its QoS 0 messages are dropped: small
packets can ask for much (SUBSCRIBE for all retained messages, PUBLISH by alias to a long topic)."""

SOME: Final = 16
"""Waiting messages that are sent between two looks at the clock."""
TELL_AGAIN: Final = 60.0
"""Seconds between two lines of the log about one full queue."""


def _member(session: Session, group: object) -> Member | None:
    """The session's part in a group; None for deliveries that no group chose, and for sessions that have left it."""
    return None if group is None else cast(Group, group).member(session)


def is_behind(channel: Channel, session: Session) -> bool:
    """Whether something waits for the client already, so that what comes has to wait as well."""
    outbound = session.outbound
    return channel.congested or outbound.waiting() > 0 or bool(outbound.unsent)


class Delivering(Deliver):
    retained_sender: RetainedSender
    sharing: Sharing

    def __init__(self, core: Core) -> None:
        self.core = core
        self.journal: Journal | None = None
        self.flood = core.config.outbound_buffer + BURST

    def deliver(self, recipient: Recipient, message: Message, publisher: Session | None) -> None:
        session = cast(Session, recipient.session)
        delivery = recipient.delivery(message, session is publisher)
        if delivery is not None:
            self.offer(session, delivery)

    def deliver_alike(self, recipients: list[Recipient], message: Message, publisher: Session | None) -> None:
        """Give a message to recipients without wishes of their own. Those who get it with QoS 0 and now get the same
        bytes, made once for each version of the protocol: a will for a hundred readers took half a millisecond."""
        hot = self.core.hot
        if hot.open:
            hot.settle_all()
        packets: dict[int, bytes] = {}
        for recipient in recipients:
            channel = cast("Channel | None", cast(Session, recipient.session).connection)
            if channel is None or (message.qos and recipient.qos) or not self._takes_now(channel, message):
                self.deliver(recipient, message, publisher)
                continue
            version = channel.version
            retain = message.retain and recipient.retain_as_published
            kind = version << 1 | retain
            packet = packets.get(kind)
            if packet is None:
                delivery = Delivery(message, 0, retain)
                packet = packets[kind] = encode(channel.publish_packet(delivery, 0, False, hot.now), version)
            channel.out_size += len(packet)
            hot.send0(channel, packet, 1, version, message.commit)

    def _takes_now(self, channel: Channel, message: Message) -> bool:
        """Whether a QoS 0 message may go out as it is; else `offer` finds out what becomes of it."""
        return (
            channel.state == CONNECTED
            and not channel.held
            and channel.out_size <= self.flood
            and not channel.max_packet_out
            and not channel.alias_limit_out
            and message.expires_at > self.core.hot.now
            and (channel.rights is None or channel.rights.receives(message.topic))
        )

    def offer(self, session: Session, delivery: Delivery) -> None:
        if session.moving is not None and session.moving.offered(delivery):
            return
        if delivery.positions and self.core.coordinator is not None:
            delivery.message = self.core.coordinator.marked(delivery.message)
        channel = cast("Channel | None", session.connection)
        if channel is None and (delivery.qos == 0 or self._has_ended(session)):
            return
        if channel is not None and self.core.hot.open:
            self.core.hot.settle_all()  # what a fan-out holds came earlier: it must not be overtaken
        if session.pending_retained is not None and not self.retained_sender.before(session, delivery):
            self._no_room(session, channel, delivery)
            return
        if delivery.group is not None:
            self._given(session, delivery)
        if delivery.message.expires_at <= self.core.hot.now:
            self.dropped(session, delivery, EXPIRED)
            return
        congested = channel is not None and channel.congested
        if delivery.qos == 0 and channel is not None and (congested or channel.out_size > self.flood):
            self.dropped(session, delivery, SLOW_READER)
            return
        outbound = session.outbound
        result = outbound.offer(delivery, channel is not None and not congested)
        if result == SEND:
            assert channel is not None
            self.send_delivery(channel, session, delivery)
        elif result == QUEUED:
            if delivery.qos and self.journal is not None:
                if session.durable:
                    self.journal.keep(session.number, delivery)
                elif delivery.group is not None:
                    delivery.journaled = self.journal.keep_for_group(delivery)
            if channel is not None:
                channel.held = True
            if outbound.given_up is not None:
                self._tell_given_up(session)
            if len(outbound.flights) == MAX_PACKET_ID:
                self.core.hooks.tell("packet_id_exhausted", session.client_id)
        elif result == OVERFLOW:
            self._no_room(session, channel, delivery)
        else:
            self._gave_way(session, delivery)

    def _has_ended(self, session: Session) -> bool:
        """But for subscriptions that go in portions."""
        return self.core.sessions.get(session.client_id) is not session and session.moving is None

    def _no_room(self, session: Session, channel: Channel | None, delivery: Delivery) -> None:
        self._gave_way(session, delivery)
        if channel is not None and session.outbound.policy == DISCONNECT_WHEN_FULL:
            self.core.disconnect_soon(channel, QUOTA_EXCEEDED, "too many messages wait for this client")

    def send_delivery(self, channel: Channel, session: Session, delivery: Delivery) -> None:
        """Send a message now; the quota allows it."""
        if delivery.message is AWAY:
            self.fetch(delivery)
            if delivery.message.expires_at <= self.core.hot.now:
                self.dropped(session, delivery, EXPIRED)
                return
        if channel.rights is not None and not channel.rights.receives(delivery.message.topic):
            self.dropped(session, delivery, NOT_AUTHORIZED)  # it waited, and may not be received any more
            return
        packet_id = 0
        if delivery.qos:
            packet_id = session.outbound.take_id()  # there is one: the quota is at most MAX_PACKET_ID
        size = self.publish_to(channel, delivery, packet_id, False)
        if size == 0:
            self.dropped(session, delivery, TOO_LARGE)  # [MQTT-3.1.2-25] as if it had been sent
        elif packet_id:
            flight = session.outbound.fly(packet_id, delivery, size)
            if session.durable:
                self._flown(channel, session, delivery, packet_id, flight)
            elif delivery.group is not None and self.journal is not None:
                self._left_the_group(channel, delivery, flight)
            self.core.hooks.tell("qos_publish", session.client_id, packet_id, delivery.message)

    def _flown(self, channel: Channel, session: Session, delivery: Delivery, packet_id: int, flight: Flight) -> None:
        journal = self.journal
        if journal is not None:
            entry = cast("DurableDelivery | None", delivery.journaled)
            if entry is None:
                entry = journal.keep(session.number, delivery)
            journal.flown(entry, packet_id)
            flight.journaled = entry
            delivery.journaled = None  # it is the flight's now
            if delivery.qos == 2:
                journal.promise(channel)

    def _left_the_group(self, channel: Channel, delivery: Delivery, flight: Flight) -> None:
        """It went out to a member whose session ends with the process. QoS 1 that is not acknowledged by then is the
        group's again; what was begun with QoS 2 goes to nobody else [MQTT-4.8.2-5], so the group forgets it first."""
        journal = self.journal
        if journal is None:
            return
        if delivery.qos == 1:
            flight.journaled = cast("DurableDelivery | None", delivery.journaled) or journal.keep_for_group(delivery)
            delivery.journaled = None
        elif cast(Group, delivery.group).number:
            self.forget(delivery)
            journal.promise_gone(channel)

    def fetch(self, delivery: Delivery) -> None:
        """See that the content of a message is here."""
        if delivery.message is AWAY and self.journal is not None:
            self.journal.fetch(delivery)

    def forget(self, delivery: Delivery) -> None:
        """Nobody waits for this delivery any more."""
        if delivery.journaled is not None and self.journal is not None:
            self.journal.done(cast(DurableDelivery, delivery.journaled))
            delivery.journaled = None

    def landed(self, flight: Flight) -> None:
        """The same for one that was sent."""
        if flight.journaled is not None and self.journal is not None:
            self.journal.done(flight.journaled)
            flight.journaled = None

    def publish_to(self, channel: Channel, delivery: Delivery, packet_id: int, dup: bool) -> int:
        """Send a message; the packet's size, or 0 when it is larger than the client takes."""
        if delivery.message is AWAY:
            self.fetch(delivery)
        if delivery.message.commit > channel.barrier:
            channel.barrier = delivery.message.commit  # it is stored, and nobody sees it before that is so
        packet = channel.publish_packet(delivery, packet_id, dup, self.core.hot.now)
        size = self.core.send(channel, packet)
        if size:
            channel.published(packet, delivery.message.topic)
            self.core.stats.messages_sent += 1
        return size

    def dropped(self, session: Session, delivery: Delivery, reason: str) -> None:
        self.core.stats.drops[reason] += 1
        if delivery.journaled is not None:
            if self.core.hooks.listens("publish_dropped"):
                self.fetch(delivery)
            self.forget(delivery)
        member = _member(session, delivery.group)
        if member is not None:
            cast(Group, delivery.group).given_back(member, 1, delivery.qos, self.core.hot.now)
        self.core.hooks.tell("publish_dropped", session.client_id, delivery.message)

    def _given(self, session: Session, delivery: Delivery) -> None:
        """Tell a group's dispatcher what its choice has come to: from now on the message is the member's."""
        member = _member(session, delivery.group)
        if member is not None:
            size = len(delivery.message.payload) + len(delivery.message.topic) + HEADERS
            cast(Group, delivery.group).sent(member, size, delivery.qos, self.core.hot.now)

    def ended(self, session: Session, group: object, count: int) -> None:
        member = _member(session, group)
        if member is not None:
            cast(Group, group).acknowledged(member, self.core.hot.now, count)

    def hasten(self, channel: Channel) -> None:
        """Let TCP acknowledge at once what came: a client that does not switch off Nagle's algorithm (paho, say) holds
        back its next PUBACK until then, up to 40 ms, and a member would seem to be busy."""
        if channel.over_tcp and channel.socket is not None:
            channel.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _tell_given_up(self, session: Session) -> None:
        for delivery in session.outbound.take_given_up():
            if self.why_given_up(delivery) == EXPIRED:
                self.dropped(session, delivery, EXPIRED)
            else:
                self._gave_way(session, delivery)

    def _gave_way(self, session: Session, delivery: Delivery) -> None:
        """The session's queue is full: the policy that was chosen has cost this message."""
        self.dropped(session, delivery, QUEUE_FULL)
        if delivery.qos:
            self.tell_full(session.outbound, session.client_id)

    def tell_full(self, queue: DeliveryQueue, whose: str) -> None:
        """A message that was acknowledged gave way in a queue: say so, once in a while."""
        queue.untold += 1
        now = self.core.hot.now
        if now < queue.told_at + TELL_AGAIN:
            return
        log.warning(
            "the queue of %.200r is full (%d messages, %d bytes); dropped: %d (queue_full = %s)",
            whose,
            queue.waiting(),
            queue.queued_bytes,
            queue.untold,
            self.core.config.queue_full,
        )
        queue.told_at = now
        queue.untold = 0

    def why_given_up(self, delivery: Delivery) -> str:
        """A queue gives up what has expired, and what gives way to others."""
        return EXPIRED if delivery.message.expires_at <= self.core.hot.now else QUEUE_FULL

    def drain(self, channel: Channel) -> None:
        session = channel.session
        if session is None or channel.state != CONNECTED:
            return
        if self.core.hot.open:
            self.core.hot.settle_all()  # what a fan-out holds came later than what waits: it has to wait behind it
        outbound = session.outbound
        while self._send_some(channel, session):
            if time.monotonic() > self.core.hot.until:
                self._drain_later(channel)
                break
        if outbound.given_up is not None:
            self._tell_given_up(session)
        behind = is_behind(channel, session)
        channel.held = behind or session.pending_retained is not None
        if behind:
            return
        if channel.awaited:
            self.sharing.pull(channel, session)
        if session.pending_retained is not None:
            self.retained_sender.resume(channel, session)

    def _send_some(self, channel: Channel, session: Session) -> bool:
        """Some of what waits; False: nothing is left that may go now."""
        outbound = session.outbound
        if outbound.unsent:
            if outbound.quota <= 0:
                return False
            self.resend(channel, session, outbound.next_unsent(SOME))
            return True  # what is too large now gives its quota back
        for _ in range(SOME):
            if channel.congested:
                return False
            delivery = outbound.next_waiting(self.core.hot.now)
            if delivery is None:
                return False
            self.send_delivery(channel, session, delivery)
        return True

    def resend(self, channel: Channel, session: Session, packet_ids: list[int]) -> None:
        """[MQTT-4.4.0-1] What was in flight goes again, with DUP and its packet id."""
        outbound = session.outbound
        for packet_id in packet_ids:
            flight = outbound.flights[packet_id]
            if flight.released:
                self.core.send(channel, Pubrel(packet_id))
                continue
            delivery = session.flight_delivery(flight)
            if self.publish_to(channel, delivery, packet_id, True) == 0:
                outbound.done(packet_id, flight)  # [MQTT-3.1.2-25] too large for this client: as if it had been sent
                self.landed(flight)
                delivery.journaled = None  # it was the flight's, and has ended with it
                self.dropped(session, delivery, TOO_LARGE)
                self.core.hooks.tell("qos_dropped", session.client_id, packet_id)

    def _drain_later(self, channel: Channel) -> None:
        if not channel.draining:
            channel.draining = True
            self.core.background.add(_Draining(self, channel))


class _Draining(BackgroundTask):
    """Many messages wait for a client that takes them."""

    def __init__(self, delivering: Delivering, channel: Channel) -> None:
        self.delivering = delivering
        self.channel = channel

    def piece(self) -> bool:
        self.channel.draining = False
        self.delivering.drain(self.channel)
        return False  # `drain` adds another one if need be

    def failed(self) -> None:
        self.delivering.core.crashed(self.channel)
