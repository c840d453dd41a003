"""The ordinary way of every packet, and the life of a channel from accept to close.

What the packets mean is next door: `connecting` (CONNECT, AUTH, DISCONNECT, sessions), `ending` (their end, wills),
`publishing` (PUBLISH and its acknowledgements), `subscribing` (SUBSCRIBE, UNSUBSCRIBE, retained). This file gives them
packets, sends deliveries to sessions, and ends connections.
"""

from __future__ import annotations

import logging
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.message import Subscription
from headwater.node.access.access import Access
from headwater.node.config import Config
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.delivery.storing import ConditionalStoring, Storing
from headwater.node.hooks import Hooks
from headwater.node.persistence.journal import Journal
from headwater.node.plane.channel import Channel, Entrance
from headwater.node.protocol.admission import Admission
from headwater.node.protocol.attaching import Attaching
from headwater.node.protocol.connecting import Connecting
from headwater.node.protocol.deciding import Deciding
from headwater.node.protocol.delivering import Delivering
from headwater.node.protocol.ending import Ending
from headwater.node.protocol.flow import Flow
from headwater.node.protocol.granting import Granting
from headwater.node.protocol.publisher_waits import PublisherWaits
from headwater.node.protocol.publishing import Publishing
from headwater.node.protocol.reporting import Reporting
from headwater.node.protocol.retained_sender import RetainedSender
from headwater.node.protocol.sampling import Sampling
from headwater.node.protocol.sharing import Sharing
from headwater.node.protocol.strangers import Strangers
from headwater.node.protocol.subscribing import Subscribing
from headwater.node.protocol.weights import Weights
from headwater.routing.conditions.condition import condition_of
from headwater.session.connection import CLOSING, CONNECTED, NEW, alias_size
from headwater.wire.decode import FROM_CLIENT, UnsupportedVersionError, decode
from headwater.wire.errors import MisplacedPacketError, RemoteProtocolError
from headwater.wire.packets import (
    CONNECT,
    PINGREQ,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Properties,
)
from headwater.wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    KEEP_ALIVE_TIMEOUT,
    SUCCESS,
    UNSPECIFIED_ERROR,
)
from headwater.wire.status import PINGREQ_BYTE

if TYPE_CHECKING:
    from headwater.node.advice.advising import Advising

log = logging.getLogger("headwater.server")

LINGER: Final = 1.0
"""Seconds in which a client may still read our last words before its socket is closed."""
LONG_LIST: Final = 1024
"""Bytes of topic filters from which on they are decoded in pieces."""
LONG_CONNECT: Final = 16384
"""Bytes of a CONNECT from which on it may be dealt with in pieces."""
DUP: Final = 0x08
V5_CONNECT: Final = b"\x00\x04MQTT\x05"


