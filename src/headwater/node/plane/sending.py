"""Packets that are bytes already, to one channel: the last step of the hot path.

Whoever cannot be sent the bytes as they are, now (something waits for it already, its window is full, it has an
identifier or an alias or a smaller packet size, speaks the other version), gets its message by the ordinary way.
"""

from __future__ import annotations

from typing import Final

from headwater.message import OVERHEAD, Delivery, Message
from headwater.node.destinations.destination import Run
from headwater.node.plane.channel import Channel
from headwater.node.plane.counters import Counters
from headwater.node.plane.turn import Turn
from headwater.routing.conditions.condition import Conditions
from headwater.routing.shared import Group
from headwater.session.outbound import Flight
from headwater.session.translate import message_of
from headwater.session.waiting import Budget
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.packets import Publish
from headwater.wire.primitives import ANY_NUMBER

PACKET_ID: Final[list[bytes]] = [i.to_bytes(2, "big") for i in range(65536)]
HEADERS: Final = 4
"""Bytes of a PUBLISH beside topic and payload, about: dispatchers are told sizes that do not depend on versions."""
ANY_ID: Final = b"\x00\x01"
PINGS: Final = 512
"""PINGREQs that are looked for at a time."""
PINGREQS: Final = b"\xc0\x00" * PINGS
PINGRESPS: Final = b"\xd0\x00" * PINGS


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


class Sending(Turn):
    conditions: Conditions

    def __init__(self, stats: Counters, budget: Budget) -> None:
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
        self.stats.messages_sent += count
        self.stats.sent += count
        if not member.dirty:
            member.dirty = True
            self.dirty.append(member)

    def send1(self, member: Channel, run: Run, group: Group | None) -> None:
        """The QoS 1 packet of a run, with a packet id of this session; of a `group` that may have to choose again."""
        session = member.session
        assert session is not None
        outbound = session.outbound
        budget = self.budget
        if member.held or outbound.quota <= 0:
            self.delivering.offer(session, Delivery(self.message1(run), 1, False, None, group))
            return
        head = run.head
        tail = run.tail
        commit = run.commit
        size = len(head) + len(tail) + 2 + OVERHEAD
        flight = Flight(1, None, head, tail, run.version, size)
        if group is not None:
            flight.group = group
            flight.publisher = run.publisher
        if commit:
            flight.commit = commit
            flight.position = run.position
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
        journaled = run.journaled
        if journaled is not None and self.journal is not None:
            if session.durable:
                entry = flight.journaled = self.journal.keep_journaled(session.number, journaled, 1)
                entry.packet_id = packet_id
                entry.group = group
            elif group is not None and group.number:
                flight.journaled = self.journal.keep_journaled(group.number, journaled, 1)
        out = member.out
        out.append(head)
        out.append(PACKET_ID[packet_id])
        out.append(tail)
        self.stats.messages_sent += 1
        self.stats.sent += 1
        if not member.dirty:
            member.dirty = True
            self.dirty.append(member)

    def answer_pings(self, channel: Channel, data: bytes, pos: int) -> int:
        """A PINGREQ that ends at `pos`, and those behind it; returns where they end. A client may send millions."""
        count = 1
        while data[pos : pos + 2 * PINGS] == PINGREQS:
            pos += 2 * PINGS
            count += PINGS
        while data[pos : pos + 2] == b"\xc0\x00":
            pos += 2
            count += 1
        self.stats.received += count
        self.stats.sent += count
        answers = PINGRESPS[: 2 * count] if count <= PINGS else b"\xd0\x00" * count
        channel.write(answers)
        return pos

    def message0(self, run: Run) -> Message:
        """The message of the only packet of a QoS 0 run."""
        message = message_of_packet(run.data[run.start : run.end], run.version, FROM_CLIENT, run.publisher, self.now)
        if run.commit:  # else it is not stored, and the position is that of another
            message.commit = run.commit
            message.position = run.position
        return message

    def message1(self, run: Run) -> Message:
        """The message of a QoS 1 packet. Those for whom it has to wait come one after another, and have one between
        them: it is decoded, and its payload held, once."""
        message = self.decoded
        if (
            message is not None
            and run.head is self.decoded_head
            and run.tail is self.decoded_tail
            and run.publisher == message.publisher
            # Python has one object for all payloads of the same single byte: only these tell two such messages apart.
            and message.journaled is run.journaled
            and message.position == run.position
            and message.commit == run.commit
        ):
            return message
        message = message_of_packet(run.head + ANY_ID + run.tail, run.version, FROM_CLIENT, run.publisher, 0.0)
        message.journaled = run.journaled
        message.commit = run.commit
        message.position = run.position
        self.decoded = message
        self.decoded_head = run.head
        self.decoded_tail = run.tail
        return message


def message_of_packet(packet: bytes, version: int, sender: int, publisher: str, now: float) -> Message:
    """The message in a whole PUBLISH of a client or of ourselves (`sender`)."""
    start = 2
    while packet[start - 1] & 0x80:
        start += 1
    publish = decode(packet[0], packet[start:], version, sender, ANY_NUMBER)
    assert isinstance(publish, Publish)
    return message_of(publish, publisher, now)
