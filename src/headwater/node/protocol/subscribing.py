"""SUBSCRIBE and UNSUBSCRIBE, and the retained messages that a new subscription gets (MQTT 5.0, 3.8 … 3.11)."""

from __future__ import annotations

from typing import Final

from headwater.message import POSITION_PROPERTY, Subscription
from headwater.node.access.access import Access
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.protocol.conditioning import Asked, Conditioning
from headwater.node.protocol.core import ClientTask, Core
from headwater.node.protocol.retained_sender import MORE, UNREAD, RetainedSender
from headwater.node.protocol.sharing import Sharing
from headwater.routing.conditions.condition import ContentCondition
from headwater.routing.conditions.written import FILTER_PROPERTY, MARK, parts_of
from headwater.routing.topics import (
    SHARE_PREFIX,
    FilterTooDeep,
    InvalidTopicFilter,
    check_filter,
    has_wildcard,
    split_shared,
)
from headwater.session.session import Session
from headwater.wire.decode import FilterList
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Packet, Properties, Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe
from headwater.wire.reasons import (
    MALFORMED_PACKET,
    NO_SUBSCRIPTION_EXISTED,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    UNSPECIFIED_ERROR,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)

Parts = tuple[str | None, str]
"""Of a topic filter: its share, if it has one, and the rest."""

SOME: Final = 8
"""Topic filters that are dealt with between two looks at the clock."""
SOME_TEXT: Final = 16384
"""Characters of them after which there are no more: long ones take as long as many."""
READING: Final = 16
"""Characters of a topic filter that take as long as one of a condition."""


class _Subscribe(ClientTask):
    """[MQTT-3.8.4-1 … 3.8.4-7] One SUBSCRIBE: a reason code per request, then the retained messages, as long as the
    client's acknowledgements are not needed for them; the rest comes with those (retained_sender.py)."""

    def __init__(
        self,
        subscribing: Subscribing,
        channel: Channel,
        session: Session,
        packet_id: int,
        requests: list[SubscribeRequest],
    ) -> None:
        super().__init__(subscribing.core, channel)
        self.subscribing = subscribing
        self.session = session
        self.packet_id = packet_id
        self.requests = requests
        self.identifier = 0
        self.positions = False
        self.parts: list[Parts | None] = []
        self.asked: Asked | None = None
        """What it asks for with its user property; None: conditions are not enabled."""
        self.conditions: list[ContentCondition | None] = []
        """As many as `parts`, if there are any."""
        self.reasons: list[int] = []
        self.is_answered = False
        self.is_held = False
        self.is_known = False
        """Other nodes know of it, or have had their time."""

    def released(self) -> None:
        self.is_known = True
        if self.channel.waits is self:
            self.channel.waits = None
            self.core.background.add(self)

    def _must_wait(self) -> bool:
        gate = self.core.interest
        if gate is None or self.is_known:
            return False
        if not self.is_held and min(self.reasons) < 0x80:
            self.is_held = gate.hold(self)
        return self.is_held

    def step(self) -> bool:
        if len(self.parts) < len(self.requests):
            self._look_at(len(self.parts))
            if len(self.parts) < len(self.requests):
                return True
        done = len(self.reasons)
        if done < len(self.requests):
            text = 0
            for number in range(done, min(done + SOME, len(self.requests))):
                self._subscribe(number)
                text += len(self.requests[number].filter)
                if text >= SOME_TEXT:
                    break
            if len(self.reasons) < len(self.requests):
                return True
        if not self.is_answered:
            if self._must_wait():
                self.channel.waits = self
                return True
            self.is_answered = True
            self._answer()
            if self.session.durable:
                self.core.promise(self.channel)
            self.subscribing.retained_sender.take_over(self.session, self)
        result = self.subscribing.retained_sender.step(self.channel, self.session)
        if result == UNREAD:
            self.channel.waits = self
        if result in (UNREAD, MORE):
            return True
        sharing = self.subscribing.sharing
        if sharing.queues or self.channel.awaited:
            sharing.pull(self.channel, self.session)  # a new member, or one that takes another QoS now
        return False

    def _look_at(self, first: int) -> None:
        """All requests are looked at before one takes effect: a packet that breaks the protocol has none."""
        text = 0
        for request in self.requests[first : first + 4 * SOME]:
            if self.asked is None:
                self.parts.append(self.subscribing.allowed_parts(self.channel, request))
                text += len(request.filter)
            else:
                text += self._look_at_condition(request, self.asked)
            if text >= SOME_TEXT:
                break

    def _look_at_condition(self, request: SubscribeRequest, asked: Asked) -> int:
        """The same for one that may have a condition."""
        bare, condition, is_right = self.subscribing.conditioning.split(request, asked)
        self.requests[len(self.parts)] = bare
        parts = self.subscribing.allowed_parts(self.channel, bare)
        self.parts.append(parts if is_right else None)
        self.conditions.append(condition)
        if not is_right:
            self.core.conditions.tally.refused += 1
        return len(bare.filter) + READING * (len(request.filter) - len(bare.filter))

    def _answer(self) -> None:
        """With what is wrong, or with the condition that counts, for clients that want to be told."""
        channel = self.channel
        asked = self.asked
        properties: Properties | None = None
        if asked is not None:
            properties = channel.problem(asked.problem)
            if properties is None and asked.condition is not None and channel.wants_problem_information:
                properties = Properties(user_properties=[(FILTER_PROPERTY, asked.condition.text)])
        if properties is None or not self.core.send(channel, Suback(self.packet_id, self.reasons, properties)):
            self.core.send(channel, Suback(self.packet_id, self.reasons))

    def _subscribe(self, number: int) -> None:
        channel = self.channel
        request = self.requests[number]
        parts = self.parts[number]
        subscription = Subscription(
            request.filter,
            min(request.qos, channel.max_qos),
            no_local=request.no_local or channel.bridge,
            retain_as_published=request.retain_as_published or channel.bridge,
            retain_handling=request.retain_handling,
            identifier=self.identifier,
            positions=self.positions,
        )
        asked = self.asked
        if asked is not None:
            subscription.condition = self.conditions[number]
        reason = self.subscribing.subscribe_one(channel, self.session, request.filter, parts, subscription)
        if asked is not None and reason == TOPIC_FILTER_INVALID and not asked.problem:
            asked.problem = self.subscribing.refused_because
        if reason >= UNSPECIFIED_ERROR and channel.version != V5:
            reason = UNSPECIFIED_ERROR
        self.reasons.append(reason)
        self.core.hooks.tell("subscribed", channel, subscription, reason)


