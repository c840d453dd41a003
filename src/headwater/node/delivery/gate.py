"""The broker's own access, for those who come by HTTP: the same users, rules, bans and hooks as for MQTT.

Theory. REST runs in a thread of its own; users, rules and routing belong to the broker's loop. So each request goes
there once to find out who asks, and what it publishes goes there again. A caller is brought before `access` as a client
is that connects: a channel without a socket, and a CONNECT without a client id, which makes no session. What it may
read is decided by its rights, in any thread.

    Authorization: Basic …    user name and password
    Authorization: Bearer …   a token (JWT), or the one of `rest.token`
    nothing                   nobody: where anonymous clients are let in
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from headwater.disk.errors import StorageError
from headwater.edge.status import encode
from headwater.message import NEVER, Message
from headwater.node.access.limits import USER, host_of
from headwater.node.access.tokens import Identity, looks_like_token
from headwater.node.admin.secret import Secret
from headwater.node.broker import Broker
from headwater.node.delivery.caller import JudgedCaller
from headwater.node.delivery.credentials import WHAT_TO_SHOW, Credentials, credentials_in
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.hooks import Refusal
from headwater.node.plane.channel import Channel
from headwater.node.protocol import admission
from headwater.node.transports.sockets import is_loopback
from headwater.session.outbound import Outbound
from headwater.session.rights import Rights
from headwater.session.session import Session
from headwater.store.rest.gate import Approach, Caller, Gate, Publication, Refused, Unauthorized
from headwater.store.store import Store
from headwater.wire.packets import V5, Connect
from headwater.wire.reasons import BANNED, CONNECTION_RATE_EXCEEDED, NOT_AUTHORIZED, SERVER_BUSY

PUBLISHER: Final = "rest"
"""The client id of what is published here, with the user's name behind it: `rest:alice`."""
MOST_REMEMBERED: Final = 65_536
"""Connections that were seen before."""
PATIENCE: Final = 10.0
"""Seconds that a guard of `acl_check` has to answer a thread."""
ANSWERS: Final = {
    admission.BAD_QOS: (422, "unprocessable"),
    admission.NO_RETAIN: (422, "unprocessable"),
    admission.BAD_TOPIC: (422, "unprocessable"),
    admission.FORBIDDEN: (403, "forbidden"),
    admission.TOO_LARGE: (413, "too_large"),
    admission.DISK_FULL: (503, "unavailable"),
    admission.DISK_BEHIND: (503, "unavailable"),
    admission.NO_ROOM: (503, "unavailable"),
    admission.CANNOT_RETAIN: (507, "full"),
    admission.TOO_MANY_TOPICS: (507, "full"),
}
"""Status and short word for each reason why a message is not let in."""
Found = TypeVar("Found")


class BrokerCaller(JudgedCaller):
    """`is_current` says for how long its rights hold. Who has shown `rest.token` (`asks` false) is not judged by guards
    either."""

    def __init__(
        self, gate: BrokerGate, channel: Channel, rights: Rights | None, expires_at: float = NEVER, asks: bool = True
    ) -> None:
        asked = asks and gate.broker.hooks.listens("acl_check")
        everything = rights is None or rights.may_subscribe("#", True)
        sees_all = everything and (not asked or gate.allows(channel, "#", False))
        super().__init__(channel.username or "", rights, asked, rights is not None or not asks, sees_all)
        self.channel = channel
        self.is_trusted = not asks
        self.generation = gate.broker.server.access.generation
        self.expires_at = expires_at
        self._gate = gate

    def guards_allow(self, topics: Sequence[str]) -> list[bool]:
        return self._gate.allows_from_thread(self.channel, topics)

    def is_current(self) -> bool:
        return self.generation == self._gate.broker.server.access.generation and time.monotonic() < self.expires_at


