"""One connection with another node, from its Hello to its end.

    Hello, of who has dialed first -> Proof both ways, where there is a secret -> up: frames
    a heartbeat every `heartbeat` seconds; no progress for `patience` seconds ends it (peering/liveness.py)

Who may link: with TLS, whoever's certificate has the node id that its Hello says; with a secret, whoever proves to
know it; with neither, only processes of this machine. The link is judged before anything else of it is read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headwater.node.links.end import PeerEnd
from headwater.node.links.receiving import Receiving
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import BUSY, Channel, Peer
from headwater.peering.frames import v1
from headwater.peering.frames.frame import (
    Ack,
    Frame,
    Gossip,
    Heartbeat,
    Hello,
    InterestFrame,
    Leave,
    MalformedFrame,
    Proof,
    Publisher,
    Refuse,
    Resume,
    RetainedFrame,
    Run,
    Spool,
)
from headwater.peering.frames.hello import Refused, agree, encode_hello
from headwater.peering.frames.reading import FrameReader
from headwater.peering.liveness import LIVE, Liveness
from headwater.peering.secret import is_proven, proof
from headwater.session.connection import CONNECTED

if TYPE_CHECKING:
    from headwater.node.links.links import Links

log = logging.getLogger("headwater.cluster")

GREETING: Final = 0
PROVING: Final = 1
AWAITING: Final = 2
UP: Final = 3
PARTING: Final = 4
"""This node has left, and the other one is to end the connection when it has heard of it."""
CLOSED: Final = 5
LOST: Final = "the connection was lost"
ALREADY: Final = "there is a link already"
MOVING: Final = 65536
"""Bytes between two heartbeats with which a frame that is not whole makes progress."""
LARGEST_RUN: Final = 1 << 28
"""Bytes of packets: the largest of MQTT fits, whatever this node takes from its own clients."""


class Link(Peer):
    """`dialed`: the address that this node has dialed; "" if the other one has."""

    def __init__(self, links: Links, channel: Channel, dialed: str) -> None:
        self.links = links
        self.channel = channel
        self.dialed = dialed
        self.phase = GREETING
        self.ours = links.hello()
        self.hello: Hello | None = None
        self.version = 0
        self.reader = FrameReader(LARGEST_RUN)
        now = links.server.hot.now
        self.since = now
        self.liveness = Liveness(now, links.settings.heartbeat, links.settings.patience)
        self.end: PeerEnd | None = None
        self.receiving: Receiving | None = None
        self.bytes_received = 0
        self.why = ""
        """Why it is closed."""
        self._frames_sent = 0
        self._bytes_before = 0
        self._is_suspended = False
        self._has_answered = True
        self._has_greeted = False
        channel.peer = self
        if dialed:
            self._greet()

    @property
    def node(self) -> str:
        """ "" before its Hello."""
        return "" if self.hello is None else self.hello.node

    # ---- what comes ----------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        if self.phase == PARTING:
            return
        self.liveness.heard(self.links.server.hot.now)
        self.bytes_received += len(data)
        self.reader.feed(data)
        end = self.end
        if end is not None and end.unread and self.channel.backlog_size == 0:
            end.unread = 0
        if end is not None and end.unread > self.links.max_unread:
            self.close(f"more than {self.links.max_unread} bytes of answers are not read")
            return
        self._read()

    def _read(self) -> None:
        try:
            while self.phase <= UP and not self._is_suspended:
                if self.phase == GREETING:
                    hello = self.reader.next_hello()
                    if hello is None:
                        return
                    self._greeted(hello)
                    continue
                frame = self.reader.next_frame()
                if frame is None:
                    return
                self._frame(frame)
        except MalformedFrame as error:
            self.failed(str(error))
        except Refused as refusal:  # compiled, one name has one type
            self._tell(f"node {self.node or '?'} ({self.channel.address}) is refused: {refusal}", logging.WARNING)
            self._end_with(str(refusal))

    def _frame(self, frame: Frame) -> None:
        end, receiving = self.end, self.receiving
        if end is None or receiving is None:
            self._before_it_is_up(frame)
        elif isinstance(frame, Run):
            if not receiving.run(frame):
                self._suspend()
            elif receiving.held:
                self.links.try_held_again()
        elif isinstance(frame, Ack):
            end.spool.acknowledge(frame.position)
            self.links.spooling.acknowledged(end)
            self.links.send_owed(end)
        elif isinstance(frame, Publisher):
            receiving.publisher(frame)
        elif isinstance(frame, InterestFrame):
            self.links.interest(self.node, frame)
        elif isinstance(frame, RetainedFrame):
            self.links.retaining.received(end, frame)
        elif isinstance(frame, Heartbeat):
            self._heartbeat(end, frame)
        elif isinstance(frame, Gossip):
            self.links.gossip(self, frame.data)
        elif isinstance(frame, Spool):
            end.send(end.applied.begin(frame))
        elif isinstance(frame, Resume):
            self.links.spooling.resume(end, frame)
        elif isinstance(frame, Leave):
            self.links.left(self, frame.forget)
        elif isinstance(frame, Refuse):
            self.close(f"refused by the other node: {frame.reason}")
        else:
            raise Refused("the other node has a cluster.secret, this one has none")

    def _before_it_is_up(self, frame: Frame) -> None:
        if isinstance(frame, Refuse):
            self.close(f"refused by the other node: {frame.reason}")
        elif self.phase == PROVING:
            assert self.hello is not None
            if not isinstance(frame, Proof):
                self.refuse("a join secret is asked for (cluster.secret), and the other node has none")
            elif not is_proven(self.links.secret, self.ours, self.hello, frame):
                self.refuse("the join secret is another one")
            else:
                self._is_right()
        elif isinstance(frame, Proof):
            self.refuse("the other node has a join secret (cluster.secret), and this one has none")
        elif isinstance(frame, Leave):
            self.links.left(self, frame.forget)
        else:
            self._up()
            if self.phase == UP:
                self._frame(frame)

    def _greet(self) -> None:
        self._has_greeted = True
        self._write(encode_hello(self.ours))

    def _greeted(self, hello: Hello) -> None:
        self.hello = hello
        if not self._has_greeted:  # who has dialed speaks first: before, TLS may not have begun
            self._greet()
        self.version = agree(self.ours, hello)
        why = self.links.objection(self)
        if why:
            self.refuse(why)
        elif self.links.secret:
            self.phase = PROVING
            self._frames_sent = 1
            self._write(v1.encode(proof(self.links.secret, self.ours, hello)))
        else:
            self._is_right()

    def _is_right(self) -> None:
        """There is nothing against the other node. Who has dialed waits for the first frame: it may be a Refuse."""
        if self.dialed:
            self.phase = AWAITING
        else:
            self._up()

    def _up(self) -> None:
        if self.links.has_left:
            self.part()
            return
        why = self.links.admit(self)
        if why:
            self.refuse(why)
            return
        self.phase = UP
        self.channel.state = CONNECTED
        self.channel.known = True
        self.since = self.links.server.hot.now
        self.links.is_up(self, self._frames_sent)

    # ---- time ----------------------------------------------------------------------------------------------------

    def beat(self, now: float) -> None:
        """Once in `heartbeat` seconds."""
        if self.phase == UP and self.end is not None:
            if self._is_suspended or self.channel.paused:
                self.liveness.heard(now)  # it is this node that does not read
            is_moving = self.reader.kept > 0 and self.bytes_received - self._bytes_before >= MOVING
            self._bytes_before = self.bytes_received
            if is_moving:
                self.liveness.moves(now)
            state = self.liveness.judge(now)
            if state != LIVE:
                self.close(f"{state} for {self.liveness.patience:g} s")
                return
            if self.dialed:
                self.end.send(self.liveness.beat(self.reader.frames, now))
                self._has_answered = False
            elif is_moving:
                self.end.send(self.liveness.beat(self.reader.frames, now, is_answer=True))
        elif now - self.since > self.liveness.patience:
            self.close("no Hello in time")

    def _heartbeat(self, end: PeerEnd, frame: Heartbeat) -> None:
        now = self.links.server.hot.now
        self.liveness.received(frame, end.frames_sent, now, end.large)
        if not self.dialed and frame.sequence % 2:
            end.send(self.liveness.beat(self.reader.frames, now, is_answer=True))
        elif self.dialed and not self._has_answered:
            self._has_answered = True
            end.send(self.liveness.beat(self.reader.frames, now, is_answer=True))

    def _suspend(self) -> None:
        """There is no time in this turn for what came."""
        self._is_suspended = True
        self.links.server.pause(self.channel, BUSY)
        self.links.server.background.add(_Rest(self))

    def resume(self) -> bool:
        """Go on; False: there is still more than time."""
        receiving = self.receiving
        if self.phase != UP or receiving is None:
            return True
        try:
            if not receiving.go_on():
                return False
        except MalformedFrame as error:
            self.failed(str(error))
            return True
        if receiving.held:
            self.links.try_held_again()
        self._is_suspended = False
        self._read()
        if not self._is_suspended and self.phase == UP:
            self.links.server.resume(self.channel, BUSY)
        return True

    def apply_held(self) -> None:
        """There may be room now for what found none."""
        if self._is_suspended or self.receiving is None:
            return
        try:
            if not self.receiving.apply_held():
                self._suspend()
        except MalformedFrame as error:
            self.failed(str(error))

    # ---- the plane -----------------------------------------------------------------------------------------------

    def packet(self, first_byte: int, body: bytes) -> None:
        assert self.receiving is not None
        self.receiving.packet(first_byte, body)

    def postponed(self) -> None:
        assert self.receiving is not None
        self.receiving.postponed()

    def written(self) -> None:
        if self.end is not None:
            self.links.send_owed(self.end)

    # ---- the end -------------------------------------------------------------------------------------------------

    def refuse(self, why: str) -> None:
        if why != ALREADY:
            self._tell(f"refused a link with node {self.node or '?'} ({self.channel.address}): {why}")
        self._end_with(why)

    def _end_with(self, why: str) -> None:
        """Say why, and close."""
        self._write(v1.encode(Refuse(why[:200])))
        self.close(why)

    def part(self) -> None:
        """Say that this node has left for good. The other one ends the connection: to close it here, with bytes unread,
        would reset it, and might take the word from the other one's buffer."""
        was_up = self.phase == UP
        self.phase = PARTING
        self.since = self.links.server.hot.now
        self.why = "this node has left the cluster"
        self._write(v1.encode(Leave(True)))
        self.links.is_down(self, was_up)
        self.links.greeting.add(self)

    def failed(self, why: str) -> None:
        """The peer broke the protocol."""
        self._tell(f"node {self.node or '?'} ({self.channel.address}) sent what makes no sense: {why}", logging.WARNING)
        self._end_with(why)

    def _tell(self, text: str, level: int = logging.INFO) -> None:
        """In the log: of a node that was linked each time, of strangers not more than they are worth."""
        if self.phase == UP:
            log.log(level, "%s", text)
        else:
            self.links.turned_away.tell(self.links.server.hot.now, text, level)

    def close(self, why: str) -> None:
        """Send what is written, if the socket takes it, and end."""
        if self.phase != CLOSED:
            self.why = self.why or why
            server = self.links.server
            if self.channel.fd >= 0:
                server.hot.transmit(self.channel)
            if self.channel.fd >= 0:
                server.lost(self.channel)
            self.lost()

    def lost(self) -> None:
        if self.phase != CLOSED:
            was_up = self.phase == UP
            self.phase = CLOSED
            self.why = self.why or LOST
            self.links.is_down(self, was_up)

    def _write(self, data: bytes) -> None:
        """While the link is not up."""
        channel = self.channel
        channel.out.append(data)
        if not channel.dirty:
            channel.dirty = True
            self.links.server.hot.dirty.append(channel)


class _Rest(BackgroundTask):
    def __init__(self, link: Link) -> None:
        self.link = link

    def piece(self) -> bool:
        return not self.link.resume()
