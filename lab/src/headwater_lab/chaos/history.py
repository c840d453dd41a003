"""What happened in an episode, in the order in which the driver saw it.

An event's place in the list is its time for the checker: what was sent before something else arrived could have
caused it. `at` is seconds, for what depends on real time (expiry intervals).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from headwater.wire.packets import Properties

HEAD: Final = 16
"""Bytes of the smallest payload: the message's number and a checksum."""


def payload_of(message: int, size: int) -> bytes:
    """A payload that names its message and shows whether it is whole; of size 0, one that clears a retained message."""
    if size == 0:
        return b""
    head = b"%08x" % message
    filling = (head * (size // 8 + 1))[: max(size, HEAD) - HEAD]
    return head + b"%08x" % zlib.crc32(filling, message) + filling


def message_in(payload: bytes) -> int:
    """The number of the message with this payload; 0 for an empty one, -1 if it is none of ours or damaged."""
    if not payload:
        return 0
    try:
        message = int(payload[:8], 16)
    except ValueError:
        return -1
    return message if payload == payload_of(message, len(payload)) else -1


@dataclass(slots=True)
class Note:
    """A message that the broker was given, or may have been given. Numbers grow in the order of sending."""

    message: int
    publisher: str
    topic: str
    qos: int
    retain: bool = False
    size: int = HEAD
    expiry: int | None = None
    will: bool = False
    delay: int = 0
    """Of a will, in seconds."""
    marked: bool = False
    """It has properties that name it, which have to come with it."""


def mark(note: Note) -> Properties:
    """Properties that belong to this message and no other."""
    return Properties(
        payload_format_indicator=0,
        content_type=f"message {note.message}",
        response_topic=f"answers/{note.message}",
        correlation_data=b"%d" % note.message,
        user_properties=[("message", str(note.message)), ("of", note.publisher), ("of", "two")],
    )


def is_marked(note: Note, found: Properties) -> bool:
    expected = mark(note)
    return (
        found.content_type == expected.content_type
        and found.response_topic == expected.response_topic
        and found.correlation_data == expected.correlation_data
        and found.user_properties == expected.user_properties
    )


@dataclass(slots=True)
class Event:
    at: float


@dataclass(slots=True)
class Started(Event):
    """The broker listens."""


@dataclass(slots=True)
class Killed(Event):
    """The broker is dead, and what it had sent until then was read. `point` is "" for a random moment."""

    point: str


@dataclass(slots=True)
class Stopped(Event):
    """The broker was told to stop, and has."""


@dataclass(slots=True)
class Settled(Event):
    """Everything was delivered and acknowledged, by all."""


@dataclass(slots=True)
class Connecting(Event):
    """CONNECT was sent; `expiry` is the session's in seconds, None for ever. `will` is its message, or 0. `forgot`: the
    session has surely expired, and the client knows nothing of it any more."""

    client: str
    clean: bool
    expiry: int | None
    will: int
    forgot: bool = False


@dataclass(slots=True)
class Connected(Event):
    client: str
    present: bool


@dataclass(slots=True)
class Leaving(Event):
    """DISCONNECT was sent; `with_will`: with the reason code that asks for the will."""

    client: str
    with_will: bool


@dataclass(slots=True)
class Disconnected(Event):
    """The connection is over, whoever ended it."""

    client: str


@dataclass(slots=True)
class Sent(Event):
    """A PUBLISH went out, for the first time or again."""

    message: int


@dataclass(slots=True)
class Acknowledged(Event):
    """PUBACK or PUBREC: the message is the broker's responsibility."""

    message: int


@dataclass(slots=True)
class Received(Event):
    """A PUBLISH came. `fresh`: it is handed to the application, so not the repetition of an open QoS 2 delivery.
    `left` is its expiry interval, or None; `position` is that in the delivery store, or 0."""

    client: str
    message: int
    topic: str
    qos: int
    dup: bool
    retain: bool
    fresh: bool
    left: int | None
    position: int = 0


@dataclass(slots=True)
class Subscribing(Event):
    client: str
    filter: str
    qos: int


@dataclass(slots=True)
class Subscribed(Event):
    client: str
    filter: str


@dataclass(slots=True)
class Unsubscribing(Event):
    client: str
    filter: str


@dataclass(slots=True)
class Unsubscribed(Event):
    client: str
    filter: str


@dataclass(slots=True)
class Asked(Event):
    """A client asked for all retained messages below a filter."""

    client: str
    filter: str


@dataclass(slots=True)
class Shown(Event):
    """What it was shown: the message of each topic that had one. `asked` is the place of its question."""

    client: str
    filter: str
    asked: int
    found: dict[str, int]


@dataclass(slots=True)
class Oddity(Event):
    """What no correct broker does, whatever happened before."""

    client: str
    text: str


class History:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notes: dict[int, Note] = {}

    def add(self, event: Event) -> int:
        """Returns its place."""
        self.events.append(event)
        return len(self.events) - 1

    def note(self, note: Note) -> Note:
        self.notes[note.message] = note
        return note

    def next_message(self) -> int:
        return len(self.notes) + 1

    def lines(self) -> Iterator[str]:
        for note in self.notes.values():
            yield json.dumps({"kind": "Note", **asdict(note)})
        for place, event in enumerate(self.events):
            yield json.dumps({"place": place, "kind": type(event).__name__, **asdict(event)})

    def save(self, path: Path) -> None:
        with path.open("w") as file:
            file.writelines(f"{line}\n" for line in self.lines())
