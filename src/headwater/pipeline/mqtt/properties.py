"""The properties of MQTT 5 that travel with a message, as JSON and back; only what is there is named.

The names are those that the delivery store uses, so a row of bronze and a row of this source say the same:
`content_type`, `response_topic`, `correlation_data` (base64), `payload_format`, `user` (a list of pairs), `expiry`
(seconds left). One more, `subscription_identifiers`, is read and not written: it belongs to a subscription.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final

from headwater.client import Properties
from headwater.suggestion import check_known

POSITION_PROPERTY: Final = "headwater-position"
LONGEST_NUMBER: Final = 19
"""Digits of the smallest number that is not sure to fit into a column of 64 bits."""
KNOWN: Final = (
    *("content_type", "response_topic", "correlation_data", "payload_format"),
    *("user", "expiry", "subscription_identifiers"),
)


def as_json(properties: Properties) -> str:
    """Empty if there are none."""
    fields: dict[str, object] = {}
    if properties.content_type is not None:
        fields["content_type"] = properties.content_type
    if properties.response_topic is not None:
        fields["response_topic"] = properties.response_topic
    if properties.correlation_data is not None:
        fields["correlation_data"] = base64.b64encode(properties.correlation_data).decode()
    if properties.payload_format_indicator is not None:
        fields["payload_format"] = properties.payload_format_indicator
    if properties.user_properties:
        fields["user"] = properties.user_properties
    if properties.message_expiry_interval is not None:
        fields["expiry"] = properties.message_expiry_interval
    if properties.subscription_identifiers:
        fields["subscription_identifiers"] = properties.subscription_identifiers
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False) if fields else ""


def from_json(text: str | None) -> Properties:
    """The same back; raises ValueError that says what is wrong."""
    if not text:
        return Properties()
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError(f"properties are a JSON object, not {text[:40]}")
    check_known("property", fields, KNOWN)
    payload_format = fields.get("payload_format")
    return Properties(
        content_type=_text(fields, "content_type"),
        response_topic=_text(fields, "response_topic"),
        correlation_data=_data(fields),
        payload_format_indicator=None if payload_format is None else int(payload_format),
        user_properties=_pairs(fields),
        message_expiry_interval=None if fields.get("expiry") is None else int(fields["expiry"]),
    )


def take_position(properties: Properties) -> tuple[str, int] | None:
    """The store and the position that a broker told, which are then no longer among the user properties. Text that is
    none stays where it is."""
    pairs = properties.user_properties or []
    for number, (name, value) in enumerate(pairs):
        if name == POSITION_PROPERTY:
            store, colon, position = value.rpartition(":")
            is_number = position.isascii() and position.isdigit() and len(position) < LONGEST_NUMBER
            if colon and is_number and 0 < len(store.encode()) < 256:
                del pairs[number]
                return store, int(position)
    return None


def _text(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"the property {name} is text, not {value!r}")
    return value


def _data(fields: dict[str, object]) -> bytes | None:
    text = _text(fields, "correlation_data")
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the property correlation_data is base64, not {text!r}") from error


def _pairs(fields: dict[str, object]) -> list[tuple[str, str]] | None:
    pairs = fields.get("user")
    if pairs is None:
        return None
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
        for pair in pairs
    ):
        raise ValueError('the property user is a list of pairs of text such as [["unit", "K"]]')
    return [(name, value) for name, value in pairs]
