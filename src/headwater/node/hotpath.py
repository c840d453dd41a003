"""The frequent packets at full speed: wire, session and routing fused for PUBLISH (QoS 0 and 1) and PUBACK.

Theory. Three facts make it fast, and none of them may change what clients see (tests/node/test_hotpath.py runs this
path and the ordinary one on the same traffic and compares the bytes):

1. *Topics repeat.* The bytes of a topic lead by one dictionary look-up to a `Fanout` (fanouts.py): the topic is valid,
   these channels get it.
2. *Messages of one packet form can be copied as they are.* A QoS 0 PUBLISH is appended, as received, once to the
   fan-out and not once per subscriber; packets that follow with the same header, topic and properties are one piece.
   At the end of the turn the pieces are joined once, and all members are sent the same bytes (turn.py keeps the order).
3. *QoS 1 differs per subscriber only in the packet id.* What is before and behind it is shared; a `Flight` remembers
   these bytes and becomes a message again only if it has to be sent once more.

Everything else (other packets, clients with special wishes, absent clients, hooks) goes the ordinary way, by `Slow`.
"""

from __future__ import annotations

import time
from typing import Final

from headwater.message import Message
from headwater.node.channel import Channel, Fanout
from headwater.node.delivery.taking import Taking
from headwater.node.fanouts import Fanouts
from headwater.node.sending import header
from headwater.node.stats import Stats
from headwater.routing.router import Router
from headwater.session.connection import CLOSING, NEW
from headwater.session.kept import Stored
from headwater.session.session import Session
from headwater.session.translate import message_of
from headwater.session.waiting import Budget
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.errors import MisplacedPacketError, RemoteProtocolError
from headwater.wire.packets import V5, V311, Publish
from headwater.wire.primitives import ANY_NUMBER
from headwater.wire.reasons import MALFORMED_PACKET, PACKET_TOO_LARGE, PROTOCOL_ERROR

PUBACK_HEAD: Final = b"\x40\x02"
PUBACK_NOBODY_HEAD: Final = b"\x40\x03"
PUBACK_NOBODY_TAIL: Final = b"\x10"
NO_PROPERTIES: Final = b"\x00"
CONNECT_BYTE: Final = 0x10


