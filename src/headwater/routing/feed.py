"""What changes in the routes of a broker, told to whoever depends on it: caches, announcers, metrics, peers, switches.

There are two kinds of news. *Who gets it*: the recipients of the topics that a filter matches are others now, or get
their messages in another way (somebody subscribed, came, went, or may not receive any more); caches forget. *What is
wanted*: a filter got its first subscriber here or lost its last, a shared group came or went, a retained message
changed; who tells others of it, tells them. News of the second kind have a stamp: a number that grows by one with each,
so that a listener that was away can tell how much it missed. All news come after the change, in the broker's own loop.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from headwater.message import Message

FILTER_ADDED = "filter added"
FILTER_REMOVED = "filter removed"
GROUP_ADDED = "group added"
GROUP_REMOVED = "group removed"


class RouteChange:
    """`share` is the name of a shared group, for the kinds that are about one."""

    def __init__(self, kind: str, filter: str, share: str | None, stamp: int) -> None:
        self.kind = kind
        self.filter = filter
        self.share = share
        self.stamp = stamp

    def __repr__(self) -> str:
        group = "" if self.share is None else f", share {self.share!r}"
        return f"RouteChange({self.kind}, {self.filter!r}{group}, {self.stamp})"


@mypyc_attr(allow_interpreted_subclasses=True)
class RouteListener:
    """Told of changes; each does what it needs and returns soon."""

    def recipients_changed(self, filter: str) -> None:
        """Of the topics that this filter matches."""

    def everything_changed(self) -> None:
        """The recipients of any topic may be others."""

    def wanted_changed(self, change: RouteChange) -> None:
        """A filter or group came or went."""

    def retained_changed(self, topic: str, message: Message | None, stamp: int) -> None:
        """None: the topic has none any more. One that expires is not told of: its time is part of it."""


class RouteFeed:
    """Belongs to the router. Listeners are told in the order in which they came."""

    def __init__(self) -> None:
        self.stamp = 0
        self._listeners: list[RouteListener] = []

    def listen(self, listener: RouteListener) -> None:
        self._listeners.append(listener)

    def leave(self, listener: RouteListener) -> None:
        self._listeners.remove(listener)

    def recipients_changed(self, filter: str) -> None:
        for listener in self._listeners:
            listener.recipients_changed(filter)

    def everything_changed(self) -> None:
        for listener in self._listeners:
            listener.everything_changed()

    def wanted_changed(self, kind: str, filter: str, share: str | None = None) -> None:
        self.stamp += 1
        change = RouteChange(kind, filter, share, self.stamp)
        for listener in self._listeners:
            listener.wanted_changed(change)

    def retained_changed(self, topic: str, message: Message | None) -> None:
        self.stamp += 1
        for listener in self._listeners:
            listener.retained_changed(topic, message, self.stamp)
