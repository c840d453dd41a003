"""An MQTT 3.1.1 and 5.0 client for asyncio.

    async with Client("localhost") as client:
        await client.subscribe("garden/#", qos=1)
        await client.publish("garden/door", "open", qos=2)
        async for message in client.messages:
            print(message.topic, message.payload)

One object is one connection; to connect again, make another. Requests complete when the server has answered:
`publish` with QoS 1 or 2 when the message is the server's responsibility. Many may be under way at a time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from headwater.client.errors import REASON_OF_RETURN_CODE, ConnectError, Disconnected, Rejected, explain
from headwater.client.exchanges import Exchanges
from headwater.client.inbox import Inbox
from headwater.client.link import Link
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    SUBACK,
    UNSUBACK,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from headwater.wire.reasons import (
    PACKET_IDENTIFIER_NOT_FOUND,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
    UNSPECIFIED_ERROR,
)

FAILURE: Final = UNSPECIFIED_ERROR
"""Reason codes from here on mean failure."""

NO_LIMIT: Final = 65535
USUAL_LIMIT: Final = 20
"""Of publications under way that a server takes in MQTT 3.1.1, where it cannot say."""


class Client:
    """Connects on entering and disconnects on leaving; raises ConnectError, Disconnected and Rejected.

    `messages` is an asynchronous iterator over what arrives. A message is the PUBLISH packet with its topic alias
    resolved: `topic`, `payload`, `qos`, `retain`, `properties`. `client_id` is the server's choice if it was left
    empty, and `session_present` and `server` (the CONNACK's properties) are known once connected.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 1883,
        *,
        client_id: str = "",
        version: int = V5,
        username: str | None = None,
        password: str | bytes | None = None,
        clean_start: bool = True,
        session_expiry: int | None = None,
        keep_alive: int = 60,
        will: Will | None = None,
        properties: Properties | None = None,
        max_inflight: int | None = None,
        timeout: float = 10.0,
    ) -> None:
        """`session_expiry` (seconds, 5.0) may also stand in `properties`, with everything else CONNECT can carry;
        `max_inflight` bounds our unanswered publications, below what the server allows in 5.0; in 3.1.1 servers do
        not say, and some lose what goes far beyond the usual 20. `timeout` is for connecting and for leaving."""
        self.host = host
        self.port = port
        self.client_id = client_id
        self.version = version
        self.session_present = False
        self.server = Properties()
        if session_expiry is not None:
            properties = dataclasses.replace(properties or Properties(), session_expiry_interval=session_expiry)
        self._connect = Connect(
            client_id=client_id,
            version=version,
            clean_start=clean_start,
            keep_alive=keep_alive,
            username=username,
            password=password.encode() if isinstance(password, str) else password,
            will=will,
            properties=properties,
        )
        ours = properties or Properties()
        self.messages = Inbox(
            ours.receive_maximum or NO_LIMIT, ours.topic_alias_maximum or 0, self._acknowledge, self._pause_reading
        )
        self._largest_incoming = ours.maximum_packet_size
        self._max_inflight = max_inflight or (NO_LIMIT if version == V5 else USUAL_LIMIT)
        self._timeout = timeout
        self._exchanges = Exchanges(0)
        self._link: Link | None = None
        self._connack: asyncio.Future[Connack] | None = None
        self._pong: asyncio.Future[None] | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._error: Disconnected | None = None
        self._leaving = False

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._connack = loop.create_future()
        where = f"{self.host}:{self.port}"
        try:
            async with asyncio.timeout(self._timeout):
                _, self._link = await loop.create_connection(
                    lambda: Link(self.version, self._largest_incoming, self._received, self._ended),
                    self.host,
                    self.port,
                    happy_eyeballs_delay=0.25,
                )
                self._link.send(self._connect)
                connack = await self._connack
        except TimeoutError:
            self._abort()
            raise ConnectError(f"{where} did not answer within {self._timeout:g} seconds") from None
        except (OSError, Disconnected) as error:
            raise ConnectError(f"cannot connect to {where}: {_why(error)}") from error
        except BaseException:
            self._abort()
            raise
        self._accepted(connack)

    async def disconnect(self, reason: int = SUCCESS, properties: Properties | None = None) -> None:
        """Say good-bye and close the connection. Requests under way fail; a lost connection is simply left."""
        self._leaving = True
        if self._pinging is not None:
            self._pinging.cancel()
        if self._link is None:
            return
        if self._link.is_open:
            self._link.send(Disconnect(reason, properties))
        await self._link.close(self._timeout)

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
        0x10 when nobody has subscribed. Raises Rejected if the server does not take it."""
        self._check_server_allows(qos, retain)
        message = Publish(topic, payload.encode() if isinstance(payload, str) else payload, qos, retain)
        message.properties = properties
        if qos == 0:
            await self._send_checked(message)
            return SUCCESS
        await self._exchanges.turn_to_publish()
        message.packet_id, answer = self._exchanges.open(PUBACK if qos == 1 else PUBREC, is_publication=True)
        try:
            await self._send_checked(message)
        except Exception:
            self._exchanges.close(message.packet_id, message)
            raise
        acknowledgement = await answer
        assert isinstance(acknowledgement, Puback | Pubrec | Pubcomp)
        if acknowledgement.reason >= FAILURE:
            text = explain(acknowledgement.reason, acknowledgement.properties)
            raise Rejected(f"the server did not take the message: {text}", acknowledgement.reason)
        return acknowledgement.reason

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

        The options hold for all filters given as strings; a SubscribeRequest has its own.
        """
        requests = [
            SubscribeRequest(each, qos, no_local, retain_as_published, retain_handling)
            if isinstance(each, str)
            else each
            for each in ([filters] if isinstance(filters, str) else filters)
        ]
        answer = await self._request(Subscribe(0, requests, properties), SUBACK)
        assert isinstance(answer, Suback)
        return answer.reasons

    async def unsubscribe(self, filters: str | Iterable[str], *, properties: Properties | None = None) -> list[int]:
        """Unsubscribe and return a reason code for each filter; none in MQTT 3.1.1, which has no such codes."""
        listed = [filters] if isinstance(filters, str) else list(filters)
        answer = await self._request(Unsubscribe(0, listed, properties), UNSUBACK)
        assert isinstance(answer, Unsuback)
        return answer.reasons

    async def _request(self, packet: Subscribe | Unsubscribe, expects: int) -> Packet:
        packet.packet_id, answer = self._exchanges.open(expects)
        try:
            await self._send_checked(packet)
        except Exception:
            self._exchanges.close(packet.packet_id, packet)
            raise
        return await answer

    async def _send_checked(self, packet: Packet) -> None:
        """Send what the server takes, and wait while it takes less than we send."""
        link = self._connected()
        data = encode(packet, self.version)
        largest = self.server.maximum_packet_size
        if largest is not None and len(data) > largest:  # [MQTT-3.2.2-15]
            raise Rejected(f"the server takes packets of at most {largest} bytes, not {len(data)}", PACKET_TOO_LARGE)
        link.send_bytes(data, packet)
        await link.drain()

    def _check_server_allows(self, qos: int, retain: bool) -> None:
        if self.server.maximum_qos is not None and qos > self.server.maximum_qos:  # [MQTT-3.2.2-11]
            raise Rejected(f"the server takes messages up to QoS {self.server.maximum_qos}", QOS_NOT_SUPPORTED)
        if retain and self.server.retain_available == 0:  # [MQTT-3.2.2-14]
            raise Rejected("the server does not retain messages", RETAIN_NOT_SUPPORTED)

    def _connected(self) -> Link:
        if self._error is not None:
            raise self._error
        if self._link is None or self._leaving:
            raise Disconnected("not connected")
        return self._link

    def _accepted(self, connack: Connack) -> None:
        """The CONNACK is here: adopt what the server says, or raise why it refuses."""
        if connack.reason != SUCCESS:
            reason = connack.reason if self.version == V5 else REASON_OF_RETURN_CODE[connack.reason]
            self._abort()
            text = f"{self.host}:{self.port} refused the connection: {explain(reason, connack.properties)}"
            raise ConnectError(text, reason, connack.properties)
        self.session_present = connack.session_present
        self.server = connack.properties or Properties()
        self.client_id = self.server.assigned_client_identifier or self.client_id
        self._exchanges = Exchanges(min(self.server.receive_maximum or NO_LIMIT, self._max_inflight))
        if self._error is not None:
            self._exchanges.end(self._error)
        keep_alive = self.server.server_keep_alive  # [MQTT-3.1.2-21]
        interval = self._connect.keep_alive if keep_alive is None else keep_alive
        if interval:
            self._pinging = asyncio.get_running_loop().create_task(self._keep_alive(interval))

    async def _keep_alive(self, interval: int) -> None:
        """Ping when either direction has been quiet for the interval [MQTT-3.1.2-20]; no answer ends the link."""
        loop = asyncio.get_running_loop()
        link = self._connected()
        while True:
            await asyncio.sleep(link.quiet_since + interval - loop.time())
            if link.quiet_since + interval > loop.time():
                continue
            self._pong = loop.create_future()
            link.send(Pingreq())
            await asyncio.wait([self._pong], timeout=interval)
            if not self._pong.done() and not link.is_paused:
                self._error = Disconnected(f"the server has not answered a ping for {interval} seconds")
                link.abort()
                return

    def _received(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if self._connack is None or self._connack.done():
                raise RemoteProtocolError(PROTOCOL_ERROR, "a second CONNACK")
            self._connack.set_result(packet)
        elif self._connack is None or not self._connack.done():
            raise RemoteProtocolError(PROTOCOL_ERROR, f"{type(packet).__name__} before CONNACK")
        elif isinstance(packet, Publish):
            self.messages.put(packet)
        elif isinstance(packet, Puback | Pubrec | Pubcomp | Suback | Unsuback):
            self._answered(packet)
        elif isinstance(packet, Pubrel):
            known = self.messages.release(packet.packet_id)
            self._acknowledge(Pubcomp(packet.packet_id, self._not_found_unless(known)))
        elif isinstance(packet, Pingresp):
            if self._pong is not None and not self._pong.done():
                self._pong.set_result(None)
        elif isinstance(packet, Disconnect):
            text = f"the server ended the connection: {explain(packet.reason, packet.properties)}"
            self._error = Disconnected(text, packet.reason, packet.properties)
            self._abort()
        else:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"{type(packet).__name__} was not expected")

    def _answered(self, packet: Puback | Pubrec | Pubcomp | Suback | Unsuback) -> None:
        """An acknowledgement. One that nobody waits for is of an earlier connection's message, and is let pass."""
        packet_id = packet.packet_id
        if isinstance(packet, Pubrec):
            known = self._exchanges.expects(packet_id, PUBREC)
            if packet.reason >= FAILURE:  # the exchange ends here, without PUBREL
                if known:
                    self._exchanges.close(packet_id, packet)
                return
            if known:
                self._exchanges.advance(packet_id, PUBCOMP)
            self._acknowledge(Pubrel(packet_id, self._not_found_unless(known)))
        elif self._exchanges.expects(packet_id, _TYPE[type(packet)]):
            self._exchanges.close(packet_id, packet)

    def _not_found_unless(self, known: bool) -> int:
        return SUCCESS if known or self.version != V5 else PACKET_IDENTIFIER_NOT_FOUND

    def _acknowledge(self, packet: Packet) -> None:
        if self._link is not None and self._link.is_open:
            self._link.send(packet)

    def _pause_reading(self, pause: bool) -> None:
        if self._link is not None:
            (self._link.pause_reading if pause else self._link.resume_reading)()

    def _abort(self) -> None:
        if self._link is not None:
            self._link.abort()

    def _ended(self, cause: Exception | None) -> None:
        """The link has gone, for whatever reason: everybody who waits gets to know."""
        if self._error is None and not self._leaving:
            if isinstance(cause, RemoteProtocolError):
                self._error = Disconnected(f"the server broke the protocol: {cause.text}", cause.reason)
            else:
                self._error = Disconnected("the connection was lost" + (f": {_why(cause)}" if cause else ""))
            self._error.__cause__ = cause
        if self._pinging is not None:
            self._pinging.cancel()
        if self._connack is not None and not self._connack.done():
            self._connack.set_exception(self._error or Disconnected("not connected"))
            self._connack.exception()  # it may be that nobody looks at it any more
        self._exchanges.end(self._error or Disconnected("the client has disconnected"))
        self.messages.end(self._error)


_TYPE: Final[dict[type[Packet], int]] = {Puback: PUBACK, Pubcomp: PUBCOMP, Suback: SUBACK, Unsuback: UNSUBACK}


def _why(error: Exception) -> str:
    """The cause in words; asyncio joins the errors of several addresses into one text."""
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    refused = errno.ECONNREFUSED
    if isinstance(error, OSError) and (error.errno == refused or f"[Errno {refused}]" in str(error)):
        return "nobody listens there (is a broker running?)"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
