"""From a topic to those who get the message.

A route lists the sessions whose subscriptions match a topic, each once with all its matching subscriptions ("merge",
MQTT 5.0, 3.3.4: one copy with all identifiers) or once per subscription ("separate"), and the shared groups that match.
Routes are remembered by topic until a subscription changes that could match it: a change of an exact filter forgets
that topic alone, a change of a wildcard filter forgets all.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import Delivery, Message, Subscription
from headwater.routing.retained import Retained
from headwater.routing.shared import Group, Groups
from headwater.routing.topics import has_wildcard
from headwater.routing.trie import Trie

LONGEST_CACHED: Final = 512
"""Routes of longer topics are not remembered: they are rare, and cost much."""
MAX_CACHED_BYTES: Final = 8 << 20
"""Of the topics whose routes are remembered; a client may publish to as many as it likes."""


class Recipient:
    """A session that gets a topic's messages, and by which of its subscriptions."""

    def __init__(self, session: object, subscriptions: list[Subscription]) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self.qos = 0
        self.retain_as_published = False
        self.any_no_local = False
        self.positions = False
        self.identifiers: list[int] | None = None
        for subscription in subscriptions:
            if subscription.qos > self.qos:
                self.qos = subscription.qos
            if subscription.retain_as_published:
                self.retain_as_published = True
            if subscription.no_local:
                self.any_no_local = True
            if subscription.positions:
                self.positions = True
            if subscription.identifier:
                if self.identifiers is None:
                    self.identifiers = []
                self.identifiers.append(subscription.identifier)

    def delivery(self, message: Message, own: bool) -> Delivery | None:
        """What this session gets of the message; `own` when it published it itself [MQTT-3.8.3-3]."""
        if own and self.any_no_local:
            others = [s for s in self.subscriptions if not s.no_local]
            return Recipient(self.session, others).delivery(message, False) if others else None
        qos = message.qos if message.qos < self.qos else self.qos
        delivery = Delivery(message, qos, message.retain and self.retain_as_published, self.identifiers)
        delivery.positions = self.positions
        return delivery


class Route:
    def __init__(self, topic: str, recipients: list[Recipient], groups: list[Group]) -> None:
        self.topic = topic
        self.recipients = recipients
        self.groups = groups
        self.empty = not recipients and not groups
        self.owed = bool(groups)
        """Whether somebody may get a message with QoS 1 or 2."""
        for recipient in recipients:
            if recipient.qos:
                self.owed = True
                break


@mypyc_attr(allow_interpreted_subclasses=True)
class Gate:
    """Who may get a topic's messages, beside having subscribed to them."""

    def may_receive(self, session: object, topic: str) -> bool:
        raise RuntimeError("not connected")


class Router:
    """Subscriptions, shared groups and retained messages of one broker. Sessions are opaque keys here."""

    def __init__(
        self, retained: Retained, groups: Groups, merge_overlapping: bool = True, max_cached: int = 65536
    ) -> None:
        self.retained = retained
        self.groups = groups
        self.merge_overlapping = merge_overlapping
        self.max_cached = max_cached
        self.gate: Gate | None = None
        self.trie = Trie()
        self.routes: dict[str, Route] = {}
        self.route_bytes = 0
        self.epoch = 0

    def subscribe(self, session: object, subscription: Subscription) -> bool:
        """Add or replace; True when the session did not have this filter before."""
        self.changed(subscription.filter)
        if subscription.share is not None:
            return self.groups.join(session, subscription)
        return self.trie.add(subscription.filter, session, subscription) is None

    def unsubscribe(self, session: object, subscription: Subscription) -> None:
        self.changed(subscription.filter)
        if subscription.share is not None:
            self.groups.leave(session, subscription.share, subscription.filter)
        else:
            self.trie.remove(subscription.filter, session)

    def changed(self, filter: str) -> None:
        """Forget the routes that a change at this filter can touch."""
        self.epoch += 1
        if has_wildcard(filter):
            self.routes.clear()
        else:
            self.routes.pop(filter, None)

    def forget(self) -> None:
        """Forget all routes: what the gate lets through has changed."""
        self.epoch += 1
        self.routes.clear()

    def route(self, topic: str) -> Route:
        route = self.routes.get(topic)
        if route is None:
            route = self._resolve(topic)
            if len(topic) <= LONGEST_CACHED:
                if len(self.routes) >= self.max_cached or self.route_bytes >= MAX_CACHED_BYTES:
                    self.routes.clear()
                    self.route_bytes = 0
                self.routes[topic] = route
                self.route_bytes += len(topic)
        return route

    def _resolve(self, topic: str) -> Route:
        found: dict[object, list[Subscription]] = {}
        recipients: list[Recipient] = []
        gate = self.gate
        for entries in self.trie.match(topic):
            for session, subscription in entries.items():
                if gate is not None and not gate.may_receive(session, topic):
                    continue
                if not self.merge_overlapping:
                    recipients.append(Recipient(session, [subscription]))
                elif session in found:
                    found[session].append(subscription)
                else:
                    found[session] = [subscription]
        for session, subscriptions in found.items():
            recipients.append(Recipient(session, subscriptions))
        return Route(topic, recipients, self.groups.match(topic))
