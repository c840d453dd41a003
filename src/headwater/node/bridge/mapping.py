"""From a topic of one side of a bridge to the topic of the other side.

Theory. Both sides see the same topic behind a prefix of their own, so a mapping takes one prefix off and puts the other
one on. The way back is the same with the sides exchanged, and gives the topic that it began with. Which entry a topic
goes by is not told by the subscription that brought it, because servers may merge overlapping ones; the first entry
whose filter matches counts, on every way and with every version of MQTT.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headwater.client import Message
from headwater.node.bridge.settings import BridgeTopic
from headwater.routing.conditions.condition import Sieve
from headwater.routing.topics import matches
from headwater.wire.packets import SubscribeRequest


class Rule(NamedTuple):
    """Topics that match `filter` on the side they come from, on which they begin with `prefix`."""

    filter: str
    prefix: str
    new_prefix: str
    qos: int
    sieve: Sieve | None = None
    """Through which a message has to go."""

    def map(self, topic: str) -> str:
        if topic.startswith(self.prefix):
            return self.new_prefix + topic[len(self.prefix) :]
        return self.new_prefix.removesuffix("/")  # `site/#` matches `site`, too


class Mapping:
    """The rules of one direction."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)

    def map(self, topic: str) -> str | None:
        """The topic's name on the other side; None: it does not go there."""
        for rule in self._rules:
            if matches(rule.filter, topic):
                return rule.map(topic) or None
        return None

    def lets_through(self, message: Message, now: float) -> bool:
        """Whether a message may go there, by its content."""
        for rule in self._rules:
            if matches(rule.filter, message.topic):
                return rule.sieve is None or rule.sieve.passes(
                    message.topic,
                    message.payload,
                    message.properties.user_properties,
                    message.properties.content_type,
                    now,
                )
        return False

    @property
    def filters(self) -> list[str]:
        """What to subscribe to on the side that messages come from."""
        return [rule.filter for rule in self._rules]

    def requests(self, retain_handling: int) -> list[SubscribeRequest]:
        """The subscriptions: nothing that we sent ourselves, and retain flags as they were published."""
        return [
            SubscribeRequest(
                rule.filter, rule.qos, no_local=True, retain_as_published=True, retain_handling=retain_handling
            )
            for rule in self._rules
        ]

    def plain_requests(self) -> list[SubscribeRequest]:
        """The same in 3.1.1, which has no words for that."""
        return [SubscribeRequest(rule.filter, rule.qos) for rule in self._rules]


def outward(topics: Iterable[BridgeTopic]) -> Mapping:
    """From local topics to remote ones."""
    return Mapping(
        Rule(each.local_filter, each.local_prefix, each.remote_prefix, each.qos, _sieve(each))
        for each in topics
        if each.goes_out
    )


def inward(topics: Iterable[BridgeTopic]) -> Mapping:
    """From remote topics to local ones."""
    return Mapping(
        Rule(each.remote_filter, each.remote_prefix, each.local_prefix, each.qos, _sieve(each))
        for each in topics
        if each.comes_in
    )


def _sieve(topic: BridgeTopic) -> Sieve | None:
    return Sieve(topic.condition) if topic.condition else None
