"""From the bytes of a topic to its fan-out, by one look-up when the topic was seen before.

Topics with the same recipients share one fan-out, so that their messages share one batch. A change at an exact filter
forgets that topic, a change at a wildcard filter forgets all, and either forgets which recipients have which fan-out.
Everything remembered is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from headwater.node.channel import Channel, Fanout
from headwater.routing.router import Route, Router
from headwater.routing.topics import InvalidTopicName, check_name
from headwater.session.rights import Rights
from headwater.session.session import Session
from headwater.wire.packets import V5

if TYPE_CHECKING:
    from headwater.node.delivery.coordinator import Coordinator

MAX_CACHED_TOPICS: Final = 65536
LONGEST_CACHED: Final = 512
"""Longer topics are not remembered: they are rare, and cost much."""
MAX_CACHED_BYTES: Final = 8 << 20
"""Of the topics of one generation; a client may publish to as many as it likes."""
STORED: Final = 1
"""In a key: these are the recipients of topics that are stored. No object has such an id."""


class Fanouts:
    def __init__(self, router: Router) -> None:
        self.router = router
        self.max_topic_length = 65535
        self.max_topic_levels = 65535
        self.coordinator: Coordinator | None = None
        self.topics: dict[bytes, Fanout] = {}
        self.older_topics: dict[bytes, Fanout] = {}
        self.topic_bytes = 0
        self.by_subscribers: dict[tuple[int, ...], Fanout] = {}
        self.by_recipients: dict[tuple[int, ...], Fanout] = {}

    def resolve(self, topic: bytes, rights: Rights | None = None) -> Fanout | None:
        """The fan-out of a topic for a publisher with these rights, remembered; None when the ordinary way has to
        refuse it."""
        fanout = self.older_topics.get(topic)
        if fanout is not None:
            self._remember(topic, fanout)
            return fanout
        if len(topic) > self.max_topic_length or topic.startswith((b"$SYS", b"$share/", b"$headwater")):
            return None
        try:
            name = topic.decode()
            check_name(name, self.max_topic_levels)
        except (UnicodeDecodeError, InvalidTopicName):
            return None
        stored = self.coordinator is not None and self.coordinator.stores(name)
        if stored and self.coordinator is not None:
            if rights is not None and not rights.publishes(topic):
                return None  # nor may it take the place of another topic
            if not self.coordinator.room_for(topic):
                return None
        fanout = self._fanout(name, stored)
        self._remember(topic, fanout)
        return fanout

    def _remember(self, topic: bytes, fanout: Fanout) -> None:
        """Two generations bound the cache: topics in use move to the new one, the others go with the old one."""
        if len(topic) > LONGEST_CACHED:
            return
        if len(self.topics) >= MAX_CACHED_TOPICS or self.topic_bytes >= MAX_CACHED_BYTES:
            self.older_topics = self.topics
            self.topics = {}
            self.topic_bytes = 0
        self.topics[topic] = fanout
        self.topic_bytes += len(topic)

    def _fanout(self, topic: str, stored: bool) -> Fanout:
        """The fan-out for what matches a topic. The subscribers of each matching filter are one dictionary, so these
        dictionaries' identities say who gets it; the fan-out keeps them alive, any change forgets all fan-outs."""
        if self.router.gate is not None:  # subscribers of one filter may differ in what they may receive
            if len(self.by_recipients) >= MAX_CACHED_TOPICS:
                self._forget_fanouts()
            return self._fanout_of(self.router.route(topic), stored)
        found = self.router.trie.match(topic)
        key: list[int] = [id(subscribers) for subscribers in found]
        if len(self.router.groups):
            key += [-id(group) for group in self.router.groups.match(topic)]
        if stored:
            key.append(STORED)
        whole = tuple(key)
        fanout = self.by_subscribers.get(whole)
        if fanout is None:
            if len(self.by_subscribers) >= MAX_CACHED_TOPICS:
                self._forget_fanouts()
            fanout = self.by_subscribers[whole] = self._fanout_of(self.router.route(topic), stored)
            fanout.subscribers.append(found)
        return fanout

    def _fanout_of(self, route: Route, stored: bool) -> Fanout:
        """One fan-out for all routes to the same recipients: their messages then share one batch."""
        key: list[int] = []
        for recipient in route.recipients:
            key.append(id(recipient.session) << 2 | recipient.qos)
            if recipient.any_no_local or recipient.positions or recipient.identifiers is not None:
                key.append(-id(recipient))
        for group in route.groups:
            key.append(-id(group))
        if stored:
            key.append(STORED)
        whole = tuple(key)
        fanout = self.by_recipients.get(whole)
        if fanout is None:
            fanout = self.by_recipients[whole] = self._make_fanout(route)
            fanout.stored = stored
        return fanout

    def _make_fanout(self, route: Route) -> Fanout:
        fanout = Fanout()
        fanout.route = route  # keeps alive what the key is made of
        fanout.groups = route.groups
        for group in route.groups:
            if group.number:
                fanout.durable = True
        for recipient in route.recipients:
            session = cast(Session, recipient.session)
            channel = cast("Channel | None", session.connection)
            if session.durable and recipient.qos:
                fanout.durable = True
            if channel is None:
                if recipient.qos:
                    fanout.absent.append(recipient)
            elif (
                recipient.any_no_local
                or recipient.positions
                or recipient.identifiers is not None
                or channel.alias_limit_out
                or channel.max_packet_out
            ):
                fanout.special.append(recipient)
            elif channel.version == V5:
                fanout.members5.append(channel)
                (fanout.acked5 if recipient.qos else fanout.unacked5).append(channel)
            else:
                fanout.members4.append(channel)
                (fanout.acked4 if recipient.qos else fanout.unacked4).append(channel)
        fanout.any_special = bool(fanout.special or fanout.absent)
        fanout.only_groups = bool(fanout.groups) and not route.recipients
        fanout.empty = route.empty
        return fanout

    def forget(self, filter: str, wildcard: bool) -> None:
        """A subscription with this filter, or its client's presence, changed."""
        if wildcard:
            self.topics.clear()
            self.older_topics.clear()
            self.topic_bytes = 0
        else:
            topic = filter.encode()
            self.topics.pop(topic, None)
            self.older_topics.pop(topic, None)
        self._forget_fanouts()

    def _forget_fanouts(self) -> None:
        self.by_subscribers.clear()
        self.by_recipients.clear()
