"""From the bytes of a topic to its fan-out, by one look-up when the topic was seen before.

Theory. `Source`s know destinations: the router those at this broker (local.py), another one (`remote`) the links that
lead to other nodes; the delivery store comes before them. A topic's fan-out is made of what both say, and is remembered
by topic. Topics with the same destinations share one fan-out, so that their messages share one batch.

What is remembered ends with the router's feed of changes (routing/feed.py): a change at an exact filter forgets that
topic, a change at a wildcard filter forgets all, unless no topic began as the filter does (local.py). News from afar
(`remote_changed`) put what is remembered aside: of a topic that is found there only the links are asked for anew, and
if these are the same it has the fan-out that it had. Everything remembered is bounded.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headwater.node.destinations.destination import Destination, Fanout, Source, StoreDestination
from headwater.node.destinations.local import LocalRoutes
from headwater.routing.feed import RouteListener
from headwater.routing.topics import ANY_LEVELS, LONGEST_TOPIC, InvalidTopicName, check_name, has_wildcard
from headwater.session.rights import Rights

MAX_CACHED_TOPICS: Final = 65536
LONGEST_CACHED: Final = 512
"""Longer topics are not remembered, nor looked for: they are rare, and cost much, 10 µs to hash 64 KiB."""
MAX_CACHED_BYTES: Final = 8 << 20
"""Of the topics of one generation; a client may publish to as many as it likes."""
NOT_FOR_CLIENTS: Final = (b"$SYS", b"$share/", b"$headwater")
"""Topics that begin so take the ordinary way, which may refuse them."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalPart:
    """Which of a topic's destinations at this broker are to be used: of groups that span nodes, others decide."""

    def of(self, found: list[Destination]) -> list[Destination]:
        raise NotImplementedError


class Fanouts(RouteListener):
    def __init__(self, local: LocalRoutes) -> None:
        self.local = local
        self.changes = local.changes
        self.remote: Source | None = None
        self.part: LocalPart | None = None
        self.store: StoreDestination | None = None
        self.max_topic_length = LONGEST_TOPIC
        self.max_topic_levels = ANY_LEVELS
        self.topics: dict[bytes, Fanout] = {}
        """What is here may be published to by clients, if their rights allow it."""
        self.older_topics: dict[bytes, Fanout] = {}
        self.aside: dict[bytes, Fanout] = {}
        """Those that are right as far as this broker goes."""
        self.aside_bytes = 0
        self.topic_bytes = 0
        self.by_destinations: dict[tuple[int, ...], Fanout] = {}

    def resolve(self, topic: bytes, rights: Rights | None = None) -> Fanout | None:
        """The fan-out of a topic for a publisher with these rights, remembered; None when the ordinary way has to
        refuse it."""
        fanout = self.older_topics.get(topic)
        if fanout is not None:
            self._remember(topic, fanout)
            return fanout
        fanout = self.aside.get(topic)
        if fanout is not None:
            fanout = self._with_links(topic.decode(), fanout)
            self._remember(topic, fanout)
            return fanout
        if not self._is_open(topic):
            return None
        name = topic.decode()
        store = self._store_of(name)
        if store is not None:
            if rights is not None and not rights.publishes(topic):
                return None  # nor may it take the place of another topic
            if not store.room_for(topic):
                return None
        fanout = self._fanout(name, store)
        self._remember(topic, fanout)
        return fanout

    def of(self, name: str) -> Fanout:
        """The fan-out of any topic, for the ordinary way; remembered if clients may publish to it."""
        if len(name) > LONGEST_CACHED:
            return self._fanout(name, self._store_of(name))
        topic = name.encode()
        fanout = self.topics.get(topic)
        if fanout is None:
            fanout = self.older_topics.get(topic)
        if fanout is not None:
            return fanout
        store = self._store_of(name)
        fanout = self._fanout(name, store)
        if self._is_open(topic) and (store is None or store.has_taken(topic)):
            self._remember(topic, fanout)
        return fanout

    def _is_open(self, topic: bytes) -> bool:
        """Whether clients may publish to the topic, as far as the topic itself says."""
        if len(topic) > self.max_topic_length or topic.startswith(NOT_FOR_CLIENTS):
            return False
        try:
            check_name(topic.decode(), self.max_topic_levels)
        except (UnicodeDecodeError, InvalidTopicName):
            return False
        return True

    def _store_of(self, name: str) -> StoreDestination | None:
        store = self.store
        return store if store is not None and store.stores(name) else None

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

    def _fanout(self, name: str, store: StoreDestination | None) -> Fanout:
        """The fan-out keeps its destinations alive, so their identities are a key."""
        found = self.local.destinations(name)
        if self.part is not None:
            found = self.part.of(found)
        links: list[Destination] = [] if self.remote is None else self.remote.destinations(name)
        return self._made_of(store, found, links)

    def _with_links(self, name: str, fanout: Fanout) -> Fanout:
        """The same but for what leads to other nodes."""
        links: list[Destination] = [] if self.remote is None else self.remote.destinations(name)
        before = fanout.destinations
        local = fanout.local
        if before[local:] == links:  # by identity
            return fanout
        return self._made_of(fanout.store, before[:local], links)

    def _made_of(self, store: StoreDestination | None, local: list[Destination], links: list[Destination]) -> Fanout:
        found = local + links
        key = [id(each) for each in found]
        if store is not None:
            key.append(id(store))
        whole = tuple(key)
        fanout = self.by_destinations.get(whole)
        if fanout is None:
            if len(self.by_destinations) >= MAX_CACHED_TOPICS:
                self.by_destinations.clear()
            fanout = self.by_destinations[whole] = Fanout(store, found, len(local))
        return fanout

    # ---- changes -----------------------------------------------------------------------------------------------

    def recipients_changed(self, filter: str) -> None:
        local = self.local
        local.recipients_changed(filter)
        if self.changes != local.changes:  # whoever was told first
            self.changes = local.changes
            self.forget(filter)

    def everything_changed(self) -> None:
        self.recipients_changed("#")

    def forget(self, filter: str) -> None:
        """There are other destinations now for topics that match this filter."""
        if has_wildcard(filter):
            self.topics.clear()
            self.older_topics.clear()
            self.aside.clear()
            self.aside_bytes = 0
            self.topic_bytes = 0
        elif len(filter) <= LONGEST_CACHED:
            topic = filter.encode()
            self.topics.pop(topic, None)
            self.older_topics.pop(topic, None)
            self.aside.pop(topic, None)
        self.by_destinations.clear()

    def remote_changed(self) -> None:
        """Topics may go over other links now."""
        if len(self.aside) + len(self.topics) > MAX_CACHED_TOPICS or self.aside_bytes > MAX_CACHED_BYTES:
            self.aside.clear()
            self.aside_bytes = 0
        self.aside.update(self.topics)
        self.aside_bytes += self.topic_bytes
        self.topics.clear()
        self.older_topics.clear()
        self.topic_bytes = 0
