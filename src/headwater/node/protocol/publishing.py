"""PUBLISH and its acknowledgements, in both directions (MQTT 5.0, 3.3 … 3.7 and 4.3)."""

from __future__ import annotations

import logging
from typing import Final

from headwater.message import NEVER, Delivery, Message
from headwater.node.access.access import Access
from headwater.node.destinations.destination import Fanout
from headwater.node.plane.channel import Channel
from headwater.node.plane.stats import TOO_MANY_TOPICS
from headwater.node.protocol.admission import Admission
from headwater.node.protocol.core import Core
from headwater.node.protocol.delivering import Delivering
from headwater.routing.topics import InvalidTopicName, check_name, is_guarded, is_reserved
from headwater.session.outbound import Flight
from headwater.session.session import Session
from headwater.session.translate import message_of
from headwater.wire.errors import MisplacedPacketError, RemoteProtocolError
from headwater.wire.packets import V5, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from headwater.wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PACKET_IDENTIFIER_NOT_FOUND,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_NAME_INVALID,
)

log = logging.getLogger("headwater.access")
log_drops = logging.getLogger("headwater.store")
log_retained = logging.getLogger("headwater.server")

TELL_AGAIN: Final = 60.0
"""Seconds between two lines of the log about the same lack."""

WAIT: Final = -1
"""In place of a reason code: there is no room now, and the client cannot be told so."""


