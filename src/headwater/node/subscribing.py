"""SUBSCRIBE and UNSUBSCRIBE, and the retained messages that a new subscription gets (MQTT 5.0, 3.8 … 3.11)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.message import Delivery, Subscription
from headwater.node.channel import Channel
from headwater.routing.topics import InvalidTopicFilter, check_filter, has_wildcard, split_shared
from headwater.session.session import Session
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Packet, Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe
from headwater.wire.reasons import (
    NO_SUBSCRIPTION_EXISTED,
    NOT_AUTHORIZED,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    UNSPECIFIED_ERROR,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)

if TYPE_CHECKING:
    from headwater.node.server import Server

MANY: Final = 1000
"""Subscriptions, or waiting messages, of a session that ends which are dealt with at once; more go in portions."""
PORTION: Final = 200
BETWEEN: Final = 0.001
"""Seconds between two portions."""


class Subscribing:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.count = 0

    def packet(self, channel: Channel, packet: Packet) -> bool:
        """Deal with a packet if it is one of these."""
        if isinstance(packet, Subscribe):
            self.subscribe(channel, packet)
        elif isinstance(packet, Unsubscribe):
            self.unsubscribe(channel, packet)
        else:
            return False
        return True

    def subscribe(self, channel: Channel, packet: Subscribe) -> None:
        """[MQTT-3.8.4-1 … 3.8.4-7] One reason code per request, then the retained messages."""
        session = channel.session
        assert session is not None
        server = self.server
        identifiers = None if packet.properties is None else packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        if identifier and not server.config.subscription_identifier_available:
            raise RemoteProtocolError(
                SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED, "subscription identifiers are not supported"
            )
        reasons: list[int] = []
        retained: list[Delivery] = []
        for request in server.hooks.transform("subscribe", packet.requests, channel):
            subscription = Subscription(
                request.filter,
                min(request.qos, channel.max_qos),
                no_local=request.no_local or channel.bridge,
                retain_as_published=request.retain_as_published or channel.bridge,
                retain_handling=request.retain_handling,
                identifier=identifier,
            )
            reason = self._subscribe_one(channel, session, request, subscription, retained)
            if reason >= UNSPECIFIED_ERROR and channel.version != V5:
                reason = UNSPECIFIED_ERROR
            reasons.append(reason)
            server.hooks.tell("subscribed", channel, subscription, reason)
        server.send(channel, Suback(packet.packet_id, reasons))
        if session.durable:
            server.promise(channel)
        for delivery in retained:
            server.delivering.offer(session, delivery)
            server.hooks.tell("retain_published", channel, delivery.message)
        if server.sharing.lines or channel.awaited:
            server.sharing.pull(channel, session)  # a new member, or one that takes another QoS now

    def _subscribe_one(
        self,
        channel: Channel,
        session: Session,
        request: SubscribeRequest,
        subscription: Subscription,
        retained: list[Delivery],
    ) -> int:
        """Make one subscription, or say why not; adds the retained messages it gets."""
        reason = self._check(channel, request, subscription)
        if reason >= UNSPECIFIED_ERROR:
            return reason
        name = request.filter
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self.server.config.max_subscriptions:
            return QUOTA_EXCEEDED
        if is_new and not self.server.access.quotas.room_for_subscription(session.username):
            return QUOTA_EXCEEDED
        session.subscriptions[name] = subscription
        if subscription.share is not None and channel.backlog_size == 0:
            channel.shares = True
        self.server.router.subscribe(session, subscription)
        self._keep(session, name, subscription)
        self.server.hot.fanouts.forget(subscription.filter, has_wildcard(subscription.filter))
        if is_new:
            self.count += 1
        handling = request.retain_handling
        if subscription.share is None and (handling == 0 or (handling == 1 and is_new)):
            self._add_retained(session, subscription, retained)
        return subscription.qos

    def restore(self, session: Session, subscription: Subscription) -> None:
        """A subscription of a session that was on disk, and whose client is away."""
        self.count += 1
        self.server.router.subscribe(session, subscription)
        if subscription.share is not None:
            self.server.router.groups.set_online(session, False)

    def _keep(self, session: Session, name: str, subscription: Subscription) -> None:
        journal = self.server.journal
        if journal is not None and session.durable:
            journal.subscribed(session, name, subscription)
            if subscription.share is not None:
                group = self.server.router.groups.get(subscription.share, subscription.filter)
                if group is not None:
                    journal.joined(group)

    def _check(self, channel: Channel, request: SubscribeRequest, subscription: Subscription) -> int:
        config = self.server.config
        if len(request.filter.encode()) > config.max_topic_length:
            return TOPIC_FILTER_INVALID
        try:
            subscription.share, subscription.filter = split_shared(request.filter)
            check_filter(subscription.filter, config.max_topic_levels)
        except InvalidTopicFilter:
            return TOPIC_FILTER_INVALID
        if subscription.share is not None:
            if request.no_local:
                raise RemoteProtocolError(PROTOCOL_ERROR, "no local on a shared subscription")  # [MQTT-3.8.3-4]
            if not config.shared_subscription_available:
                return self._not_supported(channel, SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, "shared subscriptions")
        if not config.wildcard_subscription_available and has_wildcard(subscription.filter):
            return self._not_supported(channel, WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, "wildcards")
        rights = channel.rights
        if rights is not None and not rights.may_subscribe(subscription.filter, subscription.share is not None):
            return NOT_AUTHORIZED
        refusal = self.server.hooks.allow("acl_check", channel, subscription.filter, False)
        return SUCCESS if refusal is None else refusal.reason

    def _not_supported(self, channel: Channel, reason: int, what: str) -> int:
        """A 5.0 client was told in CONNACK, so it broke the protocol; a 3.1.1 client could not know."""
        if channel.version == V5:
            raise RemoteProtocolError(reason, f"{what} are not supported")
        return reason

    def _add_retained(self, session: Session, subscription: Subscription, retained: list[Delivery]) -> None:
        identifiers = [subscription.identifier] if subscription.identifier else None
        for message in self.server.router.retained.match(subscription.filter, self.server.hot.now):
            if subscription.no_local and message.publisher == session.client_id:
                continue
            if session.rights is not None and not session.rights.receives(message.topic):
                continue
            if message.owner is not None and not self.server.access.may_still_publish(message):
                continue
            retained.append(Delivery(message, min(message.qos, subscription.qos), True, identifiers))

    def unsubscribe(self, channel: Channel, packet: Unsubscribe) -> None:
        session = channel.session
        assert session is not None
        reasons: list[int] = []
        for name in self.server.hooks.transform("unsubscribe", packet.filters, channel):
            subscription = session.subscriptions.pop(name, None)
            if subscription is None:
                reasons.append(NO_SUBSCRIPTION_EXISTED)
                continue
            self.remove(session, subscription)
            self.server.hooks.tell("unsubscribed", channel, name)
            reasons.append(SUCCESS)
        self.server.send(channel, Unsuback(packet.packet_id, reasons if channel.version == V5 else []))
        if session.durable:
            self.server.promise(channel)

    def remove_all(self, session: Session) -> None:
        """The session has ended. If it has many subscriptions they go in portions, with turns of others between them;
        what still leads to it is nothing to it any more (`Delivering.offer`)."""
        now = list(session.subscriptions.values())
        session.subscriptions.clear()
        later: list[Subscription] = []
        if len(now) > MANY and self.server.journal is None:
            later = [each for each in now if each.share is None]
            now = [each for each in now if each.share is not None]
        for subscription in now:
            self.remove(session, subscription)
        if later:
            self._remove_some(session, later)

    def _remove_some(self, session: Session, left: list[Subscription]) -> None:
        for subscription in left[-PORTION:]:
            self.remove(session, subscription)
        del left[-PORTION:]
        if left:
            self.server.timers.at(self.server.hot.now + BETWEEN, partial(self._remove_some, session, left))

    def remove(self, session: Session, subscription: Subscription) -> None:
        self.count -= 1
        if self.server.journal is not None:
            self.server.journal.unsubscribed(session, subscription.name)
        share = subscription.share
        group = None if share is None else self.server.router.groups.get(share, subscription.filter)
        self.server.router.unsubscribe(session, subscription)
        if group is not None:
            self.server.sharing.left(session, group)
        self.server.hot.fanouts.forget(subscription.filter, has_wildcard(subscription.filter))
