"""The frequent packets at full speed: wire, session and routing fused for PUBLISH (QoS 0 and 1) and PUBACK.

Theory. Three facts make it fast, and none of them may change what clients see (tests/node/test_hotpath.py runs this
path and the ordinary one on the same traffic and compares the bytes):

1. *Topics repeat.* The bytes of a topic lead by one dictionary look-up to a `Fanout`: the topic is valid, these channels
   get it. Topics with the same recipients share one Fanout. A change of a subscription forgets the topics it can touch.
2. *Messages of one packet form can be copied as they are.* A QoS 0 PUBLISH is appended, as received, once to the fan-out
   and not once per subscriber; packets that follow with the same header, topic and properties are taken as one piece.
   At the end of the turn the pieces are joined once, and all members are sent the same bytes.
3. *Order.* A piece waits in its fan-out, so what goes to the same channel by another way must not overtake it. A channel
   is claimed by the one fan-out that holds something for it; another fan-out that wants to hold something for it, or
   anything written directly, first settles what is held. While a single fan-out is open there is nothing to claim.

Everything else (other packets, clients with special wishes, absent clients, hooks) goes the ordinary way, through `Slow`.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import mypyc_attr

from headwater.message import Delivery, Message
from headwater.node.stats import Stats
from headwater.node.timers import Timer
from headwater.routing.router import Recipient, Route, Router
from headwater.routing.shared import Group
from headwater.routing.topics import InvalidTopicName, check_name
from headwater.routing.trie import Subscribers
from headwater.session.connection import CLOSING, NEW, Connection
from headwater.session.outbound import Budget, Flight
from headwater.session.session import Session
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import PUBLISH, V5, V311, Publish
from headwater.wire.properties import encode_properties
from headwater.wire.reasons import MALFORMED_PACKET, PACKET_TOO_LARGE, PROTOCOL_ERROR, QUOTA_EXCEEDED

PACKET_ID: Final[list[bytes]] = [i.to_bytes(2, "big") for i in range(65536)]
PUBACK_HEAD: Final = b"\x40\x02"
PUBACK_NOBODY_HEAD: Final = b"\x40\x03"
PUBACK_NOBODY_TAIL: Final = b"\x10"
NO_PROPERTIES: Final = b"\x00"
CONNECT_BYTE: Final = 0x10

MAX_CACHED_TOPICS: Final = 65536
MAX_CACHED_PROPERTIES: Final = 4096
LONGEST_CACHED: Final = 512
"""Longer topics and properties are not remembered: the caches are bounded in bytes as well."""
BACKLOG_PIECE: Final = 262144
"""What waits for a slow reader is kept in pieces of at most this size, so that sending one copies little."""
SMALL_PART: Final = 4096
LARGE_PACKET: Final = 65536
"""A packet that arrives in parts and is larger than this is counted in the budget while it is collected."""


def header(first_byte: int, remaining: int) -> bytes:
    if remaining < 0x80:
        return bytes((first_byte, remaining))
    if remaining < 0x4000:
        return bytes((first_byte, remaining & 0x7F | 0x80, remaining >> 7))
    if remaining < 0x200000:
        return bytes((first_byte, remaining & 0x7F | 0x80, remaining >> 7 & 0x7F | 0x80, remaining >> 14))
    return bytes(
        (
            first_byte,
            remaining & 0x7F | 0x80,
            remaining >> 7 & 0x7F | 0x80,
            remaining >> 14 & 0x7F | 0x80,
            remaining >> 21,
        )
    )


class Channel(Connection):
    """A connection with its socket: what came in and is not whole, what goes out and is not sent.

    `held` sends everything by the ordinary way: the session's queue is not empty, or the reader is far behind.
    """

    def __init__(self, hot: HotPath, fd: int, recv: Callable[[int], bytes], send: Callable[[bytes], int]) -> None:
        super().__init__()
        self.hot = hot
        self.fd = fd
        self.recv = recv
        self.send_bytes = send
        self.address = ""
        self.loopback = False
        self.opened_at = hot.now
        self.last_seen = hot.now
        self.max_in = hot.max_connect_size
        self.parts: list[bytes] | None = None
        self.have = 0
        self.need = 0
        self.fast = False
        self.out: list[bytes] = []
        self.out_size = 0
        """Of what was written to `out` by `write`; the hot path's own bytes are bounded by what it read."""
        self.dirty = False
        self.held = False
        self.pending: Fanout | None = None
        self.backlog: deque[bytes] | None = None
        self.backlog_size = 0
        self.progress_at = 0.0
        self.congested = False
        self.finishing = False
        self.socket: socket.socket | None = None
        self.timer: Timer | None = None

    def write(self, data: bytes) -> None:
        hot = self.hot
        if hot.open:
            hot.settle_all()
        if self.fd < 0 or self.finishing:
            return
        self.out.append(data)
        self.out_size += len(data)
        if not self.dirty:
            self.dirty = True
            hot.dirty.append(self)


