"""What the admin API may ask of a broker: operations by name, done on the broker's loop.

Whoever asks may be another process, to which strangers talk. So arguments are values of JSON, and what is returned is:
bytes, which are JSON already, values of JSON, or dataclasses of such. What takes long is made in slices (slices.py),
and its JSON with it. Pages are bounded in what they hold and in what is looked at for them.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import to_json

from headwater.message import NEVER, Message, Subscription
from headwater.node.access.limits import Ban
from headwater.node.admin.cluster_desk import OPERATIONS as OF_THE_CLUSTER
from headwater.node.admin.cluster_desk import ClusterDesk
from headwater.node.admin.hand_over_desk import OPERATIONS as OF_HAND_OVER
from headwater.node.admin.hand_over_desk import HandOverDesk
from headwater.node.admin.slices import Far, Slices, Steps
from headwater.node.advice.document import Advice
from headwater.node.bridge.view import BridgeView
from headwater.node.broker import Broker
from headwater.node.delivery.figures import see_store
from headwater.node.forwarding.view import ForwardView
from headwater.node.operations.seen import Lag, Seen, see
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.plane.channel import Channel
from headwater.node.protocol.group_view import GroupView, views_in_steps
from headwater.node.protocol.statistics import Statistics
from headwater.node.protocol.tracing import Record, Trace, Tracing
from headwater.routing.topics import check_filter, has_wildcard, matches
from headwater.session.connection import CONNECTED
from headwater.session.session import Session
from headwater.wire.reasons import ADMINISTRATIVE_ACTION

if TYPE_CHECKING:
    from headwater.node.delivery.handing_over import HandingOver

MOST_GROUPS: Final = 100
MOST_LOOKED_AT: Final = 5000
"""Things looked at for one page, of which perhaps few belong on it."""
TOGETHER: Final = 10
"""Things that become JSON at once."""
LOOKS: Final = 20
"""Things looked at in a step."""
VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}
OPERATIONS: Final = frozenset(
    [
        *("why_not_ready", "statistics", "seen", "workers", "groups", "bridges", "forwards", "advice"),
        "use_dispatcher",
        *("clients", "client", "kick", "sessions", "session", "end_session", "subscriptions"),
        *("bans", "ban", "lift_ban", "snapshot"),
        *("retained", "retained_message", "delete_retained", "publish"),
        *("start_trace", "trace_to_log", "taken", "end_trace"),
        *OF_THE_CLUSTER,
        *OF_HAND_OVER,
    ]
)

Fields = dict[str, Any]


class Desk(ClusterDesk, HandOverDesk):
    """Made on the broker's loop; asked there."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lag = Lag(broker)
        self._slices = Slices(broker)
        self._tracing = Tracing(broker.hooks)
        self._traces: dict[int, Trace] = {}
        self._trace_number = 0
        self._channels = Far[Channel](_channels)
        self._sessions = Far[Session](_sessions)
        self._retained = Far[Message](_retained)

    def start(self) -> None:
        self.lag.start()

    def stop(self) -> None:
        self.lag.stop()
        self._tracing.stop()

    def handing_over(self) -> HandingOver | None:
        return self.broker.handing_over()

    def data_dir(self) -> str:
        return self.broker.config.data_dir

    def leave(self) -> None:
        """Who has asked until now has gone."""
        for trace in list(self._traces.values()):
            trace.end("nobody reads it")
        self._traces.clear()

    def is_ready(self) -> bool:
        return self.broker.is_ready()

    def why_not_ready(self) -> str:
        return self.broker.why_not_ready()

    # ---- figures -----------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        self._now()
        return self.broker.statistics()

    async def seen(self) -> Seen:
        """For Prometheus, without the groups."""
        coordinator, history = self.broker.server.coordinator, self.broker.history
        moved = None if history is None else history.seen
        store = None if coordinator is None else await asyncio.to_thread(see_store, coordinator, moved)
        self._now()
        return see(self.broker, [], store, self.lag.seen)

    async def groups(self) -> bytes:
        """The first shared groups."""
        self._now()
        return await self._slices.made(_groups(self.broker))

    def workers(self) -> list[WorkerSeen]:
        """None: this process is all there is."""
        return []

    def bridges(self) -> list[BridgeView]:
        return self.broker.bridges.views()

    def forwards(self) -> list[ForwardView]:
        return self.broker.forwards.views()

    def advice(self) -> list[Advice]:
        return self.broker.advice()[:MOST_GROUPS]

    def use_dispatcher(self, pattern: str, dispatcher: str) -> int:
        """Raises ValueError."""
        return self.broker.use_dispatcher(pattern, dispatcher)

    # ---- clients and sessions ----------------------------------------------------------------------------------

    async def clients(self, offset: int, limit: int) -> bytes:
        channels = self._channels.some(self.broker, offset, limit)
        next_page = next_offset(offset, len(channels), len(self.broker.server.channels))
        now = self._now()
        some = (
            client_fields(each, each.session, now)
            for each in channels
            if each.state == CONNECTED and each.session is not None
        )
        return await self._slices.made(_written(some, next_page))

    def client(self, client_id: str) -> Fields | None:
        session = self.broker.server.sessions.get(client_id)
        if session is None or session.connection is None:
            return None
        return client_fields(cast(Channel, session.connection), session, self._now())

    def kick(self, client_id: str, reason: int, server_reference: str | None) -> bool:
        return self.broker.disconnect(client_id, reason, server_reference)

    async def sessions(self, offset: int, limit: int) -> bytes:
        sessions = self._sessions.some(self.broker, offset, limit)
        next_page = next_offset(offset, len(sessions), len(self.broker.server.sessions))
        now = self._now()
        return await self._slices.made(_written((session_fields(each, now) for each in sessions), next_page))

    def session(self, client_id: str) -> Fields | None:
        session = self.broker.server.sessions.get(client_id)
        return None if session is None else session_fields(session, self._now())

    async def end_session(self, client_id: str) -> bool:
        """On disk when it returns. Raises StorageError."""
        broker = self.broker
        session = broker.server.sessions.get(client_id)
        if session is None:
            return False
        session.expiry_interval = 0
        if not broker.disconnect(client_id, ADMINISTRATIVE_ACTION):
            with broker.server.turn():
                broker.server.ending.remove(session)
        await broker.committed()
        return True

    async def subscriptions(self, client_id: str | None, after: str, limit: int) -> bytes:
        """`after` is a session's place and, within it, a subscription's: `12:3`."""
        place, _, within = after.partition(":")
        start, skip = int(place), int(within)
        server = self.broker.server
        if client_id is None:
            sessions = self._sessions.some(self.broker, start, MOST_LOOKED_AT)
            more = start + len(sessions) < len(server.sessions)
        else:
            found = server.sessions.get(client_id)
            sessions = [] if found is None or start else [found]
            more = False
        return await self._slices.made(_subscriptions(sessions, start, skip, limit, more))

    # ---- bans --------------------------------------------------------------------------------------------------

    def bans(self, offset: int, limit: int) -> Fields:
        now = self._now()
        bans = self.broker.server.access.bans.all(now)
        items = [ban_fields(each, now) for each in bans[offset : offset + limit]]
        return {"items": items, "next": next_offset(offset, len(items), len(bans))}

    def ban(self, kind: str, value: str, seconds: float | None, reason: str) -> Fields:
        """Raises ValueError."""
        return ban_fields(self.broker.ban(kind, value, seconds, reason), self._now())

    def lift_ban(self, kind: str, value: str) -> bool:
        return self.broker.lift_ban(kind, value)

    # ---- data --------------------------------------------------------------------------------------------------

    async def snapshot(self) -> Fields:
        """Raises StorageError."""
        taken = await self.broker.snapshot()
        return {"folder": str(taken.folder.absolute()), "name": taken.name, "schema_": taken.schema}

    # ---- messages ----------------------------------------------------------------------------------------------

    async def retained(self, filter: str, offset: int, limit: int) -> bytes:
        """Raises ValueError if that is no filter."""
        check_filter(filter, self.broker.config.max_topic_levels)
        retained = self.broker.server.router.retained
        now = self._now()
        if not has_wildcard(filter):
            found = retained.get(filter)
            alive = [] if found is None or found.expires_at <= now or offset else [found]
            return await self._slices.made(_written((retained_fields(each, now) for each in alive), None))
        messages = self._retained.some(self.broker, offset, MOST_LOOKED_AT)
        return await self._slices.made(_matching(messages, filter, offset, limit, len(retained), now))

    def retained_message(self, topic: str) -> Fields | None:
        message = self.broker.server.router.retained.get(topic)
        now = self._now()
        if message is None or message.expires_at <= now:
            return None
        return {**retained_fields(message, now), "payload_base64": base64.b64encode(message.payload).decode()}

    async def delete_retained(self, topic: str) -> bool:
        """On disk when it returns. Raises StorageError."""
        message = self.broker.server.router.retained.get(topic)
        if message is None:
            return False
        self.broker.publish(Message(message.topic, b"", message.qos, True))
        await self.broker.committed()
        return True

    async def publish(self, topic: str, qos: int, retain: bool, body: bytes = b"", **more: Any) -> None:
        """On disk when it returns, but for QoS 0. Raises ValueError, StorageError."""
        expiry = more["expiry"]
        message = Message(
            topic,
            body,
            qos,
            retain,
            expires_at=NEVER if expiry is None else self._now() + expiry,
            content_type=more["content_type"],
            response_topic=more["response_topic"],
            user_properties=[(name, value) for name, value in more["user_properties"]] or None,
        )
        self.broker.publish(message)
        if qos or retain:
            await self.broker.committed()

    # ---- traces ------------------------------------------------------------------------------------------------

    def trace_to_log(self, client_id: str, seconds: float, packets: int) -> None:
        """Raises TooManyTraces."""
        self._tracing.start_to_log(client_id, seconds, packets)

    def start_trace(self, client_id: str, seconds: float, packets: int) -> int:
        """Its number. Raises TooManyTraces."""
        self._trace_number += 1
        self._traces[self._trace_number] = self._tracing.start(client_id, seconds, packets)
        return self._trace_number

    async def taken(self, number: int) -> list[Record]:
        """What has come since the last time; nothing: it has ended."""
        trace = self._traces.get(number)
        return [] if trace is None else await trace.taken()

    def end_trace(self, number: int) -> None:
        trace = self._traces.pop(number, None)
        if trace is not None:
            trace.end("nobody reads it")

    def _now(self) -> float:
        now = self.broker.server.hot.now = time.monotonic()
        return now


