"""What the admin API shows: a model for each kind of thing. Nothing of what a client sends as a secret is in them."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from pydantic import BaseModel, Field

MOST_ITEMS: Final = 200

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: int | None = Field(description="The `offset` of the next page; null: this is the last one.")


class SubscriptionPage(BaseModel):
    items: list[SubscriptionView]
    next: str | None = Field(description="The `after` of the next page; null: this is the last one.")


class SubscriptionView(BaseModel):
    client_id: str
    filter: str = Field(description="As the client wrote it, with `$share/…`.")
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None
    condition: str | None = Field(description="What messages have to meet (docs/content-filters.md).")


class SessionView(BaseModel):
    client_id: str
    username: str | None
    online: bool
    expiry_interval: int = Field(description="Seconds that it is kept without a connection; 4294967295: for ever.")
    expires_in: float | None = Field(description="Seconds until it ends unless its client comes back.")
    subscriptions: int
    in_flight: int = Field(description="QoS 1 and 2 messages that its client has not acknowledged.")
    queued: int = Field(description="Messages that wait for its client.")
    will: str | None = Field(description="The topic of its will.")


class ClientView(BaseModel):
    client_id: str
    username: str | None
    address: str
    protocol: str = Field(description="The version of MQTT.")
    connected_for: float = Field(description="Seconds since its socket was opened.")
    silent_for: float = Field(description="Seconds since its last packet, as far as they are counted.")
    keep_alive: int
    bytes_waiting: int = Field(description="Bytes that its socket did not take yet.")
    session: SessionView


class RetainedView(BaseModel):
    topic: str
    qos: int
    size: int = Field(description="Bytes of its payload.")
    publisher: str = Field(description="The client id; empty: the broker itself.")
    expires_in: float | None
    content_type: str | None
    user_properties: list[tuple[str, str]]


class RetainedMessage(RetainedView):
    payload_base64: str


class BanView(BaseModel):
    kind: str
    value: str
    remaining: float | None = Field(description="Seconds; null: until it is lifted.")
    reason: str
