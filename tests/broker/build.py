"""Packets as bytes, written from the standard and knowing nothing of `headwater.wire`.

Every builder takes `version` (5 unless said otherwise) and, for 5.0, properties: by name
(`publish("a", b"x", topic_alias=3)`) or as a raw block (`properties=b"\\x00"`) when the block itself is the test.
A property given a list is written once per entry. Strings may be given as bytes to send what is not UTF-8.
Nothing is checked: making wrong packets is what this file is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Text = str | bytes
Pair = tuple[Text, Text]
Value = int | str | bytes | Pair | Sequence[int] | Sequence[Pair] | Sequence[str] | Sequence[bytes]

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x10, 0x20, 0x30, 0x40, 0x50, 0x62, 0x70
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, DISCONNECT, AUTH = 0x82, 0x90, 0xA2, 0xB0, 0xE0, 0xF0
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"

PROPERTIES = {
    "payload_format": (0x01, "byte"),
    "message_expiry": (0x02, "four"),
    "content_type": (0x03, "text"),
    "response_topic": (0x08, "text"),
    "correlation_data": (0x09, "text"),
    "subscription_identifier": (0x0B, "varint"),
    "session_expiry": (0x11, "four"),
    "assigned_client_id": (0x12, "text"),
    "server_keep_alive": (0x13, "two"),
    "auth_method": (0x15, "text"),
    "auth_data": (0x16, "text"),
    "request_problem": (0x17, "byte"),
    "will_delay": (0x18, "four"),
    "request_response": (0x19, "byte"),
    "response_information": (0x1A, "text"),
    "server_reference": (0x1C, "text"),
    "reason_string": (0x1F, "text"),
    "receive_maximum": (0x21, "two"),
    "topic_alias_maximum": (0x22, "two"),
    "topic_alias": (0x23, "two"),
    "maximum_qos": (0x24, "byte"),
    "retain_available": (0x25, "byte"),
    "user_property": (0x26, "pair"),
    "maximum_packet_size": (0x27, "four"),
    "wildcard_available": (0x28, "byte"),
    "subscription_identifier_available": (0x29, "byte"),
    "shared_available": (0x2A, "byte"),
}
_WIDTH = {"byte": 1, "two": 2, "four": 4}
_NAME = {code: (name, kind) for name, (code, kind) in PROPERTIES.items()}


# --- data types (section 1.5) ---


def varint(value: int) -> bytes:
    """A Variable Byte Integer in its shortest form."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def two(value: int) -> bytes:
    return value.to_bytes(2, "big")


def four(value: int) -> bytes:
    return value.to_bytes(4, "big")