class BrokerGate(Gate):
    """Made on the broker's loop, when the broker has started; `token` is that of `rest.token`."""

    def __init__(self, broker: Broker, settings: RestSettings, token: str = "") -> None:
        self.broker = broker
        self._settings = settings
        self._token = Secret(token) if token else None
        self._loop = asyncio.get_running_loop()
        self._connections: OrderedDict[str, None] = OrderedDict()

    # ---- who ---------------------------------------------------------------------------------------------------

    async def authenticate(self, approach: Approach) -> Caller:
        credentials = credentials_in(approach.authorization)  # what is no use at all does not reach the broker
        _, secret, is_token = credentials
        if is_token and self._token is not None and self._token.is_shown_by(_text(secret)):
            if approach.address in self._connections and not self.broker.server.access.bans:
                return self._trusted(approach, secret)  # nothing is asked of the broker that belongs to its loop
            return await self._soon(partial(self._trusted, approach, secret))
        return await self._on_loop(self._authenticate(approach, credentials))

    async def identify(self, approach: Approach) -> BrokerCaller:
        """The same, for those who are on the broker's loop."""
        credentials = credentials_in(approach.authorization)
        _, secret, is_token = credentials
        if is_token and self._token is not None and self._token.is_shown_by(_text(secret)):
            return self._trusted(approach, secret)
        return await self._authenticate(approach, credentials)

    def _trusted(self, approach: Approach, secret: bytes | None) -> BrokerCaller:
        """Who has shown `rest.token`, unless it is banned."""
        channel = self._channel(approach)
        if approach.address not in self._connections or self.broker.server.access.bans:
            self.broker.server.hot.now = time.monotonic()
            packet = Connect("", V5, password=secret)
            channel.learn(packet)
            refusal = self._admit(channel, packet)
            if refusal is not None:
                raise _refused(refusal, True)
        channel.username = None
        return BrokerCaller(self, channel, None, asks=False)

    async def _authenticate(self, approach: Approach, credentials: Credentials) -> BrokerCaller:
        server = self.broker.server
        server.hot.now = time.monotonic()
        user, secret, is_token = credentials
        channel = self._channel(approach)
        packet = Connect("", V5, username=user, password=secret)
        channel.learn(packet)
        refusal = self._admit(channel, packet)
        if refusal is None and secret is None and user is None:
            _check_host(approach, channel)
        if refusal is None:
            refusal = server.hooks.allow("connect", channel, packet)
        if refusal is None:
            refusal = await self._identify(channel, packet, is_token)
        server.hot.now = time.monotonic()
        identity = server.access.introduced(channel)
        if refusal is None and self._is_banned(identity):
            refusal = Refusal(BANNED)
        if refusal is not None:
            raise _refused(refusal, approach.authorization is not None)
        return self._caller(channel, identity)

    def _channel(self, approach: Approach) -> Channel:
        channel = Channel(self.broker.server.hot, -1, _never, _never)
        config = self.broker.config
        allowed = self._settings.allow_anonymous
        channel.address = approach.address
        channel.loopback = is_loopback(host_of(approach.address))
        channel.allow_anonymous = config.allow_anonymous if allowed is None else allowed
        channel.max_qos = config.max_qos
        return channel

    def _admit(self, channel: Channel, packet: Connect) -> Refusal | None:
        """A connection counts once in the rate of its address, however much is asked over it."""
        access = self.broker.server.access
        if channel.address in self._connections:
            return Refusal(BANNED) if access.is_address_banned(channel) else None
        refusal = access.admit(channel, packet)
        if refusal is None:
            self._connections[channel.address] = None
            if len(self._connections) > MOST_REMEMBERED:
                self._connections.popitem(last=False)
        return refusal

    async def _identify(self, channel: Channel, packet: Connect, is_token: bool) -> Refusal | None:
        server = self.broker.server
        if is_token and not server.hooks.listens("connect_authenticate"):
            takes_tokens = bool(server.access.settings.jwt_key_file)
            if not takes_tokens or packet.password is None or not looks_like_token(packet.password):
                return server.access.failed(channel, packet, "not a token")
        answer = server.connecting.authenticate(channel, packet)
        return answer if answer is None or isinstance(answer, Refusal) else await answer

    def _is_banned(self, identity: Identity) -> bool:
        name = identity.username
        server = self.broker.server
        return name is not None and server.access.bans.find(USER, name, server.hot.now) is not None

    def _caller(self, channel: Channel, identity: Identity) -> BrokerCaller:
        rights = self.broker.server.access.rights.of(identity, "")
        now = self.broker.server.hot.now
        return BrokerCaller(self, channel, rights, NEVER if identity.seconds is None else now + identity.seconds)

    # ---- what --------------------------------------------------------------------------------------------------

    def allows(self, channel: Channel, topic: str, write: bool) -> bool:
        """What the guards of `acl_check` say."""
        return self.broker.hooks.allow("acl_check", channel, topic, write) is None

    def allows_from_thread(self, channel: Channel, topics: Sequence[str]) -> list[bool]:
        """To read topics; from another thread than the broker's."""
        try:
            asked = asyncio.run_coroutine_threadsafe(self._allows(channel, topics), self._loop)
            return asked.result(PATIENCE)
        except (RuntimeError, TimeoutError, CancelledError):
            return [False] * len(topics)  # the broker has stopped, or does not answer

    async def _allows(self, channel: Channel, topics: Sequence[str]) -> list[bool]:
        return [self.allows(channel, topic, False) for topic in topics]

    @property
    def largest_payload(self) -> int:
        return self.broker.server.admission.largest_payload

    def is_ready(self) -> bool:
        return self.broker.is_ready()

    # ---- publishing --------------------------------------------------------------------------------------------

    async def publish(self, caller: Caller, publication: Publication) -> int | None:
        assert isinstance(caller, BrokerCaller)
        return await self._on_loop(self.publish_here(caller, publication))

    async def publish_here(self, caller: BrokerCaller, publication: Publication) -> int | None:
        """On the broker's loop."""
        server = self.broker.server
        if not self.is_ready():
            raise Refused(503, "unavailable", "the broker takes no messages now")
        with server.turn():
            session = self._session(caller)
            asked = admission.Publication(admission.REST, _message(caller, publication, server.hot.now), session)
            asked.client = caller.channel
            asked.address = caller.channel.address
            asked.max_qos = caller.channel.max_qos
            asked.is_trusted = caller.is_trusted
            asked.is_told = True
            denied = server.admission.admit(asked)
            if denied is not None:
                status, error = ANSWERS[denied.why]
                raise Refused(status, error, self._detail(denied))
            message = asked.message
            server.publishing.route(message, session)
        try:
            await self.broker.committed()
        except StorageError as error:
            raise Refused(503, "unavailable", f"it was published, and may not be on disk: {error}") from error
        return message.position or None

    async def edge(self) -> dict[str, Any] | None:
        return await self._soon(self.edge_here)

    async def history(self) -> dict[str, Any] | None:
        return self.history_here()

    def history_here(self) -> dict[str, Any] | None:
        """In any thread."""
        history = self.broker.history
        return None if history is None else history.view()

    def edge_here(self) -> dict[str, Any] | None:
        """On the broker's loop."""
        cluster = self.broker.cluster
        status = None if cluster is None else cluster.edge()
        return None if status is None else encode(status)

    async def settled(self) -> int:
        return await self._on_loop(self.settled_here())

    async def settled_here(self) -> int:
        """On the broker's loop."""
        coordinator = self.broker.server.coordinator
        assert coordinator is not None
        moment, awaited = coordinator.clock(), coordinator.intake.next
        try:
            await self.broker.committed()
            await asyncio.wait_for(_readable(coordinator.store, awaited), PATIENCE)
        except (StorageError, TimeoutError) as error:
            raise Refused(503, "unavailable", f"not everything is on disk: {error}") from error
        return moment

    def _detail(self, denied: admission.Denied) -> str:
        """In the words of REST."""
        if denied.why == admission.BAD_QOS:
            return f"`qos` is at most {self.broker.config.max_qos} here"
        if denied.why == admission.NO_RETAIN:
            return "messages are not retained here; say retain=false"
        return denied.text

    def _session(self, caller: BrokerCaller) -> Session:
        """Nobody's but the message's publisher: rights and quotas of what is retained are looked up by it."""
        server = self.broker.server
        session = Session(_publisher(caller), Outbound(server.budget, 0, 0, server.policy))
        session.username = caller.channel.username
        session.rights = caller.rights
        return session

    # ---- threads -----------------------------------------------------------------------------------------------

    async def _soon(self, work: Callable[[], Found]) -> Found:
        """Something short, done on the broker's loop without a task of its own."""
        here = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = here.create_future()

        def done(found: Any, error: Exception | None) -> None:
            if not answer.done():
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(found)

        def there() -> None:
            found: Any = None
            failure: Exception | None = None
            try:
                found = work()
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # who asked has ended
                here.call_soon_threadsafe(done, found, failure)

        try:
            self._loop.call_soon_threadsafe(there)
        except RuntimeError:
            raise Refused(503, "unavailable", "the broker has stopped") from None
        return await answer

    async def _on_loop(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Done on the broker's loop, awaited on REST's."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Refused(503, "unavailable", "the broker has stopped") from None
        return await asyncio.wrap_future(future)


async def _readable(store: Store, position: int) -> None:
    """Until all before this position can be read; with durability `async` that is later than their commit's answer."""
    loop, more = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(more.set)

    store.watch(tell)
    try:
        while store.next < position:
            await more.wait()
            more.clear()
    finally:
        store.unwatch(tell)


def _never(*arguments: object) -> Any:
    raise RuntimeError("not connected")


def _text(secret: bytes | None) -> str:
    return (secret or b"").decode("utf-8", "surrogateescape")


def _check_host(approach: Approach, channel: Channel) -> None:
    """Nobody in particular, let in because it is on this machine: it may be a web page that has a name of its own point
    here. Such a page says the name."""
    if channel.allow_anonymous is None and channel.loopback and not _is_address(approach.host):
        raise Unauthorized("as nobody in particular, call this machine localhost, or by its address")


def _is_address(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() in ("", "localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _refused(refusal: Refusal, has_shown: bool) -> Refused:
    if refusal.reason == BANNED:
        return Refused(403, "banned", "address banned after repeated failures; try again later")
    if refusal.reason == CONNECTION_RATE_EXCEEDED:
        return Refused(429, "too_many", "too many connections come from here; come back later")
    if refusal.reason == SERVER_BUSY:
        return Refused(503, "unavailable", refusal.text or "busy; try again")
    if refusal.reason == NOT_AUTHORIZED and has_shown:
        return Unauthorized("user name, password or token are not accepted")
    return Unauthorized(WHAT_TO_SHOW)


def _publisher(caller: BrokerCaller) -> str:
    return f"{PUBLISHER}:{caller.name}" if caller.name else PUBLISHER


def _message(caller: BrokerCaller, publication: Publication, now: float) -> Message:
    return Message(
        publication.topic,
        publication.payload,
        publication.qos,
        publication.retain,
        publisher=_publisher(caller),
        expires_at=NEVER if publication.expiry is None else now + publication.expiry,
        content_type=publication.content_type,
        user_properties=list(publication.user_properties) or None,
    )
