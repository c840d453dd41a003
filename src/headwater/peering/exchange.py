"""How the interest of every node gets to every other one that needs it.

Theory. A node holds one stream per node that it has heard of (`streams.py`), its own included. When a link comes up,
each side says how much it has of which streams (Have); the other sends what is missing and then Synced. From then on
each step goes out as it comes. In a full mesh a node tells its own stream only. Where neighbours are configured it
relays: what is new of a stream goes on to all other links, once, as numbers tell what is new.

*Not sure means yes.* Until Synced has come over a link, everything behind it may be wanted, and until the last part of
a state, anything by its origin. So a node that has just come back misses nothing of what it should have known.

*Acknowledgements go backwards.* A node acknowledges a step when all other links that it relays it to have (Dijkstra and
Scholten's echo): so the origin hears from its neighbours when all nodes that can be reached have it. Who gets a step a
second time, by another way, acknowledges at once. Links that go down are waited for no longer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.peering.barrier import Barrier
from headwater.peering.frames.frame import (
    MAX_STREAMS,
    NOTHING,
    Change,
    Have,
    InterestAck,
    InterestFrame,
    MalformedFrame,
    Neighbours,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
    Synced,
)
from headwater.peering.methods.flood import FloodHearing
from headwater.peering.methods.method import Announcement, Hearing, Told, TooMuch, Unsure
from headwater.peering.methods.names import hearing
from headwater.peering.streams import Stream

ANYTHING: Final = None
"""As a list of filters: topics of any may have other links now."""
MOST_CHANGED: Final = 4096
"""Filters that are listed in one turn; more count as any."""
MOST_STEPS: Final = 1 << 62
"""Steps of one life of a node."""


class Send(NamedTuple):
    peer: str
    frame: InterestFrame


class Traffic:
    """Of what was sent over one link: whole states and changes apart. Bytes of states and changes, without heads."""

    def __init__(self) -> None:
        self.states = 0
        self.state_bytes = 0
        self.changes = 0
        self.change_bytes = 0


class Link:
    """What is known of a link that is up."""

    def __init__(self) -> None:
        self.is_ready = False
        """The peer has said what it has: it gets every step from now on."""
        self.is_synced = False
        """The peer has sent all that it had."""
        self.told: dict[str, Stamp] = {}
        self.acknowledged: dict[str, Stamp] = {}
        self.begun: StateBegin | None = None
        self.content: Hearing | None = None
        """What its parts make, as far as they have come."""
        self.expected = 0
        self.answered: set[str] = set()
        """Streams that were asked for anew, and told, in this turn."""
        self.traffic = Traffic()

    def has(self, origin: str, stamp: Stamp) -> None:
        """The peer has that much, or will when it has read all that was sent."""
        self.told[origin] = max(stamp, self.told.get(origin, NOTHING))

    def has_acknowledged(self, origin: str, stamp: Stamp) -> None:
        self.has(origin, stamp)
        self.acknowledged[origin] = max(stamp, self.acknowledged.get(origin, NOTHING))


GATE: Final = ""
"""In place of a peer: a home broker, that has to be subscribed to before others hear that a step is known here."""


class Exchange:
    """Streams and links of one node. What is to be sent is in `out`, what topics may go elsewhere now in `changed`."""

    def __init__(self, node: str, boot: int, content: Announcement, relays: bool, wait: float) -> None:
        self.node = node
        self.relays = relays
        self.wait = wait
        self.own = Stream(node, Stamp(boot, 1), content)
        self.streams: dict[str, Stream] = {node: self.own}
        self.links: dict[str, Link] = {}
        self.out: list[Send] = []
        self.changed: list[str] | None = []
        """Filters; ANYTHING: any topic's."""
        self.is_graph_new = False
        self.is_gated = False
        """Steps are acknowledged when `caught` says so, too (node/proxy)."""
        self.released: list[object] = []
        self._waiting: Barrier[object] = Barrier(wait)
        self._relayed: dict[str, Barrier[tuple[str, Stamp]]] = {}

    # ---- this node's own interest ------------------------------------------------------------------------------

    def tell(self, told: Told) -> None:
        """The next step of this node's interest, which its announcement has made."""
        stamp = self._next()
        if told.is_whole:
            assert self.own.content is not None
            self.own.begin(stamp, self.own.content, self.own.neighbours)
        else:
            self.own.step(Change(self.node, stamp, told.data))
        self._spread(self.own, "")

    def tell_anew(self, content: Announcement) -> None:
        """By another method from now on."""
        self.own.begin(self._next(), content, self.own.neighbours)
        self._spread(self.own, "")

    def tell_neighbours(self, neighbours: tuple[str, ...]) -> None:
        if self.relays and neighbours != self.own.neighbours:
            self.own.step(Neighbours(self.node, self._next(), neighbours))
            self.is_graph_new = True
            self._spread(self.own, "")

    def hold(self, token: object, now: float) -> None:
        """Release the token when all live links have acknowledged what was told until now, or time is over."""
        if not self._waiting.hold(token, self.own.stamp.number, self._behind_of(self.own, ""), now):
            self.released.append(token)

    def expire(self, now: float) -> None:
        """And a turn is over."""
        for link in self.links.values():
            link.answered.clear()
        self.released += self._waiting.expired(now)
        for barrier in self._relayed.values():
            barrier.expired(now)

    @property
    def next_expiry(self) -> float | None:
        return self._waiting.next

    @property
    def holding(self) -> int:
        return len(self._waiting)

    # ---- links ---------------------------------------------------------------------------------------------------

    def link_up(self, peer: str) -> None:
        self.link_down(peer)
        self.links[peer] = Link()
        self.changed = ANYTHING
        named = [each for each in self.streams.values() if each is not self.own and each.content is not None]
        if not self.relays:
            named = [each for each in named if each.origin == peer]
        self._send(peer, Have(True, tuple((each.origin, each.stamp) for each in named[:MAX_STREAMS])))

    def link_down(self, peer: str) -> None:
        if self.links.pop(peer, None) is None:
            return
        self.changed = ANYTHING
        for stream in self.streams.values():
            stream.doubts.discard(peer)
        self.released += self._waiting.gone(peer)
        for origin, barrier in self._relayed.items():
            self._acknowledge_all(origin, barrier.gone(peer))

    def forget(self, node: str) -> None:
        """It is no member any more."""
        self.link_down(node)
        self._relayed.pop(node, None)
        if self.streams.pop(node, None) is not None:
            self.changed = ANYTHING
            self.is_graph_new = True

    # ---- what comes from peers -----------------------------------------------------------------------------------

    def received(self, peer: str, frame: InterestFrame, now: float) -> None:
        """Raises MalformedFrame: the link has to be closed."""
        link = self.links[peer]
        if isinstance(frame, Change | Neighbours):
            self._take_step(peer, link, frame, now)
        elif isinstance(frame, InterestAck):
            self._take_acknowledgement(peer, link, frame)
        elif isinstance(frame, StateBegin):
            self._take_begin(peer, link, frame)
        elif isinstance(frame, StatePart):
            link.expected -= len(frame.data)
            if link.begun is None or link.expected < 0:
                raise MalformedFrame("a part of no state")
            if not frame.data:
                raise MalformedFrame("an empty part of a state")
            self._take_part(link, frame.data)
        elif isinstance(frame, StateEnd):
            self._take_end(peer, link, now)
        elif isinstance(frame, Have):
            self._answer(peer, link, frame)
        else:
            link.is_synced = True
            self.changed = ANYTHING

    def _answer(self, peer: str, link: Link, frame: Have) -> None:
        for origin, stamp in frame.streams:
            stream = self.streams.get(origin)
            if stream is None or stamp.boot != stream.stamp.boot:
                continue
            if stream is self.own and stamp > stream.stamp:
                self._outrank(stamp)
            link.told[origin] = stamp
            link.acknowledged[origin] = stamp
            if stream is self.own:
                self.released += self._waiting.acknowledged(peer, stamp.number)
        if frame.everything:
            if link.is_ready:
                raise MalformedFrame("asked for everything twice")
            link.is_ready = True
            for stream in list(self.streams.values()):
                self._tell_one(peer, link, stream)
            self._send(peer, Synced())
            return
        for origin, stamp in frame.streams:
            if origin in self.streams and origin not in link.answered:
                link.answered.add(origin)
                link.told[origin] = stamp
                self._tell_one(peer, link, self.streams[origin])

    def _outrank(self, stamp: Stamp) -> None:
        """The peer has a later step of ours than we do: we have begun anew with the same boot, as may happen to a node
        without a data folder that starts twice in a second. What we want is told as the step behind that."""
        if stamp.number >= MOST_STEPS:
            raise MalformedFrame(f"{stamp.number} steps of one node")
        content = self.own.content
        assert content is not None
        self.own.begin(Stamp(stamp.boot, stamp.number + 1), content, self.own.neighbours)
        self._spread(self.own, "")

    def _take_begin(self, peer: str, link: Link, frame: StateBegin) -> None:
        if link.begun is not None:
            raise MalformedFrame("a state begins within another one")
        content = hearing(frame.method)  # one that is not known is refused before its bytes come
        link.begun = frame
        link.expected = frame.size
        if self._is_ours_to_take(peer, frame.origin):
            stream = self._stream(frame.origin)
            if frame.stamp > stream.stamp:
                link.content = content
                stream.doubts.add(peer)
                self.changed = ANYTHING
                if not frame.size:
                    self._take_part(link, b"")

    def _take_part(self, link: Link, data: bytes) -> None:
        if link.content is None:
            return
        try:
            link.content.take(Told(True, data, link.expected > 0))
        except TooMuch:
            link.content = FloodHearing()
        except Unsure:
            raise MalformedFrame("a state that contradicts itself") from None

    def _take_end(self, peer: str, link: Link, now: float) -> None:
        begun, content = link.begun, link.content
        link.begun = link.content = None
        if begun is None or link.expected:
            raise MalformedFrame("a state ends before its end")
        if not self._is_ours_to_take(peer, begun.origin):
            self._acknowledge(peer, begun.origin, begun.stamp)
            return
        stream = self._stream(begun.origin)
        stream.doubts.discard(peer)
        self.changed = ANYTHING
        if begun.stamp <= stream.stamp:
            self._is_known(peer, link, begun.origin, begun.stamp)
            return
        if content is None:
            self._ask_anew(peer, stream)  # what was known when it began is lost
            return
        if begun.stamp.boot != stream.stamp.boot:
            self._relayed.pop(begun.origin, None)  # numbers of another life
        stream.begin(begun.stamp, content, begun.neighbours)
        self.is_graph_new = True
        self._is_new(peer, link, stream, now)

    def _take_step(self, peer: str, link: Link, frame: Change | Neighbours, now: float) -> None:
        origin, stamp = frame.origin, frame.stamp
        if not self._is_ours_to_take(peer, origin):
            self._acknowledge(peer, origin, stamp)
            return
        stream = self._stream(origin)
        if stamp <= stream.stamp:
            self._is_known(peer, link, origin, stamp)
            return
        content = stream.content
        if not isinstance(content, Hearing) or stamp != Stamp(stream.stamp.boot, stream.stamp.number + 1):
            self._ask_anew(peer, stream)
            return
        if isinstance(frame, Change):
            self._apply(stream, content, frame)
            if stream.content is None:
                self._ask_anew(peer, stream)
                return
        else:
            self.is_graph_new = True
            self.changed = ANYTHING
        stream.step(frame)
        self._is_new(peer, link, stream, now)

    def _apply(self, stream: Stream, content: Hearing, frame: Change) -> None:
        try:
            filters = content.take(Told(False, frame.data))
        except TooMuch:
            stream.begin(stream.stamp, FloodHearing(), stream.neighbours)
            filters = ANYTHING
        except Unsure:
            stream.lose()
            filters = ANYTHING
        if filters is ANYTHING or self.changed is ANYTHING:
            self.changed = ANYTHING
        else:
            self.changed += filters
            if len(self.changed) > MOST_CHANGED:
                self.changed = ANYTHING

    def _ask_anew(self, peer: str, stream: Stream) -> None:
        stream.doubts.add(peer)
        self.changed = ANYTHING
        self._send(peer, Have(False, ((stream.origin, stream.stamp),)))

    # ---- relaying and acknowledging ------------------------------------------------------------------------------

    def _is_new(self, peer: str, link: Link, stream: Stream, now: float) -> None:
        """A step that `peer` brought has been applied: pass it on, and acknowledge it when all who get it have."""
        stream.doubts.discard(peer)
        link.has_acknowledged(stream.origin, stream.stamp)
        others: set[str] = set()
        if self.relays:
            self._spread(stream, peer)
            others = self._behind_of(stream, peer)
        if self.is_gated:
            others.add(GATE)
        if others:
            barrier = self._relayed.setdefault(stream.origin, Barrier(self.wait))
            barrier.hold((peer, stream.stamp), stream.stamp.number, others, now)
        else:
            self._acknowledge(peer, stream.origin, stream.stamp)

    def caught(self, upto: dict[str, Stamp]) -> None:
        """The home broker is subscribed to for all steps up to these."""
        for origin, stamp in upto.items():
            barrier, stream = self._relayed.get(origin), self.streams.get(origin)
            if barrier is not None and stream is not None and stream.stamp.boot == stamp.boot:
                self._acknowledge_all(origin, barrier.acknowledged(GATE, stamp.number))

    def _is_known(self, peer: str, link: Link, origin: str, stamp: Stamp) -> None:
        link.has_acknowledged(origin, stamp)
        self._acknowledge(peer, origin, stamp)

    def _take_acknowledgement(self, peer: str, link: Link, frame: InterestAck) -> None:
        stream = self.streams.get(frame.origin)
        if stream is None or frame.stamp.boot != stream.stamp.boot:
            return
        if frame.stamp > stream.stamp:
            raise MalformedFrame("an acknowledgement of what was never sent")
        link.has_acknowledged(frame.origin, frame.stamp)
        if stream is self.own:
            self.released += self._waiting.acknowledged(peer, frame.stamp.number)
        elif frame.origin in self._relayed:
            self._acknowledge_all(frame.origin, self._relayed[frame.origin].acknowledged(peer, frame.stamp.number))

    def _behind_of(self, stream: Stream, source: str) -> set[str]:
        """The live links that have not acknowledged all of a stream, but for the one that it came by."""
        return {
            peer
            for peer, link in self.links.items()
            if peer not in (source, stream.origin) and link.acknowledged.get(stream.origin, NOTHING) < stream.stamp
        }

    def _spread(self, stream: Stream, source: str) -> None:
        for peer, link in self.links.items():
            if peer != source and link.is_ready:
                self._tell_one(peer, link, stream)

    def _tell_one(self, peer: str, link: Link, stream: Stream) -> None:
        if stream.origin == peer or (stream is not self.own and not self.relays):
            return
        frames = stream.missing(link.told.get(stream.origin, NOTHING))
        if frames:
            link.told[stream.origin] = stream.stamp
        for frame in frames:
            self._count(link.traffic, frame)
            self._send(peer, frame)

    def _acknowledge_all(self, origin: str, waiting: list[tuple[str, Stamp]]) -> None:
        for peer, stamp in waiting:
            if peer in self.links:
                self._acknowledge(peer, origin, stamp)

    def _acknowledge(self, peer: str, origin: str, stamp: Stamp) -> None:
        self._send(peer, InterestAck(origin, stamp))

    def _send(self, peer: str, frame: InterestFrame) -> None:
        self.out.append(Send(peer, frame))

    def _is_ours_to_take(self, peer: str, origin: str) -> bool:
        """Of this node itself nobody else knows more; in a full mesh each node speaks for itself."""
        return origin != self.node and (self.relays or origin == peer)

    def _stream(self, origin: str) -> Stream:
        stream = self.streams.get(origin)
        if stream is None:
            if len(self.streams) >= MAX_STREAMS:
                raise MalformedFrame(f"interest of more than {MAX_STREAMS} nodes")
            self.streams[origin] = stream = Stream(origin)
        return stream

    def _next(self) -> Stamp:
        return Stamp(self.own.stamp.boot, self.own.stamp.number + 1)

    def _count(self, traffic: Traffic, frame: InterestFrame) -> None:
        if isinstance(frame, StateBegin):
            traffic.states += 1
            traffic.state_bytes += frame.size
        elif isinstance(frame, Change):
            traffic.changes += 1
            traffic.change_bytes += len(frame.data)
