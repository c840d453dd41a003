"""What a PUBLISH is handed to, and what is handed.

Theory. A topic leads to a `Fanout`: a list of destinations, resolved once and remembered (fanouts.py). A destination is
whoever takes messages as a whole: the channels that can be sent bytes as they are, the recipients with wishes of their
own, shared groups, the delivery store, a link to another broker. Each takes a message in one of three forms:

    take0    a `Run` of QoS 0 packets, all at once          the hot path
    take1    one QoS 1 packet, the run's `head` and `tail`  the hot path
    deliver  a `Message`                                    the ordinary way: everything else

All that is said of a topic follows from its list: whether anybody wants it (PUBACK says so), whether packets may be
handed over many at a time, whether they have to be journaled. So a new kind of receiver is a new destination and its
`Source`, and neither a branch in the hot path nor a hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from headwater.message import Delivery, Message
from headwater.session.journaled import JournaledMessage
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.node.plane.channel import Channel


EACH: Final = 4096
"""Bytes that a message counts for, beside its own, when it is asked how long it takes to hand it to somebody."""
LONG: Final = 64 * EACH
"""Of all receivers that get it one after another: above, a message is handed over in pieces (handing_over.py)."""


class Run:
    """PUBLISH packets of one form that one client sent one behind another: only payloads and packet ids differ.

    The packets are `data[start:end]`, `count` of them with `size` bytes each. In the first one, the length of the topic
    is at `topic_at`, the topic ends at `topic_end` and the payload begins at `body`. Of QoS 1 packets, handed over one
    at a time, there are `head`, all before the packet id, and `tail`, all behind it; `properties` bytes of the tail are
    before the payload. `position` is that of the first in the delivery store, and `commit` has to be on disk before
    anybody sees them; both are 0 where they are not stored.
    """

    def __init__(self, channel: Channel | None) -> None:
        self.channel = channel
        self.version = 0
        self.topic = b""
        self.data = b""
        self.start = 0
        self.end = 0
        self.size = 0
        self.count = 0
        self.topic_at = 0
        self.topic_end = 0
        self.body = 0
        self.head = b""
        self.tail = b""
        self.properties = 0
        self.position = 0
        self.commit = 0
        self.journaled: JournaledMessage | None = None

    @property
    def publisher(self) -> str:
        """The client id."""
        channel = self.channel
        return "" if channel is None else channel.client_id

    @property
    def session(self) -> Session | None:
        """The publisher's."""
        channel = self.channel
        return None if channel is None else channel.session

    def rewritten(self, head: bytes, tail: bytes, version: int) -> Run:
        """The same QoS 1 packet for another version of the protocol."""
        other = Run(self.channel)
        other.topic = self.topic
        other.head = head
        other.tail = tail
        other.version = version
        other.position = self.position
        other.commit = self.commit
        other.journaled = self.journaled
        return other


@mypyc_attr(allow_interpreted_subclasses=True)
class Destination:
    """Somebody who takes messages; see the head of this file."""

    counts = True
    """Whether it is a subscriber as the standard has it: a PUBACK may say that there is none."""
    reaches_clients = True
    """Whether the message goes on to clients of this broker, by the order of whose messages it is bound."""
    one_by_one = False
    """Whether it takes one QoS 0 packet at a time."""
    durable = False
    """Whether what it takes with QoS 1 is kept on disk until somebody has acknowledged it."""
    promises = False
    """Whether an acknowledgement of a message of QoS 1 waits for the disk because of it."""
    owed = False
    """Whether somebody may get a message with QoS 1 or 2."""
    width = 0
    """To how many a message goes at once, one after another: what takes longer the more there are."""
    drops_properties = False
    """Whether somebody gets QoS 1 packets without their properties, who may come back and want them."""

    def take0(self, run: Run) -> None:
        raise NotImplementedError

    def take1(self, run: Run) -> None:
        raise NotImplementedError

    def deliver(self, message: Message, publisher: Session | None) -> None:
        """`publisher`: the session of who published it, if that is a client."""
        raise NotImplementedError

    def deliver_some(self, message: Message, publisher: Session | None, first: int, count: int) -> int:
        """As `deliver`, to `count` of those it goes to one after another, from the `first` on; the number of the next
        one, 0: none is left. Other turns may be between two calls."""
        self.deliver(message, publisher)
        return 0

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        """As `deliver`, where hooks may still change who gets the message: add what would be delivered to `chosen`."""
        self.deliver(message, publisher)

    def has_room(self, publisher: Session | None) -> bool:
        """False: a message of QoS 1 or 2 has to be refused, because a queue that it would wait in is full."""
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Source:
    """Somebody who knows destinations of topics. When that changes it says so: `Fanouts.forget`."""

    def destinations(self, topic: str) -> list[Destination]:
        """Those of a topic. The same object stands for the same receivers: fan-outs are told apart by identity."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Scope:
    """Which topics are this node's to store, where nodes share that (node/links/owning.py)."""

    def has(self, topic: str) -> bool:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreDestination(Destination):
    """The delivery store: it comes before all others, because they may not see a message before it is there."""

    def stores(self, topic: str) -> bool:
        """Whether messages of this topic go to the store."""
        raise NotImplementedError

    def room_for(self, topic: bytes) -> bool:
        """Whether a message of a topic that is stored may be taken; if so, the topic counts from now on."""
        raise NotImplementedError

    def has_taken(self, topic: bytes) -> bool:
        """Whether the topic counts already."""
        raise NotImplementedError


class Batch(Destination):
    """Channels that get the same QoS 0 packets as they are, and what they are to get at the end of this turn (turn.py).

    There is one list of channels for each version of the protocol, and one of pieces.
    """

    def __init__(self) -> None:
        self.members4: list[Channel] = []
        self.members5: list[Channel] = []
        self.pieces4: list[bytes] = []
        self.pieces5: list[bytes] = []
        self.count = 0
        self.commit = 0
        self.dirty = False
        self.claimed = False


class Fanout:
    """All destinations of a topic, and what follows from them. Topics with the same ones share one fan-out. Those at
    this broker come first, `local` of them."""

    def __init__(self, store: StoreDestination | None, destinations: list[Destination], local: int) -> None:
        self.store = store
        self.destinations = destinations
        self.local = local
        self.somebody = False
        self.in_runs = True
        """Whether QoS 0 packets may be handed over many at a time: who gets a message by two ways gets both before the
        next one."""
        self.durable = False
        self.promises = store is not None
        self.owed = False
        self.drops_properties = False
        self.width = 0
        ways = 0
        for each in destinations:
            self.width += each.width
            self.somebody = self.somebody or each.counts
            self.durable = self.durable or each.durable
            self.promises = self.promises or each.durable or each.promises
            self.owed = self.owed or each.owed
            self.drops_properties = self.drops_properties or each.drops_properties
            if each.one_by_one:
                self.in_runs = False
            if each.reaches_clients:
                ways += 1
        if ways > 1 or (store is not None and store.one_by_one):
            self.in_runs = False
