"""Shared groups that span the nodes of a cluster: who has members, and who gets a message.

Theory. Each node tells all others exactly which groups have members at it and how these are doing (group_reporter.py),
by notes that do not depend on the method by which interest is told. So the node where a message is published knows all
groups that match its topic, its own and others', and decides for all of them: for each it chooses one node, and sends
it the message for that group alone (spanning.py). No other node decides anything for it, so it is with one member.

    here only                `SharedGroups`, as without a cluster
    here and elsewhere       one `SpanningGroup` per group
    elsewhere only           the same; this node holds the group, without members, for what waits

Where nobody has room a message waits in the group's queue, here, as it would without a cluster: until a member here has
room (`Sharing.pull`), or another node tells that it has some (`_pump`). A message that was sent to a node is that
node's. If the last member there has gone when it comes, that node chooses again, as if it had been published there:
first it tells the others that it has none, so a message does not go in circles. While a node is away nothing is sent to
its members; if nobody else has any, QoS 1 and 2 wait here. When it is no member any more, what its spool had of QoS 1
for groups goes to others.

Where messages are relayed (`cluster.neighbours`) nodes do not reach each other by notes: each node has groups of its
own there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headwater.message import Message, Subscription
from headwater.node.destinations.destination import Destination
from headwater.node.destinations.fanouts import NOT_FOR_CLIENTS, Fanouts
from headwater.node.destinations.groups import shared_groups
from headwater.node.links.end import PeerEnd
from headwater.node.links.group_reporter import GroupReporter, OwnGroup
from headwater.node.links.post import Post, Service
from headwater.node.links.sending import GroupLink, OutgoingRuns, aged, packet_end
from headwater.node.links.spanning import GroupFanouts, Nobody, OwnGroups, SpanningGroup
from headwater.node.plane.sending import message_of_packet
from headwater.node.protocol.elsewhere import Elsewhere, MembersElsewhere
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.groups.notes import BEGINNING, END, GROUP_BYTES, MAX_GROUPS_BYTES, Entry, GroupState, decode_note
from headwater.peering.groups.spread import KEY, Spread
from headwater.routing.feed import GROUP_ADDED, GROUP_REMOVED, RouteChange, RouteListener
from headwater.routing.shared import Group
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter, split_shared
from headwater.routing.trie import Trie
from headwater.wire.decode import FROM_CLIENT

log = logging.getLogger("headwater.cluster")

NOT_FOR_NODES: Final = tuple(each.decode() for each in NOT_FOR_CLIENTS)
MOST_RECLAIMED: Final = 64 << 20
"""Bytes of what waited for a node that is no member any more, of which messages for groups are given to others."""


class _Teller:
    """What another node has told."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.size = 0
        self.is_told = False
        """All of it, since its link is up."""


