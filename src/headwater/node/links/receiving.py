"""Runs that another node sent, on their way to this node's clients.

A run's packets are fed to the hot path as if the link had published them: they were admitted where they came from, so
nobody is asked for rights, and nobody is acknowledged but the peer. Where every node is linked with every other
nothing goes on from here; else the fan-outs of a link have the other links among their destinations, and packets are
fed one by one, as each has an id of its own.

QoS 1 and 2 are applied in the order of their positions. A message that finds no room (queues with `queue_full =
"refuse"`, memory, the spools of others) stops the rest of what the peer sent: it waits here, `in_flight` bytes of it at
most, and the peer's spool keeps the rest.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.node.destinations.fanouts import NOT_FOR_CLIENTS, Fanouts
from headwater.node.links.end import MAX_PUBLISHER_BYTES, MAX_PUBLISHERS, PeerEnd
from headwater.node.links.groups import SpanningGroups
from headwater.node.links.post import Post
from headwater.node.links.sending import OutgoingRuns, Relayed, packet_end
from headwater.node.links.spooling import Spooling
from headwater.node.plane.channel import Channel, Peer
from headwater.node.plane.sending import header
from headwater.node.protocol.server import Server
from headwater.peering.coordination import Coordination
from headwater.peering.forwarding import MESH, Admission, Forwarding
from headwater.peering.frames.frame import MalformedFrame, Publisher, Run
from headwater.session.connection import CONNECTED
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import Publish
from headwater.wire.primitives import ANY_NUMBER

LARGEST_PACKET: Final = 1 << 28
NOT_FOR_NODES: Final = tuple(each.decode() for each in NOT_FOR_CLIENTS)
"""Topics that begin so say something about one broker, and stay there."""
MOST_HELD: Final = 8 << 20
"""Bytes of QoS 1 and 2 that wait here for room: more than a peer may have in flight."""


class Shared:
    """What the receiving halves of all links of a node have in common."""

    def __init__(
        self,
        server: Server,
        coordination: Coordination,
        forwarding: Forwarding,
        spooling: Spooling,
        outgoing: OutgoingRuns,
        post: Post,
        groups: SpanningGroups | None,
    ) -> None:
        self.server = server
        self.coordination = coordination
        self.forwarding = forwarding
        self.spooling = spooling
        self.outgoing = outgoing
        self.post = post
        self.groups = groups


class Held:
    """A run of QoS 1 or 2 that is not applied to its end."""

    def __init__(self, run: Run, client: _Client) -> None:
        self.run = run
        self.client = client


class _Client:
    """Who has a number on a link: a client, and what it sends to one shared group alone (`GroupLink`)."""

    def __init__(self, sender: str, protocol: int) -> None:
        self.client_id, _, self.group = sender.partition("\0")
        self.size = len(sender.encode())
        self.protocol = protocol


class Receiving:
    """The runs of one link. `peer` is told of packets that go the ordinary way."""

    def __init__(self, shared: Shared, end: PeerEnd, fanouts: Fanouts, peer: Peer) -> None:
        self._shared = shared
        self._hot = shared.server.hot
        self._end = end
        self._fanouts = fanouts
        self._fanouts0 = fanouts
        """Of QoS 0."""
        self._publishers: dict[int, _Client] = {}
        self._publisher_bytes = 0
        self.held: deque[Held] = deque()
        self._held_bytes = 0
        self._rest: tuple[bytes, int, _Client] | None = None
        channel = Channel(self._hot, -1, _nothing, _nowhere)
        channel.peer = peer
        channel.state = CONNECTED
        channel.fast = True
        channel.max_in = channel.max_unseen = LARGEST_PACKET
        self._channel = channel
        self._kept = b""
        self._done = 0
        """Messages of the run that is being applied."""
        self._letters = 0
        """Of what is being fed, those that are for services."""
        self._is_postponed = False

    def use(self, fanouts: Fanouts, fanouts0: Fanouts) -> None:
        """From here on, for QoS 1 and 2, and for QoS 0."""
        self._fanouts = fanouts
        self._fanouts0 = fanouts0

    def in_use(self) -> list[Fanouts]:
        return [self._fanouts, self._fanouts0]

    # ---- frames --------------------------------------------------------------------------------------------------

    def publisher(self, frame: Publisher) -> None:
        if frame.number >= MAX_PUBLISHERS:
            raise MalformedFrame(f"publisher {frame.number}, where there may be {MAX_PUBLISHERS}")
        before = self._publishers.pop(frame.number, None)
        if before is not None:
            self._publisher_bytes -= before.size
        client = self._publishers[frame.number] = _Client(frame.client_id, frame.protocol)
        if client.group and self._shared.groups is None:
            raise MalformedFrame("runs for a shared group, where each node has groups of its own")
        self._publisher_bytes += client.size
        if self._publisher_bytes > MAX_PUBLISHER_BYTES + 65535:
            raise MalformedFrame("too many bytes of client ids")

    def run(self, run: Run) -> bool:
        """Whether there was time for all of it; else `go_on` before anything else is given here."""
        publisher = self._publishers.get(run.publisher)
        if publisher is None or publisher.protocol != run.protocol:
            raise MalformedFrame(f"a run of publisher {run.publisher}, who is not known")
        if run.position:
            self._held_bytes += len(run.packets)
            if self._held_bytes > MOST_HELD + len(run.packets):
                raise MalformedFrame("more is in flight than may be")
            self.held.append(Held(run, publisher))
            return self.apply_held()
        forwarding = self._shared.forwarding
        if forwarding.hop_limit > MESH:
            return self._run_on(run, publisher)
        known = forwarding.known0(run, self._end.peer)
        if known == run.messages:
            return True
        packets = _behind(run.packets, known) if known else run.packets
        return self._feed0(packets, run.messages - known, publisher)

    def _run_on(self, run: Run, client: _Client) -> bool:
        """One of QoS 0 that other nodes may get from here."""
        admission = self._shared.forwarding.admit(run, self._end.peer)
        if not admission.fresh:
            return True
        known = (admission.fresh & -admission.fresh).bit_length() - 1
        packets = _behind(run.packets, known)
        count = run.messages - known
        if admission.may_go_on:
            relayed = Relayed(self._end, admission.origin, run.boot, run.counter + known, run.hops + 1)
            self._relay(packets, count, client, relayed)
            return True
        return self._feed0(packets, count, client)

    def go_on(self) -> bool:
        """With what there was no time for."""
        if self._rest is not None:
            packets, count, client = self._rest
            self._rest = None
            if not self._feed0(packets, count, client):
                return False
        return self.apply_held()

    # ---- QoS 0 ---------------------------------------------------------------------------------------------------

    def _feed0(self, packets: bytes, count: int, client: _Client) -> bool:
        done, at = self._feed(packets, client, self._fanouts0)
        if self._is_postponed:
            self._rest = (packets[at:], count - done, client)
            return False
        _check(done == count and at == len(packets))
        return True

    def _feed(self, packets: bytes, client: _Client, fanouts: Fanouts) -> tuple[int, int]:
        """How many messages were dealt with, and where they end."""
        channel, hot = self._channel, self._hot
        channel.client_id = client.client_id
        channel.version = client.protocol
        channel.busy = False
        self._is_postponed = False
        self._kept = b""
        self._letters = 0
        before = hot.stats.messages_received
        server = self._shared.server
        server.came_from = self._end.peer
        groups = self._shared.groups if client.group else None
        if groups is not None:
            fanouts = groups.fanouts_of(client.group)
        try:
            at = hot.feed_run(channel, packets, fanouts)
        except RemoteProtocolError as error:
            raise MalformedFrame(error.text) from None
        finally:
            server.came_from = ""
            messages = hot.stats.messages_received - before
            self._end.messages_received += messages
            if groups is not None:
                groups.came(self._end.peer, client.group, messages)
            done = messages + self._letters
            self._done += done
        coordinator = hot.coordinator
        if messages and ((coordinator is not None and coordinator.too_much) or hot.no_room):  # letters are not stored
            link = self._end.channel
            if link is not None:
                hot.slow.outruns_store(link)
        return done, at - len(self._kept)

    def _relay(self, packets: bytes, count: int, client: _Client, relayed: Relayed) -> None:
        """One by one: each has an id."""
        outgoing = self._shared.outgoing
        outgoing.settle()
        at = 0
        try:
            for _ in range(count):
                end = _end_of(packets, at)
                outgoing.relayed = relayed
                done, _ = self._feed(packets[at:end], client, self._fanouts)
                outgoing.settle()
                _check(done == 1)
                relayed.counter += 1
                at = end
        finally:
            outgoing.relayed = None
        _check(at == len(packets))

    # ---- QoS 1 and 2 ---------------------------------------------------------------------------------------------

    def apply_held(self) -> bool:
        """As much as there is room for; False: there is no time for more."""
        while self.held:
            held = self.held[0]
            size = len(held.run.packets)
            _drop_from(held, self._end.applied.known(held.run))
            is_done = not held.run.messages or self._apply(held)
            self._held_bytes -= size - len(held.run.packets)
            if not is_done:
                return not self._is_postponed
            self.held.popleft()
            self._held_bytes -= len(held.run.packets)
        return True

    def _apply(self, held: Held) -> bool:
        """Whether all of it is applied. Whatever is goes into the next commit, together with how far that is."""
        run = held.run
        admission = self._shared.forwarding.look(run, self._end.peer)
        every = (1 << run.messages) - 1
        self._done = 0
        try:
            if admission.fresh == every and not admission.may_go_on and self._shared.forwarding.hop_limit == MESH:
                done, at = self._feed(run.packets, held.client, self._fanouts)
                if not self._kept and not self._is_postponed:
                    _check(done == run.messages and at == len(run.packets))
            else:
                self._apply_each(held, admission)
        finally:  # the rest may be malformed: what was before it must not be delivered again
            is_done = self._is_applied(held, admission.origin, min(self._done, run.messages))
        return is_done

    def _is_applied(self, held: Held, origin: str, done: int) -> bool:
        """So many of its messages; whether these are all."""
        end = self._end
        if done:
            run = held.run if done == held.run.messages else held.run.first(done)
            if self._shared.forwarding.hop_limit > MESH:
                self._shared.forwarding.admit(run, end.peer)
            end.applied.take(run)
            self._shared.spooling.keep_window(origin, run.boot, run.counter, done)
            self._shared.spooling.applied(end)
            if done == held.run.messages:
                return True
            _drop_from(held, done)
        return False

    def _apply_each(self, held: Held, admission: Admission) -> None:
        """One by one, some of them not new, or to be relayed; `_done` of them, as many as there was room for."""
        run, outgoing = held.run, self._shared.outgoing
        outgoing.settle()
        at = 0
        try:
            for index in range(run.messages):
                end = _end_of(run.packets, at)
                if admission.fresh >> index & 1:
                    packet = run.packets[at:end]
                    if admission.may_go_on:
                        if not self._others_have_room(packet, run.hops + 1):
                            return
                        outgoing.relayed = Relayed(
                            self._end, admission.origin, run.boot, run.counter + index, run.hops + 1
                        )
                    self._feed(packet, held.client, self._fanouts)
                    outgoing.settle()
                    if self._kept:
                        return
                self._done = index + 1
                at = end
        finally:
            outgoing.relayed = None
        _check(at == len(run.packets))

    def _others_have_room(self, packet: bytes, hops: int) -> bool:
        start = 1
        while packet[start] & 0x80:
            start += 1
        start += 1
        topic = packet[start + 2 : start + 2 + int.from_bytes(packet[start : start + 2], "big")]
        ends = self._shared.spooling.ends
        try:
            links = self._shared.coordination.links(topic.decode())
        except UnicodeDecodeError:
            raise MalformedFrame("a topic that is not UTF-8") from None
        return all(ends[peer].spool.has_room(hops) for peer in links if peer != self._end.peer and peer in ends)

    # ---- the ordinary way ----------------------------------------------------------------------------------------

    def packet(self, first_byte: int, body: bytes) -> None:
        """One packet of a run. Raises RemoteProtocolError."""
        server = self._shared.server
        packet = decode(first_byte, body, self._channel.version, FROM_CLIENT, ANY_NUMBER)
        if not isinstance(packet, Publish):
            raise MalformedFrame("something else than PUBLISH in a run")
        if self._shared.post.is_for_services(packet.topic):
            self._letter(packet, first_byte, body)
            return
        if not packet.topic or packet.topic.startswith(NOT_FOR_NODES):
            raise MalformedFrame("a topic that is not for other nodes")
        if packet.qos and not server.admission.has_room(packet.topic, None):
            self._wait_for_room(first_byte, body)
            return
        server.stats.messages_received += 1
        server.stats.received += 1
        if packet.qos and packet.properties is not None and packet.properties.message_expiry_interval == 0:
            return  # its time was over when it was sent
        server.publishing.take_from_node(message_of(packet, self._channel.client_id, server.hot.now))

    def _letter(self, packet: Publish, first_byte: int, body: bytes) -> None:
        post = self._shared.post
        if self._shared.outgoing.relayed is not None:
            raise MalformedFrame("a letter that is relayed")
        if packet.qos and not post.has_room(self._end, packet.topic, packet.payload):
            self._wait_for_room(first_byte, body)
            return
        self._letters += 1
        server, hot = self._shared.server, self._hot
        fanouts, hot.fanouts = hot.fanouts, hot.own_fanouts  # what follows from it happens here
        server.came_from = ""
        post.received(self._end, packet.topic, packet.payload, packet.qos > 0)
        server.came_from = self._end.peer
        hot.fanouts = fanouts

    def _wait_for_room(self, first_byte: int, body: bytes) -> None:
        self._kept = header(first_byte, len(body)) + body
        self._channel.busy = True  # for the loop that feeds it: nothing behind it now

    def postponed(self) -> None:
        self._is_postponed = True


def _drop_from(held: Held, count: int) -> None:
    """The first messages of the run are done."""
    if count:
        held.run = held.run.behind(count, _behind(held.run.packets, count))


def _behind(packets: bytes, count: int) -> bytes:
    at = 0
    for _ in range(count):
        at = _end_of(packets, at)
    return packets[at:]


def _end_of(packets: bytes, at: int) -> int:
    try:
        end = packet_end(packets, at)
    except IndexError:
        end = len(packets) + 1
    _check(end <= len(packets))
    return end


def _check(is_right: bool) -> None:
    if not is_right:
        raise MalformedFrame("a run has other packets than its head says")


def _nothing(size: int) -> bytes:
    return b""


def _nowhere(data: bytes) -> int:
    return len(data)
