"""The destinations at this broker: who has subscribed to a topic, sorted by what they need.

The subscribers of each matching filter are one dictionary, so these dictionaries' identities say who gets a topic's
messages: by them, topics find the same destinations again. Routes to the same recipients have the same ones, whatever
filters led there.

A change at a filter is nothing to topics that begin with another level than the filter does. So the first levels of all
topics that were looked for are remembered, as long as they are few: who subscribes and unsubscribes all the time, in a
part of the tree where nobody publishes, makes nobody else's topics be looked for again.
"""

from __future__ import annotations

from typing import Final, cast

from headwater.node.destinations.conditional import Conditional
from headwater.node.destinations.destination import Destination, Source
from headwater.node.destinations.groups import shared_groups
from headwater.node.destinations.members import Members
from headwater.node.destinations.recipients import Recipients
from headwater.node.plane.channel import Channel
from headwater.node.plane.sending import Sending
from headwater.routing.router import Recipient, Route, Router
from headwater.routing.topics import has_wildcard
from headwater.routing.trie import Subscribers
from headwater.session.session import Session

MAX_CACHED: Final = 65536
MAX_FIRST_LEVELS: Final = 1024
LONGEST_FIRST_LEVEL: Final = 64
"""Of more, or longer ones, every change is taken for one that matters."""


class _Found:
    """The destinations of a route; it keeps alive what their keys are made of."""

    def __init__(self, route: Route, destinations: list[Destination]) -> None:
        self.route = route
        self.destinations = destinations
        self.subscribers: list[list[Subscribers]] = []


def _has_wishes(recipient: Recipient, channel: Channel) -> bool:
    """Whether it cannot be sent packets as they are."""
    return (
        recipient.any_no_local
        or recipient.positions
        or recipient.identifiers is not None
        or channel.alias_limit_out > 0
        or channel.max_packet_out > 0
        or cast(Session, recipient.session).moving is not None
    )


class LocalRoutes(Source):
    def __init__(self, router: Router, sending: Sending) -> None:
        self.router = router
        self.sending = sending
        self.by_subscribers: dict[tuple[int, ...], _Found] = {}
        self.by_recipients: dict[tuple[int, ...], _Found] = {}
        self.first_levels: set[str] = set()
        self.any_first_level = False
        """There were too many to remember."""
        self.changes = 0
        """How many there have been that matter to topics that were looked for."""

    def destinations(self, topic: str) -> list[Destination]:
        router = self.router
        if not self.any_first_level:
            self._note(topic)
        if router.gate is not None:  # subscribers of one filter may differ in what they may receive
            return self._found(router.route(topic)).destinations
        matching = router.trie.match(topic)
        key: list[int] = [id(subscribers) for subscribers in matching]
        if len(router.groups):
            groups = router.groups.by_filter(topic)
            key += [id(each) for each in groups]  # one for all groups of a filter, of which there may be thousands
            matching += groups
        whole = tuple(key)
        found = self.by_subscribers.get(whole)
        if found is None:
            if len(self.by_subscribers) >= MAX_CACHED:
                self.forget()
            found = self.by_subscribers[whole] = self._found(router.route(topic))
            found.subscribers.append(matching)
        return found.destinations

    def _found(self, route: Route) -> _Found:
        key: list[int] = []
        for recipient in route.recipients:
            key.append(id(recipient.session) << 3 | (4 if recipient.retain_as_published else 0) | recipient.qos)
            if (
                recipient.any_no_local
                or recipient.positions
                or recipient.conditional
                or recipient.identifiers is not None
            ):
                key.append(-id(recipient))
        for group in route.groups:
            key.append(-id(group))
        whole = tuple(key)
        found = self.by_recipients.get(whole)
        if found is None:
            if len(self.by_recipients) >= MAX_CACHED:
                self.forget()
            found = self.by_recipients[whole] = _Found(route, self.sorted(route))
        return found

    def sorted(self, route: Route) -> list[Destination]:
        """The recipients and groups of a route as destinations."""
        members = Members(self.sending)
        others = Recipients(self.sending)
        conditional: Conditional | None = None
        unconditional = 0
        for recipient in route.recipients:
            channel = cast("Channel | None", cast(Session, recipient.session).connection)
            plain = None if channel is None or _has_wishes(recipient, channel) else channel
            if recipient.conditional:
                if conditional is None:
                    conditional = Conditional(self.sending)
                conditional.add(recipient, plain, channel is not None)
                continue
            unconditional += 1
            if plain is None:
                others.add(recipient, channel is not None)
            else:
                members.add(recipient, plain)
        made: list[Destination] = []
        if members.recipients:
            made.append(members)
        if len(members.recipients) < unconditional:
            made.append(others)
        if conditional is not None:
            made.append(conditional)
        if route.groups:
            made.append(shared_groups(self.sending, route.groups))
        return made

    def _note(self, topic: str) -> None:
        end = topic.find("/")
        if end < 0:
            end = len(topic)
        if end > LONGEST_FIRST_LEVEL or len(self.first_levels) >= MAX_FIRST_LEVELS:
            self.any_first_level = True
        else:
            self.first_levels.add(topic[:end])

    def recipients_changed(self, filter: str) -> None:
        """Those of topics that match this filter are others now. `changes` says whether any were looked for; everybody
        who remembers destinations forgets those of this filter then, and of one with wildcards all."""
        if not self.any_first_level:
            end = filter.find("/")
            first = filter if end < 0 else filter[:end]
            if first not in ("+", "#") and first not in self.first_levels:
                return
        self.changes += 1
        self.forget()
        if has_wildcard(filter):
            self.first_levels.clear()
            self.any_first_level = False

    def forget(self) -> None:
        """Some recipient is another one now, or is reached in another way."""
        self.by_subscribers.clear()
        self.by_recipients.clear()
