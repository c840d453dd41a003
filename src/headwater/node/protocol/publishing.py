"""PUBLISH and its acknowledgements, in both directions (MQTT 5.0, 3.3 … 3.7 and 4.3)."""

from __future__ import annotations

from headwater.message import Delivery, Message
from headwater.node.access.access import Access
from headwater.node.destinations.destination import Fanout
from headwater.node.plane.channel import Channel
from headwater.node.protocol.admission import CLIENT, NO_ROOM, Admission, Publication
from headwater.node.protocol.core import Core
from headwater.node.protocol.delivering import Delivering
from headwater.node.protocol.handing_over import MOST, HandingOver, is_long
from headwater.node.protocol.publisher_waits import PublisherWaits
from headwater.session.outbound import Flight
from headwater.session.session import Session
from headwater.session.translate import message_of
from headwater.wire.errors import MisplacedPacketError, RemoteProtocolError
from headwater.wire.packets import V5, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from headwater.wire.reasons import (
    NO_MATCHING_SUBSCRIBERS,
    PACKET_IDENTIFIER_NOT_FOUND,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    SUCCESS,
)


class Publishing:
    def __init__(
        self, core: Core, access: Access, admission: Admission, waits: PublisherWaits, delivering: Delivering
    ) -> None:
        self.core = core
        self.access = access
        self.admission = admission
        self.waits = waits
        self.delivering = delivering
        self.receive_maximum = core.config.receive_maximum
        self.long_ones = 0
        """Messages that are being handed over in pieces."""

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
        self.core.stats.messages_received += 1
        topic = channel.topic_of(packet)
        message = message_of(packet, channel.client_id, self.core.hot.now)
        message.topic = topic
        publication = Publication(CLIENT, message, channel.session)
        publication.client = channel
        publication.address = channel.address
        publication.max_qos = channel.max_qos
        publication.is_told = channel.version == V5 and packet.qos > 0
        denied = self.admission.check(publication)
        if denied is not None:
            raise RemoteProtocolError(denied.reason, denied.text)
        self.take(channel, packet, publication)

    def take(self, channel: Channel, packet: Publish, publication: Publication) -> None:
        """Route a PUBLISH that is as it should be, and acknowledge it; where that has to wait, later."""
        session = channel.session
        assert session is not None
        if packet.qos == 2 and not self._is_new(channel, session, packet):
            self.core.send(channel, Pubrec(packet.packet_id))
            self.core.promise(channel)
            return
        publication.own_bytes = channel.counted
        denied = self.admission.admit(publication)
        if denied is None:
            self._accept(channel, session, packet, publication.message)
        elif denied.why == NO_ROOM and not self.waits.can_be_told(channel):
            self.waits.wait(channel, packet, publication)
        elif channel.version == V5:
            self.acknowledge(channel, session, packet, denied.reason)
        else:
            if packet.qos:
                self.admission.acknowledged(publication, denied)
            self.acknowledge(channel, session, packet, SUCCESS)

    def acknowledge(self, channel: Channel, session: Session, packet: Publish, reason: int) -> None:
        journal = self.core.journal
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

    def _is_new(self, channel: Channel, session: Session, packet: Publish) -> bool:
        """[MQTT-4.3.3-10] A QoS 2 packet id that is not released yet is the same message again."""
        if packet.packet_id in session.received:
            return False
        if channel.version == V5 and len(session.received) >= self.receive_maximum:  # [MQTT-3.3.4-9]
            raise RemoteProtocolError(RECEIVE_MAXIMUM_EXCEEDED, "more QoS 2 messages are open than allowed")
        if not self.access.quotas.room_for_received(session):
            raise RemoteProtocolError(QUOTA_EXCEEDED, "no memory for more open QoS 2 messages")
        return True

    def _accept(self, channel: Channel, session: Session, packet: Publish, message: Message) -> None:
        """Route a client's message and acknowledge it; if it is for very many, in pieces."""
        core = self.core
        if packet.qos == 2 and core.config.terse:
            session.received.add(packet.packet_id)
            core.promise(channel)
            core.send(channel, Pubrec(packet.packet_id))  # ahead of the copy that the client itself may get
            self.route(message, session)
            self.acknowledge(channel, session, packet, SUCCESS)
            return
        fanout = self._keep(message, session)
        reason = SUCCESS if fanout.somebody or channel.version != V5 else NO_MATCHING_SUBSCRIBERS
        if is_long(fanout, message) and self._may_take_turns(channel, packet):
            HandingOver(self, channel, session, packet, message, fanout, reason).begin()
            return
        self._hand_over(fanout, message, session)
        self.acknowledge(channel, session, packet, reason)

    def _may_take_turns(self, channel: Channel, packet: Publish) -> bool:
        core = self.core
        is_twice = packet.qos == 2 and core.journal is not None
        return not (is_twice or core.hooks.slow or channel.busy) and self.long_ones < MOST

    def announce(self, message: Message) -> None:
        """Publish what the broker says of itself (`$SYS`); only a topic too many for the store is in its way."""
        if self.admission.is_stored(message):
            self.route(message, None)

    def route(self, message: Message, publisher: Session | None) -> bool:
        """Store a message that was admitted if its topic is stored, retain it if it asks for it, and give it to all who
        want it; False when nobody does."""
        hot = self.core.hot
        if hot.outgoing is None or hot.fanouts is hot.own_fanouts:
            return self._route(message, publisher)
        hot.outgoing.begin_own()  # a hook publishes what follows from a message of another node
        try:
            return self._route(message, publisher)
        finally:
            hot.outgoing.end_own()

    def _route(self, message: Message, publisher: Session | None) -> bool:
        fanout = self._keep(message, publisher)
        self._hand_over(fanout, message, publisher)
        return fanout.somebody

    def take_from_node(self, message: Message) -> None:
        """A message that another node of the cluster has admitted: store it, retain it and hand it over."""
        core = self.core
        gate = core.interest if message.retain else None
        is_given = gate is not None and gate.take_retained(message)
        if not self.admission.has_place(message, core.hot.fanouts.store):
            return
        if core.coordinator is not None:
            core.coordinator.clean(message)
        fanout = core.hot.fanouts.of(message.topic)
        if fanout.store is not None:
            fanout.store.deliver(message, None)
        if is_given:
            for destination in fanout.destinations[fanout.local :]:
                destination.deliver(message, None)
        else:
            self._hand_over(fanout, message, None)
        if gate is not None:
            gate.pass_on_retained(message, fanout)

    def _keep(self, message: Message, publisher: Session | None) -> Fanout:
        """Store and retain it; returns where it goes."""
        core = self.core
        if core.coordinator is not None:
            core.coordinator.clean(message)
        # Not those of a link: a hook may publish what follows from a message of another node.
        fanout = core.hot.own_fanouts.of(message.topic)
        if fanout.store is not None:
            fanout.store.deliver(message, publisher)
        if message.retain:
            message.owner = self.access.rights.owner(publisher)
            gate = core.interest
            if gate is not None:
                gate.retain(message)
            is_retained = self._retain(message)
            if gate is not None:
                gate.spread(message, publisher, fanout, is_retained)
        return fanout

    def _hand_over(self, fanout: Fanout, message: Message, publisher: Session | None) -> None:
        if self.core.hooks.slow:
            self._hand_over_selected(fanout, message, publisher)
        else:
            for destination in fanout.destinations:
                destination.deliver(message, publisher)

    def _retain(self, message: Message) -> bool:
        """False: there is no room for it."""
        if self.core.router.retain(message):
            self.core.hot.changed = self.core.journal is not None
            self.core.hooks.tell("retain_message", message)
            return True
        if self.core.journal is not None:
            self.core.journal.not_retained(message)
        return not message.payload

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