class Server(Flow):
    def __init__(self, config: Config, hooks: Hooks) -> None:
        super().__init__(config, hooks)
        hot = self.hot
        hot.max_connect_size = min(config.max_connect_size, config.max_packet_size)
        hot.outbound_buffer = config.outbound_buffer
        hot.takes_qos1 = config.max_qos > 0
        hot.properties.most_pairs = config.max_user_properties
        hot.fanouts.max_topic_length = config.max_topic_length
        hot.fanouts.max_topic_levels = config.max_topic_levels
        self.leaving: set[Channel] = set()
        self.most_sockets = 1 << 62
        """Sockets at a time for which the process has files, whatever the settings say."""
        self.strangers = Strangers(self)
        self.deciding = Deciding()
        self.reporting = Reporting(self)
        self.sampling = Sampling(self)
        access = self.access = Access(self, config.access)
        delivering = self.delivering = Delivering(self)
        sharing = self.sharing = Sharing(self, delivering)
        self.retained_sender = RetainedSender(self, delivering, access.rights.may_still_publish)
        delivering.sharing = sharing
        delivering.retained_sender = self.retained_sender
        hot.delivering = delivering
        hot.sharing = sharing
        self.admission = Admission(self, access)
        self.publisher_waits = PublisherWaits(self, self.admission)
        self.publishing = Publishing(self, access, self.admission, self.publisher_waits, delivering)
        self.publisher_waits.publishing = self.publishing
        self.subscribing = Subscribing(self, access, self.retained_sender, sharing)
        access.subscribing = self.subscribing
        self.ending = Ending(self, access, self.admission, delivering, self.publishing, sharing, self.subscribing)
        self.attaching = Attaching(
            *(self, access, self.deciding, self.ending, self.reporting),
            *(self.retained_sender, sharing, self.strangers),
        )
        self.connecting = Connecting(
            *(self, access, self.attaching, self.deciding, delivering, self.ending),
            *(Granting(self, self.reporting), sharing),
        )
        self.advising: Advising | None = None
        self.router.groups.watcher = self.sampling
        if config.shared_weights:
            self.router.groups.weight_of = Weights(config.shared_weights).of

    def keep_in(self, journal: Journal) -> None:
        """From now on, what has to outlive the process goes there too."""
        self.journal = self.hot.journal = self.delivering.journal = journal

    def store_by(self, coordinator: Coordinator) -> None:
        """From now on, messages go to the delivery store first; there has to be a journal."""
        assert self.journal is not None
        self.coordinator = self.hot.coordinator = self.journal.coordinator = coordinator
        coordinator.kept_up = self.store_keeps_up
        coordinator.removed = partial(self.hot.fanouts.forget, "#")
        self.hot.fanouts.store = self._storing(self.journal, coordinator)
        self.hot.fanouts.forget("#")
        self.hot.properties.positions_are_ours = True
        self.hot.properties.blocks.clear()

    def _storing(self, journal: Journal, coordinator: Coordinator) -> Storing:
        text = self.config.store.condition
        if not text:
            return Storing(self.hot, journal, coordinator, self.hot.properties)
        condition = Subscription("#")
        condition.condition = condition_of(text)
        self.conditions.adopt(condition)
        return ConditionalStoring(self.hot, journal, coordinator, self.hot.properties, condition)

    # ---- packets -----------------------------------------------------------------------------------------------

    def packet(self, channel: Channel, first_byte: int, body: bytes) -> None:
        if channel.peer is not None:  # it counts what is a message, and not what nodes tell each other
            channel.peer.packet(first_byte, body)
            return
        self.stats.received += 1
        kind = first_byte >> 4
        channel.check_allowed(kind)
        if kind == CONNECT and body.startswith(V5_CONNECT):
            channel.version = V5  # so that even a CONNECT that is wrong further on is answered in its own version
        grant = channel.report_grant
        if first_byte == PINGREQ_BYTE and body and grant is not None:
            self.reporting.packet(channel, grant, body)
            return
        if channel.of_31 and kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE):
            first_byte &= ~DUP
        hooks = self.hooks
        if kind in (SUBSCRIBE, UNSUBSCRIBE) and len(body) > LONG_LIST and not hooks.slow:
            self.subscribing.long_packet(channel, first_byte, body)
            return
        packet = decode(first_byte, body, channel.version, FROM_CLIENT, self.hot.properties.most_pairs)
        if hooks.slow:
            packet = hooks.transform("packet_read", packet, channel)
        if kind == PINGREQ:
            self.send(channel, Pingresp())
        elif len(body) > LONG_CONNECT and isinstance(packet, Connect) and time.monotonic() > self.hot.until:
            self.connecting.connect_later(channel, packet)
        elif not (
            self.publishing.packet(channel, packet)
            or self.subscribing.packet(channel, packet)
            or self.connecting.packet(channel, packet)
        ):
            raise RuntimeError(f"nobody deals with {packet!r}")
        if hooks.slow:
            hooks.tell("packet_processed", channel, packet)

    def send(self, channel: Channel, packet: Packet) -> int:
        """Send a packet; its size, or 0 when the client does not take packets of its size."""
        hooks = self.hooks
        if hooks.slow:
            packet = hooks.transform("packet_encode", packet, channel)
        size = channel.send(packet)
        if size:
            self.stats.sent += 1
            if hooks.slow:
                hooks.tell("packet_sent", channel, packet)
        return size

    def failed(self, channel: Channel, error: RemoteProtocolError) -> None:
        if channel.peer is not None:
            channel.peer.failed(error.text)
            return
        self.stats.protocol_errors += 1
        log.info("%r (%s) broke the protocol: %s", channel.client_id, channel.address, error.text)
        if channel.state != CONNECTED:
            if isinstance(error, UnsupportedVersionError):
                self._refuse_version(channel, error)
            elif channel.version and not self.config.terse:
                self.connecting.refuse(channel, error.reason, error.text)
        elif self.config.terse and isinstance(error, MisplacedPacketError):
            self.close(channel, error.reason, with_will=True)
        self.disconnect(channel, error.reason, error.text)

    def _refuse_version(self, channel: Channel, error: UnsupportedVersionError) -> None:
        """[MQTT-3.1.2-2] 3.1 is refused the way it understands, versions to come the way of 5.0, others by silence."""
        # A level with the highest bit is that of a bridge of Mosquitto: told in 3.1.1, it comes back without it.
        if V5 < error.level < 0x80 and error.protocol_name == "MQTT":
            channel.version = V5
            channel.send(Connack(False, error.reason))
        elif error.protocol_name in ("MQTT", "MQIsdp"):
            channel.write(b"\x20\x02\x00\x01")

    def crashed(self, channel: Channel) -> None:
        self.stats.failures += 1
        log.exception("dealing with a packet of %r (%s) failed", channel.client_id, channel.address)
        if channel.peer is not None:
            channel.peer.failed("the server failed to deal with a frame")
            return
        try:
            self.disconnect(channel, IMPLEMENTATION_SPECIFIC_ERROR, "the server failed to deal with a packet")
            if channel.finishing:
                return
        except Exception:
            log.exception("ending the connection of %r (%s) failed", channel.client_id, channel.address)
        self.lost(channel)

    # ---- channels ----------------------------------------------------------------------------------------------

    def accept(self, connection: socket.socket, address: str, loopback: bool, entrance: Entrance | None = None) -> None:
        """Serve a new socket, that came in by this entrance; None: a plain one, to which nothing special applies."""
        is_full = len(self.channels) >= min(self.config.max_connections + 64, self.most_sockets)
        if self.stopping or (is_full and not self.strangers.give_way()):
            connection.close()
            return
        channel = Channel(self.hot, connection.fileno(), connection.recv, connection.send)
        channel.socket = connection
        channel.over_tcp = isinstance(connection, socket.socket) and connection.family in (
            socket.AF_INET,
            socket.AF_INET6,
        )
        channel.address = address
        channel.loopback = loopback
        channel.allow_anonymous = self.config.allow_anonymous
        channel.max_qos = self.config.max_qos
        if entrance is not None:
            if not entrance.admit(channel):
                connection.close()
                return
            channel.entrance = entrance
            entrance.connections += 1
        self.channels.add(channel)
        self.stats.sockets_opened += 1
        self.plane.add(channel)
        self.strangers.came(channel)
        if channel.fd < 0:
            return  # there is no room for it
        channel.timer = self.timers.at(self.hot.now + self.config.connect_timeout, partial(self._no_connect, channel))

    def _no_connect(self, channel: Channel) -> None:
        if channel.state != CONNECTED:
            log.info("%s sent no CONNECT in time", channel.address)
            self.disconnect(channel, UNSPECIFIED_ERROR)

    def watch_keep_alive(self, channel: Channel) -> None:
        """[MQTT-3.1.2-22] One and a half times the keep alive without a packet ends the connection."""
        if channel.timer is not None:
            self.timers.cancel(channel.timer)
            channel.timer = None
        if channel.keep_alive:
            when = channel.last_seen + 1.5 * channel.keep_alive
            channel.timer = self.timers.at(when, partial(self._check_keep_alive, channel))

    def _check_keep_alive(self, channel: Channel) -> None:
        if channel.state != CONNECTED:
            return
        if channel.congested or channel.paused:
            channel.last_seen = self.hot.now  # we do not read from it; the write time-out decides
        if self.hot.now >= channel.last_seen + 1.5 * channel.keep_alive:
            self.disconnect(channel, KEEP_ALIVE_TIMEOUT)
        else:
            self.watch_keep_alive(channel)

    def disconnect(self, channel: Channel, reason: int, text: str = "", server_reference: str | None = None) -> None:
        """End a connection from our side: DISCONNECT for those who understand it, will included."""
        if channel.state == CLOSING:
            return
        if channel.state == CONNECTED and channel.version == V5:
            properties = channel.problem(text)
            if server_reference:
                properties = properties or Properties()
                properties.server_reference = server_reference
            if not self.send(channel, Disconnect(reason, properties)):
                self.send(channel, Disconnect(reason))
        self.close(channel, reason, with_will=True)

    def disconnect_soon(
        self, channel: Channel, reason: int, text: str = "", server_reference: str | None = None
    ) -> None:
        """`disconnect` at the end of this turn: whoever is in the middle of a delivery, or of a packet of this client,
        finds the session as it was. Only the first reason counts."""
        if channel not in self.leaving:
            self.leaving.add(channel)
            self.timers.at(self.hot.now, partial(self._leave, channel, reason, text, server_reference))

    def _leave(self, channel: Channel, reason: int, text: str, server_reference: str | None) -> None:
        self.leaving.discard(channel)
        self.disconnect(channel, reason, text, server_reference)

    def close(self, channel: Channel, reason: int, with_will: bool, linger: bool = True) -> None:
        """The protocol has ended: part from the session, let the client read what we sent (`linger`), then close."""
        if channel.state == CLOSING:
            return
        if channel.peer is not None:
            self.lost(channel)
            return
        if self.hot.open:
            self.hot.settle_all()  # what came before the end is counted as sent, queued or dropped
        was_connected = channel.state != NEW
        channel.state = CLOSING
        channel.fast = False
        self.attaching.detach(channel, with_will)
        if was_connected:
            self.hooks.tell("disconnect", channel, reason)
        if channel.fd < 0:
            return
        if self.hot.open:
            self.hot.settle_all()  # a will, say
        self.hot.transmit(channel)
        channel.finishing = True
        self.hot.discard_partial(channel)
        if channel.timer is not None:
            self.timers.cancel(channel.timer)
        if channel.fd < 0:
            return
        if not linger and channel.backlog_size == 0 and channel.transport is None:
            self.lost(channel)  # TLS and WebSocket have words of their own to end with, which are waited for
            return
        channel.timer = self.timers.at(self.hot.now + LINGER, partial(self.lost, channel))
        if channel.backlog_size == 0 and channel.withheld is None:
            self.shut(channel)

    def shut(self, channel: Channel) -> None:
        """Say that nothing more comes. Closing at once could destroy what the client has not read yet."""
        assert channel.socket is not None
        try:
            if channel.transport is not None:
                channel.transport.end()
            channel.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.lost(channel)

    def lost(self, channel: Channel) -> None:
        if channel.fd < 0:
            return
        fd = channel.fd
        peer = channel.peer
        if peer is not None:
            channel.state = CLOSING
        if channel.state != CLOSING:
            channel.out.clear()
            channel.fd = -1  # nothing can be sent any more
            try:
                self.close(channel, SUCCESS, with_will=True)
            finally:
                channel.fd = fd
        self.hot.discard_partial(channel)
        self.strangers.left(channel)
        self.plane.remove(channel)
        channel.fd = -1
        channel.out.clear()
        self.budget.used -= channel.backlog_size
        self.budget.sockets -= channel.backlog_size
        channel.backlog_size = 0
        channel.backlog = None
        self.budget.used -= channel.withheld_size
        channel.withheld_size = 0
        channel.withheld = None
        channel.pending = None
        if channel.timer is not None:
            self.timers.cancel(channel.timer)
            channel.timer = None
        stall = self.stalls.pop(channel, None)
        if stall is not None:
            self.timers.cancel(stall)
        if channel.transport is not None:
            channel.transport.end()
            channel.transport = None
        if channel.socket is not None:
            channel.socket.close()
        if channel.entrance is not None:
            channel.entrance.connections -= 1
            # Layers know their channel: without them, both go now and not when the garbage collector comes.
            channel.recv = _recv_nothing
            channel.send_bytes = _send_nothing
        self.channels.discard(channel)
        if peer is not None:
            peer.lost()
            channel.peer = None  # which knows the channel: without it, both go now

    def keeps(self, channel: Channel, size: int) -> bool:
        return self.strangers.keeps(channel, size)

    def keeps_alias(self, channel: Channel, size: int, forced: bool) -> bool:
        session = channel.session
        assert session is not None
        quotas = self.access.quotas
        if not forced and not quotas.has_room(session.username, size):
            return False
        quotas.count(session, size)
        channel.alias_bytes += size
        return True

    def has_room_for_alias(self, channel: Channel, topic: str) -> bool:
        return self.access.quotas.has_room(channel.username, alias_size(topic))

    def metered(self, channel: Channel, size: int, messages: int) -> None:
        if channel.state == CONNECTED:
            self.access.used(channel, size, messages)


def _recv_nothing(size: int) -> bytes:
    return b""


def _send_nothing(data: bytes) -> int:
    raise ConnectionAbortedError
