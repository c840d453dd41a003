"""A stored message as a mirror has it: what is the same whether it came by MQTT or by REST.

Position, topic, payload and the properties of MQTT 5 that a message keeps on its way. Not its expiry, which runs down,
nor the QoS and the retain flag, which are those of a subscription once it is delivered; nor what only the store knows
(publisher, times, value). So nobody can tell from a copy which way it came.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.client import Message, Properties
from headwater.message import POSITION_PROPERTY

if TYPE_CHECKING:
    import pyarrow


KEPT: Final = ("content_type", "response_topic", "correlation_data", "payload_format", "user")
OVERHEAD: Final = 300
"""Bytes that a copy takes in memory besides its texts, about."""


class Copy(NamedTuple):
    """`properties` is JSON with the names in KEPT, in that order, or empty. `store` is empty for the one that a mirror
    began with."""

    position: int
    topic: str
    payload: bytes
    properties: str = ""
    store: str = ""

    @property
    def place(self) -> int | str:
        """As it is written: a number, or `id:number`."""
        return f"{self.store}:{self.position}" if self.store else self.position

    @property
    def size(self) -> int:
        return len(self.topic) + len(self.payload) + len(self.properties) + OVERHEAD


class Place(NamedTuple):
    """A position as it is outside a store: which store, and where in it."""

    store: str
    position: int


def place_of(message: Message) -> Place | None:
    """What the broker says of a message that it has stored; None if it says nothing, or nothing that we understand."""
    for name, value in reversed(message.properties.user_properties or []):
        if name == POSITION_PROPERTY:
            store, colon, number = value.rpartition(":")
            if colon and number.isascii() and number.isdecimal() and len(number) < 20:
                return Place(store, int(number))
    return None


def from_message(message: Message, position: int, store: str = "") -> Copy:
    return Copy(position, message.topic, message.payload, _of_properties(message.properties), store)


def from_batch(batch: pyarrow.RecordBatch, store: str = "") -> Iterator[Copy]:
    """The rows of what a store's REST interface sends as Arrow."""
    columns = [batch.column(name).to_pylist() for name in ("position", "topic", "payload", "properties")]
    for position, topic, payload, properties in zip(*columns, strict=True):
        yield Copy(position, topic, payload, _of_stored(properties) if properties else "", store)


def _of_properties(properties: Properties) -> str:
    data = properties.correlation_data
    user = [[name, value] for name, value in properties.user_properties or [] if name != POSITION_PROPERTY]
    found: dict[str, Any] = {
        "content_type": properties.content_type,
        "response_topic": properties.response_topic,
        "correlation_data": None if data is None else base64.b64encode(data).decode(),
        "payload_format": properties.payload_format_indicator,
        "user": user or None,
    }
    return _text(found)


def _of_stored(properties: str) -> str:
    return _text(json.loads(properties))


def _text(found: dict[str, Any]) -> str:
    kept = {name: found[name] for name in KEPT if found.get(name) is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")) if kept else ""
