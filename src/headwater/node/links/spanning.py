"""A group with members at several nodes, as a destination, and what comes from other nodes for the members here.

At the node where a message is published one destination stands for the whole group: it chooses a node
(peering/groups/spread.py), and then gives the message to a member here, as `SharedGroups` does, or sends it over that
node's link, to that group alone (`GroupLink`). At the other node it comes as a run of its own, fed with fan-outs that
lead to that group and nowhere else. So nothing is decided per packet there, and plain runs do not reach groups at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.message import Delivery, Message
from headwater.node.destinations.destination import Destination, Fanout, Run
from headwater.node.destinations.fanouts import Fanouts, LocalPart
from headwater.node.destinations.groups import SharedGroups, give1, message_at, plain_channel, shared_groups
from headwater.node.links.sending import GroupLink
from headwater.node.plane.counters import SESSION_ENDED, Counters
from headwater.node.plane.sending import HEADERS, Sending
from headwater.peering.groups.spread import GroupNode, Spread
from headwater.routing.dispatcher import Member
from headwater.routing.shared import Group
from headwater.session.rights import Rights
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.node.links.groups import SpanningGroups

MANY: Final = 8
"""Messages of a run that are left, from which on a node may get several of them."""
MOST_TOPICS: Final = 65536
MOST_TOPIC_BYTES: Final = 8 << 20
"""Of topics that are known to be valid, of all groups together."""


class SpanningGroup(Destination):
    def __init__(self, groups: SpanningGroups, sending: Sending, group: Group, spread: Spread) -> None:
        self.groups = groups
        self.sending = sending
        self.group = group
        self.spread = spread
        self.links: dict[str, GroupLink] = {}
        self.owed = True
        self.promises = True
        self.width = 1
        self.durable = group.number > 0
        self._part = Run(None)
        self._member: Member | None = None

    def _choose(self, topic: str, publisher: str) -> GroupNode | None:
        """The other node that gets a message. None: `_member` does, and if that is None, too, it waits."""
        sending, spread, group = self.sending, self.spread, self.group
        self._member = None
        if spread.dispatcher != group.dispatcher.name:  # it was changed at run time
            spread.use(group.dispatcher.name)
        node = spread.choose(topic, publisher, sending.now, group.any_ready)
        if node is spread.own:
            self._member = sending.sharing.choose(group, topic, publisher)
            if self._member is not None:
                return None
            node = spread.choose(topic, publisher, sending.now, False)  # it turned out to have no room
            if node is spread.own:
                return None
        return node

    def link(self, node: GroupNode) -> GroupLink:
        found = self.links.get(node.node)
        if found is None:
            found = self.links[node.node] = self.groups.link(node.node, self.spread.name)
        return found

    def _holds(self, message: Message) -> bool:
        """Whether the message meets the condition of the members here, which is that of all (another node asks as
        well)."""
        gate = self.group.gate
        return gate is None or self.sending.conditions.passes(gate, message, self.sending.now)

    def take0(self, run: Run) -> None:
        sending = self.sending
        if self.group.gate is not None:
            for start in range(0, run.end - run.start, run.size):
                self.deliver(message_at(sending, run, start), run.session)
            return
        if sending.open:
            sending.settle_all()
        self.groups.used(self.spread.name)
        group, spread = self.group, self.spread
        topic = run.topic.decode()
        publisher = run.publisher
        size = run.size
        told = size - (run.body - run.start) + len(topic) + HEADERS
        total = run.end - run.start
        start = 0
        while start < total:
            end = start + size
            node = self._choose(topic, publisher)
            if node is not None:
                if total - end >= MANY * size:
                    end += spread.also(node, (total - end) // size, sending.now) * size
                self._send0(node, run, start, end)
                start = end
                continue
            member = self._member
            channel = None if member is None else plain_channel(member)
            if member is None or channel is None or channel.version != run.version:
                sending.sharing.give(group, member, message_at(sending, run, start))
            else:
                group.sent(member, told, 0, sending.now)
                if total - end >= MANY * size:
                    end += group.also(member, (total - end) // size, told, sending.now) * size
                packets = run.data[run.start + start : run.start + end]
                sending.send0(channel, packets, (end - start) // size, run.version, run.commit)
            start = end

    def _send0(self, node: GroupNode, run: Run, start: int, end: int) -> None:
        part = self._part
        part.channel = run.channel
        part.version = run.version
        part.data = run.data
        part.start = run.start + start
        part.end = run.start + end
        part.count = (end - start) // run.size
        part.commit = run.commit
        self.link(node).take0(part)

    def take1(self, run: Run) -> None:
        if self.group.gate is not None:
            self.deliver(self.sending.message1(run), run.session)
            return
        self.groups.used(self.spread.name)
        node = self._choose(run.topic.decode(), run.publisher)
        if node is not None:
            self.link(node).take1(run)
        else:
            give1(self.sending, self.group, self._member, run)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        if not self._holds(message):
            return
        self.groups.used(self.spread.name)
        node = self._choose(message.topic, message.publisher)
        if node is not None:
            self.link(node).deliver(message, publisher)
        else:
            self.sending.sharing.give(self.group, self._member, message)

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        if not self._holds(message):
            return
        self.groups.used(self.spread.name)
        node = self._choose(message.topic, message.publisher)
        if node is not None:
            self.link(node).deliver(message, publisher)
        else:
            self.groups.server.sharing.select_for(self.group, self._member, message, chosen)

    def has_room(self, publisher: Session | None) -> bool:
        return not self.sending.sharing.is_full(self.group)


class NoGroups(LocalPart):
    """For what comes from other nodes: the node where a message was published decides for all groups."""

    def of(self, found: list[Destination]) -> list[Destination]:
        for each in found:
            if isinstance(each, SharedGroups):
                return [other for other in found if not isinstance(other, SharedGroups)]
        return found


class NoClients(LocalPart):
    """For what comes from a proxy's home broker, which its own clients have already."""

    def of(self, found: list[Destination]) -> list[Destination]:
        return []


