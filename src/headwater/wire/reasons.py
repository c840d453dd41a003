"""Reason codes of MQTT 5.0 (section 2.4) and the CONNACK return codes of MQTT 3.1.1 (section 3.2.2.3)."""

from __future__ import annotations

from typing import Final

from .packets import AUTH, CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK, UNSUBACK

SUCCESS: Final = 0x00
GRANTED_QOS_0: Final = 0x00
GRANTED_QOS_1: Final = 0x01
GRANTED_QOS_2: Final = 0x02
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_IN_USE: Final = 0x91
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

CONNACK_311: Final[dict[int, int]] = {
    SUCCESS: 0,
    UNSUPPORTED_PROTOCOL_VERSION: 1,
    CLIENT_IDENTIFIER_NOT_VALID: 2,
    SERVER_UNAVAILABLE: 3,
    SERVER_BUSY: 3,
    USE_ANOTHER_SERVER: 3,
    SERVER_MOVED: 3,
    QUOTA_EXCEEDED: 3,
    CONNECTION_RATE_EXCEEDED: 3,
    BAD_USER_NAME_OR_PASSWORD: 4,
    BAD_AUTHENTICATION_METHOD: 5,
    NOT_AUTHORIZED: 5,
    BANNED: 5,
    PACKET_TOO_LARGE: 5,
}
"""MQTT 5.0 reason -> MQTT 3.1.1 return code. A reason without one closes the connection without a CONNACK."""

_ACKNOWLEDGED: Final = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
_RELEASED: Final = frozenset((0x00, 0x92))

ALLOWED_REASONS: Final[dict[int, frozenset[int]]] = {
    CONNACK: frozenset((0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F)),  # [MQTT-3.2.2-8]
    PUBACK: _ACKNOWLEDGED,  # [MQTT-3.4.2-1]
    PUBREC: _ACKNOWLEDGED,  # [MQTT-3.5.2-1]
    PUBREL: _RELEASED,  # [MQTT-3.6.2-1]
    PUBCOMP: _RELEASED,  # [MQTT-3.7.2-1]
    SUBACK: frozenset((0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),  # [MQTT-3.9.3-2]
    UNSUBACK: frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),  # [MQTT-3.11.3-2]
    # 0x8C is missing in the table of 3.14.2.1 but section 2.4 gives it to DISCONNECT. [MQTT-3.14.2-1]
    DISCONNECT: frozenset((0, 4, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3))),
    AUTH: frozenset((0x00, 0x18, 0x19)),  # [MQTT-3.15.2-1]
}
"""Packet type -> the reason codes it may carry in MQTT 5.0."""

ALLOWED_RETURN_CODES_311: Final[dict[int, frozenset[int]]] = {
    CONNACK: frozenset(range(6)),
    SUBACK: frozenset((0, 1, 2, 0x80)),
}
"""The same for the two packets that carry a return code in MQTT 3.1.1."""
