"""What travels with a message beside its payload, as optional columns of the delivery store."""

from __future__ import annotations

import base64
import json
import math

from headwater.message import NEVER, Message
from headwater.session.translate import ROUNDING


def optional_columns(message: Message, now: float) -> dict[str, bytes]:
    """Of a message that came at `now`: its properties as JSON, which names only what is there."""
    expires_at = message.expires_at
    if (
        expires_at == NEVER
        and message.user_properties is None
        and message.payload_format is None
        and message.content_type is None
        and message.response_topic is None
        and message.correlation_data is None
    ):
        return {}
    fields: dict[str, object] = {}
    if message.content_type is not None:
        fields["content_type"] = message.content_type
    if message.response_topic is not None:
        fields["response_topic"] = message.response_topic
    if message.correlation_data is not None:
        fields["correlation_data"] = base64.b64encode(message.correlation_data).decode()
    if message.payload_format is not None:
        fields["payload_format"] = message.payload_format
    if message.user_properties:
        fields["user"] = message.user_properties
    if expires_at != NEVER:
        fields["expiry"] = max(0, math.ceil(expires_at - now - ROUNDING))
    if not fields:
        return {}
    return {"properties": json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()}
