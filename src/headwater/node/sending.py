"""Packets that are bytes already, to one channel or to one member of a shared group: the last step of the hot path.

Whoever cannot be sent the bytes as they are, now (something waits for it already, its window is full, it has an
identifier or an alias or a smaller packet size, speaks the other version), gets its message by the ordinary way.
"""

from __future__ import annotations

from typing import Final, cast

from headwater.message import OVERHEAD, Delivery, Message
from headwater.node.channel import Channel
from headwater.node.stats import Stats
from headwater.node.turn import Turn
from headwater.routing.dispatcher import Member
from headwater.routing.shared import Group
from headwater.session.kept import Stored
from headwater.session.outbound import Flight
from headwater.session.session import Session
from headwater.session.translate import message_of
from headwater.session.waiting import Budget
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.packets import Publish
from headwater.wire.primitives import ANY_NUMBER

PACKET_ID: Final[list[bytes]] = [i.to_bytes(2, "big") for i in range(65536)]
HEADERS: Final = 4
"""Bytes of a PUBLISH beside topic and payload, about: dispatchers are told sizes that do not depend on versions."""
MANY: Final = 8
"""Messages of a run that are left, from which on a dispatcher is asked whether a member may get several of them."""
ANY_ID: Final = b"\x00\x01"


def header(first_byte: int, remaining: int) -> bytes:
    if remaining < 0x80:
        return bytes((first_byte, remaining))
    if remaining < 0x4000:
        return bytes((first_byte, remaining & 0x7F | 0x80, remaining >> 7))
    if remaining < 0x200000:
        return bytes((first_byte, remaining & 0x7F | 0x80, remaining >> 7 & 0x7F | 0x80, remaining >> 14))
    return bytes(
        (
            first_byte,
            remaining & 0x7F | 0x80,
            remaining >> 7 & 0x7F | 0x80,
            remaining >> 14 & 0x7F | 0x80,
            remaining >> 21,
        )
    )


def plain_channel(member: Member) -> Channel | None:
    """The channel of a member that can be sent packets as they are, now."""
    if member.subscription.identifier or member.subscription.positions:
        return None
    channel = cast("Channel | None", cast(Session, member.key).connection)
    if channel is None or channel.held or channel.alias_limit_out or channel.max_packet_out:
        return None
    return channel


