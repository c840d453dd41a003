"""Bytes to packets, with every check that one packet alone allows.

What the standard calls malformed (it cannot be parsed) raises RemoteProtocolError with reason 0x81, what it calls a
protocol error (parsed, but forbidden) with 0x82 or the more special code that the standard names. What depends on the
state of a connection or on the server's settings is not checked here.
"""

from __future__ import annotations

from typing import Final

from .errors import RemoteProtocolError
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
from .primitives import Reader
from .properties import MOST_USER_PROPERTIES, WILL, decode_properties
from .reasons import (
    ALLOWED_REASONS,
    ALLOWED_RETURN_CODES_311,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    REAUTHENTICATE,
    SUCCESS,
    UNSUPPORTED_PROTOCOL_VERSION,
)

FROM_CLIENT: Final = 0
FROM_SERVER: Final = 1
MOST_FILTERS: Final = 10_000
"""In one SUBSCRIBE or UNSUBSCRIBE."""

PROTOCOLS: Final = {"MQTT": (V311, V5), "MQIsdp": (V31,)}
BRIDGE: Final = 0x80

_FLAGS_2: Final = 1 << PUBREL | 1 << SUBSCRIBE | 1 << UNSUBSCRIBE
_CLIENT_ONLY: Final = 1 << CONNECT | 1 << SUBSCRIBE | 1 << UNSUBSCRIBE | 1 << PINGREQ
_SERVER_ONLY: Final = 1 << CONNACK | 1 << SUBACK | 1 << UNSUBACK | 1 << PINGRESP


class UnsupportedVersionError(RemoteProtocolError):
    """A CONNECT of another protocol or version; what it said is here for the choice of the CONNACK to answer with."""

    def __init__(self, protocol_name: str, level: int) -> None:
        super().__init__(UNSUPPORTED_PROTOCOL_VERSION, f"protocol {protocol_name!r} level {level} is not supported")
        self.protocol_name = protocol_name
        self.level = level


def decode(first_byte: int, body: bytes, version: int, role: int, most_pairs: int = MOST_USER_PROPERTIES) -> Packet:
    """The packet with this first byte and body, sent by `role` (FROM_CLIENT, FROM_SERVER) in protocol `version`.

    A CONNECT names its own version, so `version` is not looked at for it. More than `most_pairs` user properties are
    an error; who decodes what was accepted before says ANY_NUMBER.
    """
    packet_type = first_byte >> 4
    if packet_type == PUBLISH:
        return _decode_publish(first_byte & 0x0F, body, version, role, most_pairs)
    if packet_type == 0 or (packet_type == AUTH and version == V311):
        raise RemoteProtocolError(MALFORMED_PACKET, f"packet type {packet_type} is reserved")
    _check_flags(first_byte)
    if (_CLIENT_ONLY if role == FROM_SERVER else _SERVER_ONLY) >> packet_type & 1:
        raise RemoteProtocolError(PROTOCOL_ERROR, f"packet type {packet_type} does not go in this direction")
    if packet_type == CONNECT:
        return decode_connect(body, most_pairs)
    if packet_type in (SUBSCRIBE, UNSUBSCRIBE):
        filters = FilterList(first_byte, body, version, most_pairs)
        filters.decode(MOST_FILTERS + 1)
        return filters.packet
    reader = Reader(body, 0, len(body))
    reader.most_pairs = most_pairs
    packet = _decode_body(packet_type, reader, version, role)
    reader.finish()
    return packet


def _check_flags(first_byte: int) -> None:
    packet_type = first_byte >> 4
    if first_byte & 0x0F != (2 if _FLAGS_2 >> packet_type & 1 else 0):  # [MQTT-2.1.3-1]
        raise RemoteProtocolError(MALFORMED_PACKET, f"flags {first_byte & 0x0F:04b} in packet type {packet_type}")


