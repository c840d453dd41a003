"""What the admin API shows: a model for each kind of thing, made from the broker's own objects.

Nothing of what a client sends as a secret is in them. Pages are bounded in what they hold and in what is looked at for
them, and they are made in slices, with a turn of the broker's clients between two of them, so that no request keeps the
broker from its clients for long. What a slice shows is as it was at that moment.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, Field

from headwater.message import NEVER, Message, Subscription
from headwater.node.channel import Channel
from headwater.node.server import Server
from headwater.routing.topics import has_wildcard, matches
from headwater.session.connection import CONNECTED
from headwater.session.session import Session

MOST_ITEMS: Final = 200
MOST_LOOKED_AT: Final = 5000
"""Things looked at for one page, of which perhaps few belong on it."""
SLICE: Final = 20
"""Things made into views before the broker's clients have a turn."""
LOOKS: Final = 200
"""Things looked at before that."""
VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}

Item = TypeVar("Item")
Thing = TypeVar("Thing")


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


# ---- made from what the broker has -------------------------------------------------------------------------------


def session_view(session: Session, now: float) -> SessionView:
    return SessionView(
        client_id=session.client_id,
        username=session.username,
        online=session.online,
        expiry_interval=session.expiry_interval,
        expires_in=_remaining(session.expires_at, now),
        subscriptions=len(session.subscriptions),
        in_flight=len(session.outbound.flights),
        queued=session.outbound.waiting(),
        will=None if session.will is None else session.will.topic,
    )


def client_view(channel: Channel, session: Session, now: float) -> ClientView:
    return ClientView(
        client_id=channel.client_id,
        username=channel.username,
        address=channel.address,
        protocol=VERSIONS.get(channel.version, str(channel.version)),
        connected_for=max(0.0, now - channel.opened_at),
        silent_for=max(0.0, now - channel.last_seen),
        keep_alive=channel.keep_alive,
        bytes_waiting=channel.backlog_size,
        session=session_view(session, now),
    )


async def in_slices(things: Sequence[Thing], size: int = SLICE) -> AsyncIterator[Sequence[Thing]]:
    for start in range(0, len(things), size):
        await asyncio.sleep(0)
        yield things[start : start + size]


def find_client(server: Server, client_id: str, now: float) -> ClientView | None:
    session = server.sessions.get(client_id)
    if session is None or session.connection is None:
        return None
    return client_view(cast(Channel, session.connection), session, now)


async def clients_page(server: Server, offset: int, limit: int, now: float) -> Page[ClientView]:
    channels = list(islice(server.channels, offset, offset + limit))
    items: list[ClientView] = []
    async for some in in_slices(channels):
        items += [
            client_view(each, each.session, now)
            for each in some
            if each.state == CONNECTED and each.session is not None
        ]
    return Page(items=items, next=next_offset(offset, len(channels), len(server.channels)))


async def sessions_page(server: Server, offset: int, limit: int, now: float) -> Page[SessionView]:
    sessions = list(islice(server.sessions.values(), offset, offset + limit))
    items: list[SessionView] = []
    async for some in in_slices(sessions):
        items += [session_view(each, now) for each in some]
    return Page(items=items, next=next_offset(offset, len(sessions), len(server.sessions)))


async def subscriptions_page(server: Server, client_id: str | None, after: str, limit: int) -> SubscriptionPage:
    """`after` is a session's place and, within it, a subscription's: `12:3`."""
    place, _, within = after.partition(":")
    start, skip = int(place), int(within)
    sessions: list[Session]
    if client_id is None:
        sessions = list(islice(server.sessions.values(), start, start + MOST_LOOKED_AT))
    else:
        found = server.sessions.get(client_id)
        sessions = [] if found is None or start else [found]
    items: list[SubscriptionView] = []
    made = 0
    for index, session in enumerate(sessions, start):
        if len(items) - made >= SLICE or (index - start) % LOOKS == 0:
            made = len(items)
            await asyncio.sleep(0)
        wanted = limit - len(items)
        chosen = list(islice(session.subscriptions.values(), skip, skip + wanted))
        items += [_subscription_view(session.client_id, each) for each in chosen]
        if skip + len(chosen) < len(session.subscriptions):
            return SubscriptionPage(items=items, next=f"{index}:{skip + len(chosen)}")
        skip = 0
    end = start + len(sessions)
    more = client_id is None and end < len(server.sessions)
    return SubscriptionPage(items=items, next=f"{end}:0" if more else None)


def _subscription_view(client_id: str, subscription: Subscription) -> SubscriptionView:
    return SubscriptionView(
        client_id=client_id,
        filter=subscription.name,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        retain_handling=subscription.retain_handling,
        identifier=subscription.identifier or None,
    )


async def retained_page(server: Server, filter: str, offset: int, limit: int, now: float) -> Page[RetainedView]:
    retained = server.router.retained
    if not has_wildcard(filter):
        found = retained.get(filter)
        alive = [] if found is None or found.expires_at <= now or offset else [found]
        return Page(items=[retained_view(each, now) for each in alive], next=None)
    items: list[RetainedView] = []
    looked_at = 0
    for message in retained.some(offset, MOST_LOOKED_AT):
        if len(items) == limit:
            break
        if looked_at % SLICE == 0:
            await asyncio.sleep(0)
        looked_at += 1
        if message.expires_at > now and matches(filter, message.topic):
            items.append(retained_view(message, now))
    return Page(items=items, next=next_offset(offset, looked_at, len(retained)))


def retained_view(message: Message, now: float) -> RetainedView:
    return RetainedView(**_retained_fields(message, now))


def retained_message(message: Message, now: float) -> RetainedMessage:
    payload = base64.b64encode(message.payload).decode()
    return RetainedMessage(**_retained_fields(message, now), payload_base64=payload)


def _retained_fields(message: Message, now: float) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "qos": message.qos,
        "size": len(message.payload),
        "publisher": message.publisher,
        "expires_in": _remaining(message.expires_at, now),
        "content_type": message.content_type,
        "user_properties": message.user_properties or [],
    }


def _remaining(until: float, now: float) -> float | None:
    return None if until == NEVER else max(0.0, until - now)


def next_offset(offset: int, looked_at: int, total: int) -> int | None:
    end = offset + looked_at
    return end if looked_at and end < total else None