class SpanningGroups(Service):
    name = "groups"

    def __init__(
        self, server: Server, post: Post, outgoing: OutgoingRuns, node: str, unstamp: Callable[[Message], object]
    ) -> None:
        """`unstamp` takes off what a retained message has between nodes."""
        self.server = server
        self.unstamp = unstamp
        self.outgoing = outgoing
        self.node = node
        self.reporter = GroupReporter(server, post, self, self._due)
        self.own_part = OwnGroups(server.hot)
        self.fanouts = [server.hot.own_fanouts]
        """Where it counts which groups span nodes."""
        self._spans: dict[str, SpanningGroup] = {}
        """By name: those that other nodes have members of."""
        self._trie = Trie()  # of the same, by filter
        self._tellers: dict[str, _Teller] = {}
        self._stale: dict[str, set[str]] = {}
        """Names that a node had told before its link came up, and not again yet."""
        self._arriving = GroupFanouts(server.hot.own_fanouts)
        self._nobody = Nobody(server.stats)
        self._feed = _Feed(self)
        self._elsewhere = _Elsewhere(self)
        self.max_bytes = MAX_GROUPS_BYTES

    def start(self) -> None:
        for node, name in self.outgoing.spooling.groups():
            self._spanning(name).spread.remembered(node)
            self._stale.setdefault(node, set()).add(name)
        for group in self.server.router.groups.all():
            if len(group) and not group.filter.startswith(NOT_FOR_NODES):
                self.reporter.added(group)
        self.server.router.feed.listen(self._feed)
        self.server.sharing.elsewhere = self._elsewhere
        self.server.hot.own_fanouts.part = self.own_part

    # ---- other nodes ---------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        self.reporter.link_up(node)

    def link_down(self, node: str) -> None:
        self.reporter.link_down(node)
        teller = self._tellers.get(node)
        if teller is not None:
            teller.is_told = False
            for name in teller.names.values():
                self._cut(name, node)
            for name in self._stale.get(node, ()):
                self._cut(name, node)

    def _cut(self, name: str, node: str) -> None:
        found = self._spans.get(name)
        if found is not None:
            found.spread.cut(node)

    def forgotten(self, node: str) -> None:
        teller = self._tellers.pop(node, None)
        names = set() if teller is None else set(teller.names.values())
        for name in names | self._stale.pop(node, set()):
            self._gone(node, name)
        for found in self._spans.values():
            found.links.pop(node, None)

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        entries, part = decode_note(body)
        teller = self._tellers.get(node)
        if teller is None or part & BEGINNING:
            stale = self._stale.setdefault(node, set())
            if teller is not None:
                stale.update(teller.names.values())
            teller = self._tellers[node] = _Teller()
        for entry in entries:
            if entry.state is None:
                self._take_gone(node, teller, entry.number)
            else:
                self._take(node, teller, entry)
        if part & END:
            teller.is_told = True
            for name in self._stale.pop(node, set()):
                self._gone(node, name)
            self._release_recovered()

    def _take_gone(self, node: str, teller: _Teller, number: int) -> None:
        name = teller.names.pop(number, None)
        if name is None:
            raise MalformedFrame(f"group {number}, which was not named, is gone")
        teller.size -= GROUP_BYTES + len(name.encode())
        self._gone(node, name)

    def _take(self, node: str, teller: _Teller, entry: Entry) -> None:
        name = entry.name
        assert entry.state is not None
        if not name:
            name = teller.names.get(entry.number, "")
            if not name:
                raise MalformedFrame(f"group {entry.number} was not named")
        elif teller.names.get(entry.number) != name:
            self._take_name(node, teller, entry.number, name)
        found = self._spanning(name)
        found.spread.told(node, entry.state, entry.taken, self.server.hot.now)
        self._pump(found)

    def _take_name(self, node: str, teller: _Teller, number: int, name: str) -> None:
        share, filter = split_shared(name)
        try:
            check_filter(filter, ANY_LEVELS)
        except InvalidTopicFilter:
            share = None
        if share is None or number in teller.names or filter.startswith(NOT_FOR_NODES):
            raise MalformedFrame("a group that cannot be")
        size = GROUP_BYTES + len(name.encode())
        if teller.size + size > self.max_bytes:
            raise MalformedFrame("too many groups")
        teller.size += size
        teller.names[number] = name
        stale = self._stale.get(node, set())
        if name in stale:
            stale.discard(name)
        else:
            self.outgoing.spooling.keep_group(node, name, True)

    def _spanning(self, name: str) -> SpanningGroup:
        """A group that has members elsewhere now."""
        known = self._spans.get(name)
        if known is not None:
            return known
        server = self.server
        share, filter = split_shared(name)
        assert share is not None
        group = server.router.groups.hold(share, filter)
        spread = Spread(name, group.dispatcher.name, self.node)
        found = self._spans[name] = SpanningGroup(self, server.hot, group, spread)
        self._trie.add(filter, found, Subscription(filter, 0))
        if name in self.reporter.own:
            self.reporter.members_changed(filter)  # of which it has a model of its own from now on
        self._spread_changed(filter)
        return found

    def _look(self, own: OwnGroup, state: GroupState) -> None:
        """The model of this node's own members is made as others' are."""
        found = self._spans.get(own.name)
        if found is not None:
            found.spread.own_told(state, self.server.hot.now)

    def _gone(self, node: str, name: str) -> None:
        """The node has no members of the group any more."""
        self.outgoing.spooling.keep_group(node, name, False)
        found = self._spans.get(name)
        if found is None:
            return
        found.spread.gone(node)
        if found.spread.any_elsewhere:
            self._pump(found)
            return
        del self._spans[name]
        group = found.group
        self._trie.remove(group.filter, found)
        self._release(group)
        self._spread_changed(group.filter)

    def _release(self, group: Group) -> None:
        self.server.router.groups.release(group)
        if len(group) == 0:
            self.server.sharing.end(group)

    def _release_recovered(self) -> None:
        """Groups that were held before a restart, and have no members anywhere, now that all nodes have told."""
        if any(not self._is_told(node) for node in self.outgoing.spooling.ends):
            return
        for group in self.server.router.groups.all():
            if group.is_held and group.name not in self._spans:
                self._release(group)

    def _is_told(self, node: str) -> bool:
        teller = self._tellers.get(node)
        return teller is not None and teller.is_told

    def _spread_changed(self, filter: str) -> None:
        self.own_part.changed(bool(self._spans))
        for fanouts in self.fanouts:
            fanouts.forget(filter)

    # ---- members here --------------------------------------------------------------------------------------------

    def wanted_changed(self, change: RouteChange) -> None:
        if change.share is None or change.filter.startswith(NOT_FOR_NODES):
            return
        if change.kind == GROUP_ADDED:
            group = self.server.router.groups.get(change.share, change.filter)
            if group is not None:
                self.reporter.added(group)
        elif change.kind == GROUP_REMOVED:
            name = f"$share/{change.share}/{change.filter}"
            own = self.reporter.own.get(name)
            if own is not None:
                self.reporter.removed(own.group)
            found = self._spans.get(name)
            if found is not None:
                found.spread.own_left()

    def flush(self) -> None:
        """Tell of members that came and went, before others hear of it in other ways."""
        for own, state in self.reporter.flush():
            self._look(own, state)

    def _due(self) -> None:
        self.flush()
        for own, state in self.reporter.look():
            self._look(own, state)
            found = self._spans.get(own.name)
            if found is not None:
                self._pump(found)

    def used(self, name: str) -> None:
        """A message of the group is dealt out here."""
        self.reporter.used(name)

    # ---- where messages go ---------------------------------------------------------------------------------------

    def destinations(self, topic: str) -> list[Destination]:
        """Of the groups that match a topic and have members elsewhere."""
        found: list[Destination] = []
        if self._spans:
            for groups in self._trie.match(topic):
                for each in groups:
                    assert isinstance(each, SpanningGroup)
                    found.append(each)
        return found

    def routes(self, topic: str) -> dict[str, list[str]]:
        """The groups that match a topic, and the nodes that have members, for people to look at."""
        found: dict[str, list[str]] = {}
        for group in self.server.router.groups.match(topic):
            found[group.name] = [self.node]
        for each in self.destinations(topic):
            assert isinstance(each, SpanningGroup)
            nodes = each.spread.nodes.values()
            found[each.spread.name] = sorted(node.node for node in nodes if node.members)
        return found

    def link(self, node: str, name: str) -> GroupLink:
        return GroupLink(self.outgoing, self.outgoing.spooling.end_of(node), name)

    def spanning(self, group: Group) -> SpanningGroup | None:
        return self._spans.get(group.name)

    def _pump(self, found: SpanningGroup) -> None:
        """What waits here goes to other nodes, as far as they have room."""
        sharing = self.server.sharing
        if not sharing.waiting(found.group):
            return
        spread = found.spread
        if spread.way == KEY:
            if spread.any_online_elsewhere:
                sharing.pass_on(found.group)
            return
        self.flush()
        while spread.has_room_elsewhere:
            delivery = sharing.next_waiting(found.group)
            if delivery is None:
                return
            message = delivery.message
            node = spread.choose(message.topic, message.publisher, self.server.hot.now, False)
            assert node is not None
            found.link(node).deliver(message, None)
            sharing.passed_on(delivery)

    # ---- what comes for members here -------------------------------------------------------------------------------

    def fanouts_of(self, name: str) -> Fanouts:
        """Where a run goes that another node has sent for this group."""
        share, filter = split_shared(name)
        group = None if share is None else self.server.router.groups.get(share, filter)
        found = self._spans.get(name)
        destination: Destination = self._nobody
        is_elsewhere = found is not None and found.spread.any_online_elsewhere
        if group is not None and len(group) and (group.any_online() or not is_elsewhere):
            destination = shared_groups(self.server.hot, [group])
        elif found is not None:
            self.flush()  # that nobody is here, before it goes back
            destination = found
        self._arriving.use(destination)
        return self._arriving

    def came(self, node: str, name: str, count: int) -> None:
        """So many messages of a group came from that node."""
        if count:
            self.reporter.used(name, node, count)

    def reclaim(self, end: PeerEnd) -> None:
        """What a node that is no member any more has not acknowledged of QoS 1 for groups goes to others. QoS 2 does
        not: the node may have delivered it."""
        size = 0
        count = 0
        now = self.server.hot.now
        for run in end.spool.unacknowledged():
            client_id, is_for_group, name = run.client_id.partition("\0")
            if not is_for_group:
                continue
            size += len(run.packets)
            if size > MOST_RECLAIMED:
                log.warning("node %s is forgotten: more than %d bytes waited for groups", end.peer, MOST_RECLAIMED)
                break
            packets = aged(run.packets, run.expires) if run.expires else run.packets
            at = 0
            while at < len(packets):
                behind = packet_end(packets, at)
                message = message_of_packet(packets[at:behind], run.protocol, FROM_CLIENT, client_id, now)
                at = behind
                if message.qos == 1 and message.expires_at > now:
                    count += 1
                    if message.retain:
                        self.unstamp(message)
                    self._deliver(name, message)
        if count:
            log.info("%d messages of shared groups that waited for node %s go to others", count, end.peer)

    def _deliver(self, name: str, message: Message) -> None:
        """To a member anywhere, if there is one."""
        share, filter = split_shared(name)
        group = None if share is None else self.server.router.groups.get(share, filter)
        found = self._spans.get(name)
        if found is not None:
            found.deliver(message, None)
        elif group is not None:
            self.server.sharing.deliver(group, message)


class _Elsewhere(Elsewhere):
    def __init__(self, groups: SpanningGroups) -> None:
        self.groups = groups

    def any_online(self, group: Group) -> bool:
        found = self.groups.spanning(group)
        return found is not None and found.spread.any_online_elsewhere

    def deliver(self, group: Group, message: Message) -> None:
        found = self.groups.spanning(group)
        if found is None:
            self.groups.server.sharing.wait(group, message)
        else:
            self.groups.flush()
            found.deliver(message, None)

    def nodes(self, group: Group) -> list[MembersElsewhere]:
        found = self.groups.spanning(group)
        if found is None:
            return []
        return [
            MembersElsewhere(
                *(each.node, each.is_up, each.members, each.online, each.credit, each.sent, each.sent - each.taken)
            )
            for each in found.spread.nodes.values()
            if each is not found.spread.own
        ]


class _Feed(RouteListener):
    def __init__(self, groups: SpanningGroups) -> None:
        self.groups = groups

    def wanted_changed(self, change: RouteChange) -> None:
        self.groups.wanted_changed(change)

    def recipients_changed(self, filter: str) -> None:
        self.groups.reporter.members_changed(filter)

    def everything_changed(self) -> None:
        self.groups.reporter.everything_changed()