def _decode_body(packet_type: int, reader: Reader, version: int, role: int) -> Packet:
    if PUBACK <= packet_type <= PUBCOMP:
        return _decode_acknowledgement(packet_type, reader, version)
    if packet_type == CONNACK:
        return _decode_connack(reader, version)
    if packet_type in (SUBACK, UNSUBACK):
        return _decode_suback(packet_type, reader, version)
    if packet_type == DISCONNECT:
        return _decode_disconnect(reader, version, role)
    if packet_type == AUTH:
        return _decode_auth(reader, role)
    return Pingreq() if packet_type == PINGREQ else Pingresp()


def _check_topic_name(topic: str) -> None:
    if "+" in topic or "#" in topic:  # [MQTT-3.3.2-2] [MQTT-4.7.1-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "wildcard in a topic name")  # 0x90 is for correctly formed ones


def _check_topic_filter(topic_filter: str) -> None:
    if topic_filter == "":  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "empty topic filter")


def _decode_reason(packet_type: int, reader: Reader) -> int:
    reason = reader.byte()
    if reason not in ALLOWED_REASONS[packet_type]:
        raise RemoteProtocolError(PROTOCOL_ERROR, f"reason code 0x{reason:02x} in packet type {packet_type}")
    return reason


def _decode_publish(flags: int, body: bytes, version: int, role: int, most_pairs: int) -> Publish:
    qos = flags >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH with QoS 3")
    if qos == 0 and flags & 8:  # [MQTT-3.3.1-2]
        raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH with DUP and QoS 0")
    reader = Reader(body, 0, len(body))
    reader.most_pairs = most_pairs
    topic = reader.string()
    _check_topic_name(topic)
    packet_id = 0 if qos == 0 else reader.packet_id()
    properties: Properties | None = None
    if version == V5:
        properties = decode_properties(reader, PUBLISH)
        if properties is not None and role == FROM_CLIENT and properties.subscription_identifiers is not None:
            # [MQTT-3.3.4-6]
            raise RemoteProtocolError(PROTOCOL_ERROR, "subscription identifier in a PUBLISH from a client")
        if topic == "" and (properties is None or properties.topic_alias is None):  # 3.3.2.1
            raise RemoteProtocolError(PROTOCOL_ERROR, "empty topic name without topic alias")
    elif topic == "":  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(MALFORMED_PACKET, "empty topic name")
    return Publish(topic, reader.rest(), qos, flags & 1 != 0, flags & 8 != 0, packet_id, properties)


