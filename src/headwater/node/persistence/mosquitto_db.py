"""Mosquitto's persistence file (`mosquitto.db`, versions 5 and 6) as the lines of an export (exchange.py).

Theory. The file is a head (magic, a checksum that is always 0, a version) and chunks, each with its kind and length:

    1 configuration      once, first: among others the size of a message's number
    2 message            number, expiry, publisher, topic, payload, properties
    3 client's message   which message, to or from which client, how far its delivery has come
    4 retained           which message
    5 subscription
    6 client             when its session ends, its user (from version 6 on)

Numbers of messages and times are in the order of bytes of the machine that wrote them, which was a little-endian one;
all else is big-endian. What a broker keeps for a client stands before the clients' subscriptions, and the messages
before all, so everything is read before anything is told.

How far a delivery has come is Mosquitto's own state: what it has sent and not heard of is in flight here, with its
packet id; what it has received with QoS 2 and not released it has not told anybody yet, while we do that at once
(publishing.py): such a message is queued for the sessions that want it, and its id noted as received.

Mosquitto 2.0 writes a client without a user name with what it has of the client before: that one's name, and its length
with the bytes exchanged; and the next such client with the bytes exchanged again, so that it looks like the first. So a
name with a null character in it is none (it is other memory), and neither is the same name behind such a one: whose the
session is must not be guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.message import NEVER, Message
from headwater.node.persistence.exchange import FORMAT, content_of
from headwater.node.persistence.schema import SCHEMA
from headwater.routing.topics import is_reserved, matches, split_shared
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import PUBLISH, Properties
from headwater.wire.primitives import FOR_EVER, Reader
from headwater.wire.properties import decode_properties

MAGIC: Final = b"\x00\xb5\x00mosquitto db"
VERSIONS: Final = (5, 6)
CONFIGURATION, MESSAGE, CLIENT_MESSAGE, RETAINED, SUBSCRIPTION, CLIENT = range(1, 7)
NAMES: Final = {
    CONFIGURATION: "configuration",
    MESSAGE: "message",
    CLIENT_MESSAGE: "client's message",
    RETAINED: "retained message",
    SUBSCRIPTION: "subscription",
    CLIENT: "client",
}
NUMBER_SIZE: Final = 8
INCOMING: Final = 0
WAIT_FOR_PUBREL, SEND_PUBREC = 7, 10
"""States of a message of QoS 2 that has come and is not released."""
IN_FLIGHT: Final = (2, 3, 4, 5)
"""To be published, or waiting for PUBACK or PUBREC."""
RELEASED: Final = (6, 9)
"""PUBREL is to be sent, or PUBCOMP waited for."""
NO_LOCAL: Final = 0x04
AS_PUBLISHED: Final = 0x08

Line = dict[str, Any]


class BadDatabase(StorageError):
    """It is no such file, or damaged; the text says where."""


@dataclass
class _Message:
    message: Message
    identity: int = 0
    """In the lines; 0: it is not among them yet."""


class _Delivery(NamedTuple):
    store: int
    client_id: str
    packet_id: int
    qos: int
    state: int
    retain: bool
    incoming: bool
    identifiers: list[int] | None


class _Subscription(NamedTuple):
    client_id: str
    filter: str
    qos: int
    options: int
    identifier: int


class MosquittoDb:
    """All of a file. BadDatabase; OSError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = path.read_bytes()
        self._messages: dict[int, _Message] = {}
        self._deliveries: list[_Delivery] = []
        self._retained: list[int] = []
        self._subscriptions: list[_Subscription] = []
        self._sessions: dict[str, Line] = {}
        self.left_out: dict[str, int] = {}
        """What has no place in a broker of ours, and how often it came."""
        self._told = 0
        self._last_user = self._left_over = b""
        self._read()

    # ---- the file ----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        data = self._data
        if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 8:
            raise BadDatabase(f"{self.path} is not a persistence file of Mosquitto")
        (version,) = struct.unpack_from(">I", data, len(MAGIC) + 4)
        if version not in VERSIONS:
            raise BadDatabase(
                f"{self.path} has version {version} of Mosquitto's format; {' and '.join(map(str, VERSIONS))} can be "
                "read: let Mosquitto 1.6 or 2.0 load and save it"
            )
        self._version = version
        at = len(MAGIC) + 8
        while at < len(data):
            at = self._chunk(at)

    def _chunk(self, at: int) -> int:
        """Read the one that begins here; where the next one does."""
        data = self._data
        if at + 8 > len(data):
            raise BadDatabase(f"{self.path} is damaged: it ends within the head of a chunk, at byte {at:,}")
        kind, length = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
        name = NAMES.get(kind)
        if name is None:
            raise BadDatabase(f"{self.path} is damaged: no chunk is of the kind {kind}, at byte {at:,}")
        end = at + 8 + length
        if end > len(data):
            missing = end - len(data)
            raise BadDatabase(f"{self.path} is damaged: {missing:,} bytes are missing of the {name} at byte {at:,}")
        try:
            self._take(kind, Reader(data, at + 8, end))
        except (ValueError, KeyError, RemoteProtocolError) as error:
            reason = error.text if isinstance(error, RemoteProtocolError) else error
            raise BadDatabase(f"{self.path} is damaged: the {name} at byte {at:,} makes no sense ({reason})") from None
        return end

    def _take(self, kind: int, chunk: Reader) -> None:
        if kind == CONFIGURATION:
            _, _, size = struct.unpack_from("<QBB", chunk.data, chunk.take(16))
            if size != NUMBER_SIZE:
                raise ValueError(f"numbers of {size} bytes")
        elif kind == MESSAGE:
            self._take_message(chunk)
        elif kind == CLIENT_MESSAGE:
            self._take_delivery(chunk)
        elif kind == RETAINED:
            self._retained.append(_number(chunk))
        elif kind == SUBSCRIPTION:
            identifier, id_size, topic_size, qos, options = struct.unpack_from(">IHHBB", chunk.data, chunk.take(12))
            client_id, filter = _text(chunk, id_size), _text(chunk, topic_size)
            self._subscriptions.append(_Subscription(client_id, filter, qos, options, identifier))
        else:
            self._take_client(chunk)

    def _take_message(self, chunk: Reader) -> None:
        number = _number(chunk)
        (expires,) = struct.unpack_from("<q", chunk.data, chunk.take(8))
        sizes = struct.unpack_from(">IHHHHHBB", chunk.data, chunk.take(16))
        payload_size, _, source_size, user_size, topic_size, _, qos, retain = sizes
        source = _text(chunk, source_size)
        chunk.take(user_size)
        topic = _text(chunk, topic_size)
        start = chunk.take(payload_size)
        properties = _properties(chunk)
        message = Message(
            topic,
            chunk.data[start : start + payload_size],
            qos,
            bool(retain),
            publisher=source,
            expires_at=NEVER if expires == 0 else float(expires),
            payload_format=properties.payload_format_indicator,
            content_type=properties.content_type,
            response_topic=properties.response_topic,
            correlation_data=properties.correlation_data,
            user_properties=properties.user_properties,
        )
        self._messages[number] = _Message(message)

    def _take_delivery(self, chunk: Reader) -> None:
        store = _number(chunk)
        packet_id, id_size, qos, state, retain_dup, direction = struct.unpack_from(">HHBBBB", chunk.data, chunk.take(8))
        client_id = _text(chunk, id_size)
        identifiers = _properties(chunk).subscription_identifiers
        retain, incoming = bool(retain_dup & 0xF0), direction == INCOMING
        self._deliveries.append(
            _Delivery(store, client_id, packet_id, qos, state, retain, incoming, list(identifiers or []) or None)
        )

    def _take_client(self, chunk: Reader) -> None:
        (until,) = struct.unpack_from("<q", chunk.data, chunk.take(8))
        expiry, last_id, id_size = struct.unpack_from(">IHH", chunk.data, chunk.take(8))
        user_size = 0
        if self._version > 5:
            _, user_size = struct.unpack_from(">HH", chunk.data, chunk.take(8))  # and four bytes of nothing
        client_id = _text(chunk, id_size)
        line: Line = {"kind": "session", "client_id": client_id, "expiry": expiry}
        user = self._user(chunk.data[(start := chunk.take(user_size)) : start + user_size])
        if user:
            line["user"] = user
        if until > 0 and expiry != FOR_EVER:
            line |= {"until": float(until), "away": True}
        if 0 < last_id < 0xFFFF:
            line["next_id"] = last_id + 1
        if not client_id or client_id in self._sessions:
            raise ValueError(f"client {client_id!r}")
        self._sessions[client_id] = line

    def _user(self, name: bytes) -> str:
        """The name, or nothing if it may be left over from another client."""
        if b"\0" in name:
            self._left_over = self._last_user
            return ""
        if name and name == self._left_over:
            return ""
        self._left_over = b""
        self._last_user = name or self._last_user
        return name.decode()

    # ---- the lines ---------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[Line]:
        """As an export has them."""
        yield {"kind": FORMAT, "schema": SCHEMA}
        subscriptions: dict[str, list[_Subscription]] = {}
        for each in self._subscriptions:
            subscriptions.setdefault(each.client_id, []).append(each)
        for client_id, session in self._sessions.items():
            if session["expiry"] == 0:
                self._leave_out("session that ends with its connection")
                continue
            yield session
            for each in subscriptions.get(client_id, ()):
                yield _subscription_line(each)
        for delivery in self._deliveries:
            yield from self._delivery_lines(delivery)
        for number in self._retained:
            message = self._stored(number).message
            if is_reserved(message.topic):
                self._leave_out("retained message of the broker's own")
                continue
            yield {"kind": "retained", **content_of(message), "retain": True}

    def _delivery_lines(self, delivery: _Delivery) -> Iterator[Line]:
        session = self._sessions.get(delivery.client_id)
        if session is None or session["expiry"] == 0:
            self._leave_out("message of a session that is not there")
        elif delivery.incoming:
            yield from self._incoming_lines(delivery)
        elif delivery.qos == 0:
            self._leave_out("queued message of QoS 0")
        else:
            line: Line = {"client_id": delivery.client_id, "qos": delivery.qos}
            if delivery.retain:
                line["retain"] = True
            if delivery.identifiers:
                line["identifiers"] = delivery.identifiers
            if delivery.state in IN_FLIGHT or delivery.state in RELEASED:
                line["packet_id"] = delivery.packet_id
            if delivery.state in RELEASED:
                line["released"] = True
            yield from self._queued(delivery.store, line)

    def _incoming_lines(self, delivery: _Delivery) -> Iterator[Line]:
        """What has come with QoS 2 and waits to be released: see the head of this file."""
        if delivery.state not in (WAIT_FOR_PUBREL, SEND_PUBREC):
            return
        yield {"kind": "received", "client_id": delivery.client_id, "packet_id": delivery.packet_id}
        message = self._stored(delivery.store).message
        groups: set[str] = set()
        for each in self._subscriptions:
            share, filter = split_shared(each.filter)
            session = self._sessions.get(each.client_id)
            qos = min(each.qos, message.qos)
            if qos == 0 or session is None or session["expiry"] == 0 or not matches(filter, message.topic):
                continue
            if share is None:
                line: Line = {"client_id": each.client_id, "qos": qos}
                if each.identifier:
                    line["identifiers"] = [each.identifier]
                yield from self._queued(delivery.store, line)
            elif each.filter not in groups:
                groups.add(each.filter)
                yield from self._queued(delivery.store, {"group": each.filter, "qos": qos})
        if message.retain:
            self._retained = [each for each in self._retained if self._stored(each).message.topic != message.topic]
            self._retained.append(delivery.store)

    def _queued(self, number: int, line: Line) -> Iterator[Line]:
        stored = self._stored(number)
        if not stored.identity:
            self._told += 1
            stored.identity = self._told
            yield {"kind": "message", "id": stored.identity, **content_of(stored.message)}
        yield {"kind": "queued", **line, "message": stored.identity}

    def _stored(self, number: int) -> _Message:
        stored = self._messages.get(number)
        if stored is None:
            raise BadDatabase(f"{self.path} is damaged: the message {number} is referred to and not there")
        return stored

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


def _subscription_line(found: _Subscription) -> Line:
    line: Line = {"kind": "subscription", "client_id": found.client_id, "filter": found.filter, "qos": found.qos}
    if found.options & NO_LOCAL:
        line["no_local"] = True
    if found.options & AS_PUBLISHED:
        line["retain_as_published"] = True
    if found.identifier:
        line["identifier"] = found.identifier
    return line


def _number(chunk: Reader) -> int:
    return int(struct.unpack_from("<Q", chunk.data, chunk.take(NUMBER_SIZE))[0])


def _text(chunk: Reader, size: int) -> str:
    start = chunk.take(size)
    return chunk.data[start : start + size].decode()


def _properties(chunk: Reader) -> Properties:
    """Those at the end of a chunk, if there are any."""
    found = decode_properties(chunk, PUBLISH) if chunk.left() else None
    return found or Properties()
