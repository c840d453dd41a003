"""The frequent packets at full speed: wire, session and routing fused for PUBLISH (QoS 0 and 1), PUBACK and PINGREQ.

Theory. Three facts make it fast, and none of them may change what clients see (tests/node/protocol/test_hotpath.py runs
this path and the ordinary one on the same traffic and compares the bytes):

1. *Topics repeat.* The bytes of a topic lead by one dictionary look-up to a `Fanout` (destinations/fanouts.py): the
   topic is valid, and these are its destinations.
2. *Messages of one packet form can be copied as they are.* QoS 0 packets that follow each other with the same header,
   topic and properties are one `Run`, handed to each destination as a whole. Those who can be sent it as it is have one
   piece between them; at the end of the turn all pieces are joined once (turn.py keeps the order).
3. *QoS 1 differs per subscriber only in the packet id.* What is before and behind it is shared; a `Flight` remembers
   these bytes and becomes a message again only if it has to be sent once more.

A PUBLISH takes five steps: resolve its fan-out, admit it, store it, hand it to its destinations, acknowledge it. What
kinds of destinations there are is not known here.

Everything else (other packets, clients with special wishes, absent clients, hooks) goes the ordinary way, by `Slow`.
"""

from __future__ import annotations

import time
from typing import Final

from headwater.node.delivery.coordinator import Coordinator
from headwater.node.delivery.known_properties import KnownProperties
from headwater.node.destinations.destination import EACH, LONG, Fanout, Run
from headwater.node.destinations.fanouts import Fanouts
from headwater.node.destinations.local import LocalRoutes
from headwater.node.destinations.members import NO_PROPERTIES
from headwater.node.plane.channel import Channel
from headwater.node.plane.collecting import Collecting
from headwater.node.plane.counters import Counters
from headwater.routing.router import Router
from headwater.session.connection import CLOSING, NEW
from headwater.session.waiting import Budget
from headwater.wire.errors import MisplacedPacketError, RemoteProtocolError
from headwater.wire.packets import V5
from headwater.wire.reasons import MALFORMED_PACKET, PACKET_TOO_LARGE, PROTOCOL_ERROR

PUBACK_HEAD: Final = b"\x40\x02"
PUBACK_NOBODY_HEAD: Final = b"\x40\x03"
PUBACK_NOBODY_TAIL: Final = b"\x10"
CONNECT_BYTE: Final = 0x10
EFFORT: Final = 64
"""Receivers after which the clock is looked at: some ten microseconds."""
LONG_TOPIC: Final = 1
"""The first byte of a topic's length: above, it is not remembered, and to look for it takes 10 µs for 64 KiB."""


