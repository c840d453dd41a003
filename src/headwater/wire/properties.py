"""Properties of MQTT 5.0 (section 2.2.2): one table, a decoder and an encoder that read it.

A property block is a length and then properties, each an identifier and a value whose type the identifier decides.
The table says for each identifier: the name of the field in `Properties`, the type, the smallest legal value and the
packets that may carry it. Three rules follow from it for every packet:

- an identifier that is unknown or not for this packet makes the packet malformed (2.2.2.2);
- a property stands at most once, else it is a protocol error. Only user properties repeat, and in PUBLISH the
  subscription identifiers, one for each subscription that matched;
- every property of type byte is a yes or no, so anything but 0 and 1 is a protocol error.

The properties of a will are a block of their own within CONNECT with their own legal set; here they count as a packet
type of their own, `WILL`. An empty block is decoded to None: the standard gives both the same meaning.
"""

from __future__ import annotations

from typing import Final, cast

from .errors import LocalProtocolError, RemoteProtocolError
from .packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Properties,
)
from .primitives import Reader, encode_binary, encode_string, encode_unsigned, encode_varint
from .reasons import MALFORMED_PACKET, PROTOCOL_ERROR, QUOTA_EXCEEDED, TOPIC_ALIAS_INVALID

MOST_USER_PROPERTIES: Final = 1000
"""In one packet of another's, by default: five bytes on the wire become hundreds in memory, and a third of a
microsecond."""

MOST_BYTES: Final = 1 << 17
"""Of the properties of one packet."""

WILL: Final = 0
"""Packet type of the will properties; no packet has type 0."""

FLAG: Final = 0
UINT16: Final = 1
UINT32: Final = 2
VARINT: Final = 3
STRING: Final = 4
BINARY: Final = 5
PAIR: Final = 6


class PropertyRule:
    """A row of the table. `packets` has bit n set if packets of type n may carry the property."""

    def __init__(self, identifier: int, name: str, kind: int, least: int, carriers: tuple[int, ...]) -> None:
        self.identifier = identifier
        self.code = bytes((identifier,))
        self.name = name
        self.kind = kind
        self.least = least
        self.packets = 0
        for carrier in carriers:
            self.packets |= 1 << carrier


_MESSAGE: Final = (PUBLISH, WILL)
_WITH_REASON: Final = (CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH)
_ANY: Final = (*_WITH_REASON, CONNECT, PUBLISH, WILL, SUBSCRIBE, UNSUBSCRIBE)

RULES: Final[list[PropertyRule]] = [
    PropertyRule(0x01, "payload_format_indicator", FLAG, 0, _MESSAGE),
    PropertyRule(0x02, "message_expiry_interval", UINT32, 0, _MESSAGE),
    PropertyRule(0x03, "content_type", STRING, 0, _MESSAGE),
    PropertyRule(0x08, "response_topic", STRING, 0, _MESSAGE),
    PropertyRule(0x09, "correlation_data", BINARY, 0, _MESSAGE),
    PropertyRule(0x0B, "subscription_identifiers", VARINT, 1, (PUBLISH, SUBSCRIBE)),
    PropertyRule(0x11, "session_expiry_interval", UINT32, 0, (CONNECT, CONNACK, DISCONNECT)),
    PropertyRule(0x22, "topic_alias_maximum", UINT16, 0, (CONNECT, CONNACK)),
    PropertyRule(0x12, "assigned_client_identifier", STRING, 0, (CONNACK,)),
    PropertyRule(0x13, "server_keep_alive", UINT16, 0, (CONNACK,)),
    PropertyRule(0x15, "authentication_method", STRING, 0, (CONNECT, CONNACK, AUTH)),
    PropertyRule(0x16, "authentication_data", BINARY, 0, (CONNECT, CONNACK, AUTH)),
    PropertyRule(0x17, "request_problem_information", FLAG, 0, (CONNECT,)),
    PropertyRule(0x18, "will_delay_interval", UINT32, 0, (WILL,)),
    PropertyRule(0x19, "request_response_information", FLAG, 0, (CONNECT,)),
    PropertyRule(0x1A, "response_information", STRING, 0, (CONNACK,)),
    PropertyRule(0x1C, "server_reference", STRING, 0, (CONNACK, DISCONNECT)),
    PropertyRule(0x1F, "reason_string", STRING, 0, _WITH_REASON),
    PropertyRule(0x23, "topic_alias", UINT16, 1, (PUBLISH,)),
    PropertyRule(0x25, "retain_available", FLAG, 0, (CONNACK,)),
    PropertyRule(0x27, "maximum_packet_size", UINT32, 1, (CONNECT, CONNACK)),
    PropertyRule(0x21, "receive_maximum", UINT16, 1, (CONNECT, CONNACK)),
    PropertyRule(0x24, "maximum_qos", FLAG, 0, (CONNACK,)),
    PropertyRule(0x28, "wildcard_subscription_available", FLAG, 0, (CONNACK,)),
    PropertyRule(0x29, "subscription_identifier_available", FLAG, 0, (CONNACK,)),
    PropertyRule(0x2A, "shared_subscription_available", FLAG, 0, (CONNACK,)),
    PropertyRule(0x26, "user_properties", PAIR, 0, (*_ANY, PINGREQ)),  # PINGREQ: see status.py
]
"""In the order in which they are written, which is free. In CONNACK it is Mosquitto's: some suites compare bytes."""
_RULE_OF: Final[dict[int, PropertyRule]] = {rule.identifier: rule for rule in RULES}