class _Unsubscribe(ClientTask):
    def __init__(
        self, subscribing: Subscribing, channel: Channel, session: Session, packet_id: int, filters: list[str]
    ) -> None:
        super().__init__(subscribing.core, channel)
        self.subscribing = subscribing
        self.session = session
        self.packet_id = packet_id
        self.filters = filters
        self.looked_at = 0
        self.reasons: list[int] = []

    def step(self) -> bool:
        core = self.core
        session = self.session
        if self.looked_at < len(self.filters):  # as in _Subscribe
            text = 0
            for name in self.filters[self.looked_at : self.looked_at + 4 * SOME]:
                if name not in session.subscriptions:
                    self.subscribing.parts_of(self.channel, name)
                self.looked_at += 1
                text += len(name)
                if text >= SOME_TEXT:
                    break
            if self.looked_at < len(self.filters):
                return True
        done = len(self.reasons)
        text = 0
        for name in self.filters[done : done + SOME]:
            if text >= SOME_TEXT:
                break
            text += len(name)
            subscription = session.subscriptions.pop(name, None)
            if subscription is None:
                self.reasons.append(NO_SUBSCRIPTION_EXISTED)
                continue
            self.subscribing.remove(session, subscription)
            self.subscribing.retained_sender.cancel(session, subscription)
            core.hooks.tell("unsubscribed", self.channel, name)
            self.reasons.append(SUCCESS)
        if len(self.reasons) < len(self.filters):
            return True
        core.send(self.channel, Unsuback(self.packet_id, self.reasons if self.channel.version == V5 else []))
        if session.durable:
            core.promise(self.channel)
        return False


class _Long(ClientTask):
    """Decodes a packet, and then deals with it."""

    def __init__(self, subscribing: Subscribing, channel: Channel, filters: FilterList, size: int) -> None:
        super().__init__(subscribing.core, channel)
        self.subscribing = subscribing
        self.filters = filters
        self.size = size
        self.task: ClientTask | None = None

    def step(self) -> bool:
        if self.task is not None:
            return self.task.step()
        filters = self.filters
        before = filters.text
        if not filters.decode(4 * SOME, SOME_TEXT):
            self.task = self.subscribing.task(self.channel, filters.packet)
        self.size += filters.text - before
        if self.channel.busy:
            self.core.hot.count_more(self.channel, filters.text - before)
        return True


class _Removal(BackgroundTask):
    """The subscriptions of a session that has ended."""

    def __init__(self, subscribing: Subscribing, session: Session, left: dict[str, Subscription], number: int) -> None:
        self.subscribing = subscribing
        self.session = session
        self.left = left
        self.number = number

    def piece(self) -> bool:
        for _ in range(min(SOME, len(self.left))):
            self.subscribing.remove_from(self.number, self.session, self.left.popitem()[1])
        return bool(self.left)