class Fanout:
    """The recipients of a topic by what they need: lists of channels per protocol version, and the special ones.

    members: all that take QoS 0 as it is; unacked/acked: the same, split by whether they take QoS 1 as QoS 0 or QoS 1.
    """

    def __init__(self) -> None:
        self.members4: list[Channel] = []
        self.members5: list[Channel] = []
        self.unacked4: list[Channel] = []
        self.unacked5: list[Channel] = []
        self.acked4: list[Channel] = []
        self.acked5: list[Channel] = []
        self.special: list[Recipient] = []
        self.absent: list[Recipient] = []
        self.groups: list[Group] = []
        self.subscribers: list[list[Subscribers]] = []
        self.route: Route | None = None
        self.any_special = False
        self.empty = True
        self.pieces4: list[bytes] = []
        self.pieces5: list[bytes] = []
        self.count = 0
        self.dirty = False
        self.claimed = False


@mypyc_attr(allow_interpreted_subclasses=True)
class Slow:
    """The ordinary way, as the hot path and the loop see it."""

    def packet(self, channel: Channel, first_byte: int, body: bytes) -> None:
        """Deal with one whole packet."""
        raise RuntimeError("not connected")

    def failed(self, channel: Channel, error: RemoteProtocolError) -> None:
        """The peer broke the protocol."""
        raise RuntimeError("not connected")

    def crashed(self, channel: Channel) -> None:
        """Dealing with a packet raised something that it should not."""
        raise RuntimeError("not connected")

    def lost(self, channel: Channel) -> None:
        """The socket is gone."""
        raise RuntimeError("not connected")

    def deliver(self, recipient: Recipient, message: Message, publisher: Session | None) -> None:
        """Give a message to one recipient."""
        raise RuntimeError("not connected")

    def deliver_shared(self, group: Group, message: Message, publisher: Session | None) -> None:
        """Give a message to one member of a group."""
        raise RuntimeError("not connected")

    def offer(self, session: Session, delivery: Delivery) -> None:
        """Send or queue one delivery."""
        raise RuntimeError("not connected")

    def drain(self, channel: Channel) -> None:
        """The send quota has room again: send what waits."""
        raise RuntimeError("not connected")

    def written(self, channel: Channel) -> None:
        """No bytes wait for this socket any more."""
        raise RuntimeError("not connected")

    def relieved(self, channel: Channel) -> None:
        """Fewer bytes wait for an overfull socket: it may be read from again."""
        raise RuntimeError("not connected")

    def writable_wanted(self, channel: Channel) -> None:
        """Bytes wait for this socket: call `HotPath.writable` when it takes some."""
        raise RuntimeError("not connected")

    def overfull(self, channel: Channel) -> None:
        """More bytes wait for this socket than allowed: stop reading from it."""
        raise RuntimeError("not connected")


