"""From a topic to those who get the message, and the feed of what changes in that.

A route lists the sessions whose subscriptions match a topic, each once with all its matching subscriptions ("merge",
MQTT 5.0, 3.3.4: one copy with all identifiers) or once per subscription ("separate"), and the shared groups that match.
Nothing is remembered here: who remembers routes listens to the feed (feed.py).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import Delivery, Message, Subscription
from headwater.routing.feed import FILTER_ADDED, FILTER_REMOVED, GROUP_ADDED, GROUP_REMOVED, RouteFeed
from headwater.routing.retained import Retained
from headwater.routing.shared import Group, Groups
from headwater.routing.trie import Trie

MANY_FILTERS: Final = 100
"""Filters of one change that are told one by one; of more, everything is said to have changed."""


class Recipient:
    """A session that gets a topic's messages, and by which of its subscriptions."""

    def __init__(self, session: object, subscriptions: list[Subscription]) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self.qos = 0
        self.retain_as_published = False
        self.any_no_local = False
        self.positions = False
        self.conditional = False
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
            if subscription.condition is not None:
                self.conditional = True
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


@mypyc_attr(allow_interpreted_subclasses=True)
class Gate:
    """Who may get a topic's messages, beside having subscribed to them."""

    def may_receive(self, session: object, topic: str) -> bool:
        raise RuntimeError("not connected")


class Router:
    """Subscriptions, shared groups and retained messages of one broker. Sessions are opaque keys here."""

    def __init__(self, retained: Retained, groups: Groups, merge_overlapping: bool = True) -> None:
        self.retained = retained
        self.groups = groups
        self.merge_overlapping = merge_overlapping
        self.gate: Gate | None = None
        self.trie = Trie()
        self.feed = RouteFeed()

    # ---- changes -----------------------------------------------------------------------------------------------

    def subscribe(self, session: object, subscription: Subscription) -> bool:
        """Add or replace; True when the session did not have this filter before."""
        filter, share = subscription.filter, subscription.share
        if share is not None:
            is_first = not self.groups.has_members(share, filter)
            is_new = self.groups.join(session, subscription)
            if is_first:
                self.feed.wanted_changed(GROUP_ADDED, filter, share)
        else:
            is_first = self.trie.get(filter) is None
            is_new = self.trie.add(filter, session, subscription) is None
            if is_first:
                self.feed.wanted_changed(FILTER_ADDED, filter)
        self.feed.recipients_changed(filter)
        return is_new

    def unsubscribe(self, session: object, subscription: Subscription) -> None:
        filter, share = subscription.filter, subscription.share
        if share is not None:
            if self.groups.leave(session, share, filter) is not None and not self.groups.has_members(share, filter):
                self.feed.wanted_changed(GROUP_REMOVED, filter, share)
        elif self.trie.remove(filter, session) is not None and self.trie.get(filter) is None:
            self.feed.wanted_changed(FILTER_REMOVED, filter)
        self.feed.recipients_changed(filter)

    def use_gate(self, gate: Gate) -> None:
        self.gate = gate
        self.feed.everything_changed()

    def set_online(self, session: object, filters: list[str], online: bool) -> None:
        """A session with these filters has connected or disconnected: how its messages reach it is another way now."""
        self.groups.set_online(session, online)
        self.session_changed(filters)

    def session_changed(self, filters: list[str]) -> None:
        """What a session with these filters may receive, or how it is reached, has changed."""
        if len(filters) > MANY_FILTERS:
            self.feed.everything_changed()
        else:
            for filter in filters:
                self.feed.recipients_changed(filter)

    def retain(self, message: Message) -> bool:
        """Keep a message as its topic's retained one or, if it is empty, forget that [MQTT-3.3.1-5 … 3.3.1-7]; False:
        there is no room for it, or there was none to forget."""
        if message.payload:
            if not self.retained.put(message):
                return False
            self.feed.retained_changed(message.topic, message)
            return True
        if self.retained.remove(message.topic) is None:
            return False
        self.feed.retained_changed(message.topic, None)
        return True

    # ---- routes ------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> Route:
        """Who gets the messages of a topic now."""
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