class Subscribing:
    def __init__(self, core: Core, access: Access, retained_sender: RetainedSender, sharing: Sharing) -> None:
        self.core = core
        self.access = access
        self.retained_sender = retained_sender
        self.sharing = sharing
        self.conditioning = Conditioning(core)
        self.count = 0
        self.refused_because = ""
        """Why a subscription was refused last, if there is more to say than its reason code."""

    def packet(self, channel: Channel, packet: Packet) -> bool:
        """Deal with a packet if it is one of these."""
        if not isinstance(packet, (Subscribe, Unsubscribe)):
            return False
        self.core.begin(self.task(channel, packet))
        return True

    def long_packet(self, channel: Channel, first_byte: int, body: bytes) -> None:
        """The same for one with so many topic filters that decoding them takes long."""
        filters = FilterList(first_byte, body, channel.version, self.core.config.max_user_properties)
        self.core.begin(_Long(self, channel, filters, len(body)))

    def task(self, channel: Channel, packet: Packet) -> ClientTask:
        if isinstance(packet, Subscribe):
            return self._subscribe(channel, packet)
        assert isinstance(packet, Unsubscribe)
        return self._unsubscribe(channel, packet)

    def _subscribe(self, channel: Channel, packet: Subscribe) -> ClientTask:
        session = channel.session
        assert session is not None
        core = self.core
        requests = core.hooks.transform("subscribe", packet.requests, channel)
        work = _Subscribe(self, channel, session, packet.packet_id, requests)
        if packet.properties is not None:
            if packet.properties.subscription_identifiers:
                work.identifier = packet.properties.subscription_identifiers[0]
            work.positions = (POSITION_PROPERTY, "yes") in (packet.properties.user_properties or [])
        if self.conditioning.counts_for(channel):
            work.asked = self.conditioning.asked(packet)
            work.requests = list(requests)
        if work.identifier and not core.config.subscription_identifier_available:
            raise RemoteProtocolError(
                SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED, "subscription identifiers are not supported"
            )
        return work

    def _unsubscribe(self, channel: Channel, packet: Unsubscribe) -> ClientTask:
        session = channel.session
        assert session is not None
        filters = self.core.hooks.transform("unsubscribe", packet.filters, channel)
        if self.conditioning.counts_for(channel):
            known = session.subscriptions
            filters = [name if MARK not in name or name in known else parts_of(name)[0] for name in filters]
        return _Unsubscribe(self, channel, session, packet.packet_id, filters)

    def subscribe_one(
        self, channel: Channel, session: Session, name: str, parts: Parts | None, subscription: Subscription
    ) -> int:
        """Make one subscription, or say why not; `parts` are `allowed_parts`."""
        self.refused_because = ""
        if parts is None:
            return TOPIC_FILTER_INVALID
        subscription.share, subscription.filter = parts
        reason = self._check(channel, subscription)
        if reason >= UNSPECIFIED_ERROR:
            return reason
        old = session.subscriptions.get(name)
        is_new = old is None
        if is_new and len(session.subscriptions) >= self.core.config.max_subscriptions:
            return QUOTA_EXCEEDED
        if is_new and not self.access.quotas.room_for_subscription(session, subscription):
            return QUOTA_EXCEEDED
        if subscription.share is not None:
            self.refused_because = self.conditioning.problem_of(session, subscription)
            if self.refused_because:
                self.core.conditions.tally.refused += 1
                return TOPIC_FILTER_INVALID
        if old is not None and not self.access.quotas.room_for_another(session, old, subscription):
            return QUOTA_EXCEEDED
        session.subscriptions[name] = subscription
        self._retained_for(session, subscription, old)
        if subscription.share is not None and channel.backlog_size == 0:
            channel.shares = True
        self._route(session, subscription, old)
        self.keep(session, name, subscription)
        if old is None:
            self.count += 1
            self.access.quotas.subscribed(session, subscription)
        else:
            self.access.quotas.replaced(session, old, subscription)
        return subscription.qos

    def _retained_for(self, session: Session, subscription: Subscription, old: Subscription | None) -> None:
        """[MQTT-3.3.1-9 … 3.3.1-11] Whether a subscription gets retained messages; what an older one of this filter has
        not got yet, it gets anyway."""
        if subscription.share is not None:
            return
        sender = self.retained_sender
        handling = subscription.retain_handling
        if handling == 0 or (handling == 1 and old is None):
            subscription.retained_pending = True
            sender.owe(session, subscription)
        elif old is not None and old.retained_pending:
            subscription.retained_pending = True
            sender.replace(session, old, subscription)

    def restore(self, session: Session, subscription: Subscription) -> None:
        """A subscription of a session that was on disk, and whose client is away."""
        self.count += 1
        if subscription.retained_pending:
            self.retained_sender.owe(session, subscription)
        self._route(session, subscription, None)
        if subscription.share is not None:
            self.core.router.groups.set_online(session, False)

    def _route(self, session: Session, subscription: Subscription, old: Subscription | None) -> None:
        if subscription.positions and subscription.share is not None and self.core.coordinator is not None:
            self.core.coordinator.groups_ask = True
        if subscription.share is not None:
            session.in_groups = True
        self.conditioning.began(subscription, old)
        self.core.router.subscribe(session, subscription)
        if subscription.share is not None:
            self.conditioning.joined(subscription)

    def keep(self, session: Session, name: str, subscription: Subscription) -> None:
        journal = self.core.journal
        if journal is not None and session.durable:
            journal.subscribed(session, name, subscription)
            if subscription.share is not None:
                group = self.core.router.groups.get(subscription.share, subscription.filter)
                if group is not None:
                    journal.joined(group)

    def allowed_parts(self, channel: Channel, request: SubscribeRequest) -> Parts | None:
        """As `parts_of`; raises RemoteProtocolError as well where a client asks for what it was told not to."""
        config = self.core.config
        if len(request.filter.encode()) > config.max_topic_length:
            return None
        parts = self.parts_of(channel, request.filter)
        if parts is None or channel.version != V5:
            return parts  # a 3.1.1 client could not know what is not supported
        share, filter = parts
        if share is not None:
            if request.no_local:
                raise RemoteProtocolError(PROTOCOL_ERROR, "no local on a shared subscription")  # [MQTT-3.8.3-4]
            if not config.shared_subscription_available:
                raise RemoteProtocolError(SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, "shared subscriptions are not supported")
        if not config.wildcard_subscription_available and has_wildcard(filter):
            raise RemoteProtocolError(WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, "wildcards are not supported")
        return parts

    def _check(self, channel: Channel, subscription: Subscription) -> int:
        config = self.core.config
        if subscription.share is not None and not config.shared_subscription_available:
            return SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if not config.wildcard_subscription_available and has_wildcard(subscription.filter):
            return WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
        rights = channel.rights
        if rights is not None and not rights.may_subscribe(subscription.filter, subscription.share is not None):
            return self.access.settings.refused_subscription
        refusal = self.core.hooks.allow("acl_check", channel, subscription.filter, False)
        return SUCCESS if refusal is None else refusal.reason

    def parts_of(self, channel: Channel, name: str) -> Parts | None:
        """The share of a filter, if it has one, and the rest. None: it is correctly formed, and not accepted.

        [MQTT-4.7.1-1, 4.7.1-2, 4.8.2-1, 4.8.2-2] One that cannot be is data that the protocol does not allow, which
        ends the connection [MQTT-4.13.1-1; 3.1.1: MQTT-4.8.0-1]: 0x8F is for those that are "correctly formed".
        Mosquitto calls the packet malformed. 3.1.1 knows no shared subscriptions: nothing is wrong with a `$share/g`.
        """
        terse = self.core.config.terse
        try:
            parts = split_shared(name)
        except InvalidTopicFilter as error:
            if channel.version != V5:
                return None
            raise RemoteProtocolError(MALFORMED_PACKET if terse else PROTOCOL_ERROR, str(error)) from None
        try:
            check_filter(parts[1], self.core.config.max_topic_levels)
        except FilterTooDeep:
            return None
        except InvalidTopicFilter as error:
            raise RemoteProtocolError(MALFORMED_PACKET if terse else PROTOCOL_ERROR, str(error)) from None
        return parts

    def remove_all(self, session: Session) -> None:
        """The session has ended. Those of its subscriptions that would still lead somewhere, to shared groups, go now,
        the others when there is time; what they lead to is nothing to it any more (`Delivering.offer`)."""
        for group in self.core.router.groups.of(session):
            subscription = session.subscriptions.pop(f"{SHARE_PREFIX}{group.share}/{group.filter}", None)
            if subscription is not None:
                self.remove(session, subscription)
        self.retained_sender.forget(session)
        left = session.subscriptions
        session.subscriptions = {}
        if left:
            self.core.do(_Removal(self, session, left, session.number if session.durable else 0))

    def remove(self, session: Session, subscription: Subscription) -> None:
        self.remove_from(session.number if session.durable else 0, session, subscription)

    def remove_from(self, number: int, session: Session, subscription: Subscription) -> None:
        """`number`: that of the session, as long as it was kept on disk, else 0."""
        self.count -= 1
        self.access.quotas.unsubscribed(session, subscription)
        if number and self.core.journal is not None:
            self.core.journal.unsubscribed(number, subscription.name)
        share = subscription.share
        group = None if share is None else self.core.router.groups.get(share, subscription.filter)
        self.core.router.unsubscribe(session, subscription)
        self.conditioning.ended(subscription, group)
        if group is not None:
            self.sharing.left(session, group)