class Sending(Turn):
    def __init__(self, stats: Stats, budget: Budget) -> None:
        super().__init__(stats, budget)
        self.decoded: Message | None = None
        """Of the packet of `decoded_head` and `decoded_tail`."""
        self.decoded_head = b""
        self.decoded_tail = b""

    def send0(self, member: Channel, packets: bytes, count: int, version: int, commit: int) -> None:
        """QoS 0 packets that go out when `commit` is on disk."""
        if member.held:
            self._hold(member, packets, version, commit)
            return
        if commit > member.barrier:
            member.barrier = commit
        member.out.append(packets)
        self.stats.publish_sent += count
        self.stats.sent += count
        if not member.dirty:
            member.dirty = True
            self.dirty.append(member)

    def send1(
        self,
        member: Channel,
        head: bytes,
        tail: bytes,
        version: int,
        group: Group | None = None,
        publisher: str = "",
        stored: Stored | None = None,
        commit: int = 0,
        position: int = 0,
    ) -> None:
        """A QoS 1 packet: `head`, a packet id of this session, `tail`; of a group that may have to choose again; of a
        message that is `stored` for sessions that are durable; that goes out when `commit` is on disk, and has this
        `position` in the delivery store."""
        session = member.session
        assert session is not None
        outbound = session.outbound
        budget = self.budget
        if member.held or outbound.quota <= 0:
            message = self._message1(head, tail, version, publisher, stored, commit, position)
            self.delivering.offer(session, Delivery(message, 1, False, None, group))
            return
        size = len(head) + len(tail) + 2 + OVERHEAD
        flight = Flight(1, None, head, tail, version, size)
        flight.group = group
        flight.publisher = publisher
        if commit:
            flight.commit = commit
            flight.position = position
        flights = outbound.flights
        packet_id = outbound.next_id
        while packet_id in flights:
            packet_id = packet_id + 1 if packet_id < 65535 else 1
        outbound.next_id = packet_id + 1 if packet_id < 65535 else 1
        outbound.quota -= 1
        budget.used += size
        flights[packet_id] = flight
        if commit > member.barrier:
            member.barrier = commit
        if stored is not None and self.journal is not None:
            if session.durable:
                kept = flight.kept = self.journal.keep_stored(session.number, stored, 1)
                kept.packet_id = packet_id
                kept.group = group
            elif group is not None and group.number:
                flight.kept = self.journal.keep_stored(group.number, stored, 1)  # who else is in the group gets it
        out = member.out
        out.append(head)
        out.append(PACKET_ID[packet_id])
        out.append(tail)
        self.stats.publish_sent += 1
        self.stats.sent += 1
        if not member.dirty:
            member.dirty = True
            self.dirty.append(member)

    def _message1(
        self,
        head: bytes,
        tail: bytes,
        version: int,
        publisher: str,
        stored: Stored | None,
        commit: int,
        position: int,
    ) -> Message:
        """The message of a QoS 1 packet. Those for whom it has to wait come one after another, and have one between
        them: it is decoded, and its payload held, once."""
        message = self.decoded
        if (
            message is not None
            and head is self.decoded_head
            and tail is self.decoded_tail
            and publisher == message.publisher
            # Python has one object for all payloads of the same single byte: only these tell two such messages apart.
            and message.stored is stored
            and message.position == position
            and message.commit == commit
        ):
            return message
        message = message_of_packet(head + ANY_ID + tail, version, FROM_CLIENT, publisher, 0.0)
        message.stored = stored
        message.commit = commit
        message.position = position
        self.decoded = message
        self.decoded_head = head
        self.decoded_tail = tail
        return message

    def share0(
        self,
        groups: list[Group],
        topic: str,
        publisher: str,
        run: bytes,
        size: int,
        load: int,
        version: int,
        commit: int,
        position: int,
    ) -> None:
        """QoS 0 packets of one `size`, `load` bytes of it payload, in a `run`, each to one member of each group; when
        `commit` is on disk. `position` is that of the first."""
        if self.open:
            self.settle_all()
        sharing = self.sharing
        told = load + len(topic) + HEADERS
        total = len(run)
        start = 0
        while start < total:
            end = start + size
            for group in groups:
                member = sharing.choose(group, topic, publisher)
                channel = None if member is None else plain_channel(member)
                if member is None or channel is None or channel.version != version:
                    packet = run[start : start + size]
                    message = message_of_packet(packet, version, FROM_CLIENT, publisher, self.now)
                    if commit:
                        message.commit = commit
                        message.position = position + start // size
                    sharing.give(group, member, message)
                    continue
                group.sent(member, told, 0, self.now)
                if total - end >= MANY * size and len(groups) == 1:
                    end += group.also(member, (total - end) // size, told, self.now) * size
                self.send0(channel, run[start:end], (end - start) // size, version, commit)
            start = end

    def share1(
        self,
        groups: list[Group],
        topic: str,
        publisher: str,
        head: bytes,
        tail: bytes,
        load: int,
        version: int,
        stored: Stored | None,
        commit: int,
        position: int,
    ) -> None:
        """A QoS 1 packet, `load` bytes of it payload, to one member of each group; when `commit` is on disk."""
        sharing = self.sharing
        for group in groups:
            member = sharing.choose(group, topic, publisher)
            channel = None if member is None else plain_channel(member)
            if member is None or channel is None or channel.version != version or not self._may_fly(member):
                message = message_of_packet(head + ANY_ID + tail, version, FROM_CLIENT, publisher, self.now)
                message.stored = stored
                message.commit = commit
                message.position = position
                sharing.give(group, member, message)
            else:
                group.sent(member, load + len(topic) + HEADERS, 1, self.now)
                self.send1(channel, head, tail, version, group, publisher, stored, commit, position)

    def _may_fly(self, member: Member) -> bool:
        """Whether a message of QoS 1 can be sent to the member as such."""
        return cast(Session, member.key).outbound.quota > 0 and member.subscription.qos > 0


def message_of_packet(packet: bytes, version: int, sender: int, publisher: str, now: float) -> Message:
    """The message in a whole PUBLISH of a client or of ourselves (`sender`)."""
    start = 2
    while packet[start - 1] & 0x80:
        start += 1
    publish = decode(packet[0], packet[start:], version, sender, ANY_NUMBER)
    assert isinstance(publish, Publish)
    return message_of(publish, publisher, now)