def decode_properties(reader: Reader, packet_type: int) -> Properties | None:
    """Read a property block, length included, and check all that can be checked without knowing who sent it."""
    size = reader.varint()
    if size == 0:
        return None
    start = reader.take(size)
    if size > MOST_BYTES:
        raise RemoteProtocolError(QUOTA_EXCEEDED, f"more than {MOST_BYTES} bytes of properties")
    block = Reader(reader.data, start, start + size)
    block.most_pairs = reader.most_pairs
    properties = Properties()
    while block.left() > 0:
        identifier = block.varint()
        rule = _RULE_OF.get(identifier)
        if rule is None or not rule.packets >> packet_type & 1:
            raise RemoteProtocolError(MALFORMED_PACKET, f"property 0x{identifier:02x} does not belong in this packet")
        _decode_one(block, rule, properties, packet_type)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise RemoteProtocolError(PROTOCOL_ERROR, "authentication data without authentication method")
    topic = properties.response_topic
    if topic is not None and (topic == "" or "+" in topic or "#" in topic):  # [MQTT-3.3.2-14] [MQTT-4.7.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "response topic is not a topic name")
    return properties


def _decode_one(block: Reader, rule: PropertyRule, properties: Properties, packet_type: int) -> None:
    kind = rule.kind
    if kind == PAIR:
        name = block.string()
        value = block.string()
        pairs = properties.user_properties
        if pairs is None:
            properties.user_properties = [(name, value)]
        else:
            pairs.append((name, value))
        if properties.user_properties is not None and len(properties.user_properties) > block.most_pairs:
            raise RemoteProtocolError(QUOTA_EXCEEDED, f"more than {block.most_pairs} user properties")
    elif kind == VARINT:
        identifier = block.varint()
        _check_least(rule, identifier)
        identifiers = properties.subscription_identifiers
        if identifiers is None:
            properties.subscription_identifiers = [identifier]
        elif packet_type == PUBLISH:
            identifiers.append(identifier)
        else:
            raise _twice(rule)
    elif getattr(properties, rule.name) is not None:
        raise _twice(rule)
    elif kind == STRING:
        setattr(properties, rule.name, block.string())
    elif kind == BINARY:
        setattr(properties, rule.name, block.binary())
    else:
        number = block.byte() if kind == FLAG else block.uint16() if kind == UINT16 else block.uint32()
        if kind == FLAG and number > 1:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"{rule.name} {number} is neither 0 nor 1")
        _check_least(rule, number)
        setattr(properties, rule.name, number)


def _check_least(rule: PropertyRule, number: int) -> None:
    if number < rule.least:
        reason = TOPIC_ALIAS_INVALID if rule.packets == 1 << PUBLISH else PROTOCOL_ERROR  # [MQTT-3.3.2-8]
        raise RemoteProtocolError(reason, f"{rule.name} {number} is not allowed")


def _twice(rule: PropertyRule) -> RemoteProtocolError:
    return RemoteProtocolError(PROTOCOL_ERROR, f"{rule.name} more than once")


def encode_properties(properties: Properties | None, packet_type: int) -> bytes:
    """Write a property block, length included, in the order of the table; user properties keep their order."""
    if properties is None:
        return b"\0"
    parts: list[bytes] = []
    for rule in RULES:
        value = getattr(properties, rule.name)
        if value is None:
            continue
        if not rule.packets >> packet_type & 1:
            raise LocalProtocolError(f"{rule.name} does not belong in this packet")
        _encode_one(rule, value, parts)
    identifiers = properties.subscription_identifiers
    if identifiers is not None and len(identifiers) > 1 and packet_type != PUBLISH:
        raise LocalProtocolError("more than one subscription identifier in SUBSCRIBE")
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise LocalProtocolError("authentication data without authentication method")
    topic = properties.response_topic
    if topic is not None and (topic == "" or "+" in topic or "#" in topic):  # [MQTT-3.3.2-14] [MQTT-4.7.3-1]
        raise LocalProtocolError("response topic is not a topic name")
    block = b"".join(parts)
    return encode_varint(len(block)) + block


def _encode_one(rule: PropertyRule, value: object, parts: list[bytes]) -> None:
    kind = rule.kind
    if kind == PAIR:
        for pair in cast("list[tuple[str, str]]", value):
            parts.append(rule.code + encode_string(pair[0]) + encode_string(pair[1]))
    elif kind == VARINT:
        for identifier in cast("list[int]", value):
            if identifier < rule.least:
                raise LocalProtocolError(f"{rule.name} {identifier} is not allowed")
            parts.append(rule.code + encode_varint(identifier))
    elif kind == STRING:
        parts.append(rule.code + encode_string(cast("str", value)))
    elif kind == BINARY:
        parts.append(rule.code + encode_binary(cast("bytes", value)))
    else:
        number = cast("int", value)
        if number < rule.least or (kind == FLAG and number > 1):
            raise LocalProtocolError(f"{rule.name} {number} is not allowed")
        parts.append(rule.code + encode_unsigned(number, 1 if kind == FLAG else 2 if kind == UINT16 else 4))
