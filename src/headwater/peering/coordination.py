"""One node's part in a cluster, as far as interest goes: what `node` builds its links on. Five operations:

    route_changed   from the router's feed: this node's clients want something, or no longer
    link            a link came up (Hellos are exchanged) or went down
    received        an interest frame came over a link
    links           the links that a topic goes over; resolve once per topic, never per packet
    tick            at the end of each turn with `has_work`, and at `next_tick`: what is to be sent, who is released

Nothing is sent, and nobody is released, but by what `tick` returns, in that order. Beside them, `join` and `forget` say
who is a member, `hold` makes a SUBACK wait, `use_method` changes the method.

`links` is answered from what is known now, for links that are up and down alike: QoS 0 is for those that are up, QoS ≥
1 goes to the spool of each. `epoch` grows whenever an answer may have changed, and `Work.changed` tells for which
filters: the node redoes the link part of those fan-outs and leaves the local parts alone.

An answer of no links means that no other node wants the topic, by any method (`methods/method.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.peering.exchange import ANYTHING, Exchange, Send, Traffic
from headwater.peering.frames.frame import Have, InterestFrame, Stamp
from headwater.peering.graph import behind
from headwater.peering.methods.flood import FloodAnnouncement
from headwater.peering.methods.method import Announcement, Hearing
from headwater.peering.methods.names import ANNOUNCEMENTS, DEFAULT
from headwater.routing.feed import FILTER_ADDED, RouteChange

SUBSCRIBE_WAIT: Final = 0.2
"""Seconds that a SUBACK waits for peers at most."""
LOOK: Final = 1.0
"""Seconds after which changes that were not due before (removals that linger) are looked at again."""


class Work(NamedTuple):
    """`sends`: frames for links, in order. `released`: tokens whose wait is over. `changed`: filters whose topics may
    go over other links now; None: any topic may."""

    sends: list[Send]
    released: list[object]
    changed: list[str] | None


class Coordination:
    """`relays`: neighbours are configured, and what they send is passed on; else every member is a neighbour."""

    def __init__(
        self,
        node: str,
        boot: int,
        method: str = DEFAULT,
        *,
        relays: bool = False,
        subscribe_wait: float = SUBSCRIBE_WAIT,
        announcement: Announcement | None = None,
    ) -> None:
        self.node = node
        self.relays = relays
        self.epoch = 0
        self._announcement = ANNOUNCEMENTS[method]() if announcement is None else announcement
        self._exchange = Exchange(node, boot, self._announcement, relays, subscribe_wait)
        self._members: set[str] = set()
        self._neighbours: dict[str, None] = {}
        self._behind: dict[str, set[str]] = {}
        self._nowhere: set[str] = set()
        """Members of which no way is known: they may be behind any link."""
        self._is_ahead = False
        self._waiting: list[object] = []
        self._next_look = 0.0
        self._tuples: dict[tuple[str, ...], tuple[str, ...]] = {}

    # ---- the five operations -------------------------------------------------------------------------------------

    def route_changed(self, change: RouteChange, now: float) -> None:
        self._announcement.note(change, now)
        self._is_ahead = True

    def link(self, peer: str, is_up: bool, now: float) -> None:
        if is_up:
            self._flush(now)
            self.join(peer)
            self._exchange.link_up(peer)
        else:
            self._exchange.link_down(peer)

    def received(self, peer: str, frame: InterestFrame, now: float) -> None:
        """Of a link that is up. Raises MalformedFrame: close it."""
        if isinstance(frame, Have):
            self._flush(now)
        self._exchange.received(peer, frame, now)

    def links(self, topic: str) -> tuple[str, ...]:
        """Neighbours that a message of this topic, published here or relayed, goes to: not to the one that it came
        from. The same links are the same object."""
        self._see_graph()
        found = tuple(peer for peer in self._neighbours if self._wants(peer, topic))
        return self._tuples.setdefault(found, found)

    def tick(self, now: float) -> Work:
        exchange = self._exchange
        self._flush(now)
        for token in self._waiting:
            exchange.hold(token, now)
        self._waiting.clear()
        exchange.expire(now)
        self._see_graph()
        work = Work(exchange.out, exchange.released, exchange.changed)
        exchange.out, exchange.released, exchange.changed = [], [], []
        if work.changed is ANYTHING or work.changed:
            self.epoch += 1
        if len(self._tuples) > 1024:
            self._tuples.clear()
        return work

    @property
    def has_work(self) -> bool:
        exchange = self._exchange
        is_changed = exchange.changed is ANYTHING or bool(exchange.changed)
        return bool(self._is_ahead or self._waiting or exchange.out or exchange.released or is_changed)

    @property
    def next_tick(self) -> float:
        """When to tick though nothing happens."""
        expiry = self._exchange.next_expiry
        return self._next_look if expiry is None else min(expiry, self._next_look)

    # ---- members, method, waiting --------------------------------------------------------------------------------

    def join(self, node: str, is_neighbour: bool = True) -> None:
        """A member, linked or not: of one that has never been heard of since this node started, anything may be
        wanted. Members that were known before a restart have to be told before clients are served."""
        if node in self._neighbours or (not is_neighbour and node in self._members):
            return
        self._members.add(node)
        if is_neighbour:
            self._neighbours[node] = None
            self._exchange.tell_neighbours(tuple(sorted(self._neighbours)))
        self._exchange.is_graph_new = True
        self._exchange.changed = ANYTHING

    def forget(self, node: str) -> None:
        """It is no member any more: what it wanted is void."""
        self._members.discard(node)
        if self._neighbours.pop(node, self) is None:
            self._exchange.tell_neighbours(tuple(sorted(self._neighbours)))
        self._exchange.forget(node)
        self._exchange.is_graph_new = True

    def hold(self, token: object) -> None:
        """Release it when live peers have acknowledged all that was wanted until now, or `subscribe_wait` is over."""
        self._waiting.append(token)

    def use_method(self, method: str, filters: list[str], now: float, announcement: Announcement | None = None) -> None:
        """From now on, with all filters that this node's clients have, each as often as the feed has told of it."""
        self._announcement = ANNOUNCEMENTS[method]() if announcement is None else announcement
        for filter in filters:
            self._announcement.note(RouteChange(FILTER_ADDED, filter, None, 0), now)
        self._announcement.due(now)
        self._exchange.tell_anew(self._announcement)

    @property
    def method(self) -> str:
        return self._announcement.method

    @property
    def is_exact(self) -> bool:
        """Whether links of a topic mean that somebody wants it: all nodes are heard of, and exactly."""
        streams = self._exchange.streams
        for node in self._members:
            stream = streams.get(node)
            if stream is None or not stream.is_sure:
                return False
            if not isinstance(stream.content, Hearing) or not stream.content.is_exact:
                return False
        return True

    def is_synced(self, peer: str) -> bool:
        """Whether the peer has told all that it wants since its link came up."""
        link = self._exchange.links.get(peer)
        return link is not None and link.is_synced

    @property
    def holding(self) -> int:
        """Tokens that wait."""
        return len(self._waiting) + self._exchange.holding

    def method_of(self, node: str) -> str:
        """By which a node tells what it wants; "": it has not."""
        stream = self._exchange.streams.get(node)
        return "" if stream is None or stream.content is None else stream.content.method

    # ---- behind a proxy ------------------------------------------------------------------------------------------

    def be_gated(self) -> None:
        """From now on, steps of others are acknowledged when `caught` says so, at the latest after `subscribe_wait`."""
        self._exchange.is_gated = True

    def heard(self) -> dict[str, Stamp]:
        """How far others have told what they want, by node."""
        return {node: stream.stamp for node, stream in self._exchange.streams.items() if node != self.node}

    def caught(self, upto: dict[str, Stamp]) -> None:
        self._exchange.caught(upto)

    def wanted(self) -> tuple[set[str] | None, bool]:
        """The filters of all other nodes, those of groups among them as `$share/…`, None: anything; and whether all
        have been heard."""
        found: set[str] = set()
        is_sure = True
        for node in self._members | self._exchange.streams.keys():
            stream = self._exchange.streams.get(node)
            if node == self.node:
                continue
            if stream is None or not isinstance(stream.content, Hearing):
                is_sure = False
                continue
            is_sure = is_sure and stream.is_sure
            filters = stream.content.filters()
            if filters is None:
                return None, is_sure
            found.update(filters)
        return found, is_sure

    def traffic(self, peer: str) -> Traffic | None:
        """What was told to a peer since its link came up; None: it is down."""
        link = self._exchange.links.get(peer)
        return None if link is None else link.traffic

    # ---- inside --------------------------------------------------------------------------------------------------

    def _flush(self, now: float) -> None:
        if not self._is_ahead and now < self._next_look:
            return
        self._is_ahead = False
        self._next_look = now + LOOK
        announcement = self._announcement
        told = announcement.due(now)
        if announcement.is_too_large:
            self._announcement = FloodAnnouncement()
            self._exchange.tell_anew(self._announcement)
            return
        for each in told:
            self._exchange.tell(each)

    def _wants(self, peer: str, topic: str) -> bool:
        exchange = self._exchange
        link = exchange.links.get(peer)
        if self._nowhere or (link is not None and not link.is_synced):
            return True
        streams = exchange.streams
        for node in self._behind[peer]:
            stream = streams.get(node)
            if stream is None or stream.wants(topic):
                return True
        return False

    def _see_graph(self) -> None:
        exchange = self._exchange
        if not exchange.is_graph_new:
            return
        exchange.is_graph_new = False
        exchange.changed = ANYTHING
        if not self.relays:
            self._behind = {peer: {peer} for peer in self._neighbours}
            return
        edges = {node: stream.neighbours for node, stream in exchange.streams.items()}
        edges[self.node] = tuple(self._neighbours)
        self._behind = behind(self.node, self._neighbours, edges)
        placed = set().union(*self._behind.values())
        known = {node for node, stream in exchange.streams.items() if stream.content is not None}
        self._nowhere = (self._members | known) - placed - {self.node}
