"""Retained messages of which a client has said that they are deleted: are they?

Theory. The tap sees a deletion go by before the home broker has judged it, which may refuse it and does not say so to
anybody (3.1.1). Where the topic is caught already, what the broker passes on tells; where it is not, nothing does: the
deletion may have been before the own client subscribed. So the broker is asked, as a new subscriber over a connection
of its own: only what it has no more is deleted elsewhere. A client that may not publish can cause a question, no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.message import Message
from headwater.node.proxy.channel import HomeChannel
from headwater.node.proxy.reading import Reader
from headwater.wire.packets import Connect

if TYPE_CHECKING:
    from headwater.node.proxy.client import OwnClient

log = logging.getLogger("headwater.proxy")

AT_ONCE: Final = 200
"""Topics in one question."""
AGAIN: Final = 1.0
"""Seconds until it is asked again, if there was no answer."""
MOST_TRIES: Final = 5


class Doubts:
    """`deleted` is told of each topic that the home broker has no message of."""

    def __init__(self, home: OwnClient, deleted: Callable[[str], None]) -> None:
        self._home = home
        self._deleted = deleted
        self._topics: dict[str, int] = {}
        """And how often they were asked for."""
        self._asked: set[str] = set()
        self._is_asking = False
        self._reader: Reader | None = None

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic: str) -> None:
        self._topics.setdefault(topic, 0)
        self._ask()

    def down(self) -> None:
        """The home broker is away; when it comes, all that it has is read."""
        self._topics.clear()
        self._asked.clear()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._is_asking = False

    def _ask(self) -> None:
        if self._topics and not self._is_asking and self._home.connection is not None:
            self._is_asking = True
            self._home.caller.call(self._called)

    def _called(self, channel: HomeChannel | None, reason: str) -> None:
        connection = self._home.connection
        if channel is None:
            self._answered(reason or "no connection")
        elif connection is None or not self._topics:
            self._home.server.lost(channel)
            self._is_asking = False
        else:
            own = connection.connect
            connect = Connect(f"{own.client_id}-ask", own.version, True, 60, own.username, own.password)
            asked = list(self._topics)[:AT_ONCE]
            self._asked = set(asked)
            self._reader = Reader(self._home, channel, connect, asked, self._found, self._answered)

    def _found(self, message: Message) -> None:
        """It is there."""
        self._asked.discard(message.topic)
        self._topics.pop(message.topic, None)

    def _answered(self, why: str) -> None:
        self._reader = None
        self._is_asking = False
        asked, self._asked = self._asked, set()
        if why:
            self._try_again(asked or set(self._topics), why)
            return
        for topic in [each for each in self._topics if each in asked]:
            del self._topics[topic]
            self._deleted(topic)
        self._ask()

    def _try_again(self, topics: set[str], why: str) -> None:
        home = self._home
        for topic in topics:
            self._topics[topic] += 1
            if self._topics[topic] == MOST_TRIES:
                del self._topics[topic]
                home.tell("doubt", f"the home broker does not say whether {topic[:200]!r} is deleted there: {why}")
        home.server.timers.at(home.server.hot.now + AGAIN, self._ask)
