"""Sessions and messages as lines of JSON, between brokers and for people: the lines, and records ↔ lines.

The first line is `{"kind": "headwater-export", "schema": 1}`. Then, in this order (docs/persistence.md has the fields):

    session         then its will, its subscriptions and its received QoS 2 ids
    queued          what waits for a session or a shared group, or is in flight; each message before the first of them
    retained

Client ids take the place of the numbers that records have, and times are seconds since 1970.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from headwater.message import NEVER, Message
from headwater.routing.conditions.condition import condition_of
from headwater.routing.topics import ANY_LEVELS, check_filter, check_name, split_shared
from headwater.wire.primitives import FOR_EVER, UINT16_MAX

FORMAT: Final = "headwater-export"
"""As many as a topic can have; what a broker's setting allows is its own matter."""


def _unicode(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("is not Unicode text") from None
    return value


def _text(value: str) -> str:
    if len(_unicode(value).encode()) > UINT16_MAX or "\0" in value:
        raise ValueError("is longer than 65,535 bytes, or has a null character in it")
    return value


def _topic(value: str) -> str:
    check_name(value, ANY_LEVELS)
    return value


def _filter(value: str) -> str:
    share, filter = split_shared(value)
    check_filter(filter if share is not None else value, ANY_LEVELS)
    return value


def _is_condition(value: str) -> str:
    condition_of(value)
    return value


def _base64(value: str) -> str:
    base64.b64decode(value, validate=True)
    return value


Text = Annotated[str, AfterValidator(_text)]
Topic = Annotated[str, AfterValidator(_text), AfterValidator(_topic)]
Filter = Annotated[str, AfterValidator(_text), AfterValidator(_filter)]
Base64 = Annotated[str, AfterValidator(_base64)]
QoS = Annotated[int, Field(ge=0, le=2)]
PacketId = Annotated[int, Field(ge=1, le=UINT16_MAX)]
Seconds = Annotated[int, Field(ge=0, le=FOR_EVER)]
Time = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)]


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Header(Line):
    kind: Literal["headwater-export"]
    schema_: int = Field(alias="schema")


class Content(Line):
    """What a message carries."""

    topic: Topic
    payload: Annotated[str, AfterValidator(_unicode)] | None = None
    payload_base64: Base64 | None = None
    qos: QoS = 0
    retain: bool = False
    publisher: Text = ""
    owner: Text | None = None
    user: Text | None = None
    expires: Time | None = None
    payload_format: Annotated[int, Field(ge=0, le=1)] | None = None
    content_type: Text | None = None
    response_topic: Topic | None = None
    correlation_data: Annotated[str, AfterValidator(_unicode)] | None = None
    correlation_data_base64: Base64 | None = None
    user_properties: list[Pair] | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Content:
        if (self.payload is None) == (self.payload_base64 is None):
            raise ValueError("needs either payload or payload_base64")
        if self.correlation_data is not None and self.correlation_data_base64 is not None:
            raise ValueError("has both correlation_data and correlation_data_base64")
        return self

    def message(self) -> Message:
        pairs = self.user_properties
        message = Message(
            self.topic,
            _bytes(self.payload, self.payload_base64) or b"",
            self.qos,
            self.retain,
            publisher=self.publisher,
            expires_at=NEVER if self.expires is None else self.expires,
            payload_format=self.payload_format,
            content_type=self.content_type,
            response_topic=self.response_topic,
            correlation_data=_bytes(self.correlation_data, self.correlation_data_base64),
            user_properties=None if pairs is None else [(name, value) for name, value in pairs],
        )
        message.owner = self.owner
        message.user = self.owner or self.user
        return message


class SessionLine(Line):
    kind: Literal["session"]
    client_id: Annotated[Text, Field(min_length=1)]
    expiry: Seconds
    user: Text | None = None
    until: Time | None = None
    will_only: bool = False
    away: bool = False
    next_id: PacketId | None = None


class WillLine(Content):
    kind: Literal["will"]
    client_id: Text
    delay: Seconds = 0
    expiry: Seconds | None = None
    at: Time | None = None


class SubscriptionLine(Line):
    kind: Literal["subscription"]
    client_id: Text
    filter: Filter
    qos: QoS
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: Annotated[int, Field(ge=0, le=2)] = 0
    identifier: Annotated[int, Field(ge=0, le=268_435_455)] = 0
    positions: bool = False
    retained_pending: bool = False
    condition: Annotated[str, AfterValidator(_is_condition)] | None = None


class ReceivedLine(Line):
    kind: Literal["received"]
    client_id: Text
    packet_id: PacketId


class MessageLine(Content):
    kind: Literal["message"]
    id: int


class QueuedLine(Line):
    kind: Literal["queued"]
    client_id: Text | None = None
    group: Filter | None = None
    message: int
    qos: Annotated[int, Field(ge=1, le=2)]
    retain: bool = False
    identifiers: list[Annotated[int, Field(ge=1, le=268_435_455)]] | None = None
    packet_id: PacketId | None = None
    released: bool = False

    @model_validator(mode="after")
    def _has_an_owner(self) -> QueuedLine:
        if self.client_id is None and self.group is None:
            raise ValueError("needs a client_id, a group or both")
        if self.client_id is None and self.packet_id is not None:
            raise ValueError("is in flight (packet_id) to nobody")
        if self.group is not None and split_shared(self.group)[0] is None:
            raise ValueError("has a group that is none: $share/NAME/FILTER")
        return self


class RetainedLine(Content):
    kind: Literal["retained"]


KINDS: Final[dict[str, type[Line]]] = {
    FORMAT: Header,
    "session": SessionLine,
    "will": WillLine,
    "subscription": SubscriptionLine,
    "received": ReceivedLine,
    "message": MessageLine,
    "queued": QueuedLine,
    "retained": RetainedLine,
}


def content_of(message: Message) -> dict[str, Any]:
    """The fields of `Content`, without those that have their defaults."""
    fields: dict[str, Any] = {"topic": message.topic, **_either("payload", message.payload)}
    if message.qos:
        fields["qos"] = message.qos
    if message.retain:
        fields["retain"] = True
    if message.publisher:
        fields["publisher"] = message.publisher
    if message.owner is not None:
        fields["owner"] = message.owner
    elif message.user is not None:
        fields["user"] = message.user
    if message.expires_at != NEVER:
        fields["expires"] = message.expires_at
    for name in ("payload_format", "content_type", "response_topic"):
        value = getattr(message, name)
        if value is not None:
            fields[name] = value
    if message.correlation_data is not None:
        fields |= _either("correlation_data", message.correlation_data)
    if message.user_properties is not None:
        fields["user_properties"] = [list(pair) for pair in message.user_properties]
    return fields


def _either(name: str, value: bytes) -> dict[str, str]:
    """As text if it is some, else as base64."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _bytes(text: str | None, encoded: str | None) -> bytes | None:
    if encoded is not None:
        return base64.b64decode(encoded)
    return None if text is None else text.encode()
