"""Clients that are sent packets as they are: connected, and without wishes of their own.

A QoS 0 run is appended, as received, once to the batch and not once per subscriber. QoS 1 differs per subscriber only
in the packet id. Who speaks the other version gets the same without or with an empty block of properties.
"""

from __future__ import annotations

from typing import Final, cast

from headwater.message import Delivery, Message
from headwater.node.destinations.destination import Batch, Run
from headwater.node.plane.channel import Channel
from headwater.node.plane.sending import Sending, header
from headwater.routing.router import Recipient
from headwater.session.session import Session
from headwater.wire.packets import V5, V311

NO_PROPERTIES: Final = b"\x00"


class Members(Batch):
    """members: all, who take QoS 0; acked, unacked: the same, split by whether they take QoS 1 as such or as QoS 0."""

    def __init__(self, sending: Sending) -> None:
        super().__init__()
        self.sending = sending
        self.recipients: list[Recipient] = []
        self.acked4: list[Channel] = []
        self.acked5: list[Channel] = []
        self.unacked4: list[Channel] = []
        self.unacked5: list[Channel] = []

    def add(self, recipient: Recipient, channel: Channel) -> None:
        self.recipients.append(recipient)
        if channel.version == V5:
            self.members5.append(channel)
            (self.acked5 if recipient.qos else self.unacked5).append(channel)
        else:
            self.members4.append(channel)
            (self.acked4 if recipient.qos else self.unacked4).append(channel)
            if recipient.qos:
                self.drops_properties = True
        if recipient.qos:
            self.owed = True
            if cast(Session, recipient.session).durable:
                self.durable = True

    # ---- QoS 0 -------------------------------------------------------------------------------------------------

    def take0(self, run: Run) -> None:
        if not self.dirty:
            self.sending.touch(self)
        self.count += run.count
        if run.commit > self.commit:
            self.commit = run.commit
        if run.version == V5:
            if self.members5:
                self.pieces5.append(run.data[run.start : run.end])
            if self.members4:
                _rewrite(self.pieces4, run, b"")
        else:
            if self.members4:
                self.pieces4.append(run.data[run.start : run.end])
            if self.members5:
                _rewrite(self.pieces5, run, NO_PROPERTIES)

    # ---- QoS 1 -------------------------------------------------------------------------------------------------

    def take1(self, run: Run) -> None:
        sending = self.sending
        if run.version == V5:
            for member in self.acked5:
                sending.send1(member, run, None)
            if self.members4 or self.unacked5:
                self._take1_otherwise(run, self.unacked5, self.acked4, self.unacked4, V311)
        else:
            for member in self.acked4:
                sending.send1(member, run, None)
            if self.members5 or self.unacked4:
                self._take1_otherwise(run, self.unacked4, self.acked5, self.unacked5, V5)

    def _take1_otherwise(
        self, run: Run, own: list[Channel], acked: list[Channel], unacked: list[Channel], version: int
    ) -> None:
        """To those who take it as QoS 0 in its `own` version, and to those of the other `version`."""
        sending = self.sending
        start = 2 + len(run.topic)
        topic = run.head[len(run.head) - start :]
        if own:
            packet = header(0x30, start + len(run.tail)) + topic + run.tail
            for member in own:
                sending.send0(member, packet, 1, run.version, run.commit)
        if not acked and not unacked:
            return
        tail = run.tail[run.properties :]
        if version == V5:
            tail = NO_PROPERTIES + tail
        if acked:
            other = run.rewritten(header(0x32, start + 2 + len(tail)) + topic, tail, version)
            for member in acked:
                sending.send1(member, other, None)
        if unacked:
            packet = header(0x30, start + len(tail)) + topic + tail
            for member in unacked:
                sending.send0(member, packet, 1, version, run.commit)

    # ---- the ordinary way --------------------------------------------------------------------------------------

    def deliver(self, message: Message, publisher: Session | None) -> None:
        self.sending.delivering.deliver_alike(self.recipients, message, publisher)

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        choose_recipients(self.recipients, message, publisher, chosen)

    def has_room(self, publisher: Session | None) -> bool:
        return all_have_room(self.recipients, publisher)


def _rewrite(pieces: list[bytes], run: Run, properties: bytes) -> None:
    """QoS 0 packets for the other version of the protocol."""
    data = run.data
    size = run.size
    pos = run.start
    end = run.end
    topic = data[run.topic_at : run.topic_end]
    body = run.body - pos
    start = header(0x30, len(topic) + len(properties) + size - body) + topic + properties
    while pos < end:
        pieces.append(start)
        pieces.append(data[pos + body : pos + size])
        pos += size


def choose_recipients(
    recipients: list[Recipient],
    message: Message,
    publisher: Session | None,
    chosen: list[tuple[Session, Delivery]],
) -> None:
    for recipient in recipients:
        session = cast(Session, recipient.session)
        delivery = recipient.delivery(message, session is publisher)
        if delivery is not None:
            chosen.append((session, delivery))


def all_have_room(recipients: list[Recipient], publisher: Session | None) -> bool:
    for recipient in recipients:
        session = cast(Session, recipient.session)
        if recipient.qos and session.outbound.full and not (session is publisher and recipient.any_no_local):
            return False
    return True
