"""An MQTT 3.1.1 and 5.0 client for asyncio.

    async with Client("localhost") as client:
        await client.subscribe("garden/#", qos=1)
        await client.publish("garden/door", "open", qos=2)
        async for message in client.messages:
            print(message.topic, message.payload)

One object is one session's life: it connects once, and again by itself when the connection is lost, until it is left.
Requests complete when the server has answered: `publish` with QoS 1 or 2 when the message is the server's
responsibility. Many may be under way at a time. A lost connection makes them take longer; they fail only when it is
lost for good.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

from headwater.client.authentication import Authentication, offer
from headwater.client.connector import Connector
from headwater.client.conversation import NO_LIMIT, Conversation
from headwater.client.errors import Disconnected, MqttError, Rejected
from headwater.client.heartbeat import report_interval
from headwater.client.link import Address
from headwater.client.messages import Messages
from headwater.client.ping import PingSender
from headwater.client.reconnect import Reconnect
from headwater.client.requests import Answer
from headwater.wire.encode import encode
from headwater.wire.errors import LocalProtocolError
from headwater.wire.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from headwater.wire.reasons import PACKET_TOO_LARGE, SUCCESS, UNSUPPORTED_PROTOCOL_VERSION
from headwater.wire.status import LONGEST_INTERVAL, consent

PORTS: Final = {"tcp": (1883, 8883), "websocket": (80, 443), "unix": (0, 0)}
"""Without and with TLS."""
RECEIVE_MAXIMUM: Final = 100
USUAL_LIMIT: Final = 20
"""Of publications under way that a server takes in MQTT 3.1.1, where it cannot say."""
ABSENCE: Final = 300
"""Seconds that the server keeps the session of a client that connects again by itself, unless told otherwise."""

Expected = TypeVar("Expected", Suback, Unsuback)


class Client:
    """Connects on entering and disconnects on leaving; raises ConnectError, Disconnected and Rejected.

    `messages` is an asynchronous iterable over what arrives. `client_id` is the server's choice if it was left empty;
    `session_present` and `server` (the CONNACK's properties) are those of the latest connection.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = None,
        *,
        tls: bool | ssl.SSLContext = False,
        transport: Literal["tcp", "websocket", "unix"] = "tcp",
        websocket_path: str = "/mqtt",
        client_id: str = "",
        version: int = V5,
        username: str | None = None,
        password: str | bytes | None = None,
        clean_start: bool = True,
        session_expiry: int | None = None,
        keep_alive: int = 60,
        will: Will | None = None,
        properties: Properties | None = None,
        acknowledge: Literal["after_body", "manual"] = "after_body",
        receive_maximum: int | None = None,
        max_inflight: int | None = None,
        reconnect: Reconnect | None = Reconnect(),  # noqa: B008  # frozen
        ping_sender: PingSender | None = None,
        authentication: Authentication | None = None,
        fallbacks: Sequence[tuple[str, int]] = (),
        open_socket: Callable[[], socket.socket] | None = None,
        bridge: bool = False,
        keeps_record: bool = False,
        on_change: Callable[[MqttError | None], None] | None = None,
        timeout: float = 10.0,
    ) -> None:
        """`tls` is True for the system's certificates, or a context with your own; the port is then 8883 unless given.
        `transport` is "tcp", "websocket" (the port is then 80, with TLS 443, unless given) or "unix", where `host` is
        the socket's path.

        `acknowledge` says when a message with QoS 1 or 2 is acknowledged: "after_body" of the loop, when the next one
        is asked for or the client is left without an exception; or "manual", by `await message.ack()`.
        `receive_maximum` (100) bounds the messages in memory: those with QoS 1 and 2 by the window that the server is
        told, others by not reading from the network. `max_inflight` bounds our unanswered publications, below what
        the server allows in 5.0; in 3.1.1 servers do not say, and some lose what goes far beyond the usual 20.

        `reconnect` says how to connect again after a loss, None never to. `session_expiry` (seconds, 5.0) is how long
        the server keeps the session; by default five minutes while we are away against our will, and not at all once we
        have left. `properties` may hold everything else that CONNECT can carry. `ping_sender` makes reports of the
        pings if the server grants it; `authentication` answers the server's challenges (5.0). `fallbacks` are further
        hosts and ports, tried in turn when a connection cannot be made. `open_socket` makes a connected socket for each
        connection, in place of going to host and port. `bridge` tells Mosquitto that this is another broker (3.1.1; one
        that does not know it is told no more). `keeps_record`: whoever calls keeps on disk what is under way with QoS
        2, and says when PUBREL may leave (`submit`, `release`). `on_change` is called with None when there is a
        connection, with the error when one was lost or could not be made. `timeout` is for each attempt to connect and
        for leaving.
        """
        if acknowledge not in ("after_body", "manual"):
            raise ValueError(f"acknowledge is 'after_body' or 'manual', not {acknowledge!r}")
        if transport not in PORTS:
            raise ValueError(f"transport is one of {', '.join(PORTS)}, not {transport!r}")
        context = ssl.create_default_context() if tls is True else tls or None
        if transport == "unix" and context is not None:
            raise ValueError("TLS on a Unix socket is not supported")
        self.host = host
        self.port = port if port is not None else PORTS[transport][context is not None]
        self.client_id = client_id
        self.version = version
        self.session_present = False
        self.server = Properties()
        ours = dataclasses.replace(properties) if properties is not None else Properties()
        ours.receive_maximum = receive_maximum or ours.receive_maximum or RECEIVE_MAXIMUM
        if session_expiry is not None:
            ours.session_expiry_interval = session_expiry
        self._ends_session = version == V5 and reconnect is not None and ours.session_expiry_interval is None
        if self._ends_session:
            ours.session_expiry_interval = ABSENCE
        if ping_sender is not None:
            longest = min(max(1, round(report_interval(ping_sender, keep_alive) * 1000)), LONGEST_INTERVAL)
            ours.user_properties = [*(ours.user_properties or []), consent(longest)]
        self._connect = Connect(
            client_id=client_id,
            version=version,
            clean_start=clean_start,
            keep_alive=keep_alive,
            username=username,
            password=password.encode() if isinstance(password, str) else password,
            will=will,
            properties=ours if version == V5 else properties,
            bridge=bridge,
        )
        self._authentication = authentication
        inflight = max_inflight or (NO_LIMIT if version == V5 else USUAL_LIMIT)
        self._conversation = Conversation(version, ours, ours.receive_maximum, inflight, keeps_record)
        self.messages = Messages(self._conversation.inbox, is_automatic=acknowledge == "after_body")
        self._connector = Connector(
            [
                Address(
                    *(*place, context),
                    web_path=websocket_path if transport == "websocket" else "",
                    is_unix=transport == "unix",
                    open_socket=open_socket,
                )
                for place in [(host, self.port), *fallbacks]
            ],
            self._conversation,
            self._make_connect,
            self._accepted,
            self._refused,
            on_change,
            reconnect=reconnect,
            ping_sender=ping_sender,
            authentication=authentication,
            timeout=timeout,
        )

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.messages.left()
        await self._leave(SUCCESS, None)

    @property
    def is_connected(self) -> bool:
        return self._connector.is_connected

    async def wait_connected(self) -> None:
        """Wait until there is a connection; raises Disconnected when there will be none."""
        await self._connector.ready()

    def suspend(self) -> None:
        """Leave the server, which keeps the session if it is to, until `resume`; requests wait as they do for any
        connection that was lost."""
        self._connector.suspend()

    def resume(self) -> None:
        """Connect again after `suspend`."""
        self._connector.resume()

    async def connect(self) -> None:
        await self._connector.open()

    async def disconnect(self, reason: int = SUCCESS, properties: Properties | None = None) -> None:
        """Say good-bye and close the connection. What the present task took is acknowledged; requests under way
        fail; a lost connection is simply left."""
        self.messages.left()
        await self._leave(reason, properties)

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Send a message and, with QoS 1 or 2, wait until the server has it; returns its reason code, such as
        0x10 when nobody has subscribed. Raises Rejected if the server does not take it.

        It waits as well while there is no connection, and while the server takes less than is sent; so the caller
        cannot get ahead of the network. Messages leave in the order of the calls.
        """
        if not topic:
            raise LocalProtocolError("a message needs a topic, even with an alias")
        if not self._connector.was_connected:
            raise Disconnected("not connected")
        data = payload.encode() if isinstance(payload, str) else payload
        return await self._conversation.publish(Publish(topic, data, qos, retain, properties=properties))

    def submit(self, packet: Publish, *, packet_id: int = 0, is_again: bool = False) -> asyncio.Future[int]:
        """As `publish`, without waiting: the future of what it would return or raise. Whoever does not wait must bound
        what is under way. It may be called before there is a connection.

        With `keeps_record` the caller names a `packet_id` that is not in use, and with QoS 2 the future is there when
        the server has confirmed the message (PUBREC): it is the server's, and once that is on disk, `release` it. What
        an earlier process had under way is submitted under its old id, with `is_again`, before anything else: a server
        that has the session takes it once."""
        return self._conversation.submit(packet, packet_id, is_again)

    def release(self, packet_id: int) -> asyncio.Future[int]:
        """Let PUBREL leave; the future is there when the server has answered, and the id is free. Also for an id whose
        message was confirmed to an earlier process."""
        return self._conversation.publications.release(packet_id)

    async def subscribe(
        self,
        filters: str | Iterable[str | SubscribeRequest],
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties | None = None,
    ) -> list[int]:
        """Subscribe and return what the server granted for each filter: a QoS, or a reason code from 0x80 on.

        The options hold for all filters given as strings; a SubscribeRequest has its own. What was granted is asked
        for again when the server has lost the session.
        """
        answer = await self.subscribe_and_hear(
            filters,
            qos=qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
            properties=properties,
        )
        return answer.reasons

    async def subscribe_and_hear(
        self,
        filters: str | Iterable[str | SubscribeRequest],
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties | None = None,
    ) -> Suback:
        """The same with all that the server answered: its reason string, and its user properties."""
        requests = [
            SubscribeRequest(each, qos, no_local, retain_as_published, retain_handling)
            if isinstance(each, str)
            else each
            for each in ([filters] if isinstance(filters, str) else filters)
        ]
        packet = Subscribe(0, requests, properties)
        answer = await self._request(packet, Suback)
        self._conversation.subscriptions.granted(packet, answer.reasons)
        return answer

    async def unsubscribe(self, filters: str | Iterable[str], *, properties: Properties | None = None) -> list[int]:
        """Unsubscribe and return a reason code for each filter; none in MQTT 3.1.1, which has no such codes."""
        listed = [filters] if isinstance(filters, str) else list(filters)
        answer = await self._request(Unsubscribe(0, listed, properties), Unsuback)
        self._conversation.subscriptions.removed(listed)
        return answer.reasons

    async def _request(self, packet: Subscribe | Unsubscribe, expects: type[Expected]) -> Expected:
        """Ask, and ask again if the connection is lost before the answer."""
        packet.packet_id = 1
        size = len(encode(packet, self.version))
        answer: Answer | None = None
        while answer is None:
            link = await self._connector.ready()
            largest = self.server.maximum_packet_size
            if largest is not None and size > largest:  # [MQTT-3.2.2-15]
                raise Rejected(f"the server takes packets of at most {largest} bytes, not {size}", PACKET_TOO_LARGE)
            packet.packet_id, future = self._conversation.requests.open(expects)
            link.send(packet)
            self._conversation.regulate()
            answer = await future
        assert isinstance(answer, expects)
        return answer

    def _make_connect(self, is_first: bool) -> Connect:
        """Later connections go on with the session; in 3.1.1 a clean one cannot be kept."""
        clean_start = self._connect.clean_start and (is_first or self.version != V5)
        connect = dataclasses.replace(self._connect, client_id=self.client_id, clean_start=clean_start)
        if self._authentication is not None:
            connect.properties = dataclasses.replace(connect.properties or Properties())
            offer(self._authentication, connect.properties)
        return connect

    def _accepted(self, connack: Connack) -> None:
        self.session_present = connack.session_present
        self.server = connack.properties or Properties()
        self.client_id = self.server.assigned_client_identifier or self.client_id

    def _refused(self, reason: int) -> None:
        if reason == UNSUPPORTED_PROTOCOL_VERSION:
            self._connect.bridge = False

    async def _leave(self, reason: int, properties: Properties | None) -> None:
        if self._ends_session and (properties is None or properties.session_expiry_interval is None):
            properties = dataclasses.replace(properties or Properties(), session_expiry_interval=0)
        await self._connector.close(Disconnect(reason, properties))
