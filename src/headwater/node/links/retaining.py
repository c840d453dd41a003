"""Retained messages at every node of a cluster (peering/retained).

A retained message goes to all nodes, whatever they want: each hands it to its own subscribers and keeps it, if it is
later than what it has. Its stamp is a property of the packet between nodes, which no client sees. What a node missed
(it was away, or the message was of QoS 0 and its link down) is found by comparing fingerprints, when a link comes up
and from time to time; that is kept, and not handed to anybody.

    t <topic>       on disk: time:8, deleted:1, node

A subscriber at another node misses nothing that is published while it subscribes: either its node was known to want the
topic, or what was published before is here before SUBACK leaves, as both come over the same link in order.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from typing import Final

from headwater.message import Delivery, Message
from headwater.node.links.end import PeerEnd
from headwater.node.links.spooling import Spooling
from headwater.node.protocol.core import Core
from headwater.peering.frames.frame import MalformedFrame, RetainedItem
from headwater.peering.retained.clock import HybridClock, Stamp
from headwater.peering.retained.reconciling import Branches, Entries, Item, Leaves, Want, answer
from headwater.peering.retained.replica import Entry, Replica
from headwater.session.translate import message_of, publish_properties
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Properties, Publish
from headwater.wire.primitives import ANY_NUMBER

log = logging.getLogger("headwater.cluster")

STAMP: Final = "$headwater/stamp"
"""The name of the user property."""
RECORD: Final = b"t"
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds between two comparisons over one link: the pause doubles as long as nothing is found."""
MOST_WAITING: Final = 4 << 20
"""Bytes that wait for a peer's socket: with more, it is not answered, and asks again."""
OLDEST: Final = 1
"""The time of messages that were here before the node was in a cluster: whatever others have is later."""

_RECORD: Final = struct.Struct(">QB")


class Comparison:
    """What a peer said of differences, for who waits for the end of it."""

    def __init__(self) -> None:
        self.leaves = 0
        self.size = 0
        """Bytes of messages."""
        self.is_skipped = False
        """Something was not answered here."""


