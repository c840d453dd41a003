"""One connection of the own client with the home broker, from CONNECT to its end.

    CONNECT -> CONNACK -> up: what the broker sends on the own subscriptions comes in, what is for `$home` goes out

MQTT is symmetric but for CONNECT, SUBSCRIBE and PING, so once CONNACK is there the channel is that of an ordinary
session, and the hot path serves it. What a client never sends (SUBACK, PINGRESP, a server's DISCONNECT) and what has to
be looked at (QoS 2, retained messages, echoes) comes to `packet`.

*Nobody waits in a ring.* A node that does not read from its home broker because a spool is full would not see that
broker's acknowledgements either, and what other nodes send here would stop: two such nodes would wait for each other.
So a PUBLISH of QoS 1 or 2 that finds no room is kept, unacknowledged, and the rest is read: the broker sends no more of
them than its window has.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.message import text_size
from headwater.node.plane.channel import STORING, Peer
from headwater.node.proxy.channel import HomeChannel, key_of, without_mark
from headwater.node.proxy.suspects import OF_A_MESSAGE, Trial
from headwater.session.connection import CONNECTED, MAX_RECEIVE
from headwater.session.outbound import Flight
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from headwater.wire.primitives import ANY_NUMBER
from headwater.wire.reasons import PROTOCOL_ERROR, SUCCESS

if TYPE_CHECKING:
    from headwater.node.proxy.client import OwnClient
    from headwater.session.session import Session

log = logging.getLogger("headwater.proxy")

GREETING: Final = 0
UP: Final = 1
CLOSED: Final = 2
LARGEST_PACKET: Final = 268_435_460
SOME: Final = 16
MOST_IN_FLIGHT: Final = 60_000
"""Messages, so that there is a packet id for SUBSCRIBE."""
MOST_HELD: Final = 8 << 20
"""Bytes of messages that found no room: with more, the home broker is not read from until there is some."""
HELD: Final = 1024
"""Bytes that one of these takes beside its topic and payload, about."""
STEADY: Final = 2.0
"""Seconds after which a connection is taken for one that lasts."""
REPLACED: Final = "replaced by a new connection"


class HomeConnection(Peer):
    def __init__(self, home: OwnClient, channel: HomeChannel, connect: Connect) -> None:
        self.home = home
        self.channel = channel
        self.connect = connect
        self.phase = GREETING
        self.why = ""
        self.granted_qos = 2
        self.held: deque[Publish] = deque()
        self._held_bytes = 0
        self._reserved: list[int] = []
        self._trial: Trial | None = None
        self._up_at = 0.0
        self._is_ended_here = False
        self._has_progress = False
        channel.peer = self
        channel.version = connect.version
        channel.client_id = connect.client_id
        channel.state = CONNECTED
        channel.known = True
        channel.max_in = channel.max_unseen = LARGEST_PACKET
        self.write(connect)

    # ---- what comes ----------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        home = self.home
        stats = home.server.stats
        before = stats.messages_received
        home.server.hot.feed_from(self.channel, data, home.fanouts)
        home.messages_caught += stats.messages_received - before
        if self._trial is not None:
            self._trial.look()

    def packet(self, first_byte: int, body: bytes) -> None:
        """Raises RemoteProtocolError."""
        server = self.home.server
        server.stats.received += 1
        packet = decode(first_byte, body, self.channel.version, FROM_SERVER, ANY_NUMBER)
        if self.phase == GREETING:
            if not isinstance(packet, Connack):
                raise RemoteProtocolError(PROTOCOL_ERROR, "the first packet is not a CONNACK")
            self._answered(packet)
        elif isinstance(packet, Publish):
            self._publish(packet)
        elif isinstance(packet, Pingresp):
            self.home.is_alive()
        elif isinstance(packet, (Suback, Unsuback)):
            self._release(packet.packet_id)
            self.home.subscribed(packet)
        elif isinstance(packet, Disconnect):
            self.close(f"the home broker says good-bye (0x{packet.reason:02X})", packet.reason not in OF_A_MESSAGE)
        elif isinstance(packet, (Puback, Pubrec, Pubrel, Pubcomp)):
            if isinstance(packet, (Puback, Pubrec)) and packet.reason >= 0x80:
                self.home.refused(packet.reason)
            if self.channel.session is not None:
                server.publishing.packet(self.channel, packet)
            elif isinstance(packet, Pubrel):  # of a probe, which some brokers bring with the QoS of the subscription
                self.write(Pubcomp(packet.packet_id))
        else:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"a {type(packet).__name__} out of place")

    def _answered(self, packet: Connack) -> None:
        if packet.reason != SUCCESS:
            self.home.refuses(self, packet.reason)
            self.close(f"refused with 0x{packet.reason:02X}")
            return
        channel = self.channel
        properties = packet.properties
        window = MAX_RECEIVE
        if properties is not None:
            window = properties.receive_maximum or MAX_RECEIVE
            channel.max_packet_out = properties.maximum_packet_size or 0
            self.granted_qos = 2 if properties.maximum_qos is None else properties.maximum_qos
            if properties.assigned_client_identifier:
                channel.client_id = properties.assigned_client_identifier
        channel.receive_maximum = window
        self.phase = UP
        self._up_at = self.home.server.hot.now
        self.home.connected(self, packet.session_present)

    def attach(self, done: Callable[[], None]) -> None:
        """The channel is the session's: what waits goes out. `done` is called when nothing is suspected any more."""
        home, channel = self.home, self.channel
        server, session = home.server, home.session
        session.connection = channel
        channel.session = session
        window = min(channel.receive_maximum, server.config.max_inflight, MOST_IN_FLIGHT)
        if home.suspects.is_due:
            self._trial = Trial(server, channel, session, done)
            self._trial.begin(window, self._reserved)
        else:
            session.outbound.connected(window)
        server.presence_changed(session, True)
        self.choose_way()
        if self._trial is None:
            server.delivering.resend(channel, session, self._resume(session))
        server.delivering.drain(channel)
        if self._trial is None:
            done()

    def _resume(self, session: Session) -> list[int]:
        """Without ids that are only reserved: a SUBSCRIBE or UNSUBSCRIBE may not be answered yet."""
        flights = session.outbound.flights
        reserved = {packet_id: flights.pop(packet_id) for packet_id in self._reserved}
        found = session.outbound.resume(SOME)
        flights.update(reserved)
        return found

    def choose_way(self) -> None:
        """Whether what comes may go by the hot path, or each message has to be looked at."""
        channel = self.channel
        channel.fast = channel.session is not None and channel.echoes is None and not (self.home.copies or self.held)

    # ---- PUBLISH -------------------------------------------------------------------------------------------------

    def _publish(self, packet: Publish) -> None:
        home, channel = self.home, self.channel
        server, session = home.server, home.session
        server.stats.messages_received += 1
        if packet.qos == 2 and packet.packet_id in session.received:
            server.send(channel, Pubrec(packet.packet_id))
            server.promise(channel)
        elif home.is_own(packet):
            server.publishing.acknowledge(channel, session, packet, SUCCESS)
        elif packet.qos and (self.held or not self._has_room(packet.topic)):
            self._hold(packet)
        else:
            self._take(packet)

    def _take(self, packet: Publish) -> None:
        home, channel = self.home, self.channel
        server, session = home.server, home.session
        echoes = channel.echoes
        copies = home.copies
        if copies is not None and copies.is_copy(packet.topic, packet.payload, packet.qos):
            home.copied += 1
        elif echoes is not None and echoes.swallows(key_of(packet, packet.topic), server.hot.now, packet.dup):
            home.swallowed += 1
        else:
            message = message_of(packet, channel.client_id, server.hot.now)
            if channel.mark:
                message.user_properties = without_mark(message.user_properties)
            home.came(message)
        server.publishing.acknowledge(channel, session, packet, SUCCESS)

    def _has_room(self, topic: str) -> bool:
        return all(each.has_room(None) for each in self.home.fanouts.of(topic).destinations)

    def _hold(self, packet: Publish) -> None:
        self.held.append(packet)
        self._held_bytes += _size(packet)
        self.choose_way()  # nothing may overtake it
        self.home.try_held_soon()
        if self._held_bytes > MOST_HELD and not self.channel.paused & STORING:
            self.home.server.pause(self.channel, STORING)

    def take_held(self) -> None:
        """As many as there is room for, in their order."""
        home = self.home
        hot = home.server.hot
        hot.fanouts = home.fanouts
        try:
            while self.held and self._has_room(self.held[0].topic):
                packet = self.held.popleft()
                self._held_bytes -= _size(packet)
                self._take(packet)
        finally:
            hot.fanouts = hot.own_fanouts
        self.choose_way()
        if self.held:
            home.try_held_soon()
        elif self.channel.paused & STORING:
            home.server.resume(self.channel, STORING)

    # ---- what goes -----------------------------------------------------------------------------------------------

    def write(self, packet: Packet) -> None:
        self.channel.write(encode(packet, self.channel.version))

    def reserve(self) -> int:
        """A packet id for SUBSCRIBE or UNSUBSCRIBE, which no PUBLISH has until it is acknowledged [MQTT-2.2.1-3]."""
        outbound = self.home.session.outbound
        packet_id = outbound.take_id()
        outbound.flights[packet_id] = Flight(0, None, b"", b"", 0, 0)
        self._reserved.append(packet_id)
        return packet_id

    def _release(self, packet_id: int) -> None:
        if packet_id not in self._reserved:
            raise RemoteProtocolError(PROTOCOL_ERROR, "an acknowledgement of what was not asked")
        self._reserved.remove(packet_id)
        del self.home.session.outbound.flights[packet_id]

    def ping(self) -> None:
        self.write(Pingreq())

    # ---- the plane -----------------------------------------------------------------------------------------------

    def postponed(self) -> None:
        self.home.server.read_on_later(self.channel)

    def written(self) -> None:
        self.home.server.delivering.drain(self.channel)

    # ---- the end -------------------------------------------------------------------------------------------------

    def failed(self, why: str) -> None:
        log.warning("the home broker broke the protocol: %s", why)
        self.close(why)

    @property
    def is_steady(self) -> bool:
        """Whether it was of use, so that the next one need not wait for long."""
        return self._has_progress or self.home.server.hot.now >= self._up_at + STEADY

    def close(self, why: str, is_ended_here: bool = True) -> None:
        """Send what is written, if the socket takes it, and end."""
        if self.phase != CLOSED:
            self._is_ended_here = is_ended_here
            self.why = self.why or why
            server = self.home.server
            if self.channel.fd >= 0:
                server.hot.transmit(self.channel)
            if self.channel.fd >= 0:
                server.lost(self.channel)
            self.lost()

    def good_bye(self) -> None:
        if self.channel.version == V5:
            self.write(Disconnect(SUCCESS))
        else:
            self.write(Disconnect())

    def lost(self) -> None:
        if self.phase == CLOSED:
            return
        was_up = self.phase == UP
        self.phase = CLOSED
        home, channel = self.home, self.channel
        session = home.session
        for packet_id in self._reserved:
            session.outbound.flights.pop(packet_id, None)
        self.held.clear()
        if session.connection is channel:
            session.connection = None
            channel.session = None
            session.outbound.disconnected()
            home.server.presence_changed(session, False)
            self._look_for_suspects()
        home.disconnected(self, was_up)

    def _look_for_suspects(self) -> None:
        trial, suspects = self._trial, self.home.suspects
        if trial is not None:
            self._has_progress = trial.acknowledged > 0
        if self._is_ended_here:
            suspects.forget()
        elif suspects.ended(trial):
            self._has_progress = True
        if trial is not None:
            trial.stop()


def _size(packet: Publish) -> int:
    return HELD + text_size(packet.topic) + len(packet.payload)
