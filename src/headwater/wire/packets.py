"""The fifteen control packets as data (MQTT 5.0, chapter 3), for both protocol versions.

A packet is the same object in 3.1.1 and 5.0; in 3.1.1 `properties` stays None and reason codes keep their defaults.
Reason codes in CONNACK and SUBACK are what goes over the wire, so a 3.1.1 CONNACK carries a 3.1.1 return code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

V31: Final = 3
"""MQTT 3.1: only a CONNECT says so; the packets after it are those of 3.1.1."""
V311: Final = 4
V5: Final = 5

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15


@dataclass
class Properties:
    """All properties of MQTT 5.0 (section 2.2.2.2); None means absent. Which packet may carry which, wire checks."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: list[int] | None = None
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: list[tuple[str, str]] | None = None
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


class Packet:
    """Base of all control packets."""


@dataclass
class Will:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


@dataclass
class Connect(Packet):
    client_id: str = ""
    version: int = V311
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)  # which must not be logged by chance
    will: Will | None = None
    properties: Properties | None = None
    bridge: bool = False
    """The level's highest bit, by which bridges of Mosquitto make themselves known; not part of the standard."""


@dataclass
class Connack(Packet):
    session_present: bool = False
    reason: int = 0
    properties: Properties | None = None


@dataclass
class Publish(Packet):
    """`packet_id` is 0 exactly when `qos` is 0. `topic` may be "" in 5.0 when a topic alias stands for it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties | None = None


@dataclass
class Puback(Packet):
    packet_id: int
    reason: int = 0
    properties: Properties | None = None


@dataclass
class Pubrec(Packet):
    packet_id: int
    reason: int = 0
    properties: Properties | None = None


@dataclass
class Pubrel(Packet):
    packet_id: int
    reason: int = 0
    properties: Properties | None = None


@dataclass
class Pubcomp(Packet):
    packet_id: int
    reason: int = 0
    properties: Properties | None = None


@dataclass
class SubscribeRequest:
    """One entry of a SUBSCRIBE: a topic filter as written (`$share/…` included) and its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass
class Subscribe(Packet):
    packet_id: int
    requests: list[SubscribeRequest] = field(default_factory=list)
    properties: Properties | None = None


@dataclass
class Suback(Packet):
    packet_id: int
    reasons: list[int] = field(default_factory=list)
    properties: Properties | None = None


@dataclass
class Unsubscribe(Packet):
    packet_id: int
    filters: list[str] = field(default_factory=list)
    properties: Properties | None = None


@dataclass
class Unsuback(Packet):
    """In 3.1.1 `reasons` is empty."""

    packet_id: int
    reasons: list[int] = field(default_factory=list)
    properties: Properties | None = None


@dataclass
class Pingreq(Packet):
    pass


@dataclass
class Pingresp(Packet):
    pass


@dataclass
class Disconnect(Packet):
    reason: int = 0
    properties: Properties | None = None


@dataclass
class Auth(Packet):
    reason: int = 0
    properties: Properties | None = None