# ---- things, as values of JSON -------------------------------------------------------------------------------------


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


def ban_fields(ban: Ban, now: float) -> Fields:
    return {"kind": ban.kind, "value": ban.value, "remaining": _remaining(ban.until, now), "reason": ban.reason}


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


def _subscription_fields(client_id: str, subscription: Subscription) -> Fields:
    return {
        "client_id": client_id,
        "filter": subscription.name,
        "qos": subscription.qos,
        "no_local": subscription.no_local,
        "retain_as_published": subscription.retain_as_published,
        "retain_handling": subscription.retain_handling,
        "identifier": subscription.identifier or None,
        "condition": None if subscription.condition is None else subscription.condition.text,
    }


def _remaining(until: float, now: float) -> float | None:
    return None if until == NEVER else max(0.0, until - now)


def _channels(broker: Broker, start: int, count: int) -> list[Channel]:
    return list(islice(broker.server.channels, start, min(start + count, sys.maxsize)))


def _sessions(broker: Broker, start: int, count: int) -> list[Session]:
    return list(islice(broker.server.sessions.values(), start, min(start + count, sys.maxsize)))


def _retained(broker: Broker, start: int, count: int) -> list[Message]:
    return broker.server.router.retained.some(start, count)


def next_offset(offset: int, looked_at: int, total: int) -> int | None:
    end = offset + looked_at
    return end if looked_at and end < total else None


