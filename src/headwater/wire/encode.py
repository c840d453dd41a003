"""Packets to bytes. What the standard does not allow, or the version cannot express, raises LocalProtocolError."""

from __future__ import annotations

from .errors import LocalProtocolError
from .packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    Auth,
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
from .primitives import (
    encode_binary,
    encode_packet_id,
    encode_string,
    encode_unsigned,
    encode_varint,
)
from .properties import WILL, encode_properties
from .reasons import ALLOWED_REASONS, ALLOWED_RETURN_CODES_311, SUCCESS


def encode(packet: Packet, version: int) -> bytes:
    """The whole packet, fixed header included, in its shortest form. A CONNECT goes by its own version."""
    if isinstance(packet, Publish):
        return _encode_publish(packet, version)
    if isinstance(packet, Puback):
        return _encode_acknowledgement(PUBACK, packet.packet_id, packet.reason, packet.properties, version)
    if isinstance(packet, Pubrec):
        return _encode_acknowledgement(PUBREC, packet.packet_id, packet.reason, packet.properties, version)
    if isinstance(packet, Pubrel):
        return _encode_acknowledgement(PUBREL, packet.packet_id, packet.reason, packet.properties, version)
    if isinstance(packet, Pubcomp):
        return _encode_acknowledgement(PUBCOMP, packet.packet_id, packet.reason, packet.properties, version)
    if isinstance(packet, Connect):
        return _encode_connect(packet)
    if isinstance(packet, Connack):
        return _encode_connack(packet, version)
    if isinstance(packet, Subscribe):
        return _encode_subscribe(packet, version)
    if isinstance(packet, Unsubscribe):
        return _encode_unsubscribe(packet, version)
    if isinstance(packet, Suback):
        return _encode_suback(SUBACK, packet.packet_id, packet.reasons, packet.properties, version)
    if isinstance(packet, Unsuback):
        return _encode_suback(UNSUBACK, packet.packet_id, packet.reasons, packet.properties, version)
    if isinstance(packet, Disconnect):
        return _encode_disconnect(packet, version)
    if isinstance(packet, Auth):
        return _encode_auth(packet, version)
    if isinstance(packet, Pingreq):
        return _frame(PINGREQ << 4, b"")
    if isinstance(packet, Pingresp):
        return _frame(PINGRESP << 4, b"")
    raise LocalProtocolError(f"{type(packet).__name__} is not a packet")


def encode_publish(topic: bytes, payload: bytes, flags: int, packet_id: int, properties: bytes | None) -> bytes:
    """A PUBLISH from parts that are already legal.

    `flags` are the four bits of the fixed header, `packet_id` counts only if they say QoS 1 or 2, `properties` is a
    block as `encode_properties` makes it and None in MQTT 3.1.1.
    """
    head = encode_binary(topic)
    if flags & 6:
        head += encode_packet_id(packet_id)
    if properties is not None:
        head += properties
    return bytes((PUBLISH << 4 | flags,)) + encode_varint(len(head) + len(payload)) + head + payload


def _frame(first_byte: int, body: bytes) -> bytes:
    return bytes((first_byte,)) + encode_varint(len(body)) + body


def _property_block(properties: Properties | None, packet_type: int, version: int) -> bytes:
    """What stands between variable header and payload: nothing in MQTT 3.1.1, at least a length in MQTT 5.0."""
    if version == V5:
        return encode_properties(properties, packet_type)
    if properties is not None:
        raise LocalProtocolError("properties in MQTT 3.1.1")
    return b""


def _check_topic_name(topic: str) -> None:
    if topic == "" or "+" in topic or "#" in topic:  # [MQTT-4.7.3-1] [MQTT-4.7.1-1] [MQTT-3.3.2-2]
        raise LocalProtocolError(f"{topic!r} is not a topic name")


def _check_qos(qos: int) -> None:
    if not 0 <= qos <= 2:  # [MQTT-3.3.1-4] [MQTT-3.1.2-12]
        raise LocalProtocolError(f"QoS {qos}")


def _check_reason(packet_type: int, reason: int) -> None:
    if reason not in ALLOWED_REASONS[packet_type]:
        raise LocalProtocolError(f"reason code 0x{reason:02x} in packet type {packet_type}")


def _encode_publish(packet: Publish, version: int) -> bytes:
    qos = packet.qos
    _check_qos(qos)
    if qos == 0 and (packet.dup or packet.packet_id != 0):  # [MQTT-3.3.1-2] [MQTT-2.2.1-2]
        raise LocalProtocolError("DUP or packet identifier in a PUBLISH with QoS 0")
    properties = packet.properties
    if packet.topic != "" or version == V311 or properties is None or properties.topic_alias is None:
        _check_topic_name(packet.topic)
    flags = (8 if packet.dup else 0) | qos << 1 | (1 if packet.retain else 0)
    block = _property_block(properties, PUBLISH, version) if version == V5 or properties is not None else None
    # The length is the string's own, so what encode_publish is given must be without it.
    return encode_publish(encode_string(packet.topic)[2:], packet.payload, flags, packet.packet_id, block)


def _encode_acknowledgement(
    packet_type: int, packet_id: int, reason: int, properties: Properties | None, version: int
) -> bytes:
    first_byte = packet_type << 4 | (2 if packet_type == PUBREL else 0)  # [MQTT-3.6.1-1]
    body = encode_packet_id(packet_id)
    block = _property_block(properties, packet_type, version)
    return _frame(first_byte, body + _reason_and_block(packet_type, reason, block, version))