class GroupsAlone(LocalPart):
    """For what comes from a proxy's home broker, where the proxy keeps groups. `own`: as for what is published here."""

    def __init__(self, own: OwnGroups | None) -> None:
        self.own = own

    def of(self, found: list[Destination]) -> list[Destination]:
        found = [each for each in found if isinstance(each, SharedGroups)]
        return found if self.own is None else self.own.of(found)


class OwnGroups(LocalPart):
    """For what is published here: without the groups that have members elsewhere, too."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.spans = False
        """Whether any does."""
        self._less: dict[int, tuple[SharedGroups, list[Destination]]] = {}
        """By the identity of the destination that is replaced, which is kept alive."""

    def changed(self, spans: bool) -> None:
        """Others than before have members elsewhere."""
        self.spans = spans
        self._less.clear()

    def of(self, found: list[Destination]) -> list[Destination]:
        if not self.spans:
            return found
        made: list[Destination] = []
        for each in found:
            if isinstance(each, SharedGroups):
                made += self._without(each)
            else:
                made.append(each)
        return made

    def _without(self, destination: SharedGroups) -> list[Destination]:
        known = self._less.get(id(destination))
        if known is not None:
            return known[1]
        rest = [group for group in destination.groups if not group.is_held]
        less: list[Destination] = []
        if len(rest) == len(destination.groups):
            less.append(destination)
        elif rest:
            less.append(shared_groups(self.sending, rest))
        if len(self._less) >= MOST_TOPICS:
            self._less.clear()
        self._less[id(destination)] = (destination, less)
        return less


class Nobody(Destination):
    """A group whose last member has gone while messages were on their way to it."""

    def __init__(self, stats: Counters) -> None:
        self.stats = stats

    def take0(self, run: Run) -> None:
        self.stats.drops[SESSION_ENDED] += run.count

    def take1(self, run: Run) -> None:
        self.stats.drops[SESSION_ENDED] += 1

    def deliver(self, message: Message, publisher: Session | None) -> None:
        self.stats.drops[SESSION_ENDED] += 1


class GroupFanouts(Fanouts):
    """The fan-outs of runs that other nodes send for one group here: all topics have the same, if they are valid. They
    are not stored: the node where they were published has done that."""

    def __init__(self, own: Fanouts) -> None:
        super().__init__(own.local)
        self.max_topic_length = own.max_topic_length
        self.max_topic_levels = own.max_topic_levels
        self.fanout = Fanout(None, [], 0)
        self._valid: set[bytes] = set()
        self._valid_bytes = 0

    def use(self, destination: Destination) -> None:
        self.fanout = Fanout(None, [destination], 1)

    def resolve(self, topic: bytes, rights: Rights | None = None) -> Fanout | None:
        if topic not in self._valid:
            if not self._is_open(topic):
                return None
            if len(self._valid) >= MOST_TOPICS or self._valid_bytes >= MOST_TOPIC_BYTES:
                self._valid.clear()
                self._valid_bytes = 0
            self._valid.add(topic)
            self._valid_bytes += len(topic)
        return self.fanout

    def of(self, name: str) -> Fanout:
        return self.fanout