class HotPath(Taking):
    def __init__(self, router: Router, stats: Stats, budget: Budget) -> None:
        super().__init__(stats, budget)
        self.enabled = True
        self.takes_qos1 = True
        self.fanouts = Fanouts(router)

    def feed(self, channel: Channel, data: bytes) -> None:
        """Deal with all whole packets in what arrived; keep the rest."""
        if channel.need:
            collected = self.collect(channel, data)
            if collected is None:
                return
            data = collected
        published = self.stats.publish_received
        position = 0 if self.coordinator is None else self.coordinator.intake.next
        try:
            pos = self._packets(channel, data)
        except RemoteProtocolError as error:
            self.slow.failed(channel, error)
            return
        except Exception:
            self.slow.crashed(channel)
            return
        if pos:
            channel.last_seen = self.now  # [MQTT-3.1.2-22] whole packets count, not bytes
        if pos < len(data) and channel.state != CLOSING:
            self.keep(channel, data[pos:] if pos else data)
        if position:
            self.look_at_store(channel, position)
        if self.no_room and self.stats.publish_received != published:
            self.slow.outruns_store(channel)
        if channel.meter is not None and pos:
            self.slow.metered(channel, pos, self.stats.publish_received - published)

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
            if remaining + 5 > channel.max_unseen:
                if p - pos + remaining > channel.max_in:
                    raise RemoteProtocolError(PACKET_TOO_LARGE, f"a packet of {p - pos + remaining} bytes is too large")
                fast = False
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
            pos = end
            if channel.busy:
                return pos
            if n - pos >= 2 and time.monotonic() > self.until:
                self.slow.postponed(channel)
                return pos
            fast = channel.fast and self.enabled
        return pos

    def _publish0(self, channel: Channel, data: bytes, pos: int, p: int, end: int) -> int:
        """A QoS 0 PUBLISH and the like ones behind it; returns where they end, or 0 for the ordinary way."""
        if end - p < 3:
            return 0
        te = p + 2 + (data[p] << 8 | data[p + 1])
        if te > end:
            return 0
        topic = data[p + 2 : te]
        fanout = self.fanouts.topics.get(topic)
        if fanout is None:
            fanout = self.fanouts.resolve(topic, channel.rights)
            if fanout is None:
                return 0
        if channel.rights is not None and not channel.rights.publishes(topic):
            return 0
        v5 = channel.version == V5
        body = te
        if v5:
            if te >= end:
                return 0
            if data[te]:
                body = self.properties.end(data, te, end)
                if body == 0:
                    return 0
            else:
                body = te + 1
        size = end - pos
        n = len(data)
        count = 1
        # Who gets a message by two ways gets both before the next one.
        if n - end >= size and not fanout.any_special and (fanout.only_groups or not fanout.groups):
            start = data[pos:body]
            like = body - pos
            while end + size <= n and data[end : end + like] == start:  # compiled, `startswith` takes 4 times as long
                end += size
                count += 1
        stats = self.stats
        stats.publish_received += count
        stats.received += count
        position = self.take0(channel, topic, data, pos, end, size, te, body) if fanout.stored else 0
        if fanout.empty:
            return end
        if fanout.only_groups:
            self._share0(channel, fanout, data, pos, end, size, p, te, body, position)
            return end
        if not fanout.dirty:
            self.touch(fanout)
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
            self._special0(channel, fanout, data, pos, end, size, p, position)
        if fanout.groups:
            self._share0(channel, fanout, data, pos, end, size, p, te, body, position)
        return end

    def _share0(
        self,
        channel: Channel,
        fanout: Fanout,
        data: bytes,
        pos: int,
        end: int,
        size: int,
        p: int,
        te: int,
        body: int,
        position: int,
    ) -> None:
        topic = data[p + 2 : te].decode()
        load = size - (body - pos)
        commit = self.commit_of(fanout)
        run = data[pos:end]
        self.share0(fanout.groups, topic, channel.client_id, run, size, load, channel.version, commit, position)

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

    def _special0(
        self, channel: Channel, fanout: Fanout, data: bytes, pos: int, end: int, size: int, p: int, position: int
    ) -> None:
        commit = self.commit_of(fanout)
        version = channel.version
        session = channel.session
        head = p - pos
        while pos < end:
            packet = decode(0x30, data[pos + head : pos + size], version, FROM_CLIENT, ANY_NUMBER)
            assert isinstance(packet, Publish)
            message = message_of(packet, channel.client_id, self.now)
            if commit:
                message.commit = commit
                message.position = position
                position += 1
            self._deliver_special(fanout, message, session)
            pos += size

    def _deliver_special(self, fanout: Fanout, message: Message, session: Session | None) -> None:
        for recipient in fanout.special:
            self.delivering.deliver(recipient, message, session)
        if message.qos:
            for recipient in fanout.absent:
                self.delivering.deliver(recipient, message, session)

    def _publish1(self, channel: Channel, data: bytes, pos: int, p: int, end: int) -> int:
        """A QoS 1 PUBLISH and the like ones behind it; returns where they end, or 0 for the ordinary way."""
        if end - p < 5:
            return 0
        te = p + 2 + (data[p] << 8 | data[p + 1])
        if te + 2 > end:
            return 0
        topic = data[p + 2 : te]
        fanout = self.fanouts.topics.get(topic)
        if fanout is None:
            fanout = self.fanouts.resolve(topic, channel.rights)
            if fanout is None:
                return 0
        if channel.rights is not None and not channel.rights.publishes(topic):
            return 0
        v5 = channel.version == V5
        props = b""
        if v5:
            if te + 2 >= end:
                return 0
            if data[te + 2]:
                body = self.properties.end(data, te + 2, end)
                if body == 0:
                    return 0
                if fanout.acked4:
                    return 0  # who gets it as 3.1.1, without them, may come back as 5.0 for the same flight
                props = data[te + 2 : body]
            else:
                props = NO_PROPERTIES
        budget = self.budget
        if budget.used >= budget.limit or budget.full_lines:
            return 0  # it may have to be refused, or to wait
        if self.open:
            self.settle_all()
        if fanout.unacked4 or fanout.unacked5 or (fanout.acked4 if v5 else fanout.acked5) or fanout.any_special:
            return self._publish1_mixed(channel, fanout, data, pos, p, te, end, props, topic)
        return self._publish1_run(channel, fanout, data, pos, te, end, props, topic)

    def _publish1_run(
        self, channel: Channel, fanout: Fanout, data: bytes, pos: int, te: int, end: int, props: bytes, name: bytes
    ) -> int:
        """All recipients take QoS 1 in the publisher's protocol version: only the packet id differs."""
        n = len(data)
        size = end - pos
        head = data[pos:te]
        version = channel.version
        members = fanout.acked5 if version == V5 else fanout.acked4
        groups = fanout.groups
        topic = _topic(head) if groups else ""
        acks = channel.out
        nobody = fanout.empty and version == V5
        journal = self.journal if fanout.durable else None
        commit = self.commit_of(fanout)
        if (journal is not None or commit) and self.journal is not None:
            self.journal.promise(channel)
        stored: Stored | None = None
        position = 0
        budget = self.budget
        like = len(head)
        skip = 2 + len(props)
        count = 0
        while data[te] or data[te + 1]:
            if commit:
                position = self.take1(channel, name, data[te + skip : end], props)
            if members or groups:
                tail = data[te + 2 : end]
                if journal is not None:
                    stored = journal.packet(head, tail, version, channel.client_id)
                for member in members:
                    self.send1(member, head, tail, version, None, "", stored, commit, position)
                if groups:
                    load = len(tail) - len(props)
                    self.share1(groups, topic, channel.client_id, head, tail, load, version, stored, commit, position)
            if nobody:
                acks.append(PUBACK_NOBODY_HEAD)
                acks.append(data[te : te + 2])
                acks.append(PUBACK_NOBODY_TAIL)
            else:
                acks.append(PUBACK_HEAD)
                acks.append(data[te : te + 2])
            count += 1
            if end + size > n or data[end : end + like] != head:
                break
            if budget.used >= budget.limit or budget.full_lines:
                break
            if props and data[te + size + 2 : te + size + skip] != props:
                break
            te += size
            end += size
        else:
            if count == 0:
                return 0
            end -= size
        self._acked(channel, count)
        return end

    def _acked(self, channel: Channel, count: int) -> None:
        stats = self.stats
        stats.publish_received += count
        stats.received += count
        stats.sent += count
        if not channel.dirty:
            channel.dirty = True
            self.dirty.append(channel)

    def _publish1_mixed(
        self,
        channel: Channel,
        fanout: Fanout,
        data: bytes,
        pos: int,
        p: int,
        te: int,
        end: int,
        props: bytes,
        name: bytes,
    ) -> int:
        """One QoS 1 PUBLISH for recipients of several forms."""
        if not (data[te] or data[te + 1]):
            return 0
        topic = data[p:te]
        payload = data[te + 2 + len(props) : end]
        own = channel.version
        journal = self.journal if fanout.durable else None
        commit = self.commit_of(fanout)
        position = self.take1(channel, name, payload, props) if commit else 0
        stored: Stored | None = None
        if journal is not None:
            stored = journal.packet(data[pos:te], data[te + 2 : end], own, channel.client_id)
        for version in (V311, V5):
            acked = fanout.acked5 if version == V5 else fanout.acked4
            unacked = fanout.unacked5 if version == V5 else fanout.unacked4
            carried = props if version == own else NO_PROPERTIES if version == V5 else b""
            if acked:
                tail = carried + payload
                head = header(0x32, len(topic) + 2 + len(carried) + len(payload)) + topic
                for member in acked:
                    self.send1(member, head, tail, version, None, "", stored, commit, position)
            if unacked:
                unnumbered = header(0x30, len(topic) + len(carried) + len(payload)) + topic + carried + payload
                for member in unacked:
                    self.send0(member, unnumbered, 1, version, commit)
        if fanout.any_special:
            packet = decode(0x32, data[p:end], own, FROM_CLIENT, ANY_NUMBER)
            assert isinstance(packet, Publish)
            message = message_of(packet, channel.client_id, self.now)
            message.stored = stored
            message.commit = commit
            message.position = position
            self._deliver_special(fanout, message, channel.session)
        if fanout.groups:
            head = data[pos:te]
            tail = data[te + 2 : end]
            load = len(payload)
            self.share1(fanout.groups, _topic(head), channel.client_id, head, tail, load, own, stored, commit, position)
        if (journal is not None or commit) and self.journal is not None:
            self.journal.promise(channel)
        channel.out.append(PUBACK_HEAD)
        channel.out.append(data[te : te + 2])
        self._acked(channel, 1)
        return end

    def _pubacks(self, channel: Channel, data: bytes, pos: int) -> int:
        """A run of PUBACKs of four bytes; returns where it ends."""
        session = channel.session
        assert session is not None
        outbound = session.outbound
        flights = outbound.flights
        n = len(data)
        count = 0
        group: object = None
        of_group = 0
        while True:
            packet_id = data[pos + 2] << 8 | data[pos + 3]
            flight = flights.get(packet_id)
            if flight is not None and flight.qos == 1:
                if outbound.unsent:
                    outbound.done(packet_id, flight)
                else:
                    del flights[packet_id]
                    outbound.quota += 1
                    outbound.budget.used -= flight.size
                if flight.kept is not None and self.journal is not None:
                    self.journal.done(flight.kept)
                if flight.group is not group:
                    if of_group:
                        self.delivering.ended(session, group, of_group)
                    group = flight.group
                    of_group = 0
                if group is not None:
                    of_group += 1
            elif flight is not None or packet_id == 0:
                break
            count += 1
            pos += 4
            if n - pos < 4 or data[pos] != 0x40 or data[pos + 1] != 2:
                break
        if of_group:
            self.delivering.ended(session, group, of_group)
        self.stats.received += count
        if flight is not None and flight.qos != 1:
            raise MisplacedPacketError("PUBACK for a message of QoS 2")
        if packet_id == 0:
            raise RemoteProtocolError(PROTOCOL_ERROR, "packet identifier 0")  # [MQTT-2.2.1-3]
        if channel.held or channel.awaited or outbound.unsent:
            self.delivering.drain(channel)
        if channel.shares and flights:
            self.delivering.hasten(channel)
        return pos


def _topic(head: bytes) -> str:
    """The topic at the end of a PUBLISH's head; it has been found valid."""
    start = 2
    while head[start - 1] & 0x80:
        start += 1
    return head[start + 2 :].decode()
