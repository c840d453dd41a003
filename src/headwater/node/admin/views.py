"""What the admin API shows: a model for each kind of thing, made from the broker's own objects.

Nothing of what a client sends as a secret is in them. Pages are bounded in what they hold and in what is looked at for
them. Which things are on them is asked of the broker's loop (reach.py); they become dictionaries, and JSON, in the
API's thread. The models describe them, and are made where single things are shown.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, Field
from pydantic_core import to_json

from headwater.message import NEVER, Message, Subscription
from headwater.node.admin.reach import Far, Reach
from headwater.node.broker import Broker
from headwater.node.channel import Channel
from headwater.node.server import Server
from headwater.routing.topics import has_wildcard, matches
from headwater.session.connection import CONNECTED
from headwater.session.session import Session

MOST_ITEMS: Final = 200
MOST_LOOKED_AT: Final = 5000
"""Things looked at for one page, of which perhaps few belong on it."""
LOOKS: Final = 100
"""Things looked at before other requests have their turn."""
TOGETHER: Final = 20
"""Things that become JSON at once."""
VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}

Item = TypeVar("Item")
Fields = dict[str, Any]


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


def session_fields(session: Session, now: float) -> Fields:
    will = session.will
    return {
        "client_id": session.client_id,
        "username": session.username,
        "online": session.online,
        "expiry_interval": session.expiry_interval,
        "expires_in": _remaining(session.expires_at, now),
        "subscriptions": len(session.subscriptions),
        "in_flight": len(session.outbound.flights),
        "queued": session.outbound.waiting(),
        "will": None if will is None else will.topic,
    }


def client_fields(channel: Channel, session: Session, now: float) -> Fields:
    return {
        "client_id": channel.client_id,
        "username": channel.username,
        "address": channel.address,
        "protocol": VERSIONS.get(channel.version, str(channel.version)),
        "connected_for": max(0.0, now - channel.opened_at),
        "silent_for": max(0.0, now - channel.last_seen),
        "keep_alive": channel.keep_alive,
        "bytes_waiting": channel.backlog_size,
        "session": session_fields(session, now),
    }


def find_client(server: Server, client_id: str) -> Fields | None:
    session = server.sessions.get(client_id)
    if session is None or session.connection is None:
        return None
    return client_fields(cast(Channel, session.connection), session, server.hot.now)


def find_session(server: Server, client_id: str) -> Fields | None:
    session = server.sessions.get(client_id)
    return None if session is None else session_fields(session, server.hot.now)


# ---- pages -------------------------------------------------------------------------------------------------------


def _channels(broker: Broker, start: int, count: int) -> list[Channel]:
    return list(islice(broker.server.channels, start, min(start + count, sys.maxsize)))


def _sessions(broker: Broker, start: int, count: int) -> list[Session]:
    return list(islice(broker.server.sessions.values(), start, min(start + count, sys.maxsize)))


def _retained(broker: Broker, start: int, count: int) -> list[Message]:
    return broker.server.router.retained.some(start, count)


class Pages:
    """Lists of what one broker has. Which things are on a page is asked of the broker's loop, which takes microseconds;
    single values of a thing may be read in any thread."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._channels = Far[Channel](_channels)
        self._sessions = Far[Session](_sessions)
        self._retained = Far[Message](_retained)

    async def clients(self, offset: int, limit: int) -> bytes:
        channels = await self._reach.ask(lambda broker: self._channels.some(broker, offset, limit))
        now = time.monotonic()
        items: list[Fields] = []
        for each in channels:
            session = each.session
            if each.state == CONNECTED and session is not None:
                items.append(client_fields(each, session, now))
        return written(items, next_offset(offset, len(channels), len(self._server.channels)))

    async def sessions(self, offset: int, limit: int) -> bytes:
        sessions = await self._reach.ask(lambda broker: self._sessions.some(broker, offset, limit))
        now = time.monotonic()
        items = [session_fields(each, now) for each in sessions]
        return written(items, next_offset(offset, len(sessions), len(self._server.sessions)))

    @property
    def _server(self) -> Server:
        return self._reach.broker.server

    async def subscriptions(self, client_id: str | None, after: str, limit: int) -> bytes:
        """`after` is a session's place and, within it, a subscription's: `12:3`."""
        place, _, within = after.partition(":")
        start, skip = int(place), int(within)
        if client_id is None:
            sessions = await self._reach.ask(lambda broker: self._sessions.some(broker, start, MOST_LOOKED_AT))
        else:
            found = self._server.sessions.get(client_id)
            sessions = [] if found is None or start else [found]
        items: list[Fields] = []
        for index, session in enumerate(sessions, start):
            if index % LOOKS == 0:
                await asyncio.sleep(0)
            wanted = limit - len(items)
            chosen = list(islice(session.subscriptions.values(), skip, skip + wanted))
            items += [_subscription_fields(session.client_id, each) for each in chosen]
            if skip + len(chosen) < len(session.subscriptions):
                return written(items, f"{index}:{skip + len(chosen)}")
            skip = 0
        end = start + len(sessions)
        more = client_id is None and end < len(self._server.sessions)
        return written(items, f"{end}:0" if more else None)

    async def retained(self, filter: str, offset: int, limit: int) -> bytes:
        retained = self._server.router.retained
        now = time.monotonic()
        if not has_wildcard(filter):
            found = retained.get(filter)
            alive = [] if found is None or found.expires_at <= now or offset else [found]
            return written([retained_fields(each, now) for each in alive], None)
        messages = await self._reach.ask(lambda broker: self._retained.some(broker, offset, MOST_LOOKED_AT))
        items: list[Fields] = []
        looked_at = 0
        for message in messages:
            if len(items) == limit:
                break
            if looked_at % LOOKS == 0:
                await asyncio.sleep(0)
            looked_at += 1
            if message.expires_at > now and matches(filter, message.topic):
                items.append(retained_fields(message, now))
        return written(items, next_offset(offset, looked_at, len(retained)))


def written(items: list[Fields], next_page: int | str | None) -> bytes:
    """As JSON, some at a time: what is written at once lets no other thread run."""
    parts = [to_json(items[start : start + TOGETHER])[1:-1] for start in range(0, len(items), TOGETHER)]
    return b'{"items":[' + b",".join(parts) + b'],"next":' + to_json(next_page) + b"}"


def _subscription_fields(client_id: str, subscription: Subscription) -> Fields:
    return {
        "client_id": client_id,
        "filter": subscription.name,
        "qos": subscription.qos,
        "no_local": subscription.no_local,
        "retain_as_published": subscription.retain_as_published,
        "retain_handling": subscription.retain_handling,
        "identifier": subscription.identifier or None,
    }


def retained_fields(message: Message, now: float) -> Fields:
    return {
        "topic": message.topic,
        "qos": message.qos,
        "size": len(message.payload),
        "publisher": message.publisher,
        "expires_in": _remaining(message.expires_at, now),
        "content_type": message.content_type,
        "user_properties": message.user_properties or [],
    }


def retained_message(message: Message, now: float) -> RetainedMessage:
    payload = base64.b64encode(message.payload).decode()
    return RetainedMessage(**retained_fields(message, now), payload_base64=payload)


def _remaining(until: float, now: float) -> float | None:
    return None if until == NEVER else max(0.0, until - now)


def next_offset(offset: int, looked_at: int, total: int) -> int | None:
    end = offset + looked_at
    return end if looked_at and end < total else None
