"""Messages on their way to other nodes.

Theory. What one client publishes in one turn and goes to the same links is one run: the packets as they came in behind
one small header. So while a run is open its packets are only collected, once for all links; whatever does not belong to
it (another client, other links, another QoS) closes it, and the end of the turn does. QoS 0 then goes to the links that
are up, unless too much waits for one; QoS 1 and 2 go into the spool of each, up or not (`spooling.py`). A message goes
once to each node that wants it, however many want it there.

A message that is relayed keeps its id: `relayed` says where it began, and how far it has come.

One that expires is a run of its own. What it waits in a spool counts (`aged`), as it does in a session [MQTT-3.3.2-6];
one whose time is over is sent all the same, with none left, because positions have no gaps, and the peer drops it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from headwater.message import NEVER, Message
from headwater.node.destinations.destination import Destination, Run
from headwater.node.links.end import PeerEnd
from headwater.node.links.retaining import Retaining, packet_of
from headwater.node.links.spooling import Spooling
from headwater.node.plane.channel import Channel
from headwater.node.plane.sending import ANY_ID, Sending
from headwater.node.plane.turn import Outgoing
from headwater.peering.forwarding import Forwarding
from headwater.peering.frames import v1
from headwater.peering.frames.frame import MAX_COUNT
from headwater.peering.spool import SpooledRun
from headwater.session.session import Session
from headwater.session.translate import ROUNDING
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Publish
from headwater.wire.primitives import ANY_NUMBER

LARGEST_RUN: Final = 256 << 10
"""Bytes of packets from which on a run is closed."""
MANY: Final = MAX_COUNT // 2
"""Packets likewise: the smallest ones of one read are fewer than the other half."""
NOT_A_CLIENT: Final = ""
LONGEST_SENDER: Final = 0xFFFF
"""Bytes of a client id with a group's name; without room for both it is the group's alone."""


class Relayed:
    """The id of the message that is being relayed: of the next one that destinations take. `source` sent it here."""

    def __init__(self, source: PeerEnd, origin: str, boot: int, counter: int, hops: int) -> None:
        self.source = source
        self.origin = origin
        self.boot = boot
        self.counter = counter
        self.hops = hops
        self.stamp = ""
        """Of a retained message."""


class LinkDestination(Destination):
    """Nodes that a message goes to. An acknowledgement of QoS 1 or 2 waits until it is in the spools of all."""

    def __init__(self, outgoing: OutgoingRuns, ends: list[PeerEnd]) -> None:
        self.outgoing = outgoing
        self.ends = ends
        self.reaches_clients = False
        self.promises = True

    def sender(self, client_id: str) -> str:
        """Whose runs they are, for the peers: the client, unless they are for one of its groups only."""
        return client_id

    def take0(self, run: Run) -> None:
        self.outgoing.take0(self, run)

    def take1(self, run: Run) -> None:
        self.outgoing.take1(self, run)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        self.outgoing.deliver(self, message, publisher)

    def has_room(self, publisher: Session | None) -> bool:
        return not any(end.is_full for end in self.ends)


class GroupLink(LinkDestination):
    """One node that a message goes to for the members of one shared group alone."""

    def __init__(self, outgoing: OutgoingRuns, end: PeerEnd, group: str) -> None:
        super().__init__(outgoing, [end])
        self.group = group

    def sender(self, client_id: str) -> str:
        """Client ids have no U+0000 [MQTT-1.5.4-2]: what is behind it is a group's name."""
        found = f"{client_id}\0{self.group}"
        return found if len(found.encode()) <= LONGEST_SENDER else f"\0{self.group}"


