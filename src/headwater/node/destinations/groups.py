"""Shared groups: each message goes to one member of each, whom the group's dispatcher chooses
(node/protocol/sharing.py).

Who is chosen and can be sent packets as they are, is; else the member, or the group if nobody has room, gets a message.
"""

from __future__ import annotations

from typing import Final, cast

from headwater.message import Delivery, Message
from headwater.node.destinations.destination import Destination, Run
from headwater.node.plane.channel import Channel
from headwater.node.plane.sending import HEADERS, Sending, message_of_packet
from headwater.routing.dispatcher import Member
from headwater.routing.shared import Group
from headwater.session.session import Session
from headwater.wire.decode import FROM_CLIENT

MANY: Final = 8
"""Messages of a run that are left, from which on a dispatcher is asked whether a member may get several of them."""

FEW: Final = 8
"""Groups that get a run before somebody else has a turn; of more, each packet may be the last of one."""


class SharedGroups(Destination):
    def __init__(self, sending: Sending, groups: list[Group]) -> None:
        self.sending = sending
        self.groups = groups
        self.owed = True
        self.width = len(groups)
        self.one_by_one = len(groups) > FEW
        for group in groups:
            if group.number:
                self.durable = True

    def take0(self, run: Run) -> None:
        sending = self.sending
        if sending.open:
            sending.settle_all()
        sharing = sending.sharing
        topic = run.topic.decode()
        publisher = run.publisher
        size = run.size
        told = size - (run.body - run.start) + len(topic) + HEADERS
        packets = run.data[run.start : run.end]
        groups = self.groups
        total = len(packets)
        start = 0
        while start < total:
            end = start + size
            for group in groups:
                member = sharing.choose(group, topic, publisher)
                channel = None if member is None else plain_channel(member)
                if member is None or channel is None or channel.version != run.version:
                    sharing.give(group, member, message_at(sending, run, start))
                    continue
                group.sent(member, told, 0, sending.now)
                if total - end >= MANY * size and len(groups) == 1:
                    end += group.also(member, (total - end) // size, told, sending.now) * size
                sending.send0(channel, packets[start:end], (end - start) // size, run.version, run.commit)
            start = end

    def take1(self, run: Run) -> None:
        sending = self.sending
        sharing = sending.sharing
        topic = run.topic.decode()
        publisher = run.publisher
        for group in self.groups:
            give1(sending, group, sharing.choose(group, topic, publisher), run)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        sharing = self.sending.sharing
        for group in self.groups:
            sharing.deliver(group, message)

    def deliver_some(self, message: Message, publisher: Session | None, first: int, count: int) -> int:
        sharing = self.sending.sharing
        behind = first + count
        for group in self.groups[first:behind]:
            sharing.deliver(group, message)
        return behind if behind < len(self.groups) else 0

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        sharing = self.sending.sharing
        for group in self.groups:
            sharing.select(group, message, chosen)

    def has_room(self, publisher: Session | None) -> bool:
        sharing = self.sending.sharing
        return not any(sharing.is_full(group) for group in self.groups)


class ConditionalGroups(SharedGroups):
    """Some of them have a condition: a message that does not meet it is nobody's."""

    def __init__(self, sending: Sending, groups: list[Group]) -> None:
        super().__init__(sending, groups)
        self.one_by_one = True

    def take0(self, run: Run) -> None:
        for start in range(0, run.end - run.start, run.size):
            self.deliver(message_at(self.sending, run, start), run.session)

    def take1(self, run: Run) -> None:
        self.deliver(self.sending.message1(run), run.session)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        self.deliver_some(message, publisher, 0, len(self.groups))

    def deliver_some(self, message: Message, publisher: Session | None, first: int, count: int) -> int:
        sending = self.sending
        behind = first + count
        for group in self.groups[first:behind]:
            if group.gate is None or sending.conditions.passes(group.gate, message, sending.now):
                sending.sharing.deliver(group, message)
        return behind if behind < len(self.groups) else 0

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        sending = self.sending
        for group in self.groups:
            if group.gate is None or sending.conditions.passes(group.gate, message, sending.now):
                sending.sharing.select(group, message, chosen)


def shared_groups(sending: Sending, groups: list[Group]) -> SharedGroups:
    for group in groups:
        if group.gate is not None:
            return ConditionalGroups(sending, groups)
    return SharedGroups(sending, groups)


def message_at(sending: Sending, run: Run, start: int) -> Message:
    """The QoS 0 packet that begins there, from the first on, as a message."""
    packet = run.data[run.start + start : run.start + start + run.size]
    message = message_of_packet(packet, run.version, FROM_CLIENT, run.publisher, sending.now)
    if run.commit:
        message.commit = run.commit
        message.position = run.position + start // run.size
    return message


def give1(sending: Sending, group: Group, member: Member | None, run: Run) -> None:
    """A QoS 1 packet to the member that was chosen; None: it waits in the group."""
    channel = None if member is None else plain_channel(member)
    if member is None or channel is None or channel.version != run.version or not _may_fly(member):
        sending.sharing.give(group, member, sending.message1(run))
    else:
        load = len(run.tail) - run.properties
        group.sent(member, load + len(run.topic) + HEADERS, 1, sending.now)
        sending.send1(channel, run, group)


def plain_channel(member: Member) -> Channel | None:
    """The channel of a member that can be sent packets as they are, now."""
    if member.subscription.identifier or member.subscription.positions:
        return None
    channel = cast("Channel | None", cast(Session, member.key).connection)
    if channel is None or channel.held or channel.alias_limit_out or channel.max_packet_out:
        return None
    return channel


def _may_fly(member: Member) -> bool:
    """Whether a message of QoS 1 can be sent to the member as such."""
    return cast(Session, member.key).outbound.quota > 0 and member.subscription.qos > 0