class Publishing:
    def __init__(self, core: Core, access: Access, admission: Admission, delivering: Delivering) -> None:
        self.core = core
        self.access = access
        self.admission = admission
        self.delivering = delivering
        config = core.config
        self.max_payload_size = config.max_payload_size
        self.retain_available = config.retain_available
        self.receive_maximum = config.receive_maximum
        self.max_topic_length = config.max_topic_length
        self.max_topic_levels = config.max_topic_levels
        self._told_at = -NEVER

    def packet(self, channel: Channel, packet: Packet) -> bool:
        """Deal with a packet if it is one of these."""
        if isinstance(packet, Publish):
            self.publish(channel, packet)
        elif isinstance(packet, Puback):
            self.puback(channel, packet)
        elif isinstance(packet, Pubrec):
            self.pubrec(channel, packet)
        elif isinstance(packet, Pubrel):
            self.pubrel(channel, packet)
        elif isinstance(packet, Pubcomp):
            self.pubcomp(channel, packet)
        else:
            return False
        return True

    def publish(self, channel: Channel, packet: Publish) -> None:
        self.core.stats.publish_received += 1
        topic = channel.topic_of(packet)
        self._check(channel, packet, topic)
        self.take(channel, packet, topic)

    def take(self, channel: Channel, packet: Publish, topic: str) -> None:
        """Route a PUBLISH that is as it should be, and acknowledge it; where that has to wait, later."""
        session = channel.session
        assert session is not None
        journal = self.core.journal
        if packet.qos == 2 and not self._is_new(channel, session, packet):
            self.core.send(channel, Pubrec(packet.packet_id))
            self.core.promise(channel)
            return
        reason = self._accept(channel, session, packet, topic)
        if reason == WAIT:
            self.admission.wait(channel, packet, topic)
            return
        if journal is not None and packet.qos:
            if packet.qos == 2 and reason < 0x80:
                journal.received(session, packet.packet_id)
            journal.promise(channel)
        if packet.qos == 1:
            self.core.send(channel, Puback(packet.packet_id, reason))
        elif packet.qos == 2 and packet.packet_id not in session.received:
            if reason < 0x80:
                session.received.add(packet.packet_id)
            self.core.send(channel, Pubrec(packet.packet_id, reason))

    def _check(self, channel: Channel, packet: Publish, topic: str) -> None:
        if packet.qos > channel.max_qos:
            raise RemoteProtocolError(QOS_NOT_SUPPORTED, f"QoS {packet.qos} is not supported")  # [MQTT-3.2.2-11]
        if packet.retain and not self.retain_available:
            raise RemoteProtocolError(RETAIN_NOT_SUPPORTED, "retained messages are not supported")  # [MQTT-3.2.2-14]
        if len(topic.encode()) > self.max_topic_length:
            raise RemoteProtocolError(TOPIC_NAME_INVALID, "the topic is too long")
        try:
            check_name(topic, self.max_topic_levels)
        except InvalidTopicName as error:
            raise RemoteProtocolError(TOPIC_NAME_INVALID, str(error)) from None

    def _is_new(self, channel: Channel, session: Session, packet: Publish) -> bool:
        """[MQTT-4.3.3-10] A QoS 2 packet id that is not released yet is the same message again."""
        if packet.packet_id in session.received:
            return False
        if channel.version == V5 and len(session.received) >= self.receive_maximum:  # [MQTT-3.3.4-9]
            raise RemoteProtocolError(RECEIVE_MAXIMUM_EXCEEDED, "more QoS 2 messages are open than allowed")
        if not self.access.quotas.room_for_received(session):
            raise RemoteProtocolError(QUOTA_EXCEEDED, "no memory for more open QoS 2 messages")
        return True

    def _accept(self, channel: Channel, session: Session, packet: Publish, topic: str) -> int:
        """Route a client's message; returns the reason code to acknowledge it with."""
        core = self.core
        v5 = channel.version == V5
        if is_reserved(topic):
            return NOT_AUTHORIZED if v5 else SUCCESS
        refused = channel.rights is not None and not channel.rights.publishes(topic.encode())
        if refused or (is_guarded(topic) and not self.access.may_steer(channel.rights, channel.client_id)):
            self.access.refused_publishes += 1
            log.debug("%r (%s) may not publish to %.200r", channel.client_id, channel.address, topic)
            return NOT_AUTHORIZED if v5 else SUCCESS
        if self.max_payload_size and len(packet.payload) > self.max_payload_size:
            return IMPLEMENTATION_SPECIFIC_ERROR if v5 else SUCCESS  # 0x95 is not for acknowledgements
        if packet.qos and self.admission.refuses(channel, topic):
            return QUOTA_EXCEEDED if self.admission.can_be_told(channel) else WAIT
        if core.hooks.slow:
            refusal = core.hooks.allow("acl_check", channel, topic, True)
            if refusal is not None:
                return refusal.reason if v5 else SUCCESS
        message = message_of(packet, channel.client_id, core.hot.now)
        message.topic = topic
        if core.hooks.slow:
            message = core.hooks.transform("publish", message, channel)
        if self.is_refused(message):
            return QUOTA_EXCEEDED if v5 else SUCCESS
        if message.retain and not self._can_be_retained(message, session.username) and v5 and packet.qos:
            return QUOTA_EXCEEDED
        if packet.qos == 2 and core.config.terse:
            session.received.add(packet.packet_id)
            core.promise(channel)
            core.send(channel, Pubrec(packet.packet_id))  # ahead of the copy that the client itself may get
            self._route(message, session)
            return SUCCESS
        found = self._route(message, session)
        return SUCCESS if found or not v5 else NO_MATCHING_SUBSCRIBERS

    def is_refused(self, message: Message) -> bool:
        """Whether its topic would be one too many for the delivery store; that it is dropped, then, has been told."""
        coordinator = self.core.coordinator
        if coordinator is None or coordinator.admits(message.topic):
            return False
        self.core.stats.drops[TOO_MANY_TOPICS] += 1
        log_drops.debug("%.200r is a topic too many for the store", message.topic)
        self.core.hooks.tell("publish_dropped", message.publisher, message)
        return True

    def route(self, message: Message, publisher: Session | None) -> bool:
        """Store a message if its topic is stored, retain it if it asks for it, and give it to all who want it; False
        when nobody does, or when it is refused."""
        return not self.is_refused(message) and self._route(message, publisher)

    def _route(self, message: Message, publisher: Session | None) -> bool:
        core = self.core
        if core.coordinator is not None:
            core.coordinator.clean(message)
        fanout = core.hot.fanouts.of(message.topic)
        if fanout.store is not None:
            fanout.store.deliver(message, publisher)
        if message.retain:
            message.owner = self.access.owner(publisher)
            if publisher is not None:
                message.user = publisher.username
            self._retain(message)
        if core.hooks.slow:
            self._hand_over_selected(fanout, message, publisher)
        else:
            for destination in fanout.destinations:
                destination.deliver(message, publisher)
        return fanout.somebody

    def _can_be_retained(self, message: Message, username: str | None) -> bool:
        """Whether there is room for it; if not, that is counted and logged, whether or not its publisher is told."""
        message.user = username
        if not message.payload or self.core.router.retained.fits(message):
            return True
        journal = self.core.journal
        if journal is not None and journal.has_left_out(message.topic):
            return True
        self.core.stats.retained_refused += 1
        now = self.core.hot.now
        if now >= self._told_at + TELL_AGAIN:
            self._told_at = now
            log_retained.warning(
                "no room for a retained message of %.200r (user %.200r): see max_retained, max_retained_bytes and the "
                "same per user; %d until now",
                message.topic,
                username,
                self.core.stats.retained_refused,
            )
        return False

    def _retain(self, message: Message) -> None:
        if self.core.router.retain(message):
            self.core.hot.changed = self.core.journal is not None
            self.core.hooks.tell("retain_message", message)
        elif self.core.journal is not None:
            self.core.journal.not_retained(message)

    def _hand_over_selected(self, fanout: Fanout, message: Message, publisher: Session | None) -> None:
        """To all destinations, with hooks that may change who gets it."""
        core = self.core
        chosen: list[tuple[Session, Delivery]] = []
        for destination in fanout.destinations:
            destination.choose(message, publisher, chosen)
        for session, delivery in core.hooks.transform("select_subscribers", chosen, message):
            one = delivery
            if delivery.journaled is not None:  # a hook gives it to several: it is one for each
                one = Delivery(message, delivery.qos, delivery.retain, delivery.identifiers, delivery.group)
                one.positions = delivery.positions
            self.delivering.offer(session, one)
        core.hooks.tell("published", message)

    def puback(self, channel: Channel, packet: Puback) -> None:
        session = channel.session
        assert session is not None
        flight = session.outbound.acknowledged(packet.packet_id)
        if flight is not None:
            self._complete(channel, session, packet.packet_id, flight)
        elif packet.packet_id in session.outbound.flights:
            raise MisplacedPacketError("PUBACK for a message of QoS 2")

    def pubrec(self, channel: Channel, packet: Pubrec) -> None:
        session = channel.session
        assert session is not None
        flight = session.outbound.received(packet.packet_id, packet.reason)
        if flight is None and packet.packet_id in session.outbound.flights:
            raise MisplacedPacketError("PUBREC for a message of QoS 1")
        if flight is None:
            reason = PACKET_IDENTIFIER_NOT_FOUND if channel.version == V5 else SUCCESS
            if packet.reason < 0x80:
                self.core.send(channel, Pubrel(packet.packet_id, reason))
        elif flight.released:
            if flight.journaled is not None and self.core.journal is not None:
                self.core.journal.released(flight.journaled)
                self.core.promise(channel)
            self.core.send(channel, Pubrel(packet.packet_id))
        else:
            self.delivering.landed(flight)
            self.delivering.ended(session, flight.group, 1)
            self.core.hooks.tell("qos_dropped", session.client_id, packet.packet_id)
            self.delivering.drain(channel)

    def pubrel(self, channel: Channel, packet: Pubrel) -> None:
        session = channel.session
        assert session is not None
        reason = SUCCESS
        if packet.packet_id in session.received:
            session.received.discard(packet.packet_id)
            if not session.received:
                self.access.quotas.none_received(session)
            if self.core.journal is not None:
                self.core.journal.forgotten(session, packet.packet_id)
                self.core.promise(channel)
        elif channel.version == V5 and not self.core.config.terse:
            reason = PACKET_IDENTIFIER_NOT_FOUND
        self.core.send(channel, Pubcomp(packet.packet_id, reason))

    def pubcomp(self, channel: Channel, packet: Pubcomp) -> None:
        session = channel.session
        assert session is not None
        flight = session.outbound.completed(packet.packet_id)
        if flight is not None:
            self._complete(channel, session, packet.packet_id, flight)
        elif packet.packet_id in session.outbound.flights:
            raise MisplacedPacketError("PUBCOMP for a message that was not released")

    def _complete(self, channel: Channel, session: Session, packet_id: int, flight: Flight) -> None:
        self.delivering.landed(flight)
        self.delivering.ended(session, flight.group, 1)
        if self.core.hooks.slow:
            self.core.hooks.tell("qos_complete", session.client_id, packet_id)
        self.delivering.drain(channel)
        if channel.shares and session.outbound.flights:
            self.delivering.hasten(channel)