# ---- in steps ------------------------------------------------------------------------------------------------------


def _written(items: Iterable[Fields], next_page: int | str | None) -> Steps[bytes]:
    parts: list[bytes] = []
    some: list[Fields] = []
    for each in items:
        some.append(each)
        if len(some) == TOGETHER:
            parts.append(to_json(some)[1:-1])
            some = []
            yield
    return _page(parts, some, next_page)


def _page(parts: list[bytes], some: list[Fields], next_page: int | str | None) -> bytes:
    if some:
        parts.append(to_json(some)[1:-1])
    return b'{"items":[' + b",".join(parts) + b'],"next":' + to_json(next_page) + b"}"


def _subscriptions(sessions: list[Session], start: int, skip: int, limit: int, more: bool) -> Steps[bytes]:
    parts: list[bytes] = []
    count = 0
    for index, session in enumerate(sessions, start):
        wanted = limit - count
        chosen = list(islice(session.subscriptions.values(), skip, skip + wanted))
        some = [_subscription_fields(session.client_id, each) for each in chosen]
        count += len(some)
        for begin in range(0, len(some), TOGETHER):
            parts.append(to_json(some[begin : begin + TOGETHER])[1:-1])
            yield
        if skip + len(chosen) < len(session.subscriptions):
            return _page(parts, [], f"{index}:{skip + len(chosen)}")
        skip = 0
        if index % LOOKS == 0:
            yield
    return _page(parts, [], f"{start + len(sessions)}:0" if more else None)


def _matching(messages: list[Message], filter: str, offset: int, limit: int, total: int, now: float) -> Steps[bytes]:
    parts: list[bytes] = []
    some: list[Fields] = []
    count = looked_at = 0
    for message in messages:
        if count == limit:
            break
        looked_at += 1
        if message.expires_at > now and matches(filter, message.topic):
            some.append(retained_fields(message, now))
            count += 1
        if len(some) == TOGETHER:
            parts.append(to_json(some)[1:-1])
            some = []
            yield
        elif looked_at % LOOKS == 0:
            yield
    return _page(parts, some, next_offset(offset, looked_at, total))


def _groups(broker: Broker) -> Steps[bytes]:
    groups: list[GroupView] = []
    for each in views_in_steps(broker.server, MOST_GROUPS):
        if each is not None:
            groups.append(each)
        yield
    written: list[bytes] = []
    for group in groups:
        members: list[bytes] = []
        for begin in range(0, len(group.members), TOGETHER):
            members.append(to_json(group.members[begin : begin + TOGETHER])[1:-1])
            yield
        head: dict[str, object] = {"name": group.name, "dispatcher": group.dispatcher}
        head |= {"sent": group.sent, "waiting": group.waiting, "elsewhere": group.elsewhere}
        written.append(to_json(head)[:-1] + b',"members":[' + b",".join(members) + b"]}")
        yield
    return b"[" + b",".join(written) + b"]"
