"""All links of a node: between the router, whose feed says what clients here want, and the other nodes.

Theory. `peering.Coordination` knows what others want and says over which links a topic goes; it is asked once per
topic, as the remote part of its fan-out. What it wants sent, and whose SUBACK may leave, comes from its `tick`, which
runs when something has changed, before the turn ends. Its news about others redo the remote part of fan-outs alone.

Frames and packets that come have their own files (link.py, receiving.py), and so have those that go (sending.py,
spooling.py). Who the members are is the cluster's (cluster.py): it joins and forgets them here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.message import Message
from headwater.node.destinations.destination import Destination, Fanout, Source, StoreDestination
from headwater.node.destinations.fanouts import Fanouts
from headwater.node.links.end import PeerEnd
from headwater.node.links.groups import SpanningGroups
from headwater.node.links.link import ALREADY, UP, Link
from headwater.node.links.owning import Owning
from headwater.node.links.post import Post
from headwater.node.links.pushing import Pushing
from headwater.node.links.receiving import NOT_FOR_NODES, Receiving, Shared
from headwater.node.links.retaining import Retaining, is_shared
from headwater.node.links.sending import LinkDestination, OutgoingRuns, aged
from headwater.node.links.sessions import Sessions
from headwater.node.links.settings import ClusterSettings
from headwater.node.links.spanning import GroupsAlone, NoClients, NoGroups
from headwater.node.links.spooling import Spooling
from headwater.node.links.turned_away import TurnedAway
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import ClientTask, InterestGate
from headwater.node.protocol.server import Server
from headwater.peering.coordination import Coordination
from headwater.peering.forwarding import GRAPH, MESH, Forwarding
from headwater.peering.frames.frame import MAX_STATE, NONCE, Hello, InterestFrame, Leave, Stamp
from headwater.peering.frames.reading import VERSIONS
from headwater.peering.frames.v1 import run_head
from headwater.routing.feed import FILTER_ADDED, GROUP_ADDED, RouteChange, RouteListener
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.node.plane.channel import Channel

log = logging.getLogger("headwater.cluster")

UNREAD: Final = 2 * MAX_STATE
"""Bytes of frames other than runs that wait for a peer at most: it asks and does not read."""
AGAIN: Final = 0.02
"""Seconds between two attempts to apply what found no room."""
NOBODY: Final[list[Destination]] = []


class Links(Source):
    def __init__(self, server: Server, settings: ClusterSettings, node: str, boot: int, secret: bytes) -> None:
        self.server = server
        self.settings = settings
        self.node = node
        self.boot = boot
        self.secret = secret
        self.relays = bool(settings.neighbours)
        self.max_unread = UNREAD
        self.turned_away = TurnedAway(log)
        self.has_left = False
        """The cluster; whoever wants to be linked is told so."""
        self.up: dict[str, Link] = {}
        """By node."""
        self.greeting: set[Link] = set()
        """Links that are not up yet."""
        self.gossip: Callable[[Link, bytes], None] = _ignore_gossip
        self.changed: Callable[[Link], None] = _ignore
        """Told when a link came up or went down."""
        self.node_left: Callable[[str], None] = _ignore_node
        self.objects: Callable[[Link], str] = _no_objection
        """Why a node with this Hello and certificate may not be linked; "": it may."""
        self.settled: Callable[[Channel], None] = _ignore_channel
        self.interest_changed: Callable[[], None] | None = None
        """Told when others may want something else (node/proxy)."""
        self.coordination = Coordination(
            node, boot, settings.method, relays=self.relays, subscribe_wait=settings.subscribe_wait
        )
        self.forwarding = Forwarding(node, boot, GRAPH if self.relays else MESH)
        self.spooling = Spooling(server, boot, self.forwarding, settings.max_spool, self.send_owed, self._disown)
        self.retaining = Retaining(server, node, self.spooling)
        self.outgoing = OutgoingRuns(server.hot, self.forwarding, self.spooling, self.retaining, settings.link_buffer)
        if self.relays:
            self.outgoing.flush_interest = self._flush_interest
        self.post = Post(self.outgoing)
        self.groups: SpanningGroups | None = None
        """None: messages are relayed, and each node has groups of its own."""
        if not self.relays:
            self.groups = SpanningGroups(server, self.post, self.outgoing, node, self.retaining.take)
            self.post.add(self.groups)
        self._shared = Shared(
            *(server, self.coordination, self.forwarding, self.spooling, self.outgoing, self.post, self.groups)
        )
        self.sessions: Sessions | None = None
        """Where messages are relayed, each node has its own: letters reach neighbours alone."""
        if not self.relays:
            self.sessions = Sessions(
                *(server, node, self.spooling.ends, self.post, settings.session_wait, settings.session_lost)
            )
            self.sessions.moves.flush = self._flush_interest
            self.sessions.is_synced = self.is_synced
        self.owning: Owning | None = None
        """None: the node is of no edge."""
        self.pushing = self._make_pushing()
        self._destinations: dict[tuple[str, ...], list[Destination]] = {}
        self._fanouts: dict[str, Fanouts] = {}
        """By the node that messages come from; "" where none goes on."""
        self._tick_at: Timer | None = None
        self._held_again: Timer | None = None
        self._feed = _Feed(self)
        self._is_running = False

    def _make_pushing(self) -> Pushing | None:
        """None: messages go to others whatever the conditions of their clients are."""
        config = self.server.config
        if self.relays or not config.conditions.enabled or config.proxy.enabled:
            return None
        takes_more = (config.store.enabled and config.store.from_nodes) or bool(config.edge.name)
        pushing = Pushing(self.server, self.post, self.outgoing, not takes_more, self.settings.subscribe_wait)
        pushing.released = self._hold_for_interest
        pushing.changed = self._remote_changed
        pushing.dirtied = self._tick_soon
        self.post.add(pushing)
        return pushing

    # ---- from start to stop --------------------------------------------------------------------------------------

    def join_edge(self, owning: Owning) -> None:
        """Before anybody is a member: who is told first by which view messages come."""
        self.owning = owning
        self.post.add(owning)

    def start(self) -> None:
        """Before clients are served: what they subscribe to is told from now on, and what was known is known again."""
        server = self.server
        self._is_running = True
        for change in self._wanted():
            self.coordination.route_changed(change, server.hot.now)
        if self.groups is not None:
            self.groups.start()
        if self.pushing is not None:
            self.pushing.start()
        server.router.feed.listen(self._feed)
        self.retaining.start()
        if self.owning is not None:
            self.owning.start()
        if self.sessions is not None:
            self.post.add(self.sessions)
            self.sessions.start()
        if server.coordinator is not None:
            server.coordinator.removed = partial(_both, server.coordinator.removed, self._topics_removed)
        server.hot.outgoing = self.outgoing
        server.hot.own_fanouts.remote = self
        server.interest = _Gate(self)
        server.hot.own_fanouts.remote_changed()
        self._tick_soon()
        self._beat()

    def stop(self, is_for_good: bool = False) -> None:
        """Tell all peers that this node goes, for a while unless it never comes back."""
        self._is_running = False
        for link in [*self.up.values(), *self.greeting]:
            if link.end is not None:
                link.end.send(Leave(is_for_good))
            link.close("this node stops")

    def _wanted(self) -> list[RouteChange]:
        router = self.server.router
        found = [RouteChange(FILTER_ADDED, filter, None, 0) for filter in router.trie.filters()]
        found += [RouteChange(GROUP_ADDED, group.filter, group.share, 0) for group in router.groups.all() if len(group)]
        return [self._told(each) for each in found if not each.filter.startswith(NOT_FOR_NODES)]

    def _told(self, change: RouteChange) -> RouteChange:
        """What others hear of it as wanted. A group that spans nodes wants no messages but those that are sent to it:
        others are told of its name, under which nothing is published, so that a SUBACK waits until they know it."""
        if change.share is None or self.groups is None:
            return change
        return RouteChange(change.kind, f"$share/{change.share}/{change.filter}", change.share, change.stamp)

    def use_method(self, method: str) -> None:
        filters = [change.filter for change in self._wanted()]
        self.coordination.use_method(method, filters, self.server.hot.now)
        self._tick_soon()

    # ---- members -------------------------------------------------------------------------------------------------

    def join(self, node: str, is_known: bool = False) -> None:
        """A member, linked or not. `is_known`: it has been linked, now or before this node's start; else others tell of
        it, who may have made it up."""
        is_neighbour = self.is_neighbour(node)
        self.coordination.join(node, is_neighbour)
        if is_neighbour:
            is_new = node not in self.spooling.ends
            end = self.spooling.end_of(node)
            if is_new and self.owning is not None:
                self.owning.joined(node, end)
            if is_known:
                self.spooling.is_proven(end)
        self._tick_soon()

    def is_known(self, node: str) -> bool:
        """Whether a member was ever linked, if it is a neighbour."""
        end = self.spooling.ends.get(node)
        return end is None or end.is_proven

    def forget(self, node: str) -> None:
        """It is no member any more."""
        link = self.up.get(node)
        if link is not None:
            link.close("it is no member any more")
        end = self.spooling.ends.get(node)
        if self.groups is not None and end is not None:
            self.groups.forgotten(node)
            self.groups.reclaim(end)
        self.coordination.forget(node)
        self.spooling.forget(node)
        self.forwarding.windows.forget(node)
        for service in self.post.services:
            service.forgotten(node)
        self._destinations.clear()
        for fanouts in (self.server.hot.own_fanouts, *self._all_fanouts()):
            fanouts.forget("#")
        self._tick_soon()

    def _disown(self, node: str) -> None:
        """Too much waits for a node that others tell of and that was never linked: it is owed nothing until it is."""
        if not self.is_known(node):
            log.info("nothing is kept for node %s until it is linked", node)
            self.forget(node)

    def is_neighbour(self, node: str) -> bool:
        return not self.relays or node in self.settings.neighbours

    def leave(self) -> None:
        """For good: what this node's clients want is void for all others, and the other way round."""
        self.has_left = True
        for service in self.post.services:
            service.leaving()
        for link in list(self.up.values()):
            link.part()
        for node in list(self.spooling.ends):
            self.forget(node)

    # ---- links that come and go ----------------------------------------------------------------------------------

    def hello(self) -> Hello:
        return Hello(
            *(self.node, self.boot, self.settings.name, VERSIONS, self.coordination.method),
            *(self.relays, os.urandom(NONCE), tuple(each.name for each in self.post.services)),
        )

    def open(self, channel: Channel, dialed: str) -> Link:
        """A connection is there, of somebody who listens or has dialed."""
        link = Link(self, channel, dialed)
        self.greeting.add(link)
        return link

    def objection(self, link: Link) -> str:
        """Why a link may not be, as far as its Hello and its certificate tell; "": it may."""
        hello = link.hello
        assert hello is not None
        if not self.is_neighbour(hello.node):
            return f"{hello.node} is not a neighbour of {self.node} (cluster.neighbours)"
        if hello.relays != self.relays:
            return "one of the nodes has cluster.neighbours, the other has not"
        return self.objects(link)

    def admit(self, link: Link) -> str:
        """Of two links with one node, both sides keep the same; why this one is not kept, or ""."""
        hello, other = link.hello, self.up.get(link.node)
        assert hello is not None
        if other is not None:
            assert other.hello is not None
            if hello.boot < other.hello.boot:
                return "a newer life of this node is linked"
            is_again = hello.boot > other.hello.boot or bool(link.dialed) == bool(other.dialed)
            if not is_again and bool(link.dialed) != (self.node < link.node):
                return ALREADY
            other.close("replaced by another connection")
        return ""

    def is_up(self, link: Link, frames_sent: int) -> None:
        node = link.node
        self.greeting.discard(link)
        self.settled(link.channel)
        self.up[node] = link
        self.join(node, is_known=True)
        end = link.end = self.spooling.end_of(node)
        assert link.hello is not None
        end.link_up(link.channel, frames_sent, link.hello.services)
        link.receiving = Receiving(self._shared, end, self._fanouts_of(node), link)
        if self.owning is not None:
            self.owning.link_came(node)
        self.coordination.link(node, True, self.server.hot.now)
        self._run_tick()  # what this node has comes before anything else
        end.send(end.spool.greeting())
        if link.dialed:
            self.retaining.link_up(end)
        self.post.link_up(end)
        log.info("linked with node %s at %s", node, link.channel.address)
        self.changed(link)

    def is_down(self, link: Link, was_up: bool) -> None:
        self.greeting.discard(link)
        self.settled(link.channel)
        if was_up and self.up.get(link.node) is link:
            del self.up[link.node]
            assert link.end is not None
            link.end.link_down()
            self.retaining.link_down(link.end)
            self.post.link_down(link.end)
            self.coordination.link(link.node, False, self.server.hot.now)
            self._tick_soon()
            log.info("link with node %s ended: %s", link.node, link.why)
        self.changed(link)

    def left(self, link: Link, is_for_good: bool) -> None:
        """The other node says that it goes. One that left and is linked again already says so too late."""
        node = link.node
        link.close("the other node leaves the cluster" if is_for_good else "the other node stops")
        if is_for_good and node not in self.up:
            self.node_left(node)

    def _fanouts_of(self, node: str) -> Fanouts:
        """Where messages go that come from this node."""
        came_from = node if self.relays else ""
        fanouts = self._fanouts.get(came_from)
        if fanouts is None:
            store = self.server.hot.own_fanouts.store if self.server.config.store.from_nodes else None
            fanouts = self._fanouts[came_from] = self.make_fanouts(None if self.owning is not None else store)
            fanouts.remote = _Others(self, node) if self.relays else None
            fanouts.part = None if self.relays else NoGroups()
        return fanouts

    def make_fanouts(self, store: StoreDestination | None) -> Fanouts:
        """Where messages of other nodes go: to clients here, and to the store."""
        own = self.server.hot.own_fanouts
        fanouts = Fanouts(own.local)
        fanouts.store = store
        fanouts.max_topic_length = own.max_topic_length
        fanouts.max_topic_levels = own.max_topic_levels
        fanouts.part = NoGroups()
        self.server.router.feed.listen(fanouts)
        return fanouts

    def drop_fanouts(self, fanouts: Fanouts) -> None:
        """Nothing comes any more for which they are."""
        self.server.router.feed.leave(fanouts)

    def _topics_removed(self) -> None:
        """From the store: of those that come back, there is to be room for them."""
        for fanouts in self._all_fanouts():
            fanouts.forget("#")

    def _all_fanouts(self) -> list[Fanouts]:
        """But for those of what is published here."""
        found = list(self._fanouts.values())
        return found if self.owning is None else found + self.owning.everywhere()

    def fanouts_of_home(self, with_groups: bool) -> Fanouts:
        """Where messages go that come from a proxy's home broker: to other nodes alone, and to the groups that the
        proxy keeps. Its name is no node's."""
        fanouts = Fanouts(self.server.hot.own_fanouts.local)
        fanouts.max_topic_length = self.server.config.max_topic_length
        fanouts.max_topic_levels = self.server.config.max_topic_levels
        fanouts.remote = self
        fanouts.part = NoClients()
        if with_groups:
            fanouts.part = GroupsAlone(None if self.groups is None else self.groups.own_part)
            if self.groups is not None:
                self.groups.fanouts.append(fanouts)
        self._fanouts["\0"] = fanouts
        self.server.router.feed.listen(fanouts)
        return fanouts

    # ---- interest ------------------------------------------------------------------------------------------------

    def caught(self, upto: dict[str, Stamp]) -> None:
        """All that was heard up to there has been subscribed to at the home broker."""
        self.coordination.caught(upto)
        self._tick_soon()

    def interest(self, node: str, frame: InterestFrame) -> None:
        """Raises MalformedFrame."""
        self.coordination.received(node, frame, self.server.hot.now)
        self._tick_soon()

    def wanted_changed(self, change: RouteChange) -> None:
        if not change.filter.startswith(NOT_FOR_NODES):
            self.coordination.route_changed(self._told(change), self.server.hot.now)
            self._tick_soon()

    def hold(self, task: ClientTask) -> bool:
        if not self.up:
            return False
        if self.pushing is None or not self.pushing.hold(task):
            self._hold_for_interest(task)
        return True

    def _hold_for_interest(self, task: ClientTask) -> None:
        self.coordination.hold(task)
        self._tick_soon()

    def destinations(self, topic: str) -> list[Destination]:
        found = self.destinations_but("", topic) if self.owning is None else self._with_owner(topic, self.owning)
        return found if self.groups is None else found + self.groups.destinations(topic)

    def destinations_but(self, node: str, topic: str) -> list[Destination]:
        """The links of a topic but for the one with this node."""
        if topic.startswith(NOT_FOR_NODES):
            return NOBODY
        peers = self.coordination.links(topic)
        if node and node in peers:
            peers = tuple(peer for peer in peers if peer != node)
        found = self._destinations.get(peers)
        if found is None:
            if len(self._destinations) >= 4096:
                self._destinations.clear()
            ends = [self.spooling.end_of(peer) for peer in peers]
            found = [LinkDestination(self.outgoing, ends)] if ends else NOBODY
            self._destinations[peers] = found
        if self.pushing is not None and self.pushing.told:
            link = self.pushing.link(topic, [self.spooling.end_of(peer) for peer in peers])
            return found if link is None else [link]
        return found

    def _with_owner(self, topic: str, owning: Owning) -> list[Destination]:
        """The links of a topic, that of its owner among them. Who stores is no subscriber: if nobody else gets a
        message, its publisher hears that nobody does."""
        if topic.startswith(NOT_FOR_NODES):
            return NOBODY
        owner, peers = owning.owner_elsewhere(topic), self.coordination.links(topic)
        if not owner or owner in peers:
            return self.destinations_but("", topic)
        key = (*peers, "", owner)
        found = self._destinations.get(key)
        if found is None:
            if len(self._destinations) >= 4096:
                self._destinations.clear()
            link = LinkDestination(self.outgoing, [self.spooling.end_of(each) for each in (*peers, owner)])
            link.counts = bool(peers)
            found = self._destinations[key] = [link]
        return found

    # ---- retained messages -----------------------------------------------------------------------------------------

    def spread(self, message: Message, publisher: Session | None, fanout: Fanout, is_retained: bool) -> None:
        if not is_shared(message.topic):
            return
        if not is_retained:
            self.retaining.found_no_room(message.topic)
            return  # others could not tell whether it is later than what they have
        self._send_to_others(message, publisher, fanout)

    def _send_to_others(self, message: Message, publisher: Session | None, fanout: Fanout) -> None:
        """To the nodes that are not among its destinations."""
        ends = dict.fromkeys(self.spooling.ends.values())
        for destination in fanout.destinations[fanout.local :]:
            if isinstance(destination, LinkDestination):
                for end in destination.ends:
                    ends.pop(end, None)
        relayed = self.outgoing.relayed
        if relayed is not None:
            ends.pop(relayed.source, None)
        if ends:
            self.outgoing.deliver(LinkDestination(self.outgoing, list(ends)), message, publisher)

    def take_retained(self, message: Message) -> bool:
        retaining = self.retaining
        stamp = retaining.take(message)
        if self.outgoing.relayed is not None:
            self.outgoing.relayed.stamp = stamp
        return retaining.kept is not None and bool(stamp) and retaining.stamp_of(message.topic) == stamp

    def pass_on_retained(self, message: Message, fanout: Fanout) -> None:
        if self.outgoing.relayed is not None and is_shared(message.topic):
            self._send_to_others(message, None, fanout)

    def _tick_soon(self) -> None:
        """Before this turn ends."""
        if self._tick_at is None or self._tick_at.when > self.server.hot.now:
            self._tick_when(self.server.hot.now)

    def _tick_when(self, when: float) -> None:
        timers = self.server.timers
        if self._tick_at is not None:
            timers.cancel(self._tick_at)
        self._tick_at = timers.at(when, self._run_tick)

    def _flush_interest(self) -> None:
        """Tell what is wanted here now: where messages are relayed, none may overtake it."""
        if self.pushing is not None:
            self.pushing.flush()
        if self.coordination.has_work:
            self._run_tick()

    def _run_tick(self) -> None:
        now = self.server.hot.now
        if self.groups is not None:
            self.groups.flush()  # who acknowledges a subscription knows of its group
        if self.pushing is not None:
            self.pushing.flush()
        work = self.coordination.tick(now)
        for node, frame in work.sends:
            end = self.spooling.ends.get(node)
            if end is not None:
                end.send(frame)
        if work.changed is None or work.changed:
            self._remote_changed()
            if self.interest_changed is not None:
                self.interest_changed()
        for task in work.released:
            assert isinstance(task, ClientTask)
            task.released()
        if self._is_running:
            self._tick_when(max(self.coordination.next_tick, now + 0.001))

    def _remote_changed(self) -> None:
        self.server.hot.own_fanouts.remote_changed()
        for fanouts in self._all_fanouts():
            fanouts.remote_changed()

    # ---- what links owe ------------------------------------------------------------------------------------------

    def send_owed(self, end: PeerEnd) -> None:
        """What is on disk and was not sent, as far as the peer keeps up; and what it may forget."""
        channel = end.channel
        if channel is None:
            return
        acknowledgement = end.applied.due()
        if acknowledgement is not None:
            end.send(acknowledgement)
        for position, run in end.spool.take():
            number = end.number_of(run.client_id, run.protocol)
            origin = b"" if run.origin == self.node else run.origin.encode()
            packets = aged(run.packets, run.expires) if run.expires else run.packets
            head = run_head(
                *(run.protocol, run.hops, run.messages, number, run.counter),
                *(origin, run.boot, position, len(packets)),
            )
            end.write_run(channel, head, packets, run.messages)

    def try_held_again(self) -> None:
        """Something that came found no room."""
        if self._held_again is None:
            self._held_again = self.server.timers.at(self.server.hot.now + AGAIN, self._apply_held)

    def _apply_held(self) -> None:
        self._held_again = None
        for link in list(self.up.values()):
            if link.receiving is not None and link.receiving.held:
                link.apply_held()
                self.try_held_again()

    # ---- time ----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now = self.server.hot.now
        for link in [*self.up.values(), *self.greeting]:
            link.beat(now)
        self.retaining.beat(now)
        for service in self.post.services:
            service.beat(now)
        if self._is_running:
            self.server.timers.at(now + self.settings.heartbeat, self._beat)

    def is_synced(self, node: str) -> bool:
        """Whether a peer has told all that it wants."""
        link = self.up.get(node)
        return link is not None and link.phase == UP and self.coordination.is_synced(node)


