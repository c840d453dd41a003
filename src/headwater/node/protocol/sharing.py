"""The way of a message to a member of a shared group, and back.

Theory. A message belongs to its group until it is sent. A member is given one only if it is there and has room: nothing
waits for it already, its send window is open (Receive Maximum), and its socket takes bytes. One that is chosen and has
none is `block`ed, and the next one is asked for. If nobody is left the message waits in the group's queue, bounded as
a session's is, and whoever has room first takes it from there:

    choose ──► a member with room ──► offered, sent
       └─────► nobody ──► queue of the group ──► pulled by the first that has room again, connects or joins

So while something waits in a group, all its members that are there are blocked, and their channels `awaited`.
A dispatcher that `waits`, because it keeps an order, is different: its messages wait for the member they are for.

A group that is *held* has members at other nodes of a cluster, too (links/groups.py). What comes back from a member, or
was left behind by the last one here, is theirs as well; and what waits here is taken by whoever has room first.

What comes back when a member goes: all that it was not sent; and, as the standard allows (4.8.2), what it was
sent with QoS 1 and has not acknowledged, if somebody else is there or its session ends. A QoS 2 delivery that has begun
stays with its session [MQTT-4.8.2-4, 4.8.2-5].
"""

from __future__ import annotations

from collections import deque
from typing import Final, cast

from headwater.message import Delivery, Message
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel, Share
from headwater.node.plane.counters import EXPIRED, QUEUE_FULL, SESSION_ENDED
from headwater.node.plane.sending import message_of_packet
from headwater.node.plane.unsent import unsent_packets, unsent_part
from headwater.node.protocol.core import Core
from headwater.node.protocol.delivering import Delivering, is_behind
from headwater.node.protocol.elsewhere import Elsewhere
from headwater.routing.dispatcher import Member
from headwater.routing.dispatcher_rules import covers
from headwater.routing.shared import Group
from headwater.routing.topics import matches
from headwater.session.connection import CONNECTED
from headwater.session.session import Session
from headwater.session.waiting import DISCONNECT_WHEN_FULL, DROP_NEWEST, QUEUED, DeliveryQueue
from headwater.wire.decode import FROM_SERVER
from headwater.wire.packets import PUBLISH

SOME: Final = 16
"""Groups of a member that are looked at between two looks at the clock."""
BEHIND: Final = 1 << 20
"""Bytes that may wait here for a member's socket before other members are preferred."""


def has_room(member: Member) -> bool:
    """Whether the member would be sent a message at once."""
    session = cast(Session, member.key)
    channel = cast("Channel | None", session.connection)
    return (
        channel is not None
        and not (channel.held and is_behind(channel, session))
        and channel.backlog_size <= BEHIND
        and (session.outbound.quota > 0 or member.subscription.qos == 0)
    )


class _Pulling(BackgroundTask):
    """What waits in the many groups of a member that may have room. If it has none for some of them it is `awaited`
    from then on, and room that it has later, even before the last group was looked at, leads to another pull."""

    def __init__(self, sharing: Sharing, channel: Channel, session: Session, groups: list[Group]) -> None:
        self.sharing = sharing
        self.channel = channel
        self.session = session
        self.groups = groups
        self.at = 0
        self.again = False
        channel.awaited = False

    def piece(self) -> bool:
        channel = self.channel
        if channel.session is not self.session or channel.state != CONNECTED:
            del self.sharing.pulling[channel]
            return False
        behind = self.at + SOME
        if not self.sharing.pull_from(self.groups[self.at : behind], self.session):
            channel.awaited = True
        self.at = behind
        if behind < len(self.groups):
            return True
        del self.sharing.pulling[channel]
        if self.again:
            self.sharing.pull(channel, self.session)
        return False

    def failed(self) -> None:
        self.sharing.pulling.pop(self.channel, None)
        self.sharing.core.crashed(self.channel)