def text(value: Text) -> bytes:
    """A UTF-8 Encoded String, or Binary Data when given bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return two(len(raw)) + raw


def packet(first: int, body: bytes) -> bytes:
    """Fixed header and body."""
    return bytes([first]) + varint(len(body)) + body


# --- properties ---


def _property(name: str, value: object) -> bytes:
    code, kind = PROPERTIES[name]
    if kind == "pair":
        assert isinstance(value, tuple)
        return bytes([code]) + text(value[0]) + text(value[1])
    if kind == "text":
        assert isinstance(value, str | bytes)
        return bytes([code]) + text(value)
    assert isinstance(value, int)
    return bytes([code]) + (varint(value) if kind == "varint" else value.to_bytes(_WIDTH[kind], "big"))


def props(**named: Value) -> bytes:
    """A property block: its length, then the properties in the order given."""
    block = b"".join(
        _property(name, entry)
        for name, value in named.items()
        for entry in (value if isinstance(value, list) else [value])
    )
    return varint(len(block)) + block


def _block(version: int, properties: bytes | None, named: dict[str, Value]) -> bytes:
    if version < 5:
        return b""
    return props(**named) if properties is None else properties


def read_varint(data: bytes, at: int = 0) -> tuple[int, int]:
    """Value and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def read_text(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    assert end <= len(data), f"string runs past the end of {data.hex(' ')}"
    return data[at + 2 : end], end


def read_props(data: bytes, at: int = 0) -> tuple[dict[str, list[object]], int]:
    """The property block at `at` as name -> values (each name a list), and the offset behind it."""
    length, at = read_varint(data, at)
    end = at + length
    assert end <= len(data), f"property block runs past the end of {data.hex(' ')}"
    found: dict[str, list[object]] = {}
    while at < end:
        name, kind = _NAME[data[at]]
        value: object
        at += 1
        if kind == "varint":
            value, at = read_varint(data, at)
        elif kind in _WIDTH:
            value, at = int.from_bytes(data[at : at + _WIDTH[kind]], "big"), at + _WIDTH[kind]
        elif kind == "pair":
            key, at = read_text(data, at)
            val, at = read_text(data, at)
            value = (key.decode(), val.decode())
        else:
            raw, at = read_text(data, at)
            value = raw if name in ("correlation_data", "auth_data") else raw.decode()
        found.setdefault(name, []).append(value)
    assert at == end, f"properties end at {at}, their length says {end}: {data.hex(' ')}"
    return found, at


# --- packets (chapter 3) ---


class Will(NamedTuple):
    topic: Text
    payload: bytes
    qos: int
    retain: bool
    properties: bytes


def will(
    topic: Text,
    payload: bytes = b"will",
    qos: int = 0,
    retain: bool = False,
    *,
    properties: bytes | None = None,
    **named: Value,
) -> Will:
    return Will(topic, payload, qos, retain, _block(5, properties, named))


def connect(
    client_id: Text = "",
    *,
    version: int = 5,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    username: Text | None = None,
    password: bytes | None = None,
    flags: int | None = None,
    protocol: Text = "MQTT",
    level: int | None = None,
    properties: bytes | None = None,
    **named: Value,
) -> bytes:
    """`flags` overrides the connect flags that follow from the other arguments; the payload stays as they say."""
    right = 0x02 if clean else 0
    body = text(client_id)
    if will is not None:
        right |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        body += (will.properties if version >= 5 else b"") + text(will.topic) + text(will.payload)
    if username is not None:
        right |= 0x80
        body += text(username)
    if password is not None:
        right |= 0x40
        body += text(password)
    head = text(protocol) + bytes([version if level is None else level, right if flags is None else flags])
    return packet(CONNECT, head + two(keep_alive) + _block(version, properties, named) + body)


def connack(
    reason: int = 0,
    *,
    session_present: bool = False,
    version: int = 5,
    properties: bytes | None = None,
    **named: Value,
) -> bytes:
    return packet(CONNACK, bytes([session_present, reason]) + _block(version, properties, named))


def publish(
    topic: Text,
    payload: bytes = b"",
    qos: int = 0,
    pid: int | None = None,
    *,
    retain: bool = False,
    dup: bool = False,
    version: int = 5,
    properties: bytes | None = None,
    **named: Value,
) -> bytes:
    """`pid` is written when given, or as 1 when `qos` asks for one."""
    if pid is None and qos:
        pid = 1
    body = text(topic) + (b"" if pid is None else two(pid)) + _block(version, properties, named) + payload
    return packet(PUBLISH | (8 if dup else 0) | qos << 1 | (1 if retain else 0), body)


def _ack(first: int, pid: int, reason: int | None, properties: bytes | None, named: dict[str, Value]) -> bytes:
    body = two(pid)
    if named or properties is not None:
        body += bytes([reason or 0]) + _block(5, properties, named)
    elif reason is not None:
        body += bytes([reason])
    return packet(first, body)


def puback(pid: int = 1, reason: int | None = None, *, properties: bytes | None = None, **named: Value) -> bytes:
    """Without `reason` the two-byte form, which both versions know."""
    return _ack(PUBACK, pid, reason, properties, named)


def pubrec(pid: int = 1, reason: int | None = None, *, properties: bytes | None = None, **named: Value) -> bytes:
    return _ack(PUBREC, pid, reason, properties, named)


def pubrel(pid: int = 1, reason: int | None = None, *, properties: bytes | None = None, **named: Value) -> bytes:
    return _ack(PUBREL, pid, reason, properties, named)


def pubcomp(pid: int = 1, reason: int | None = None, *, properties: bytes | None = None, **named: Value) -> bytes:
    return _ack(PUBCOMP, pid, reason, properties, named)


def options(
    qos: int = 0, *, no_local: bool = False, retain_as_published: bool = False, retain_handling: int = 0
) -> int:
    """The subscription options byte."""
    return qos | (4 if no_local else 0) | (8 if retain_as_published else 0) | retain_handling << 4


def subscribe(
    *filters: Text | tuple[Text, int],
    qos: int = 0,
    pid: int = 1,
    version: int = 5,
    properties: bytes | None = None,
    **named: Value,
) -> bytes:
    """A filter is a string (with `qos` as its options) or a pair of string and options byte."""
    pairs = [entry if isinstance(entry, tuple) else (entry, qos) for entry in filters]
    entries = b"".join(text(name) + bytes([byte]) for name, byte in pairs)
    return packet(SUBSCRIBE, two(pid) + _block(version, properties, named) + entries)


def suback(*reasons: int, pid: int = 1, version: int = 5, properties: bytes | None = None, **named: Value) -> bytes:
    return packet(SUBACK, two(pid) + _block(version, properties, named) + bytes(reasons))


def unsubscribe(
    *filters: Text, pid: int = 1, version: int = 5, properties: bytes | None = None, **named: Value
) -> bytes:
    entries = b"".join(text(name) for name in filters)
    return packet(UNSUBSCRIBE, two(pid) + _block(version, properties, named) + entries)


def unsuback(*reasons: int, pid: int = 1, version: int = 5, properties: bytes | None = None, **named: Value) -> bytes:
    """For 3.1.1 the reasons are left out."""
    body = _block(version, properties, named) + bytes(reasons) if version >= 5 else b""
    return packet(UNSUBACK, two(pid) + body)


def disconnect(reason: int | None = None, *, properties: bytes | None = None, **named: Value) -> bytes:
    """Without `reason` the empty form, which both versions know."""
    if named or properties is not None:
        return packet(DISCONNECT, bytes([reason or 0]) + _block(5, properties, named))
    return packet(DISCONNECT, b"" if reason is None else bytes([reason]))


def auth(reason: int = 0x18, *, properties: bytes | None = None, **named: Value) -> bytes:
    return packet(AUTH, bytes([reason]) + _block(5, properties, named))


def number(properties: dict[str, list[object]], name: str, default: int | None = None) -> int:
    """The one value of a numeric property that was read, or `default` where it is absent."""
    values = properties.get(name, [default])
    assert len(values) == 1 and isinstance(values[0], int), f"expected one {name}, got {values}"
    return values[0]