def _decode_acknowledgement(packet_type: int, reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    reason = SUCCESS
    properties: Properties | None = None
    if version == V5 and reader.left() > 0:  # both may be left out (3.4.2.1, 3.4.2.2.1)
        reason = _decode_reason(packet_type, reader)
        if reader.left() > 0:
            properties = decode_properties(reader, packet_type)
    if packet_type == PUBACK:
        return Puback(packet_id, reason, properties)
    if packet_type == PUBREC:
        return Pubrec(packet_id, reason, properties)
    if packet_type == PUBREL:
        return Pubrel(packet_id, reason, properties)
    return Pubcomp(packet_id, reason, properties)


class FilterList:
    """A SUBSCRIBE or UNSUBSCRIBE whose topic filters are decoded some at a time: thousands take milliseconds, and so do
    some hundred long ones. `text` is the bytes that they take in memory until now, about."""

    def __init__(self, first_byte: int, body: bytes, version: int, most_pairs: int) -> None:
        packet_type = first_byte >> 4
        _check_flags(first_byte)
        self.reader = Reader(body, 0, len(body))
        self.reader.most_pairs = most_pairs
        self.version = version
        self.text = 0
        packet_id = self.reader.packet_id()
        properties = decode_properties(self.reader, packet_type) if version == V5 else None
        self.subscribe = Subscribe(packet_id, [], properties) if packet_type == SUBSCRIBE else None
        self.unsubscribe = Unsubscribe(packet_id, [], properties) if packet_type == UNSUBSCRIBE else None

    @property
    def packet(self) -> Packet:
        packet = self.unsubscribe if self.subscribe is None else self.subscribe
        assert packet is not None
        return packet

    def decode(self, most: int, most_text: int = 1 << 62) -> bool:
        """So many more of them, or as many as have so many bytes, one at least; False: the packet is whole."""
        reader = self.reader
        until = self.text + most_text
        while reader.left() > 0:
            if most == 0 or self.text >= until:
                return True
            most -= 1
            topic_filter = reader.string()
            _check_topic_filter(topic_filter)
            self.text += len(topic_filter) if topic_filter.isascii() else 4 * len(topic_filter)
            if self.subscribe is not None:
                _check_number(len(self.subscribe.requests))
                self.subscribe.requests.append(_decode_request(topic_filter, reader.byte(), self.version))
            elif self.unsubscribe is not None:
                _check_number(len(self.unsubscribe.filters))
                self.unsubscribe.filters.append(topic_filter)
        if self.subscribe is not None and not self.subscribe.requests:  # [MQTT-3.8.3-2]
            raise RemoteProtocolError(PROTOCOL_ERROR, "SUBSCRIBE without topic filters")
        if self.unsubscribe is not None and not self.unsubscribe.filters:  # [MQTT-3.10.3-2]
            raise RemoteProtocolError(PROTOCOL_ERROR, "UNSUBSCRIBE without topic filters")
        return False


def _decode_request(topic_filter: str, options: int, version: int) -> SubscribeRequest:
    if version == V311:
        if options > 2:  # [MQTT-3-8.3-4] of 3.1.1
            raise RemoteProtocolError(MALFORMED_PACKET, "reserved bits or QoS 3 in a requested QoS")
        return SubscribeRequest(topic_filter, options)
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise RemoteProtocolError(MALFORMED_PACKET, "reserved bits in subscription options")
    qos = options & 3
    no_local = options & 4 != 0
    retain_handling = options >> 4
    if qos == 3 or retain_handling == 3:  # 3.8.3.1
        raise RemoteProtocolError(PROTOCOL_ERROR, "QoS 3 or retain handling 3 in subscription options")
    if no_local and topic_filter.startswith("$share/"):  # [MQTT-3.8.3-4]
        raise RemoteProtocolError(PROTOCOL_ERROR, "no local on a shared subscription")
    return SubscribeRequest(topic_filter, qos, no_local, options & 8 != 0, retain_handling)


def _check_number(filters: int) -> None:
    if filters == MOST_FILTERS:
        raise RemoteProtocolError(QUOTA_EXCEEDED, f"more than {MOST_FILTERS} topic filters in one packet")


def _decode_suback(packet_type: int, reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    if packet_type == UNSUBACK and version == V311:
        return Unsuback(packet_id)
    properties = decode_properties(reader, packet_type) if version == V5 else None
    allowed = (ALLOWED_REASONS if version == V5 else ALLOWED_RETURN_CODES_311)[packet_type]
    reasons = list(reader.rest())
    if not reasons:  # one for each topic filter, and there was at least one [MQTT-3.8.4-6] [MQTT-3.11.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "acknowledgement without reason codes")
    for reason in reasons:
        if reason not in allowed:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"reason code 0x{reason:02x} in packet type {packet_type}")
    return Suback(packet_id, reasons, properties) if packet_type == SUBACK else Unsuback(packet_id, reasons, properties)


def _decode_connack(reader: Reader, version: int) -> Connack:
    flags = reader.byte()
    if flags > 1:  # [MQTT-3.2.2-1]
        raise RemoteProtocolError(MALFORMED_PACKET, "reserved flags in CONNACK")
    reason = reader.byte()
    if reason not in (ALLOWED_REASONS if version == V5 else ALLOWED_RETURN_CODES_311)[CONNACK]:
        raise RemoteProtocolError(PROTOCOL_ERROR, f"reason code 0x{reason:02x} in CONNACK")
    if flags == 1 and reason != SUCCESS:  # [MQTT-3.2.2-6]
        raise RemoteProtocolError(PROTOCOL_ERROR, "session present in a CONNACK that refuses")
    return Connack(flags == 1, reason, decode_properties(reader, CONNACK) if version == V5 else None)


def _decode_disconnect(reader: Reader, version: int, role: int) -> Disconnect:
    if version == V311:
        if role == FROM_SERVER:
            raise RemoteProtocolError(PROTOCOL_ERROR, "DISCONNECT from a server in MQTT 3.1.1")
        return Disconnect()
    reason = SUCCESS
    properties: Properties | None = None
    if reader.left() > 0:  # both may be left out (3.14.2.1, 3.14.2.2.1)
        reason = _decode_reason(DISCONNECT, reader)
        if reader.left() > 0:
            properties = decode_properties(reader, DISCONNECT)
    if role == FROM_SERVER and properties is not None and properties.session_expiry_interval is not None:
        raise RemoteProtocolError(PROTOCOL_ERROR, "session expiry interval from a server")  # [MQTT-3.14.2-2]
    return Disconnect(reason, properties)


def _decode_auth(reader: Reader, role: int) -> Auth:
    reason = SUCCESS
    properties: Properties | None = None
    if reader.left() > 0:  # both may be left out (3.15.2.1)
        reason = _decode_reason(AUTH, reader)
        if reader.left() > 0:
            properties = decode_properties(reader, AUTH)
    if reason == (SUCCESS if role == FROM_CLIENT else REAUTHENTICATE):  # [MQTT-3.15.2-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, f"AUTH with reason code 0x{reason:02x} in this direction")
    if properties is None:
        if reason != SUCCESS:  # 3.15.2.2.2
            raise RemoteProtocolError(PROTOCOL_ERROR, "AUTH without authentication method")
    elif properties.authentication_method is None:
        raise RemoteProtocolError(PROTOCOL_ERROR, "AUTH without authentication method")
    return Auth(reason, properties)


def decode_connect(body: bytes, most_pairs: int = MOST_USER_PROPERTIES) -> Connect:
    """The CONNECT with this body; raises UnsupportedVersionError if it is not MQTT 3.1, 3.1.1 or 5.0."""
    reader = Reader(body, 0, len(body))
    reader.most_pairs = most_pairs
    protocol_name = reader.string()
    level = reader.byte()
    version = level & ~BRIDGE
    bridge = level != version
    if version not in PROTOCOLS.get(protocol_name, ()) or (bridge and version == V5):  # [MQTT-3.1.2-1] [MQTT-3.1.2-2]
        raise UnsupportedVersionError(protocol_name, level)
    flags = reader.byte()
    _check_connect_flags(flags, version)
    keep_alive = reader.uint16()
    properties = decode_properties(reader, CONNECT) if version == V5 else None
    client_id = reader.string()
    will: Will | None = None
    if flags & 0x04:
        will_properties = decode_properties(reader, WILL) if version == V5 else None
        topic = reader.string()
        _check_topic_name(topic)
        if topic == "":  # [MQTT-4.7.3-1]
            raise RemoteProtocolError(PROTOCOL_ERROR, "empty will topic")
        will = Will(topic, reader.binary(), flags >> 3 & 3, flags & 0x20 != 0, will_properties)
    username = reader.string() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    reader.finish()
    return Connect(client_id, version, flags & 0x02 != 0, keep_alive, username, password, will, properties, bridge)


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x01:  # [MQTT-3.1.2-3]
        raise RemoteProtocolError(MALFORMED_PACKET, "reserved flag in CONNECT")
    if not flags & 0x04 and flags & 0x38:  # [MQTT-3.1.2-11] [MQTT-3.1.2-13]
        raise RemoteProtocolError(MALFORMED_PACKET, "QoS or retain flag of a will, but no will")
    if flags & 0x18 == 0x18:  # [MQTT-3.1.2-12]
        raise RemoteProtocolError(MALFORMED_PACKET, "will with QoS 3")
    if version != V5 and flags & 0xC0 == 0x40:  # [MQTT-3.1.2-22] of 3.1.1
        raise RemoteProtocolError(MALFORMED_PACKET, "password without user name")