class HotPath(Collecting):
    def __init__(self, router: Router, stats: Counters, budget: Budget) -> None:
        super().__init__(stats, budget)
        self.enabled = True
        self.takes_qos1 = True
        self.coordinator: Coordinator | None = None
        self.properties = KnownProperties()
        self.no_room = False
        """The disk has too little room: who publishes is not read from until it has."""
        self.own_fanouts = Fanouts(LocalRoutes(router, self))
        """Of what is published here."""
        self.fanouts = self.own_fanouts
        """Of the packets that are being dealt with."""
        router.feed.listen(self.fanouts)
        self.effort = 0
        """Receivers that were given messages one after another since the clock was last looked at."""
        self.run = Run(None)
        """One for all: each is handed over before the next is made."""

    def feed(self, channel: Channel, data: bytes) -> None:
        """Deal with all whole packets in what arrived; keep the rest."""
        if channel.peer is not None:
            channel.peer.feed(data)
            return
        self._feed(channel, data)

    def feed_from(self, channel: Channel, data: bytes, fanouts: Fanouts) -> None:
        """As `feed`, for what a proxy's home broker sent (node/proxy): its messages go where these fan-outs say."""
        self.fanouts = fanouts
        try:
            self._feed(channel, data)
        finally:
            self.fanouts = self.own_fanouts

    def _feed(self, channel: Channel, data: bytes) -> None:
        if channel.need:
            collected = self.collect(channel, data)
            if collected is None:
                return
            data = collected
        published = self.stats.messages_received
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
        if position and self.coordinator is not None and self.coordinator.outruns(position):
            self.slow.outruns_store(channel)
        if self.no_room and self.stats.messages_received != published:
            self.slow.outruns_store(channel)
        if channel.meter is not None and pos:
            self.slow.metered(channel, pos, self.stats.messages_received - published)

    def feed_run(self, channel: Channel, data: bytes, fanouts: Fanouts) -> int:
        """Deal with PUBLISH packets that came from another node, as if `channel` had published them, for the
        destinations of these fan-outs. Returns where it stopped: there was no time for the rest, or the last packet is
        not whole. Raises RemoteProtocolError."""
        self.fanouts = fanouts
        try:
            return self._packets(channel, data)
        finally:
            self.fanouts = self.own_fanouts
            channel.out.clear()  # acknowledgements: the link has its own

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
                if shift > 7 and p < n and data[p] > LONG_TOPIC:
                    fast = False
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
                        if self.effort > EFFORT and self._must_wait(channel, n - pos):
                            return pos
                        continue
                elif first == 0x32 and self.takes_qos1:
                    after = self._publish1(channel, data, pos, p, end)
                    if after > 0:
                        pos = after
                        if self.effort > EFFORT and self._must_wait(channel, n - pos):
                            return pos
                        continue
                elif first == 0x40 and remaining == 2:
                    pos = self._pubacks(channel, data, pos)
                    continue
                elif first == 0xC0 and remaining == 0 and channel.peer is None:
                    pos = self.answer_pings(channel, data, end)
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

    def _must_wait(self, channel: Channel, left: int) -> bool:
        """Messages to many groups, or recipients with wishes of their own, take long: whether this turn has no time for
        the channel's other packets."""
        self.effort = 0
        if left < 2 or time.monotonic() <= self.until:
            return False
        self.slow.postponed(channel)
        return True

    # ---- PUBLISH -----------------------------------------------------------------------------------------------

    def _fanout(self, channel: Channel, topic: bytes) -> Fanout | None:
        """Where a client's message goes; None: the ordinary way finds out."""
        fanout = self.fanouts.topics.get(topic)
        if fanout is None:
            fanout = self.fanouts.resolve(topic, channel.rights)
        if channel.rights is not None and not channel.rights.publishes(topic):
            return None
        return fanout

    def _publish0(self, channel: Channel, data: bytes, pos: int, p: int, end: int) -> int:
        """A QoS 0 PUBLISH and the like ones behind it; returns where they end, or 0 for the ordinary way."""
        if end - p < 3:
            return 0
        te = p + 2 + (data[p] << 8 | data[p + 1])
        if te > end:
            return 0
        topic = data[p + 2 : te]
        fanout = self._fanout(channel, topic)
        if fanout is None or (fanout.width and fanout.width * (EACH + end - pos) > LONG):
            return 0
        body = te
        if channel.version == V5:
            if te >= end:
                return 0
            if data[te]:
                body = self.properties.end(data, te, end)
                if body == 0:
                    return 0
            else:
                body = te + 1
        size = end - pos
        count = 1
        if fanout.in_runs and len(data) - end >= size:
            start = data[pos:body]
            like = body - pos
            n = len(data)
            while end + size <= n and data[end : end + like] == start:  # compiled, `startswith` takes 4 times as long
                end += size
                count += 1
        self.stats.messages_received += count
        self.stats.received += count
        if fanout.store is None and not fanout.destinations:
            return end
        run = self.run
        run.channel = channel
        run.version = channel.version
        run.topic = topic
        run.data = data
        run.start = pos
        run.end = end
        run.size = size
        run.count = count
        run.topic_at = p
        run.topic_end = te
        run.body = body
        run.commit = 0
        if fanout.store is not None:
            fanout.store.take0(run)
        for destination in fanout.destinations:
            destination.take0(run)
        self.effort += fanout.width
        return end

    def _publish1(self, channel: Channel, data: bytes, pos: int, p: int, end: int) -> int:
        """A QoS 1 PUBLISH and the like ones behind it; returns where they end, or 0 for the ordinary way."""
        if end - p < 5:
            return 0
        te = p + 2 + (data[p] << 8 | data[p + 1])
        if te + 2 > end or not (data[te] or data[te + 1]):
            return 0
        topic = data[p + 2 : te]
        fanout = self._fanout(channel, topic)
        if fanout is None or (fanout.width and fanout.width * (EACH + end - pos) > LONG):
            return 0
        properties = b""
        if channel.version == V5:
            if te + 2 >= end:
                return 0
            if data[te + 2]:
                body = self.properties.end(data, te + 2, end)
                if body == 0 or fanout.drops_properties:
                    return 0
                properties = data[te + 2 : body]
            else:
                properties = NO_PROPERTIES
        budget = self.budget
        if budget.used >= budget.limit or budget.full_queues:
            return 0  # it may have to be refused, or to wait
        if self.open:
            self.settle_all()
        run = self.run
        run.channel = channel
        run.version = channel.version
        run.topic = topic
        run.head = data[pos:te]
        run.properties = len(properties)
        run.commit = 0
        run.position = 0
        run.journaled = None
        return self._hand_over1(channel, fanout, run, data, te, end - pos, properties)

    def _hand_over1(
        self, channel: Channel, fanout: Fanout, run: Run, data: bytes, te: int, size: int, properties: bytes
    ) -> int:
        """QoS 1 packets of one `size`, the first with its packet id at `te`, one at a time: stored, handed to all
        destinations, acknowledged. Returns where they end."""
        journal = self.journal
        if journal is not None and fanout.promises:
            journal.promise(channel)
        head = run.head
        like = len(head)
        skip = 2 + len(properties)
        acks = channel.out
        nobody = not fanout.somebody and run.version == V5
        budget = self.budget
        n = len(data)
        end = te - like + size
        count = 0
        while True:
            run.tail = data[te + 2 : end]
            if fanout.store is not None:
                fanout.store.take1(run)
            if fanout.durable and journal is not None:
                run.journaled = journal.packet(head, run.tail, run.version, channel.client_id)
            for destination in fanout.destinations:
                destination.take1(run)
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
            if budget.used >= budget.limit or budget.full_queues:
                break
            if properties and data[te + size + 2 : te + size + skip] != properties:
                break
            if not (data[te + size] or data[te + size + 1]):
                break
            if count * fanout.width > EFFORT:
                break
            te += size
            end += size
        stats = self.stats
        self.effort += count * fanout.width
        stats.messages_received += count
        stats.received += count
        stats.sent += count
        if not channel.dirty:
            channel.dirty = True
            self.dirty.append(channel)
        return end

    def _pubacks(self, channel: Channel, data: bytes, pos: int) -> int:
        """A run of PUBACKs of four bytes; returns where it ends."""
        session = channel.session
        if session is None:
            raise MisplacedPacketError("something else than PUBLISH in a run")  # of another node
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
                if flight.journaled is not None and self.journal is not None:
                    self.journal.done(flight.journaled)
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
