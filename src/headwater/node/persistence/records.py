"""Keys and values of what is on disk, schema 1.

    s <number>            session          JSON: client id, expiry, user, will
    u <number> <name>     subscription     its options and, behind them, its condition; the name as the client wrote it
    i <number> <id>       a QoS 2 packet id received from the client and not released
    g <number>            shared group     JSON: share, filter; it owns what waits for any of its members
    q <owner> <number>    delivery         message number, QoS, flags, packet id …, in the order in which they came
    m <number>            message          expiry, publisher, and a PUBLISH packet
    r <topic>             retained message, as m
    n                     the number of the last commit, where there is a delivery store (notes.py)
    p, a, w, k, t, v, o   what a cluster keeps (links/spooling.py)

Numbers are 8 bytes, big-endian, so that keys are in order. Times are of the wall clock: no other is the same after a
restart. A message is kept as the packet that carries it, because the hot path has no other form of it.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Final, cast

from headwater.message import NEVER, Message, Subscription
from headwater.routing.conditions.condition import condition_of
from headwater.routing.topics import split_shared
from headwater.session.journaled import DurableDelivery, JournaledMessage
from headwater.session.session import Session
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.encode import encode
from headwater.wire.packets import V5, Properties, Publish
from headwater.wire.primitives import ANY_NUMBER

SESSION: Final = b"s"
SUBSCRIPTION: Final = b"u"
RECEIVED: Final = b"i"
GROUP: Final = b"g"
DELIVERY: Final = b"q"
MESSAGE: Final = b"m"
RETAINED: Final = b"r"

ANY_ID: Final = b"\x00\x01"

_NUMBER: Final = struct.Struct(">Q")
_MESSAGE: Final = struct.Struct(">BdI")
_DELIVERY: Final = struct.Struct(">QBHII")
_SUBSCRIPTION: Final = struct.Struct(">BBI")

_QOS: Final = 0x03
_RETAIN: Final = 0x04
_RELEASED: Final = 0x08
_SHARED: Final = 0x10

_NO_LOCAL: Final = 0x01
_AS_PUBLISHED: Final = 0x02
_POSITIONS: Final = 0x04
_RETAINED_PENDING: Final = 0x08


def number_key(kind: bytes, number: int) -> bytes:
    return kind + _NUMBER.pack(number)


def number_in(key: bytes, at: int = 1) -> int:
    number: int = _NUMBER.unpack_from(key, at)[0]
    return number


# ---- messages --------------------------------------------------------------------------------------------------


def message_record(journaled: JournaledMessage, offset: float) -> bytes:
    """`offset` is what the wall clock is ahead of the clock of `expires_at`."""
    message = journaled.message
    if message is not None:
        return record_of(message, offset)
    publisher = journaled.publisher.encode()
    return (
        _MESSAGE.pack(journaled.version, NEVER, len(publisher)) + publisher + journaled.head + ANY_ID + journaled.tail
    )


def record_of(message: Message, offset: float) -> bytes:
    properties: Properties | None = None
    if (
        message.user_properties is not None
        or message.payload_format is not None
        or message.content_type is not None
        or message.response_topic is not None
        or message.correlation_data is not None
    ):
        properties = Properties(
            payload_format_indicator=message.payload_format,
            content_type=message.content_type,
            response_topic=message.response_topic,
            correlation_data=message.correlation_data,
            user_properties=message.user_properties,
        )
    packet_id = 1 if message.qos else 0
    packet = encode(
        Publish(message.topic, message.payload, message.qos, message.retain, False, packet_id, properties), V5
    )
    publisher = _people_of(message).encode()
    expires_at = message.expires_at if message.expires_at == NEVER else message.expires_at + offset
    return _MESSAGE.pack(V5, expires_at, len(publisher)) + publisher + packet


def _people_of(message: Message) -> str:
    """Publisher, owner and user of a message. They have no U+0000; an owner is its user as well."""
    if message.owner is not None:
        return f"{message.publisher}\0{message.owner}"
    return message.publisher if message.user is None else f"{message.publisher}\0\0{message.user}"


def message_in(record: bytes, offset: float) -> Message:
    version, expires_at, size = _MESSAGE.unpack_from(record)
    start = _MESSAGE.size + size
    publisher, has_owner, people = record[_MESSAGE.size : start].decode().partition("\0")
    body = start + 2
    while record[body - 1] & 0x80:
        body += 1
    first = record[start]
    if version == V5:
        end = body + 2 + (record[body] << 8 | record[body + 1])
        properties = end + 2 if first & 0x06 else end
        if record[properties] == 0:  # the usual case, and a start may have a million of them to read
            topic = record[body + 2 : end].decode()
            retain = first & 0x01 != 0
            message = Message(topic, record[properties + 1 :], first >> 1 & 0x03, retain, publisher=publisher)
            message.expires_at = expires_at if expires_at == NEVER else expires_at - offset
            if has_owner:
                _set_people(message, people)
            return message
    packet = decode(first, record[body:], version, FROM_CLIENT, ANY_NUMBER)
    message = message_of(cast(Publish, packet), publisher, 0.0)
    message.expires_at = expires_at if expires_at == NEVER else expires_at - offset
    if has_owner:
        _set_people(message, people)
    return message


def _set_people(message: Message, people: str) -> None:
    owner, has_user, user = people.partition("\0")
    if has_user:
        message.user = user
    else:
        message.owner = owner
        message.user = owner or None


# ---- deliveries ------------------------------------------------------------------------------------------------


def delivery_key(owner: int, number: int) -> bytes:
    return DELIVERY + _NUMBER.pack(owner) + _NUMBER.pack(number)


def delivery_record(entry: DurableDelivery, size: int, group: str) -> bytes:
    """`size` is what it counts with while it waits; `group` is the name of the shared group that chose the session."""
    identifiers = entry.identifiers
    flags = entry.qos
    if entry.retain:
        flags |= _RETAIN
    if entry.released:
        flags |= _RELEASED
    if group:
        flags |= _SHARED
    record = _DELIVERY.pack(
        entry.journaled.number, flags, entry.packet_id, size, 0 if identifiers is None else len(identifiers)
    )
    if identifiers is not None:
        record += struct.pack(f">{len(identifiers)}I", *identifiers)
    return record + group.encode()


def delivery_in(record: bytes) -> tuple[int, int, bool, bool, int, int, list[int] | None, str]:
    """Message number, QoS, retain, released, packet id, size, identifiers, name of the group."""
    message, flags, packet_id, size, count = _DELIVERY.unpack_from(record)
    end = _DELIVERY.size + 4 * count
    identifiers = list(struct.unpack(f">{count}I", record[_DELIVERY.size : end])) if count else None
    group = record[end:].decode()
    return message, flags & _QOS, bool(flags & _RETAIN), bool(flags & _RELEASED), packet_id, size, identifiers, group


# ---- sessions --------------------------------------------------------------------------------------------------


def session_record(session: Session, offset: float) -> bytes:
    """A session that is connected has no `until`: its time begins when it is found so."""
    fields: dict[str, object] = {"id": session.client_id, "expiry": session.expiry_interval}
    if session.username is not None:
        fields["user"] = session.username
    if session.expires_at != NEVER:
        fields["until"] = session.expires_at + offset
    if not session.durable:
        fields["will_only"] = True
    if session.connection is None:
        fields["away"] = True
    if session.outbound.next_id != 1:
        fields["next"] = session.outbound.next_id
    if session.claim_time:
        claim = [session.claim_time, session.claim_node, session.clean_time, session.lineage]
        fields["claim"] = [*claim, session.served_time, session.served_node]
    if session.moving is not None:
        fields["moving"] = session.moving.record()
    will = session.will
    if will is not None:
        fields["will"] = base64.b64encode(record_of(will, offset)).decode()
        fields["will_delay"] = session.will_delay
        if session.will_expiry is not None:
            fields["will_expiry"] = session.will_expiry
        if session.will_at != NEVER:
            fields["will_at"] = session.will_at + offset
        if session.will_deputy:
            fields["will_stamp"] = session.will_stamp
            fields["will_deputy"] = session.will_deputy
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def will_in(fields: dict[str, object], offset: float) -> Message:
    return message_in(base64.b64decode(cast(str, fields["will"])), offset)


def subscription_key(number: int, name: str) -> bytes:
    return SUBSCRIPTION + _NUMBER.pack(number) + name.encode()


def subscription_record(subscription: Subscription) -> bytes:
    flags = subscription.retain_handling << 4
    if subscription.no_local:
        flags |= _NO_LOCAL
    if subscription.retain_as_published:
        flags |= _AS_PUBLISHED
    if subscription.positions:
        flags |= _POSITIONS
    if subscription.retained_pending:
        flags |= _RETAINED_PENDING
    record = _SUBSCRIPTION.pack(subscription.qos, flags, subscription.identifier)
    return record if subscription.condition is None else record + subscription.condition.source.encode()


def subscription_in(name: str, record: bytes) -> Subscription:
    qos, flags, identifier = _SUBSCRIPTION.unpack_from(record)
    subscription = Subscription(
        name,
        qos,
        no_local=bool(flags & _NO_LOCAL),
        retain_as_published=bool(flags & _AS_PUBLISHED),
        retain_handling=flags >> 4,
        identifier=identifier,
        positions=bool(flags & _POSITIONS),
    )
    subscription.share, subscription.filter = split_shared(name)
    subscription.retained_pending = bool(flags & _RETAINED_PENDING)
    if len(record) > _SUBSCRIPTION.size:
        subscription.condition = condition_of(record[_SUBSCRIPTION.size :].decode())
    return subscription


def received_key(number: int, packet_id: int) -> bytes:
    return RECEIVED + _NUMBER.pack(number) + packet_id.to_bytes(2, "big")


def group_record(share: str, filter: str) -> bytes:
    return json.dumps([share, filter], ensure_ascii=False).encode()


def retained_key(topic: str) -> bytes:
    return RETAINED + topic.encode()
