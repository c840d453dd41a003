"""Reads retained messages of the home broker, over a connection of its own.

That connection has a session of its own and asks for these filters alone, so a PUBLISH with the retain flag is a
message that was retained when it subscribed, and nothing else [MQTT-3.3.1-8, 3.3.1-9]: on the own client's connection,
which asks for the flag as published, it could be a new one.

When have all come? PINGREQs go behind the acknowledgements: when an answer comes and nothing since the question, twice
with a pause in between, there is nothing more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.message import Message
from headwater.node.plane.channel import Peer
from headwater.node.proxy.channel import HomeChannel
from headwater.session.connection import CONNECTED
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.framing import PacketReader
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
    Subscribe,
    SubscribeRequest,
)
from headwater.wire.primitives import ANY_NUMBER
from headwater.wire.reasons import SUCCESS

if TYPE_CHECKING:
    from headwater.node.proxy.client import OwnClient

log = logging.getLogger("headwater.proxy")

QUIET: Final = 0.2
"""Seconds between the two looks."""
LOOKS: Final = 2
KEEP_ALIVE: Final = 60
PATIENCE: Final = 10.0
"""Seconds without anything after which the rest is not waited for."""
REFUSED: Final = 0x80

Found = Callable[[Message], None]
Done = Callable[[str], None]


class Reader(Peer):
    """`found` is told of each, `done` of the end, once: why it failed, "" if it did not."""

    def __init__(
        self, home: OwnClient, channel: HomeChannel, connect: Connect, filters: list[str], found: Found, done: Done
    ) -> None:
        self._home = home
        self._filters = filters
        self._channel = channel
        self._found = found
        self._done: Done | None = done
        self._version = connect.version
        self._packets = PacketReader()
        self._came = 0
        self._asked_at = 0
        self._looks = 0
        self._heard_at = home.server.hot.now
        channel.peer = self
        channel.version = connect.version
        channel.state = CONNECTED
        channel.known = True
        self._write(connect)
        self._timer = home.server.timers.at(home.server.hot.now + PATIENCE, self._look_at_time)

    def feed(self, data: bytes) -> None:
        self._heard_at = self._home.server.hot.now
        self._packets.feed(data)
        try:
            for first_byte, body in self._packets:
                if self._done is None:
                    return
                self._packet(decode(first_byte, body, self._version, FROM_SERVER, ANY_NUMBER))
        except RemoteProtocolError as error:
            self.failed(error.text)

    def _packet(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if packet.reason != SUCCESS:
                self._end(f"refused with 0x{packet.reason:02X}")
                return
            self._write(Subscribe(1, [SubscribeRequest(each, 2) for each in self._filters]))
        elif isinstance(packet, Suback):
            refused = [each for each in zip(self._filters, packet.reasons, strict=False) if each[1] >= REFUSED]
            if refused:
                self._end("the subscription to {:.200} is refused with 0x{:02X}".format(*refused[0]))
            else:
                self._ask()
        elif isinstance(packet, Publish):
            self._publish(packet)
        elif isinstance(packet, Pubrel):
            self._write(Pubcomp(packet.packet_id))
        elif isinstance(packet, Pingresp):
            self._answered()
        elif isinstance(packet, Disconnect):
            self._end(f"the home broker says good-bye (0x{packet.reason:02X})")

    def _publish(self, packet: Publish) -> None:
        if packet.qos == 1:
            self._write(Puback(packet.packet_id))
        elif packet.qos == 2:
            self._write(Pubrec(packet.packet_id))
        if packet.retain and packet.payload:
            self._came += 1
            self._found(message_of(packet, "", self._home.server.hot.now))

    def _ask(self) -> None:
        if self._done is not None:
            self._asked_at = self._came
            self._write(Pingreq())

    def _answered(self) -> None:
        self._looks = self._looks + 1 if self._came == self._asked_at else 0
        if self._looks >= LOOKS:
            self._end("")
        elif self._looks:
            self._home.server.timers.at(self._home.server.hot.now + QUIET, self._ask)
        else:
            self._ask()

    def _look_at_time(self) -> None:
        server = self._home.server
        if self._done is None:
            return
        if server.hot.now >= self._heard_at + PATIENCE:
            self._end("no answer in time")
        else:
            self._timer = server.timers.at(self._heard_at + PATIENCE, self._look_at_time)

    def _write(self, packet: Packet) -> None:
        self._channel.write(encode(packet, self._version))

    def cancel(self) -> None:
        self._done = None
        self._close()

    def _end(self, why: str) -> None:
        done, self._done = self._done, None
        self._home.server.timers.cancel(self._timer)
        if done is not None:
            done(why)
        if not why:
            self._write(Disconnect(SUCCESS) if self._version == V5 else Disconnect())
        self._close()

    def _close(self) -> None:
        server = self._home.server
        if self._channel.fd >= 0:
            server.hot.transmit(self._channel)
        if self._channel.fd >= 0:
            server.lost(self._channel)

    # ---- the plane -----------------------------------------------------------------------------------------------

    def failed(self, why: str) -> None:
        self._end(why)

    def postponed(self) -> None:
        pass

    def written(self) -> None:
        pass

    def lost(self) -> None:
        self._end("the connection was lost")
