"""Between packets and messages: what of a PUBLISH is the message, and what belongs to one connection only."""

from __future__ import annotations

import math
from typing import Final

from headwater.message import NEVER, Delivery, Message
from headwater.wire.packets import Properties, Publish, Will

ROUNDING: Final = 0.001
"""Seconds by which sums of floats may be wrong; without it, a message could go with a second more than it came with."""


def message_of(packet: Publish, publisher: str, now: float) -> Message:
    """The message in a PUBLISH, as received at `now`."""
    properties = packet.properties
    if properties is None:
        return Message(packet.topic, packet.payload, packet.qos, packet.retain, publisher=publisher)
    return _message(packet.topic, packet.payload, packet.qos, packet.retain, properties, publisher, now)


def will_message(will: Will, publisher: str) -> Message:
    """A will as message; its expiry starts when it is published, so it is not set here."""
    return _message(will.topic, will.payload, will.qos, will.retain, will.properties or Properties(), publisher, NEVER)


def _message(
    topic: str, payload: bytes, qos: int, retain: bool, properties: Properties, publisher: str, now: float
) -> Message:
    interval = properties.message_expiry_interval
    return Message(
        topic,
        payload,
        qos,
        retain,
        publisher=publisher,
        expires_at=NEVER if interval is None else now + interval,
        payload_format=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )


def publish_properties(delivery: Delivery, now: float) -> Properties | None:
    """The properties that go with a delivery to a 5.0 client; the expiry is what is left of it [MQTT-3.3.2-6]."""
    message = delivery.message
    expires_at = message.expires_at
    if (
        expires_at == NEVER
        and delivery.identifiers is None
        and message.user_properties is None
        and message.payload_format is None
        and message.content_type is None
        and message.response_topic is None
        and message.correlation_data is None
    ):
        return None
    return Properties(
        payload_format_indicator=message.payload_format,
        message_expiry_interval=None if expires_at == NEVER else max(1, math.ceil(expires_at - now - ROUNDING)),
        content_type=message.content_type,
        response_topic=message.response_topic,
        correlation_data=message.correlation_data,
        subscription_identifiers=delivery.identifiers,
        user_properties=message.user_properties,
    )