class OutgoingRuns(Outgoing):
    def __init__(
        self, sending: Sending, forwarding: Forwarding, spooling: Spooling, retaining: Retaining, link_buffer: int
    ) -> None:
        super().__init__()
        self.sending = sending
        self.forwarding = forwarding
        self.spooling = spooling
        self.retaining = retaining
        self.link_buffer = link_buffer
        self.relayed: Relayed | None = None
        self.flush_interest: Callable[[], None] | None = None
        """Called before a message goes to links, where messages are relayed."""
        self._aside: list[Relayed | None] = []
        self._destination: LinkDestination | None = None
        self._channel: Channel | None = None
        self._client_id = ""
        self._version = 0
        self._qos = 0
        self._pieces: list[bytes] = []
        self._count = 0
        self._size = 0
        self._commit = 0

    def take0(self, destination: LinkDestination, run: Run) -> None:
        if self._destination is not destination or self._channel is not run.channel or self._qos:
            self._open(destination, run, 0)
            for end in destination.ends:
                if end.channel is not None:
                    end.touch(end.channel)
        if run.commit > self._commit:
            self._commit = run.commit
        self._pieces.append(run.data[run.start : run.end])
        self._count += run.count
        self._size += run.end - run.start
        if self._size > LARGEST_RUN or self._count > MANY:
            self.settle()

    def take1(self, destination: LinkDestination, run: Run) -> None:
        if self._destination is not destination or self._channel is not run.channel or not self._qos:
            self._open(destination, run, 1)
            self.spooling.touch()
        pieces = self._pieces
        pieces.append(run.head)
        pieces.append(ANY_ID)
        pieces.append(run.tail)
        self._count += 1
        self._size += len(run.head) + 2 + len(run.tail)
        if self._size > LARGEST_RUN or self._count > MANY:
            self.settle()

    def begin_own(self) -> None:
        self.settle()
        self._aside.append(self.relayed)
        self.relayed = None

    def end_own(self) -> None:
        self.settle()
        self.relayed = self._aside.pop()

    def deliver(self, destination: LinkDestination, message: Message, publisher: Session | None) -> None:
        """A message of the ordinary way: a run of its own, of version 5.0, which has a place for all that it says."""
        if self.is_open:
            self.settle()
        sending = self.sending
        data = packet_of(message, sending.now, self._stamp_of(message))
        client_id = destination.sender(message.publisher)
        if message.qos == 0:
            self._send0(destination, data, 1, V5, client_id, message.commit)
            return
        self.spooling.touch()
        channel = None if publisher is None else publisher.connection
        expires = 0 if message.expires_at == NEVER else int(1000 * (time.time() + message.expires_at - sending.now))
        self._spool(destination, data, 1, V5, client_id, channel if isinstance(channel, Channel) else None, expires)

    def _stamp_of(self, message: Message) -> str:
        if not message.retain:
            return ""
        return self.retaining.stamp_of(message.topic) if self.relayed is None else self.relayed.stamp

    def _open(self, destination: LinkDestination, run: Run, qos: int) -> None:
        if self.is_open:
            self.settle()
        channel = run.channel
        self.is_open = True
        self._destination = destination
        self._channel = channel
        self._client_id = destination.sender(NOT_A_CLIENT if channel is None else channel.client_id)
        self._version = run.version
        self._qos = qos

    def settle(self) -> None:
        """Hand what is collected to its links."""
        destination = self._destination
        if not self.is_open or destination is None:
            return
        pieces = self._pieces
        count = self._count
        channel = self._channel
        commit = self._commit
        self.is_open = False
        self._destination = None
        self._channel = None
        self._pieces = []
        self._count = 0
        self._size = 0
        self._commit = 0
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._qos:
            self._spool(destination, data, count, self._version, self._client_id, channel)
        else:
            self._send0(destination, data, count, self._version, self._client_id, commit)

    def _send0(
        self, destination: LinkDestination, data: bytes, count: int, version: int, client_id: str, commit: int
    ) -> None:
        if self.flush_interest is not None:
            self.flush_interest()
        forwarding = self.forwarding
        relayed = self.relayed
        origin = b""
        boot = forwarding.boot
        hops = 0
        if relayed is None:
            counter = forwarding.number0(count)
        else:
            counter = relayed.counter
            origin = relayed.origin.encode()
            boot = relayed.boot
            hops = relayed.hops
        for end in destination.ends:
            channel = end.channel
            if channel is None:
                continue
            if channel.backlog_size + channel.withheld_size > self.link_buffer:
                end.dropped += count
                continue
            if commit > channel.barrier:
                channel.barrier = commit
            number = end.number_of(client_id, version)
            head = v1.run_head(version, hops, count, number, counter, origin, boot, 0, len(data))
            end.write_run(channel, head, data, count)

    def _spool(
        self,
        destination: LinkDestination,
        data: bytes,
        count: int,
        version: int,
        client_id: str,
        channel: Channel | None,
        expires: int = 0,
    ) -> None:
        forwarding = self.forwarding
        relayed = self.relayed
        if relayed is None:
            counter = forwarding.number1(count)
            run = SpooledRun(version, 0, count, counter, forwarding.node, forwarding.boot, client_id, data, expires)
        else:
            run = SpooledRun(
                *(version, relayed.hops, count, relayed.counter, relayed.origin, relayed.boot, client_id, data),
                expires,
            )
        for end in destination.ends:
            end.spool.append(run)
            if not end.spool.has_room():
                self.spooling.is_full(end, None if relayed is not None else channel)
        self.spooling.appended()


def aged(packet: bytes, expires: int) -> bytes:
    """A PUBLISH packet of 5.0 with the time that is left until then (milliseconds of Unix time), 0 if there is none."""
    reader = PacketReader()
    reader.feed(packet)
    [(first_byte, body)] = list(reader)
    found = decode(first_byte, body, V5, FROM_CLIENT, ANY_NUMBER)
    assert isinstance(found, Publish) and found.properties is not None
    found.properties.message_expiry_interval = max(0, math.ceil(expires / 1000 - time.time() - ROUNDING))
    return encode(found, V5)


def packet_end(data: bytes, at: int) -> int:
    """Where the whole packet that begins at `at` ends. Raises IndexError if its length is not there."""
    remaining = 0
    shift = 0
    at += 1
    while True:
        byte = data[at]
        at += 1
        remaining |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + remaining
        shift += 7