class Sharing(Share):
    def __init__(self, core: Core, delivering: Delivering) -> None:
        self.core = core
        self.delivering = delivering
        self.elsewhere = Elsewhere()
        self.queues: dict[Group, DeliveryQueue] = {}
        self.pulling: dict[Channel, _Pulling] = {}

    # ---- to a member -------------------------------------------------------------------------------------------

    def choose(self, group: Group, topic: str, publisher: str) -> Member | None:
        """The member that gets a message now; None: nobody has room."""
        now = self.core.hot.now
        while True:
            member = group.choose_online(topic, publisher, now)
            if member is None or group.dispatcher.waits or has_room(member):
                return member
            group.dispatcher.given_back(member, 1, now)
            self._block(group, member)

    def _block(self, group: Group, member: Member) -> None:
        group.block(member)
        channel = cast("Channel | None", cast(Session, member.key).connection)
        if channel is not None:
            channel.awaited = True

    def deliver(self, group: Group, message: Message) -> None:
        self.give(group, self.choose(group, message.topic, message.publisher), message)

    def give(self, group: Group, member: Member | None, message: Message) -> None:
        """To the member that was chosen; None: the message waits in the group."""
        if member is None:
            self.wait(group, message)
        else:
            self._offer(group, member, message)

    def select(self, group: Group, message: Message, chosen: list[tuple[Session, Delivery]]) -> None:
        self.select_for(group, self.choose(group, message.topic, message.publisher), message, chosen)

    def select_for(
        self, group: Group, member: Member | None, message: Message, chosen: list[tuple[Session, Delivery]]
    ) -> None:
        if member is None:
            self.wait(group, message)
            return
        session = cast(Session, member.key)
        chosen.append((session, self.delivery(group, member, message)))
        self.core.hooks.tell("dispatched", group.name, session.client_id, message)

    def _offer(self, group: Group, member: Member, message: Message) -> None:
        session = cast(Session, member.key)
        self.delivering.offer(session, self.delivery(group, member, message))
        if self.core.hooks.slow:
            self.core.hooks.tell("dispatched", group.name, session.client_id, message)

    def delivery(self, group: Group, member: Member, message: Message) -> Delivery:
        """What the message is for a member."""
        subscription = member.subscription
        identifiers = [subscription.identifier] if subscription.identifier else None
        retain = message.retain and subscription.retain_as_published
        coordinator = self.core.coordinator
        if coordinator is not None and coordinator.groups_ask and not subscription.positions:
            message = coordinator.unmarked(message)  # another member, that asks, had it or was to have it
        delivery = Delivery(message, min(message.qos, subscription.qos), retain, identifiers, group)
        delivery.positions = subscription.positions
        return delivery

    # ---- nobody has room ---------------------------------------------------------------------------------------

    def any_online(self, group: Group) -> bool:
        """Whether a member is there, here or at another node."""
        return group.any_online() or (group.is_held and self.elsewhere.any_online(group))

    def wait(self, group: Group, message: Message) -> None:
        if not self.any_online(group):
            kept = group.is_held or any(member.subscription.qos for member in group.members())
            if message.qos == 0 or not kept:
                return  # as for a session that is away
        if group.is_held and message.qos and self.core.journal is not None:
            self.core.journal.joined(group)
        queue = self.queue(group)
        coordinator = self.core.coordinator
        if coordinator is not None and coordinator.groups_ask:
            message = coordinator.marked(message)  # who takes it may ask, and it may have been away until then
        delivery = Delivery(message, message.qos, False, None, group)
        if queue.wait(delivery) != QUEUED:
            self._dropped(group, message, QUEUE_FULL)
            if message.qos:
                self.delivering.tell_full(queue, group.name)
        elif self.core.journal is not None:
            self.core.journal.keep_in_group(group, queue, delivery)
        self._tell_given_up(group, queue)

    def queue(self, group: Group) -> DeliveryQueue:
        """Where messages wait for any member of the group."""
        queue = self.queues.get(group)
        if queue is None:
            core = self.core
            policy = DROP_NEWEST if core.policy == DISCONNECT_WHEN_FULL else core.policy
            config = core.config
            queue = DeliveryQueue(core.budget, config.max_queued_messages, config.max_queued_bytes, policy)
            self.queues[group] = queue
        return queue

    def is_full(self, group: Group) -> bool:
        """Whether what is for the group is refused now."""
        queue = self.queues.get(group)
        return queue is not None and queue.full

    def pull(self, channel: Channel, session: Session) -> None:
        """The member may have room: what waits in its groups is sent to it, and if nothing is left it is ready. In
        turns, if there are many groups."""
        groups = self.core.router.groups.of(session)
        pulling = self.pulling.get(channel)
        if pulling is not None:
            pulling.again = True
        elif len(groups) > SOME:
            self.pulling[channel] = _Pulling(self, channel, session, groups)
            self.core.background.add(self.pulling[channel])
        else:
            channel.awaited = not self.pull_from(groups, session)

    def pull_from(self, groups: list[Group], session: Session) -> bool:
        """Whether the member has room in all these groups now."""
        ready = True
        now = self.core.hot.now
        for group in groups:
            member = group.member(session)
            if member is None:
                continue
            queue = self.queues.get(group)
            if queue is not None:
                self._pull_from(queue, group, member)
            if not member.ready:
                if has_room(member):
                    group.readied(member, now)
                else:
                    ready = False
        return ready

    def _pull_from(self, queue: DeliveryQueue, group: Group, member: Member) -> None:
        now = self.core.hot.now
        while has_room(member):
            if queue.first(now) is None:
                break
            delivery = queue.take()
            self.delivering.fetch(delivery)
            if delivery.message.expires_at <= now:
                self._drop(group, delivery, EXPIRED)
                continue
            if group.gate is not None and not self.core.conditions.holds_first(group.gate, delivery.message):
                self.delivering.forget(delivery)  # it came when the group had another condition, or none
                continue
            group.dispatcher.taken(member, now)
            self._offer(group, member, delivery.message)
            self.delivering.forget(delivery)
        self._tell_given_up(group, queue)
        if queue.waiting() == 0:
            self.queues.pop(group, None)
        elif member.ready:
            self._block(group, member)

    # ---- back from a member ------------------------------------------------------------------------------------

    def connected(self, channel: Channel, session: Session) -> None:
        """A member's client is there: once its own messages are sent it takes what waits."""
        channel.awaited = bool(self.queues)
        channel.shares = bool(self.core.router.groups.of(session))

    def left(self, session: Session, group: Group) -> None:
        """The session has unsubscribed: what it was not sent goes to the others."""
        channel = cast("Channel | None", session.connection)
        unsent = session.outbound.take_of({group})
        if unsent and channel is not None:
            self.delivering.drain(channel)  # what waited behind them need not wait any more
        self.again(unsent)
        if len(group) == 0:
            if group.is_held:
                self.pass_on(group)
            else:
                self.end(group)

    def end(self, group: Group) -> None:
        """Nobody is in it any more: what waits in it is dropped."""
        queue = self.queues.pop(group, None)
        if queue is not None:
            for delivery in queue.take_all():
                self._drop(group, delivery, SESSION_ENDED)
        if self.core.journal is not None:
            self.core.journal.group_ended(group)

    def pass_on(self, group: Group) -> None:
        """What waits in a held group has another chance."""
        queue = self.queues.pop(group, None)
        if queue is not None:
            self.again(list(queue.take_all()))

    def take_unsent(self, channel: Channel, session: Session) -> list[Delivery]:
        """The connection has ended. What its socket did not take of QoS 0 messages from groups: only somebody else can
        get them. Where it cannot be told who chose a message (two subscriptions of the client match), it stays."""
        back: list[Delivery] = []
        if channel.backlog_size == 0 or not channel.shares or channel.alias_limit_out:
            return back
        stays = [unsent_part(channel.backlog, channel.cut)]
        for packet in unsent_packets(channel.backlog, channel.cut):
            group = self._only_group(channel, session, packet)
            if group is not None and self.any_online(group):
                message = message_of_packet(packet, channel.version, FROM_SERVER, "", self.core.hot.now)
                back.append(Delivery(message, 0, False, None, group))
            else:
                stays.append(packet)
        if back:
            blob = b"".join(stays)
            self.core.budget.used += len(blob) - channel.backlog_size
            self.core.budget.sockets += len(blob) - channel.backlog_size
            channel.backlog_size = len(blob)
            channel.backlog = deque([blob]) if blob else None
        return back

    def _only_group(self, channel: Channel, session: Session, packet: bytes) -> Group | None:
        """The group that a QoS 0 message on its way to the session is from; None: from none, or it is not certain."""
        if packet[0] & 0xF6 != PUBLISH << 4:
            return None
        topic = message_of_packet(packet, channel.version, FROM_SERVER, "", 0.0).topic
        matching = [each for each in session.subscriptions.values() if matches(each.filter, topic)]
        if len(matching) != 1 or matching[0].share is None:
            return None
        return self.core.router.groups.get(matching[0].share, matching[0].filter)

    def take_back(self, session: Session, ends: bool) -> list[Delivery]:
        """The client has gone. What comes back of what it was given by its groups: if its session `ends` all that may,
        else only what somebody else can take now. To be delivered `again`."""
        back: list[Delivery] = []
        if not session.in_groups:
            return back
        outbound = session.outbound
        now = self.core.hot.now
        for packet_id, flight in list(outbound.flights.items()):
            group = flight.group
            if flight.qos == 1 and isinstance(group, Group) and (ends or self.any_online(group)):
                given = session.flight_delivery(flight)
                given.journaled = flight.journaled
                self.delivering.fetch(given)
                delivery = Delivery(given.message, 1, False, None, group)
                delivery.journaled = flight.journaled
                back.append(delivery)
                outbound.take_flight(packet_id)
                member = group.member(session)
                if member is not None:
                    group.given_back(member, 1, 1, now)
        groups: set[object] = {group for group in self.core.router.groups.of(session) if ends or self.any_online(group)}
        for delivery in outbound.take_of(groups):
            group = cast(Group, delivery.group)
            member = group.member(session)
            if member is not None:
                group.given_back(member, 1, delivery.qos, now)
            back.append(delivery)
        return back

    def again(self, back: list[Delivery]) -> None:
        """Deliver what came back to others."""
        for delivery in back:
            group = cast(Group, delivery.group)
            if group.is_held:
                self.delivering.fetch(delivery)
                self.elsewhere.deliver(group, delivery.message)
                self.delivering.forget(delivery)
            elif len(group):
                self.delivering.fetch(delivery)
                self.deliver(group, delivery.message)
                self.delivering.forget(delivery)
            else:
                self._drop(group, delivery, SESSION_ENDED)

    def next_waiting(self, group: Group) -> Delivery | None:
        """What has waited longest in the group, to be passed on to another node: its queue is left without it, and
        `passed_on` follows. None: nothing waits."""
        queue = self.queues.get(group)
        now = self.core.hot.now
        while queue is not None and queue.first(now) is not None:
            delivery = queue.take()
            self.delivering.fetch(delivery)
            if delivery.message.expires_at > now:
                return delivery
            self._drop(group, delivery, EXPIRED)
        if queue is not None:
            self._tell_given_up(group, queue)
            if queue.waiting() == 0:
                self.queues.pop(group, None)
        return None

    def passed_on(self, delivery: Delivery) -> None:
        self.delivering.forget(delivery)

    def use_dispatcher(self, pattern: str, name: str) -> int:
        """Let the groups that the pattern covers choose by another dispatcher; how many changed."""
        rules = self.core.dispatcher_rules
        rules.put_first(pattern, name)
        changed = 0
        for group in self.core.router.groups.all():
            if covers(pattern, group.name) and group.dispatcher.name != name:
                group.use(rules.new(group.name))
                changed += 1
        return changed

    # ---- told --------------------------------------------------------------------------------------------------

    def waiting(self, group: Group) -> int:
        """Messages that wait in the group for anybody."""
        queue = self.queues.get(group)
        return 0 if queue is None else queue.waiting()

    def _tell_given_up(self, group: Group, queue: DeliveryQueue) -> None:
        if queue.given_up is not None:
            for delivery in queue.take_given_up():
                reason = self.delivering.why_given_up(delivery)
                if reason == QUEUE_FULL and delivery.qos:
                    self.delivering.tell_full(queue, group.name)
                self._drop(group, delivery, reason)

    def _drop(self, group: Group, delivery: Delivery, reason: str) -> None:
        if self.core.hooks.listens("publish_dropped"):
            self.delivering.fetch(delivery)
        self.delivering.forget(delivery)
        self._dropped(group, delivery.message, reason)

    def _dropped(self, group: Group, message: Message, reason: str) -> None:
        self.core.stats.drops[reason] += 1
        self.core.hooks.tell("publish_dropped", group.name, message)