class _Feed(RouteListener):
    def __init__(self, links: Links) -> None:
        self.links = links

    def wanted_changed(self, change: RouteChange) -> None:
        self.links.wanted_changed(change)


class _Gate(InterestGate):
    def __init__(self, links: Links) -> None:
        self.links = links

    def hold(self, task: ClientTask) -> bool:
        return self.links.hold(task)

    def retain(self, message: Message) -> None:
        if is_shared(message.topic):
            self.links.retaining.write(message)

    def spread(self, message: Message, publisher: Session | None, fanout: Fanout, is_retained: bool) -> None:
        self.links.spread(message, publisher, fanout, is_retained)

    def take_retained(self, message: Message) -> bool:
        return self.links.take_retained(message)

    def pass_on_retained(self, message: Message, fanout: Fanout) -> None:
        self.links.pass_on_retained(message, fanout)


class _Others(Source):
    """All links but one, for what came over that one."""

    def __init__(self, links: Links, node: str) -> None:
        self.links = links
        self.node = node

    def destinations(self, topic: str) -> list[Destination]:
        return self.links.destinations_but(self.node, topic)


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


def _ignore(link: Link) -> None:
    pass


def _ignore_gossip(link: Link, data: bytes) -> None:
    pass


def _ignore_node(node: str) -> None:
    pass


def _ignore_channel(channel: Channel) -> None:
    pass


def _no_objection(link: Link) -> str:
    return ""