class Retaining:
    def __init__(self, core: Core, node: str, spooling: Spooling) -> None:
        self.core = core
        self.node = node
        self.spooling = spooling
        self.replica = Replica()
        self.clock = HybridClock(node)
        self.mended = 0
        """Messages and deletions that were found by comparing."""
        self._next: dict[PeerEnd, tuple[float, float]] = {}
        """When to compare over a link that is up, and the pause after that."""
        self._has_found: set[PeerEnd] = set()
        self.kept: Callable[[Message], None] | None = None
        """Told of what was kept of others' messages, and deletions (node/proxy)."""
        self.comparisons: dict[PeerEnd, Comparison] = {}
        """Those that are watched (catching_up.py)."""

    def start(self) -> None:
        """When what is on disk has been recovered."""
        core, now = self.core, self.core.hot.now
        retained = core.router.retained
        for topic, stored in self.spooling.stamps():
            time_, is_deleted = _RECORD.unpack_from(stored)
            stamp = Stamp(time_, stored[_RECORD.size :].decode())
            if is_deleted or retained.get(topic) is not None:
                self.replica.put(topic, Entry(stamp, bool(is_deleted)), now)
                self.clock.last = max(self.clock.last, stamp.time if stamp.node == self.node else 0)
            else:
                self.spooling.keep_stamp(topic, None)
        for message in retained.some(0, len(retained)):
            if is_shared(message.topic) and not self.replica.get(message.topic).stamp.time:
                self._put(message.topic, Entry(Stamp(OLDEST, self.node), False))
        retained.removed = self._removed

    # ---- what is written here --------------------------------------------------------------------------------------

    def write(self, message: Message) -> None:
        """A client of this node is about to have it retained, or deleted."""
        before = self.replica.get(message.topic).stamp
        self._put(message.topic, Entry(self.clock.stamp(_wall(), before), not message.payload))

    def found_no_room(self, topic: str) -> None:
        """It is not retained after all."""
        self.replica.drop(topic)
        self.spooling.keep_stamp(topic, None)

    def stamp_of(self, topic: str) -> str:
        """For other nodes; "": there is none."""
        stamp = self.replica.get(topic).stamp
        return f"{stamp.time} {stamp.node}" if stamp.time else ""

    def _put(self, topic: str, entry: Entry) -> bool:
        if not self.replica.put(topic, entry, self.core.hot.now):
            return False
        stamp = entry.stamp
        self.spooling.keep_stamp(topic, _RECORD.pack(stamp.time, entry.is_deleted) + stamp.node.encode())
        return True

    def _removed(self, topic: str) -> None:
        """A message is not retained any more. If nobody deleted it, it has expired, here as everywhere."""
        entry = self.replica.get(topic)
        if entry.stamp.time and not entry.is_deleted:
            self.found_no_room(topic)

    # ---- what comes from others ------------------------------------------------------------------------------------

    def take(self, message: Message) -> str:
        """A retained message that another node has published; its stamp, for those it is passed on to."""
        stamp = take_stamp(message)
        if stamp is None or not is_shared(message.topic):
            return ""
        self._keep(message, stamp)
        return f"{stamp.time} {stamp.node}"

    def _keep(self, message: Message, stamp: Stamp) -> bool:
        """If it is later than what is here."""
        core = self.core
        self.clock.see(stamp, _wall())
        if not self._put(message.topic, Entry(stamp, not message.payload)):
            return False
        if core.router.retain(message):
            core.hot.changed = core.journal is not None
            core.hooks.tell("retain_message", message)
        elif message.payload:
            core.stats.retained_refused += 1
            self.found_no_room(message.topic)
            return False
        if self.kept is not None:
            self.kept(message)
        return True

    # ---- comparing -------------------------------------------------------------------------------------------------

    def link_up(self, end: PeerEnd) -> None:
        self._next[end] = (self.core.hot.now, FIRST_PAUSE)

    def link_down(self, end: PeerEnd) -> None:
        self._next.pop(end, None)
        self._has_found.discard(end)

    def beat(self, now: float) -> None:
        """From time to time."""
        self.replica.collect(now)
        for end, (when, pause) in list(self._next.items()):
            if now >= when:
                following = FIRST_PAUSE if end in self._has_found else min(2 * pause, LONGEST_PAUSE)
                self._has_found.discard(end)
                self._next[end] = (now + following, following)
                end.send(Branches(self.replica.branches()))

    def received(self, end: PeerEnd, said: Branches | Leaves | Entries | Want | RetainedItem) -> None:
        """Raises MalformedFrame."""
        comparison = self.comparisons.get(end)
        if isinstance(said, RetainedItem):
            if comparison is not None:
                comparison.size += len(said.packet)
            self._take_item(end, said)
            return
        channel = end.channel
        is_skipped = channel is None or channel.backlog_size + sum(map(len, channel.out)) > MOST_WAITING
        if comparison is not None:
            comparison.leaves += isinstance(said, Leaves)
            comparison.is_skipped = comparison.is_skipped or is_skipped
        if is_skipped:
            return
        try:
            found = answer(self.replica, said)
        except ValueError as error:
            raise MalformedFrame(str(error)) from None
        for each in found:
            if isinstance(each, Item):
                self._send_item(end, each.topic)
            else:
                end.send(each)

    def _send_item(self, end: PeerEnd, topic: str) -> None:
        entry = self.replica.get(topic)
        message = self.core.router.retained.alive(topic, self.core.hot.now)
        if message is None and not entry.is_deleted:
            return  # it has just expired, or there is no room for it here
        if message is None:
            message = Message(topic, b"", 0, True)
        end.send(RetainedItem(entry.stamp.time, entry.stamp.node, packet_of(message, self.core.hot.now)))

    def _take_item(self, end: PeerEnd, item: RetainedItem) -> None:
        message = message_in(item.packet, self.core.hot.now)
        if not item.time or not is_shared(message.topic):
            raise MalformedFrame("a retained message that is not for other nodes")
        if self._keep(message, Stamp(item.time, item.node)):
            self.mended += 1
            self._has_found.add(end)


def is_shared(topic: str) -> bool:
    """Whether all nodes have the same: what begins with `$` is a broker's own."""
    return not topic.startswith("$")


def take_stamp(message: Message) -> Stamp | None:
    """The stamp that another node put there, which is taken away."""
    pairs = message.user_properties or []
    rest = [pair for pair in pairs if pair[0] != STAMP]
    if len(rest) != len(pairs) - 1:
        return None
    text = next(value for name, value in pairs if name == STAMP)
    message.user_properties = rest or None
    time_, _, node = text.partition(" ")
    if not (time_.isascii() and time_.isdigit() and len(time_) <= 20 and node):
        return None
    return Stamp(int(time_), node)


def packet_of(message: Message, now: float, stamp: str = "") -> bytes:
    """A message as nodes send it to each other: a PUBLISH of 5.0, with what is left of its time."""
    properties = publish_properties(Delivery(message, message.qos, message.retain), now)
    if message.retain:
        pairs = [pair for pair in message.user_properties or [] if pair[0] != STAMP]  # a client may have invented one
        properties = properties or Properties()
        properties.user_properties = [*pairs, (STAMP, stamp)] if stamp else pairs or None
    packet_id = 1 if message.qos else 0
    packet = Publish(message.topic, message.payload, message.qos, message.retain, False, packet_id, properties)
    return encode(packet, V5)


def message_in(packet: bytes, now: float) -> Message:
    """Raises MalformedFrame."""
    start = 2
    while start <= len(packet) and packet[start - 1] & 0x80:
        start += 1
    try:
        publish = decode(packet[0], packet[start:], V5, FROM_CLIENT, ANY_NUMBER)
    except (RemoteProtocolError, IndexError) as error:
        raise MalformedFrame(f"a retained message that is none: {error}") from None
    if not isinstance(publish, Publish) or not publish.retain or not publish.topic:
        raise MalformedFrame("a retained message that is none")
    return message_of(publish, "", now)


def _wall() -> int:
    return int(time.time() * 1000)
