"""A node of the simulation, from a start to a crash: what `node` does around `headwater.peering`, without sockets.

It works in turns. In a turn it deals with what came, publishes what clients sent, and sends. What has to be durable
goes into a batch; what may be seen only then (acknowledgements, QoS ≥ 1 deliveries) waits for the commit.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.peering.applied import Applied
from headwater.peering.coordination import Coordination
from headwater.peering.forwarding import GRAPH, MESH, Forwarding
from headwater.peering.frames import v1
from headwater.peering.frames.frame import (
    NONCE,
    Ack,
    Frame,
    Heartbeat,
    Hello,
    InterestFrame,
    Resume,
    Run,
    Spool,
)
from headwater.peering.frames.hello import agree, encode_hello
from headwater.peering.frames.reading import VERSIONS
from headwater.peering.liveness import LIVE
from headwater.peering.methods.bloom import BLOOM, BloomAnnouncement
from headwater.peering.methods.method import Announcement
from headwater.peering.spool import LinkSpool, SpooledRun
from headwater.routing.feed import FILTER_ADDED, FILTER_REMOVED, RouteChange
from headwater.routing.topics import matches
from headwater_lab.peering_simulation.connection import BEAT, Connection, Waiting
from headwater_lab.peering_simulation.disk import Batch, Disk, JournaledSpools
from headwater_lab.peering_simulation.network import End

if TYPE_CHECKING:
    from headwater_lab.peering_simulation.world import Member, Publication, Subscriber, World

WAIT: Final = 0.2
PACKET: Final = 10
"""Bytes of a packet: its number, behind what stands for a header."""
RUN: Final = 4
"""Messages that are published together at most."""


class Life:
    def __init__(self, world: World, member: Member) -> None:
        self.world = world
        self.member = member
        self.node = member.node
        self.is_dead = False
        disk = member.disk
        disk.boot += 1
        self.storage = JournaledSpools(disk)
        relays = world.edges is not None
        self.hop_limit = GRAPH if relays else MESH
        self.coordination = Coordination(
            self.node,
            disk.boot,
            member.method,
            relays=relays,
            subscribe_wait=WAIT,
            announcement=_announcement(member.method, disk.boot),
        )
        self.forwarding = Forwarding(self.node, disk.boot, self.hop_limit)
        for (origin, boot, number), chunk in sorted(disk.chunks.items()):
            self.forwarding.windows.window(origin, boot).restore(number, chunk)
        self.connections: dict[str, Connection] = {}
        self.spools: dict[str, LinkSpool] = {}
        self.applied: dict[str, Applied] = {}
        self.inbox: list[tuple[Connection, bytes]] = []
        self.published: deque[Publication] = deque()
        self._committing = False
        self._turn_at: float | None = None
        self.filters: dict[str, int] = {}
        for node in sorted(disk.members):
            self.join(node)
        for subscriber in member.subscribers:
            if subscriber.ended is None:
                self.count(subscriber.filter, 1)
        self.wake()
        self._beat()
        self._dial()

    @property
    def now(self) -> float:
        """By this node's own clock."""
        return self.member.offset + self.member.rate * self.world.clock.now

    # ---- clients and members -------------------------------------------------------------------------------------

    def join(self, node: str) -> None:
        if node == self.node:
            return
        is_neighbour = self.world.are_neighbours(self.node, node)
        self.coordination.join(node, is_neighbour)
        if is_neighbour and node not in self.spools:
            boot, bound = self.member.disk.boot, self.world.spool_bytes
            self.spools[node] = LinkSpool(self.storage, node, boot, bound, 2000, self.hop_limit)
            self.applied[node] = Applied(*self.member.disk.applied.get(node, (0, 0)))
        self.wake()

    def subscribe(self, subscriber: Subscriber) -> None:
        self.count(subscriber.filter, 1)
        self.coordination.hold(Waiting(subscriber, self.now))
        self.wake()

    def count(self, filter: str, by: int) -> None:
        before = self.filters.get(filter, 0)
        self.filters[filter] = before + by
        if before == 0 or before + by == 0:
            kind = FILTER_ADDED if by > 0 else FILTER_REMOVED
            self.coordination.route_changed(RouteChange(kind, filter, None, 0), self.now)
        self.wake()

    def use_method(self) -> None:
        """The member's, which has changed."""
        filters = [filter for filter, count in self.filters.items() if count]
        method, boot = self.member.method, self.member.disk.boot
        self.coordination.use_method(method, filters, self.now, _announcement(method, boot))
        self.wake()

    def publish(self, publication: Publication) -> None:
        self.published.append(publication)
        self.wake()

    def crash(self) -> None:
        self.is_dead = True
        for connection in self.connections.values():
            self.world.network.close(connection.end, says_so=self.world.random.random() < 0.5)

    # ---- connections ---------------------------------------------------------------------------------------------

    def attach(self, end: End) -> None:
        """A connection is there: say Hello."""
        if self.is_dead:
            self.world.network.close(end)
            return
        self.drop(end.peer, says_so=True)
        connection = Connection(end, self.now)
        self.connections[end.peer] = connection
        end.received = lambda data: self._arrived(connection, data)
        end.closed = lambda: self._closed(connection)
        boot, relays = self.member.disk.boot, self.world.edges is not None
        hello = Hello(self.node, boot, "lab", VERSIONS, self.member.method, relays, bytes(NONCE))
        self.world.network.send(end, encode_hello(hello))

    def drop(self, peer: str, says_so: bool) -> None:
        connection = self.connections.pop(peer, None)
        if connection is None:
            return
        self.world.network.close(connection.end, says_so)
        self.inbox = [each for each in self.inbox if each[0] is not connection]
        if connection.is_up:
            self.spools[peer].cut()
            self.applied[peer].cut()
            was_synced = self.coordination.is_synced(peer)
            self.coordination.link(peer, False, self.now)
            self.world.link_down(self.node, peer, was_synced)
        self.wake()

    def _arrived(self, connection: Connection, data: bytes) -> None:
        if not self.is_dead:
            self.inbox.append((connection, data))
            self.wake()

    def _closed(self, connection: Connection) -> None:
        if not self.is_dead and self.connections.get(connection.end.peer) is connection:
            self.drop(connection.end.peer, says_so=False)

    def _dial(self) -> None:
        if self.is_dead:
            return
        for peer in self.spools:
            if self.node < peer and peer not in self.connections:
                self.world.dial(self, peer)
        self.world.clock.after(0.2 + 0.2 * self.world.random.random(), self._dial)

    def _beat(self) -> None:
        if self.is_dead:
            return
        for peer, connection in list(self.connections.items()):
            if connection.liveness.judge(self.now) != LIVE:
                self.drop(peer, says_so=True)
            elif connection.is_up:
                self._send(peer, connection.liveness.beat(connection.reader.frames, self.now))
        self.world.clock.after(BEAT / self.member.rate, self._beat)

    def _send(self, peer: str, frame: Frame) -> None:
        connection = self.connections.get(peer)
        if connection is not None and connection.is_up:
            connection.sent += 1
            if not isinstance(frame, Heartbeat):
                self.world.frames_sent += 1
            self.world.network.send(connection.end, v1.encode(frame))

    # ---- turns ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._wake_at(self.world.clock.now + self.member.slowness)

    def _wake_at(self, time: float) -> None:
        if self._turn_at is None or time < self._turn_at:
            self._turn_at = time
            self.world.clock.at(time, lambda: self._turn(time))

    def _turn(self, time: float) -> None:
        if self.is_dead or self._turn_at != time:
            return
        self._turn_at = None
        inbox, self.inbox = self.inbox, []
        for connection, data in inbox:
            if self.connections.get(connection.end.peer) is connection:
                self._read(connection, data)
        for peer in self.connections:
            self._take_held(peer)
        self._publish()
        work = self.coordination.tick(self.now)
        for peer, frame in work.sends:
            self._send(peer, frame)
        for token in work.released:
            assert isinstance(token, Waiting)
            self.world.subscribed(token.subscriber, is_late=self.now - token.asked >= WAIT)
        self._seal()
        self._send_spooled()
        due = (self.coordination.next_tick - self.now) / self.member.rate
        self._wake_at(self.world.clock.now + max(due, 0.0) + 1e-6)

    def _read(self, connection: Connection, data: bytes) -> None:
        peer, reader = connection.end.peer, connection.reader
        connection.liveness.heard(self.now)
        reader.feed(data)
        if not connection.is_up:
            hello = reader.next_hello()
            if hello is None:
                return
            ours = Hello(self.node, self.member.disk.boot, "lab", VERSIONS, self.member.method, False, bytes(NONCE))
            agree(ours, hello)
            connection.is_up = True
            self.coordination.link(peer, True, self.now)
            self._send(peer, self.spools[peer].greeting())
            self.world.link_up(self.node, peer)
        while (frame := reader.next_frame()) is not None:
            self._take(connection, peer, frame)

    def _take(self, connection: Connection, peer: str, frame: Frame) -> None:
        if isinstance(frame, Run):
            if frame.position:
                connection.held.append(frame)
                self._take_held(peer)
            else:
                self._take0(peer, frame)
        elif isinstance(frame, InterestFrame):
            self.coordination.received(peer, frame, self.now)
        elif isinstance(frame, Ack):
            self.spools[peer].acknowledge(frame.position)
        elif isinstance(frame, Heartbeat):
            connection.liveness.received(frame, connection.sent, self.now)
        elif isinstance(frame, Spool):
            self._send(peer, self.applied[peer].begin(frame))
        elif isinstance(frame, Resume):
            self.spools[peer].resume(frame.spool, frame.position)

    # ---- messages ------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        while self.published:
            first = self.published[0]
            links = self.coordination.links(first.topic)
            if first.qos and not all(self.spools[peer].has_room() for peer in links):
                return  # paused, until a peer acknowledges
            run = [self.published.popleft()]
            while self.published and len(run) < RUN and self.published[0].is_like(first):
                run.append(self.published.popleft())
            packets = b"".join(each.packet for each in run)
            if first.qos:
                counter = self.forwarding.number1(len(run))
                self._spool(links, 0, counter, self.node, self.member.disk.boot, packets)
                self.storage.batch.then += [partial(self.world.acknowledged, each) for each in run]
            else:
                counter = self.forwarding.number0(len(run))
                self._send0(links, Run(5, 0, len(run), 1, counter, "", self.member.disk.boot, 0, packets))
            for each in run:
                self._deliver(each)

    def _take0(self, peer: str, run: Run) -> None:
        admission = self.forwarding.admit(run, peer)
        if not admission.fresh:
            return
        known = (admission.fresh & -admission.fresh).bit_length() - 1
        packets = run.packets[known * PACKET :]
        publications = self.world.publications_of(packets)
        for each in publications:
            self._deliver(each)
        if admission.may_go_on:
            others = tuple(other for other in self.coordination.links(publications[0].topic) if other != peer)
            count, counter = run.messages - known, run.counter + known
            self._send0(others, Run(5, run.hops + 1, count, 1, counter, admission.origin, run.boot, 0, packets))

    def _send0(self, links: tuple[str, ...], run: Run) -> None:
        for peer in links:
            self._send(peer, run)

    def _take_held(self, peer: str) -> None:
        held = self.connections[peer].held
        while held:
            run = held[0]
            topic = self.world.publications_of(run.packets[:PACKET])[0].topic
            others = tuple(other for other in self.coordination.links(topic) if other != peer)
            if self.hop_limit > 1 and not all(self.spools[other].has_room(run.hops + 1) for other in others):
                return
            held.popleft()
            self._take1(peer, run, others)

    def _take1(self, peer: str, run: Run, others: tuple[str, ...]) -> None:
        applied = self.applied[peer]
        known = applied.take(run)
        if known < run.messages:
            count, counter = run.messages - known, run.counter + known
            rest = run.behind(known, run.packets[known * PACKET :])
            admission = self.forwarding.admit(rest, peer)
            publications = self.world.publications_of(rest.packets)
            for index, each in enumerate(publications):
                if admission.fresh >> index & 1:
                    self._deliver(each)
                    if admission.may_go_on:
                        place = (counter + index, admission.origin, run.boot)
                        self._spool(others, run.hops + 1, *place, each.packet)
            self._keep_window(admission.origin, run.boot, counter, count)
        record, batch = (applied.spool, applied.received), self.storage.batch
        batch.changes.append(lambda disk: disk.applied.__setitem__(peer, record))
        batch.then.append(lambda: applied.committed(record[1]) if applied.spool == record[0] else None)

    def _keep_window(self, origin: str, boot: int, counter: int, count: int) -> None:
        if self.hop_limit > 1:
            for number, chunk in self.forwarding.windows.window(origin, boot).chunks(counter, count).items():
                key = (origin, boot, number)
                self.storage.batch.changes.append(partial(_put_chunk, key, chunk))

    def _spool(self, links: tuple[str, ...], hops: int, counter: int, origin: str, boot: int, packets: bytes) -> None:
        run = SpooledRun(5, hops, len(packets) // PACKET, counter, origin, boot, "client", packets)
        for peer in links:
            self.spools[peer].append(run)

    def _deliver(self, publication: Publication) -> None:
        for subscriber in self.member.subscribers:
            if subscriber.ended is None and matches(subscriber.filter, publication.topic):
                if publication.qos:
                    self.storage.batch.then.append(partial(self.world.delivered, subscriber, publication))
                else:
                    self.world.delivered(subscriber, publication)

    # ---- the disk ------------------------------------------------------------------------------------------------

    def _seal(self) -> None:
        for spool in self.spools.values():
            sealed = spool.seal()
            if sealed > spool.durable:
                self.storage.batch.then.insert(0, partial(spool.committed, sealed))
        if self._committing or not self.storage.batch:
            return
        batch, self.storage.batch = self.storage.batch, Batch()
        self._committing = True
        self.world.clock.after(self.world.random.choice((0.001, 0.01, 0.03)), lambda: self._committed(batch))

    def _committed(self, batch: Batch) -> None:
        if self.is_dead:
            return
        self._committing = False
        for change in batch.changes:
            change(self.member.disk)
        for then in batch.then:
            then()
        self.wake()

    def _send_spooled(self) -> None:
        for peer, connection in self.connections.items():
            if not connection.is_up:
                continue
            for position, run in self.spools[peer].take():
                origin = "" if run.origin == self.node else run.origin
                head = (run.protocol, run.hops, run.messages, 1, run.counter, origin, run.boot)
                self._send(peer, Run(*head, position, run.packets))
            ack = self.applied[peer].due()
            if ack is not None:
                self._send(peer, ack)


def _put_chunk(key: tuple[str, int, int], chunk: bytes, disk: Disk) -> None:
    disk.chunks[key] = chunk


def _announcement(method: str, seed: int) -> Announcement | None:
    """None: the method's own. A summary takes a seed that nobody knows, and here one that makes it happen again."""
    return BloomAnnouncement(seed, linger=1.0) if method == BLOOM else None