def _reason_and_block(packet_type: int, reason: int, block: bytes, version: int) -> bytes:
    """A reason code and properties at the end of a packet, which may be left out as far as they say nothing."""
    if version == V311:
        if reason != SUCCESS:
            raise LocalProtocolError(f"reason code 0x{reason:02x} in MQTT 3.1.1")
        return b""
    _check_reason(packet_type, reason)
    if len(block) > 1:
        return bytes((reason,)) + block
    return b"" if reason == SUCCESS else bytes((reason,))


def _encode_connect(packet: Connect) -> bytes:
    version = packet.version
    if version not in (V31, V311, V5) or (packet.bridge and version == V5):
        raise LocalProtocolError(f"protocol level {version}")
    if version != V5 and packet.password is not None and packet.username is None:  # [MQTT-3.1.2-22] of 3.1.1
        raise LocalProtocolError("password without user name in MQTT 3.1.1")
    flags = 0x02 if packet.clean_start else 0
    tail = encode_string(packet.client_id)
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        tail += _encode_will(will, version)
    if packet.username is not None:
        flags |= 0x80
        tail += encode_string(packet.username)
    if packet.password is not None:
        flags |= 0x40
        tail += encode_binary(packet.password)
    level = version | 0x80 if packet.bridge else version
    protocol = "MQIsdp" if version == V31 else "MQTT"
    head = encode_string(protocol) + bytes((level, flags)) + encode_unsigned(packet.keep_alive, 2)
    return _frame(CONNECT << 4, head + _property_block(packet.properties, CONNECT, version) + tail)


def _encode_will(will: Will, version: int) -> bytes:
    _check_qos(will.qos)
    _check_topic_name(will.topic)
    block = _property_block(will.properties, WILL, version)
    return block + encode_string(will.topic) + encode_binary(will.payload)


def _encode_connack(packet: Connack, version: int) -> bytes:
    if packet.reason not in (ALLOWED_REASONS if version == V5 else ALLOWED_RETURN_CODES_311)[CONNACK]:
        raise LocalProtocolError(f"reason code 0x{packet.reason:02x} in CONNACK")
    if packet.session_present and packet.reason != SUCCESS:  # [MQTT-3.2.2-6]
        raise LocalProtocolError("session present in a CONNACK that refuses")
    head = bytes((1 if packet.session_present else 0, packet.reason))
    return _frame(CONNACK << 4, head + _property_block(packet.properties, CONNACK, version))


def _encode_subscribe(packet: Subscribe, version: int) -> bytes:
    if not packet.requests:  # [MQTT-3.8.3-2]
        raise LocalProtocolError("SUBSCRIBE without topic filters")
    parts = [encode_packet_id(packet.packet_id), _property_block(packet.properties, SUBSCRIBE, version)]
    for request in packet.requests:
        parts.append(_encode_filter(request.filter))
        parts.append(bytes((_subscription_options(request, version),)))
    return _frame(SUBSCRIBE << 4 | 2, b"".join(parts))  # [MQTT-3.8.1-1]


def _encode_filter(topic_filter: str) -> bytes:
    if topic_filter == "":  # [MQTT-4.7.3-1]
        raise LocalProtocolError("empty topic filter")
    return encode_string(topic_filter)


def _subscription_options(request: SubscribeRequest, version: int) -> int:
    _check_qos(request.qos)
    if not 0 <= request.retain_handling <= 2:
        raise LocalProtocolError(f"retain handling {request.retain_handling}")
    if request.no_local and request.filter.startswith("$share/"):  # [MQTT-3.8.3-4]
        raise LocalProtocolError("no local on a shared subscription")
    options = request.qos | request.retain_handling << 4
    options |= (4 if request.no_local else 0) | (8 if request.retain_as_published else 0)
    if version == V311 and options > 2:
        raise LocalProtocolError("subscription options in MQTT 3.1.1")
    return options


def _encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    if not packet.filters:  # [MQTT-3.10.3-2]
        raise LocalProtocolError("UNSUBSCRIBE without topic filters")
    parts = [encode_packet_id(packet.packet_id), _property_block(packet.properties, UNSUBSCRIBE, version)]
    for topic_filter in packet.filters:
        parts.append(_encode_filter(topic_filter))
    return _frame(UNSUBSCRIBE << 4 | 2, b"".join(parts))  # [MQTT-3.10.1-1]


def _encode_suback(
    packet_type: int, packet_id: int, reasons: list[int], properties: Properties | None, version: int
) -> bytes:
    head = encode_packet_id(packet_id) + _property_block(properties, packet_type, version)
    if packet_type == UNSUBACK and version == V311:
        if reasons:
            raise LocalProtocolError("reason codes in an UNSUBACK of MQTT 3.1.1")
        return _frame(UNSUBACK << 4, head)
    if not reasons:
        raise LocalProtocolError("acknowledgement without reason codes")
    allowed = (ALLOWED_REASONS if version == V5 else ALLOWED_RETURN_CODES_311)[packet_type]
    for reason in reasons:
        if reason not in allowed:
            raise LocalProtocolError(f"reason code 0x{reason:02x} in packet type {packet_type}")
    return _frame(packet_type << 4, head + bytes(reasons))


def _encode_disconnect(packet: Disconnect, version: int) -> bytes:
    block = _property_block(packet.properties, DISCONNECT, version)
    return _frame(DISCONNECT << 4, _reason_and_block(DISCONNECT, packet.reason, block, version))


def _encode_auth(packet: Auth, version: int) -> bytes:
    if version == V311:
        raise LocalProtocolError("AUTH in MQTT 3.1.1")
    block = encode_properties(packet.properties, AUTH)
    says_something = packet.reason != SUCCESS or len(block) > 1
    if says_something and (packet.properties is None or packet.properties.authentication_method is None):
        raise LocalProtocolError("AUTH without authentication method")  # 3.15.2.2.2
    return _frame(AUTH << 4, _reason_and_block(AUTH, packet.reason, block, version))