class HotPath:
    def __init__(self, router: Router, stats: Stats, budget: Budget) -> None:
        self.router = router
        self.stats = stats
        self.budget = budget
        self.slow = Slow()
        self.enabled = True
        self.now = 0.0
        self.max_connect_size = 0
        self.outbound_buffer = 0
        self.takes_qos1 = True
        self.max_topic_length = 65535
        self.max_topic_levels = 65535
        self.topics: dict[bytes, Fanout] = {}
        self.older_topics: dict[bytes, Fanout] = {}
        self.fanouts: dict[tuple[int, ...], Fanout] = {}
        self.by_recipients: dict[tuple[int, ...], Fanout] = {}
        self.properties: dict[bytes, bytes] = {}
        self.open: list[Fanout] = []
        self.dirty: list[Channel] = []

    # ---- in ----------------------------------------------------------------------------------------------------

    def feed(self, channel: Channel, data: bytes) -> None:
        """Deal with all whole packets in what arrived; keep the rest."""
        if channel.need:
            collected = self._collect(channel, data)
            if collected is None:
                return
            data = collected
        try:
            pos = self._packets(channel, data)
        except RemoteProtocolError as error:
            self.slow.failed(channel, error)
            return
        except Exception:
            self.slow.crashed(channel)
            return
        if pos < len(data) and channel.state != CLOSING:
            self._keep(channel, data[pos:] if pos else data)

    def _collect(self, channel: Channel, data: bytes) -> bytes | None:
        parts = channel.parts
        assert parts is not None
        if len(parts[-1]) < SMALL_PART:
            parts[-1] += data  # or a large packet in tiny segments would cost an object for each
        else:
            parts.append(data)
        channel.have += len(data)
        if channel.have < channel.need:
            return None
        if channel.need > LARGE_PACKET:
            self.budget.used -= channel.need
        channel.need = 0
        channel.parts = None
        return b"".join(parts)

    def _keep(self, channel: Channel, rest: bytes) -> None:
        """Part of a packet: remember it and how much it needs, so that a large packet is joined once."""
        size = len(rest)
        need = size + 1
        if size >= 2:
            remaining = 0
            shift = 0
            for i in range(1, min(size, 5)):
                remaining |= (rest[i] & 0x7F) << shift
                shift += 7
                if rest[i] < 0x80:
                    need = 1 + i + remaining
                    break
        if need > LARGE_PACKET:
            if self.budget.used + need > self.budget.limit:
                self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "no memory for a packet of this size"))
                return
            self.budget.used += need
        channel.parts = [rest]
        channel.have = size
        channel.need = need

    def discard_partial(self, channel: Channel) -> None:
        if channel.need > LARGE_PACKET:
            self.budget.used -= channel.need
        channel.need = 0
        channel.parts = None

    def _packets(self, channel: Channel, data: bytes) -> int:
        """Deal with the whole packets; returns where the first incomplete one begins."""
        n = len(data)
        pos = 0
        fast = channel.fast and self.enabled
        if channel.state == NEW and data[0] != CONNECT_BYTE:
            # Somebody who speaks another protocol may never send what its second byte would promise.
            raise RemoteProtocolError(PROTOCOL_ERROR, "the first packet is not a CONNECT")  # [MQTT-3.1.0-1]
        while n - pos >= 2:
            first = data[pos]
            remaining = data[pos + 1]
            p = pos + 2
            if remaining > 0x7F:
                remaining &= 0x7F
                shift = 7
                while True:
                    if p >= n:
                        return pos
                    byte = data[p]
                    p += 1
                    remaining |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        if byte == 0:
                            raise RemoteProtocolError(MALFORMED_PACKET, "remaining length is not minimal")
                        break
                    shift += 7
                    if shift > 21:
                        raise RemoteProtocolError(MALFORMED_PACKET, "remaining length has more than four bytes")
            if remaining + 5 > channel.max_in and p - pos + remaining > channel.max_in:
                raise RemoteProtocolError(PACKET_TOO_LARGE, f"a packet of {p - pos + remaining} bytes is too large")
            end = p + remaining
            if end > n:
                return pos
            if fast:
                if first == 0x30:
                    after = self._publish0(channel, data, pos, p, end)
                    if after > 0:
                        pos = after
                        continue
                elif first == 0x32 and self.takes_qos1:
                    after = self._publish1(channel, data, pos, p, end)
                    if after > 0:
                        pos = after
                        continue
                elif first == 0x40 and remaining == 2:
                    pos = self._pubacks(channel, data, pos)
                    continue
            self.slow.packet(channel, first, data[p:end])
            if channel.state == CLOSING:
                return n
            fast = channel.fast and self.enabled
            pos = end
        return pos

    def _publish0(self, channel: Channel, data: bytes, pos: int, p: int, end: int) -> int:
        """A QoS 0 PUBLISH and the like ones behind it; returns where they end, or 0 for the ordinary way."""
        if end - p < 3:
            return 0
        te = p + 2 + (data[p] << 8 | data[p + 1])
        if te > end:
            return 0
        fanout = self.topics.get(data[p + 2 : te])
        if fanout is None:
            fanout = self._resolve(data[p + 2 : te])
            if fanout is None:
                return 0
        v5 = channel.version == V5
        body = te
        if v5:
            if te >= end:
                return 0
            if data[te]:
                body = self._check_properties(data, te, end)
                if body == 0:
                    return 0
            else:
                body = te + 1
        size = end - pos
        n = len(data)
        count = 1
        if n - end >= size and not fanout.any_special:  # who gets a message by two ways gets both before the next one
            start = data[pos:body]
            while end + size <= n and data.startswith(start, end):
                end += size
                count += 1
        stats = self.stats
        stats.publish_received += count
        stats.received += count
        if fanout.empty:
            return end
        if not fanout.dirty:
            self._touch(fanout)
        fanout.count += count
        if v5:
            if fanout.members5:
                fanout.pieces5.append(data[pos:end])
            if fanout.members4:
                self._transcode(fanout.pieces4, data, pos, end, size, p, te, body, b"")
        else:
            if fanout.members4:
                fanout.pieces4.append(data[pos:end])
            if fanout.members5:
                self._transcode(fanout.pieces5, data, pos, end, size, p, te, body, NO_PROPERTIES)
        if fanout.any_special:
            self._special0(channel, fanout, data, pos, end, size, p)
        return end

    def _transcode(
        self, pieces: list[bytes], data: bytes, pos: int, end: int, size: int, p: int, te: int, body: int, props: bytes
    ) -> None:
        """QoS 0 packets, all of the same form, for the other protocol version."""
        topic = data[p:te]
        start = header(0x30, len(topic) + len(props) + size - (body - pos)) + topic + props
        body -= pos
        while pos < end:
            pieces.append(start)
            pieces.append(data[pos + body : pos + size])
            pos += size

    def _special0(self, channel: Channel, fanout: Fanout, data: bytes, pos: int, end: int, size: int, p: int) -> None:
        version = channel.version
        session = channel.session
        head = p - pos
        while pos < end:
            packet = decode(0x30, data[pos + head : pos + size], version, FROM_CLIENT)
            assert isinstance(packet, Publish)
            self._deliver_special(fanout, message_of(packet, channel.client_id, self.now), session)
            pos += size

    def _deliver_special(self, fanout: Fanout, message: Message, session: Session | None) -> None:
        for recipient in fanout.special:
            self.slow.deliver(recipient, message, session)
        if message.qos:
            for recipient in fanout.absent:
                self.slow.deliver(recipient, message, session)
        for group in fanout.groups:
            self.slow.deliver_shared(group, message, session)

    def _publish1(self, channel: Channel, data: bytes, pos: int, p: int, end: int) -> int:
        """A QoS 1 PUBLISH and the like ones behind it; returns where they end, or 0 for the ordinary way."""
        if end - p < 5:
            return 0
        te = p + 2 + (data[p] << 8 | data[p + 1])
        if te + 2 > end:
            return 0
        fanout = self.topics.get(data[p + 2 : te])
        if fanout is None:
            fanout = self._resolve(data[p + 2 : te])
            if fanout is None:
                return 0
        v5 = channel.version == V5
        props = b""
        if v5:
            if te + 2 >= end:
                return 0
            if data[te + 2]:
                body = self._check_properties(data, te + 2, end)
                if body == 0:
                    return 0
                props = data[te + 2 : body]
            else:
                props = NO_PROPERTIES
        if self.open:
            self.settle_all()
        if fanout.unacked4 or fanout.unacked5 or (fanout.acked4 if v5 else fanout.acked5) or fanout.any_special:
            return self._publish1_mixed(channel, fanout, data, pos, p, te, end, props)
        return self._publish1_run(channel, fanout, data, pos, te, end, props)

    def _publish1_run(
        self, channel: Channel, fanout: Fanout, data: bytes, pos: int, te: int, end: int, props: bytes
    ) -> int:
        """All recipients take QoS 1 in the publisher's protocol version: only the packet id differs."""
        n = len(data)
        size = end - pos
        head = data[pos:te]
        version = channel.version
        members = fanout.acked5 if version == V5 else fanout.acked4
        acks = channel.out
        nobody = fanout.empty and version == V5
        count = 0
        while data[te] or data[te + 1]:
            if members:
                tail = data[te + 2 : end]
                for member in members:
                    self._send1(member, head, tail, version)
            if nobody:
                acks.append(PUBACK_NOBODY_HEAD)
                acks.append(data[te : te + 2])
                acks.append(PUBACK_NOBODY_TAIL)
            else:
                acks.append(PUBACK_HEAD)
                acks.append(data[te : te + 2])
            count += 1
            if end + size > n or not data.startswith(head, end):
                break
            if props and not data.startswith(props, te + size + 2):
                break
            te += size
            end += size
        else:
            if count == 0:
                return 0
            end -= size
        self._acked(channel, count)
        return end

    def _send1(self, member: Channel, head: bytes, tail: bytes, version: int) -> None:
        session = member.session
        assert session is not None
        outbound = session.outbound
        if member.held or outbound.quota <= 0:
            self.slow.offer(session, session.flight_delivery(Flight(1, None, head, tail, version)))
            return
        flights = outbound.flights
        packet_id = outbound.next_id
        while packet_id in flights:
            packet_id = packet_id + 1 if packet_id < 65535 else 1
        outbound.next_id = packet_id + 1 if packet_id < 65535 else 1
        outbound.quota -= 1
        flights[packet_id] = Flight(1, None, head, tail, version)
        out = member.out
        out.append(head)
        out.append(PACKET_ID[packet_id])
        out.append(tail)
        self.stats.publish_sent += 1
        self.stats.sent += 1
        if not member.dirty:
            member.dirty = True
            self.dirty.append(member)

    def _acked(self, channel: Channel, count: int) -> None:
        stats = self.stats
        stats.publish_received += count
        stats.received += count
        stats.sent += count
        if not channel.dirty:
            channel.dirty = True
            self.dirty.append(channel)

    def _publish1_mixed(
        self, channel: Channel, fanout: Fanout, data: bytes, pos: int, p: int, te: int, end: int, props: bytes
    ) -> int:
        """One QoS 1 PUBLISH for recipients of several forms."""
        if not (data[te] or data[te + 1]):
            return 0
        topic = data[p:te]
        payload = data[te + 2 + len(props) : end]
        own = channel.version
        for version in (V311, V5):
            acked = fanout.acked5 if version == V5 else fanout.acked4
            unacked = fanout.unacked5 if version == V5 else fanout.unacked4
            carried = props if version == own else NO_PROPERTIES if version == V5 else b""
            if acked:
                head = header(0x32, len(topic) + 2 + len(carried) + len(payload)) + topic
                for member in acked:
                    self._send1(member, head, carried + payload, version)
            if unacked:
                packet = header(0x30, len(topic) + len(carried) + len(payload)) + topic + carried + payload
                for member in unacked:
                    self._send0(member, packet, version)
        if fanout.any_special:
            message = decode(0x32, data[p:end], own, FROM_CLIENT)
            assert isinstance(message, Publish)
            self._deliver_special(fanout, message_of(message, channel.client_id, self.now), channel.session)
        channel.out.append(PUBACK_HEAD)
        channel.out.append(data[te : te + 2])
        self._acked(channel, 1)
        return end

    def _send0(self, member: Channel, packet: bytes, version: int) -> None:
        if member.held:
            self._hold(member, packet, version)
            return
        member.out.append(packet)
        self.stats.publish_sent += 1
        self.stats.sent += 1
        if not member.dirty:
            member.dirty = True
            self.dirty.append(member)

    def _pubacks(self, channel: Channel, data: bytes, pos: int) -> int:
        """A run of PUBACKs of four bytes; returns where it ends."""
        session = channel.session
        assert session is not None
        outbound = session.outbound
        flights = outbound.flights
        n = len(data)
        count = 0
        while True:
            packet_id = data[pos + 2] << 8 | data[pos + 3]
            if outbound.unsent:
                outbound.acknowledged(packet_id)
            else:
                flight = flights.get(packet_id)
                if flight is not None and flight.qos == 1:
                    del flights[packet_id]
                    outbound.quota += 1
            count += 1
            pos += 4
            if n - pos < 4 or data[pos] != 0x40 or data[pos + 1] != 2:
                break
        self.stats.received += count
        if channel.held or outbound.unsent:
            self.slow.drain(channel)
        return pos

    def _check_properties(self, data: bytes, start: int, end: int) -> int:
        """Where the properties of a PUBLISH end if they can be passed on as they are, else 0."""
        length = data[start]
        p = start + 1
        if length > 0x7F:
            if p >= end or data[p] > 0x7F or data[p] == 0:
                return 0
            length = length & 0x7F | data[p] << 7
            p += 1
        stop = p + length
        if stop > end:
            return 0
        block = data[start:stop]
        known = self.properties.get(block)
        if known is None:
            known = self._canonical(block)
            if len(block) <= LONGEST_CACHED:
                if len(self.properties) >= MAX_CACHED_PROPERTIES:
                    self.properties.clear()
                self.properties[block] = known
        return stop if known == block else 0

    def _canonical(self, block: bytes) -> bytes:
        """The properties as the ordinary way would write them; b"" when they are wrong or not the same for everybody."""
        try:
            packet = decode(0x30, b"\x00\x01t" + block, V5, FROM_CLIENT)
        except RemoteProtocolError:
            return b""
        assert isinstance(packet, Publish)
        properties = packet.properties
        if properties is None or properties.topic_alias is not None or properties.message_expiry_interval is not None:
            return b""
        return encode_properties(properties, PUBLISH)

    # ---- routes ------------------------------------------------------------------------------------------------

    def _resolve(self, topic: bytes) -> Fanout | None:
        """The fan-out of a topic, remembered; None when the ordinary way has to refuse it."""
        fanout = self.older_topics.get(topic)
        if fanout is not None:
            self._remember(topic, fanout)
            return fanout
        if len(topic) > self.max_topic_length or topic.startswith(b"$SYS"):
            return None
        try:
            name = topic.decode()
            check_name(name, self.max_topic_levels)
        except (UnicodeDecodeError, InvalidTopicName):
            return None
        fanout = self._fanout(name)
        self._remember(topic, fanout)
        return fanout

    def _remember(self, topic: bytes, fanout: Fanout) -> None:
        """Two generations bound the cache: topics in use move to the new one, the others go with the old one."""
        if len(topic) > LONGEST_CACHED:
            return
        if len(self.topics) >= MAX_CACHED_TOPICS:
            self.older_topics = self.topics
            self.topics = {}
        self.topics[topic] = fanout

    def _fanout(self, topic: str) -> Fanout:
        """The fan-out for what matches a topic. The subscribers of each matching filter are one dictionary, so these
        dictionaries' identities say who gets it; the fan-out keeps them alive, any change forgets all fan-outs."""
        found = self.router.trie.match(topic)
        key: list[int] = [id(subscribers) for subscribers in found]
        if len(self.router.groups):
            key += [-id(group) for group in self.router.groups.match(topic)]
        whole = tuple(key)
        fanout = self.fanouts.get(whole)
        if fanout is None:
            if len(self.fanouts) >= MAX_CACHED_TOPICS:
                self.forget_fanouts()
            fanout = self.fanouts[whole] = self._fanout_of(self.router.route(topic))
            fanout.subscribers.append(found)
        return fanout

    def _fanout_of(self, route: Route) -> Fanout:
        """One fan-out for all routes to the same recipients: their messages then share one batch."""
        key: list[int] = []
        for recipient in route.recipients:
            key.append(id(recipient.session) << 2 | recipient.qos)
            if recipient.any_no_local or recipient.identifiers is not None:
                key.append(-id(recipient))
        for group in route.groups:
            key.append(-id(group))
        whole = tuple(key)
        fanout = self.by_recipients.get(whole)
        if fanout is None:
            fanout = self.by_recipients[whole] = self._make_fanout(route)
        return fanout

    def _make_fanout(self, route: Route) -> Fanout:
        fanout = Fanout()
        fanout.route = route  # keeps alive what the key is made of
        fanout.groups = route.groups
        for recipient in route.recipients:
            session = cast(Session, recipient.session)
            channel = cast("Channel | None", session.connection)
            if channel is None:
                if recipient.qos:
                    fanout.absent.append(recipient)
            elif (
                recipient.any_no_local
                or recipient.identifiers is not None
                or channel.alias_limit_out
                or channel.max_packet_out
            ):
                fanout.special.append(recipient)
            elif channel.version == V5:
                fanout.members5.append(channel)
                (fanout.acked5 if recipient.qos else fanout.unacked5).append(channel)
            else:
                fanout.members4.append(channel)
                (fanout.acked4 if recipient.qos else fanout.unacked4).append(channel)
        fanout.any_special = bool(fanout.special or fanout.absent or fanout.groups)
        fanout.empty = route.empty
        return fanout

    def forget(self, filter: str, wildcard: bool) -> None:
        """A subscription with this filter, or its client's presence, changed."""
        if wildcard:
            self.topics.clear()
            self.older_topics.clear()
        else:
            topic = filter.encode()
            self.topics.pop(topic, None)
            self.older_topics.pop(topic, None)
        self.forget_fanouts()

    def forget_fanouts(self) -> None:
        self.fanouts.clear()
        self.by_recipients.clear()

    # ---- order -------------------------------------------------------------------------------------------------

    def _touch(self, fanout: Fanout) -> None:
        """The fan-out is about to hold pieces."""
        opened = self.open
        if opened:
            first = opened[0]
            if first.dirty and not first.claimed:
                self._claim(first)
            self._claim(fanout)
        fanout.dirty = True
        opened.append(fanout)

    def _claim(self, fanout: Fanout) -> None:
        fanout.claimed = True
        for members in (fanout.members4, fanout.members5):
            for channel in members:
                holder = channel.pending
                if holder is not None and holder is not fanout and holder.dirty:
                    self._settle(holder)
                channel.pending = fanout

    def settle_all(self) -> None:
        for fanout in self.open:
            if fanout.dirty:
                self._settle(fanout)
        self.open.clear()

    def _settle(self, fanout: Fanout) -> None:
        """Hand what the fan-out holds to its members."""
        fanout.dirty = False
        fanout.claimed = False
        count = fanout.count
        fanout.count = 0
        if fanout.pieces4:
            self._hand_out(fanout.pieces4, fanout.members4, count, V311)
            fanout.pieces4 = []
        if fanout.pieces5:
            self._hand_out(fanout.pieces5, fanout.members5, count, V5)
            fanout.pieces5 = []

    def _hand_out(self, pieces: list[bytes], members: list[Channel], count: int, version: int) -> None:
        blob = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        stats = self.stats
        dirty = self.dirty
        for channel in members:
            if channel.held:
                self._hold(channel, blob, version)
                continue
            channel.out.append(blob)
            stats.publish_sent += count
            stats.sent += count
            if not channel.dirty:
                channel.dirty = True
                dirty.append(channel)

    def _hold(self, channel: Channel, blob: bytes, version: int) -> None:
        """QoS 0 packets for a channel where something waits already: offer them one by one."""
        session = channel.session
        if session is None:
            return
        pos = 0
        while pos < len(blob):
            p = pos + 1
            remaining = 0
            shift = 0
            while True:
                byte = blob[p]
                p += 1
                remaining |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            packet = decode(blob[pos], blob[p : p + remaining], version, FROM_CLIENT)
            assert isinstance(packet, Publish)
            pos = p + remaining
            self.slow.offer(session, Delivery(message_of(packet, "", self.now), 0, False))

    # ---- out ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The end of a turn: one send for each connection that has something."""
        if self.open:
            self.settle_all()
        if self.dirty:
            channels = self.dirty
            self.dirty = []
            for channel in channels:
                channel.dirty = False
                try:
                    self.transmit(channel)
                except Exception:
                    self.slow.crashed(channel)

    def transmit(self, channel: Channel) -> None:
        out = channel.out
        if not out or channel.fd < 0:
            return
        blob = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        channel.out_size = 0
        size = len(blob)
        if channel.backlog_size == 0:
            try:
                sent = channel.send_bytes(blob)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.slow.lost(channel)
                return
            self.stats.bytes_sent += sent
            if sent == size:
                return
            if sent:
                blob = blob[sent:]
                size -= sent
            channel.backlog = deque()
            channel.progress_at = self.now
            self.slow.writable_wanted(channel)
        backlog = channel.backlog
        assert backlog is not None
        for start in range(0, size, BACKLOG_PIECE):
            backlog.append(blob[start : start + BACKLOG_PIECE])
        channel.backlog_size += size
        self.budget.used += size
        if not channel.congested and (
            channel.backlog_size > self.outbound_buffer or self.budget.used > self.budget.limit
        ):
            channel.congested = True
            channel.held = True
            self.slow.overfull(channel)

    def writable(self, channel: Channel) -> bool:
        """The socket takes bytes again; True when nothing waits any more."""
        backlog = channel.backlog
        assert backlog is not None
        pieces = [backlog.popleft()]
        size = len(pieces[0])
        while backlog and size + len(backlog[0]) <= BACKLOG_PIECE:
            piece = backlog.popleft()
            pieces.append(piece)
            size += len(piece)
        blob = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            sent = channel.send_bytes(blob)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.slow.lost(channel)
            return False
        self.stats.bytes_sent += sent
        self.budget.used -= sent
        channel.backlog_size -= sent
        if sent:
            channel.progress_at = self.now
        if channel.backlog_size == 0:
            channel.backlog = None
            return True
        if sent < size:
            backlog.appendleft(blob[sent:])
        return False
