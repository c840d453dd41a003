"""One connection's protocol state, seen from the server.

Theory. A connection goes through these states; a packet that has no entry in its row breaks the protocol
[MQTT-3.1.0-1, 3.1.0-2, 4.12.0-1 …]:

    state            may receive                                              leaves it by
    NEW              CONNECT                                                  CONNECT
    AUTHENTICATING   AUTH, DISCONNECT                                         AUTH exchange ends
    CONNECTED        everything a client sends but CONNECT                    DISCONNECT, error, loss
    CLOSING          nothing is looked at any more                            the socket is gone

What a connection knows and its session does not: protocol version, topic aliases, the limits that the client stated.
Time is an argument and bytes leave by `write`, which the node provides; here is no I/O.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import Delivery, text_size
from headwater.session.report_grant import ReportGrant
from headwater.session.session import Session
from headwater.session.translate import publish_properties
from headwater.wire.encode import encode
from headwater.wire.errors import MisplacedPacketError, RemoteProtocolError
from headwater.wire.packets import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    Connect,
    Packet,
    Properties,
    Publish,
)
from headwater.wire.reasons import PROTOCOL_ERROR, QUOTA_EXCEEDED, TOPIC_ALIAS_INVALID

NEW: Final = 0
AUTHENTICATING: Final = 1
CONNECTED: Final = 2
CLOSING: Final = 3

MAY_RECEIVE: Final[dict[int, frozenset[int]]] = {
    NEW: frozenset({CONNECT}),
    AUTHENTICATING: frozenset({AUTH, DISCONNECT}),
    CONNECTED: frozenset({PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH}),
    CLOSING: frozenset(),
}

ALIAS_SIZE: Final = 160
"""Bytes of a topic alias beside its topic."""
UNKNOWN: Final = 0
MAX_RECEIVE: Final = 65535


def alias_size(topic: str) -> int:
    return ALIAS_SIZE + text_size(topic)


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    def __init__(self) -> None:
        self.state = NEW
        self.version = UNKNOWN
        self.session: Session | None = None
        self.client_id = ""
        self.username: str | None = None
        self.keep_alive = 0
        self.of_31 = False
        """Of MQTT 3.1, where not only PUBLISH may be marked as sent again."""
        self.bridge = False
        """Another broker's: it gets nothing back that it sent, and sees which messages were retained."""
        self.receive_maximum = MAX_RECEIVE
        self.max_packet_out = 0
        self.wants_problem_information = True
        self.authentication_method: str | None = None
        self.challenged = False
        self.pending_connect: Connect | None = None
        self.aliases_in: dict[int, str] | None = None
        self.alias_limit_in = 0
        self.aliases_out: dict[str, int] | None = None
        self.alias_limit_out = 0
        self.report_grant: ReportGrant | None = None

    def write(self, data: bytes) -> None:
        """Send these bytes after all that were written before."""
        raise RuntimeError("a connection without a way out")

    def keep_alias(self, size: int, forced: bool) -> bool:
        """Count so many bytes more for topic aliases; False: there is no room. `forced`: whether there is or not."""
        return True

    def check_allowed(self, packet_type: int) -> None:
        """Raise unless this packet may come in this state."""
        if packet_type not in MAY_RECEIVE[self.state]:
            raise MisplacedPacketError(f"a packet of type {packet_type} may not come here")

    def learn(self, packet: Connect) -> None:
        """Take over what CONNECT says about this connection."""
        self.version = V311 if packet.version == V31 else packet.version
        self.of_31 = packet.version == V31
        self.bridge = packet.bridge
        self.client_id = packet.client_id
        self.username = packet.username
        self.keep_alive = packet.keep_alive
        properties = packet.properties
        if properties is None:
            return
        self.receive_maximum = properties.receive_maximum or MAX_RECEIVE
        self.max_packet_out = properties.maximum_packet_size or 0
        self.alias_limit_out = properties.topic_alias_maximum or 0
        self.wants_problem_information = properties.request_problem_information != 0
        self.authentication_method = properties.authentication_method

    def send(self, packet: Packet) -> int:
        """Send a packet unless it is larger than the client takes [MQTT-3.1.2-24]; its size, or 0 if it did not go."""
        data = encode(packet, self.version)
        if self.max_packet_out and len(data) > self.max_packet_out:
            return 0
        self.write(data)
        return len(data)

    def problem(self, text: str) -> Properties | None:
        """A reason string, for clients that want one [MQTT-3.1.2-29]."""
        if self.version != V5 or not self.wants_problem_information or not text:
            return None
        return Properties(reason_string=text)

    def topic_of(self, packet: Publish) -> str:
        """The topic of a received PUBLISH, its alias resolved or learnt [MQTT-3.3.2-7 … 3.3.2-12]."""
        properties = packet.properties
        alias = None if properties is None else properties.topic_alias
        if alias is None:
            return packet.topic
        if alias > self.alias_limit_in:
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, f"topic alias {alias} is above {self.alias_limit_in}")
        if self.aliases_in is None:
            self.aliases_in = {}
        if packet.topic:
            old = self.aliases_in.get(alias)
            if old != packet.topic:
                size = alias_size(packet.topic) - (0 if old is None else alias_size(old))
                if not self.keep_alias(size, False):
                    raise RemoteProtocolError(QUOTA_EXCEEDED, "no memory for more topic aliases")
                self.aliases_in[alias] = packet.topic
            return packet.topic
        topic = self.aliases_in.get(alias)
        if topic is None:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"topic alias {alias} was never set")
        return topic

    def publish_packet(self, delivery: Delivery, packet_id: int, dup: bool, now: float) -> Publish:
        """A message as this client gets it. A topic that was sent before is replaced by its alias; aliases go to the
        first topics, as many as the client granted. Call `published` once the packet is sent."""
        message = delivery.message
        packet = Publish(message.topic, message.payload, delivery.qos, delivery.retain, dup, packet_id)
        if self.version == V5:
            packet.properties = publish_properties(delivery, now)
            if self.alias_limit_out:
                self._use_alias(packet)
        return packet

    def has_room_for_alias(self, topic: str) -> bool:
        """Whether an alias of ours for this topic could be kept; without it the topic goes as it is."""
        return True

    def _use_alias(self, packet: Publish) -> None:
        if self.aliases_out is None:
            self.aliases_out = {}
        alias = self.aliases_out.get(packet.topic, 0)
        if alias:
            packet.topic = ""
        elif len(self.aliases_out) < self.alias_limit_out and self.has_room_for_alias(packet.topic):
            alias = len(self.aliases_out) + 1
        else:
            return
        if packet.properties is None:
            packet.properties = Properties()
        packet.properties.topic_alias = alias

    def published(self, packet: Publish, topic: str) -> None:
        """The client has now seen this packet's alias."""
        if self.aliases_out is not None and packet.properties is not None and packet.properties.topic_alias:
            if topic not in self.aliases_out:
                self.keep_alias(alias_size(topic), True)
            self.aliases_out[topic] = packet.properties.topic_alias
