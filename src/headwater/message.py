"""The currency of Headwater: what publishers send, subscribers ask for and packages hand to each other.

Nothing here knows bytes, sockets or clocks. Times are seconds on whatever monotonic clock the caller uses.
The classes are plain (not dataclasses) because they are made on busy paths and mypyc makes plain ones fastest.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

UserProperties = list[tuple[str, str]]

NEVER: Final = float("inf")

POSITION_PROPERTY: Final = "headwater-position"
"""The user property by which a subscriber asks for positions (`yes`), and in which they come (`store:number`)."""

OVERHEAD: Final = 336
"""Bytes that a kept message counts with beside what it carries: what the objects around it take (measured)."""
PAIR_OVERHEAD: Final = 160
"""The same for each user property."""


def text_size(text: str) -> int:
    """Bytes that a text takes in memory, at most: one character beyond ASCII makes all of them wide."""
    return len(text) if text.isascii() else 4 * len(text)


class Message:
    """An application message on its way through a broker.

    `expires_at` is `NEVER` for a message without an expiry interval. `publisher` is the client id, or "" for
    messages of the broker itself.
    """

    def __init__(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        *,
        publisher: str = "",
        expires_at: float = NEVER,
        payload_format: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        user_properties: UserProperties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.publisher = publisher
        self.expires_at = expires_at
        self.payload_format = payload_format
        self.content_type = content_type
        self.response_topic = response_topic
        self.correlation_data = correlation_data
        self.user_properties = user_properties
        self.owner: str | None = None
        """Of a retained message: its publisher's user name ("": none), if that may have to be asked for; else None."""
        self.user: str | None = None
        """Of a retained message or a will: in whose quota it counts; None: nobody's."""
        self.journaled: object = None
        """What a journal knows of it (session/journaled.py); None: no delivery of it is on disk."""
        self.position = 0
        """In the delivery store; 0: it is not there."""
        self.commit = 0
        """The commit that has to be on disk before anybody may see it."""
        self.marked: Message | None = None
        """The same with its position as a user property, once somebody has asked for it."""

    def with_user_properties(self, pairs: UserProperties | None) -> Message:
        """The same message with other user properties."""
        copy = Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            publisher=self.publisher,
            expires_at=self.expires_at,
            payload_format=self.payload_format,
            content_type=self.content_type,
            response_topic=self.response_topic,
            correlation_data=self.correlation_data,
            user_properties=pairs,
        )
        copy.owner = self.owner
        copy.user = self.user
        return copy

    def size(self) -> int:
        """Bytes that it counts with while it is kept, in memory: all that its publisher chose, and the objects."""
        size = len(self.payload) + text_size(self.topic) + text_size(self.publisher) + OVERHEAD
        if self.user_properties is not None:
            for name, value in self.user_properties:
                size += text_size(name) + text_size(value) + PAIR_OVERHEAD
        if self.correlation_data is not None:
            size += len(self.correlation_data)
        if self.response_topic is not None:
            size += text_size(self.response_topic)
        if self.content_type is not None:
            size += text_size(self.content_type)
        if self.user is not None:
            size += text_size(self.user)
        return size

    def __repr__(self) -> str:
        retained = ", retain" if self.retain else ""
        return f"Message({self.topic!r}, {len(self.payload)} B, qos {self.qos}{retained})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Condition:
    """What messages have to say for a subscription to get them (routing/conditions). `source`: as it was written;
    `text`: its normal form, which is the same for conditions that mean the same word by word."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


class Subscription:
    """What one client asked for with one topic filter.

    `filter` is the filter that topics are matched against; for a shared subscription, `share` is the group's name
    and `filter` the part behind it. `identifier` 0 means none. `positions`: messages come with their positions.
    """

    def __init__(
        self,
        filter: str,
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        share: str | None = None,
        positions: bool = False,
    ) -> None:
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        self.share = share
        self.positions = positions
        self.condition: Condition | None = None
        self.memory: object = None
        """What was sent before, for a condition that asks for it (routing/conditions/memory.py)."""
        self.retained_pending = False
        """Not all retained messages that it asked for have been sent."""

    @property
    def name(self) -> str:
        """The filter as the client wrote it."""
        return self.filter if self.share is None else f"$share/{self.share}/{self.filter}"

    def __repr__(self) -> str:
        return f"Subscription({self.name!r}, qos {self.qos})"


class Delivery:
    """One message on its way to one session, with what that session's subscriptions make of it.

    `qos` and `retain` are what the subscriber gets; `identifiers` are the subscription identifiers that matched.
    `group` is the shared group that chose this session, or None: if the session ends first, it chooses again.
    `positions`: the subscriber asked for the message's position.
    """

    def __init__(
        self, message: Message, qos: int, retain: bool, identifiers: list[int] | None = None, group: object = None
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.group = group
        self.journaled: object = None
        """What a journal knows of it (session/journaled.py); None: it is not on disk."""
        self.size = 0
        """Bytes that it counts with while it waits."""
        self.positions = False
