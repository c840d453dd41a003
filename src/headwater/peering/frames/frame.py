"""What two nodes say to each other, as objects; `v1.py` writes and reads them as bytes.

A link is one ordered stream of bytes in each direction. Order carries meaning: a node sends what it knows of interest
before the messages that were published knowing it, so whoever receives a message knows at least as much about who wants
it as the sender did (docs/adr/0023-peering.md).

    Hello                 first in each direction, in a form that no version changes (`hello.py`)
    Proof                 that the sender has the join secret; second, where there is one
    Have … Synced         what of whose interest I have; the answer is what was missing, and then Synced
    StateBegin/Part/End   all that a node wants; Change, Neighbours: the next step of it; InterestAck
    Spool, Resume         where the QoS ≥ 1 messages of this link begin, and after which the receiver wants them
    Publisher             numbers a client, so that runs can name it
    Run0, Run1, Ack       messages as they came in; Run1 has positions, which Ack acknowledges
    Branches … Want       what retained messages the sender has (`retained/reconciling.py`); RetainedItem: one of them
    Heartbeat, Gossip, Refuse, Leave

`origin` is the node at which a message or an interest began, "" in runs for the sender of the link itself; `boot` grows
with each start of that node. Together with a counter they are a message's id.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.peering.retained.reconciling import Branches, Entries, Leaves, Want

MAX_NODE_ID: Final = 32
"""Bytes of a node's id: letters, digits, `.`, `_`, `-`."""
MAX_CLUSTER: Final = 64
MAX_METHOD: Final = 16
MAX_VERSIONS: Final = 16
MAX_SERVICES: Final = 16
MAX_SERVICE: Final = 32
MAX_BOOT: Final = 0xFFFFFFFF
MAX_NUMBER: Final = 0xFFFFFFFFFFFFFFFF
MAX_COUNT: Final = 0xFFFF
"""Packets of one run."""
MAX_STREAMS: Final = 1024
"""Nodes whose interest one Have may name, and neighbours that a node may have."""
MAX_STATE: Final = 64 << 20
"""Bytes of one node's whole interest; a node that has more says that it wants everything."""
PART: Final = 64 << 10
"""Bytes of a part of it: messages go between the parts."""
MAX_CHANGE: Final = 256 << 10
"""Bytes of one change; what is larger goes as a whole state."""
MAX_TEXT: Final = 1024
"""Bytes of a reason in words."""
MAX_CLIENT_ID: Final = 65535
MAX_GOSSIP: Final = 24576
NONCE: Final = 32
MAC: Final = 32


class MalformedFrame(ValueError):
    """Bytes that are no frame, or a frame that has no place here. The link has to be closed."""


class Hello(NamedTuple):
    """`versions` are those of frames that the node speaks; `relays`: it passes on what others sent; `services`: what it
    takes notes and letters for (`node/links/post.py`). `later`: what a later version of Headwater says beyond that."""

    node: str
    boot: int
    cluster: str
    versions: tuple[int, ...]
    method: str
    relays: bool
    nonce: bytes
    services: tuple[str, ...] = ()
    later: bytes = b""


class Proof(NamedTuple):
    mac: bytes


class Stamp(NamedTuple):
    """How much of a node's interest somebody has: later boots are newer, and within one the greater number."""

    boot: int
    number: int


NOTHING: Final = Stamp(0, 0)


class Have(NamedTuple):
    """`everything`: of nodes that are not named, the sender has nothing. Else only those are asked for."""

    everything: bool
    streams: tuple[tuple[str, Stamp], ...]


class Synced(NamedTuple):
    """What a Have asked for has been sent."""


class StateBegin(NamedTuple):
    """`size` bytes follow in parts; until the end, the origin may want anything."""

    origin: str
    stamp: Stamp
    method: str
    neighbours: tuple[str, ...]
    size: int


class StatePart(NamedTuple):
    data: bytes


class StateEnd(NamedTuple):
    pass


class Change(NamedTuple):
    """From the number before to this one."""

    origin: str
    stamp: Stamp
    data: bytes


class Neighbours(NamedTuple):
    """The same for a node that has links to others than before."""

    origin: str
    stamp: Stamp
    neighbours: tuple[str, ...]


class InterestAck(NamedTuple):
    """The sender has it, and so has every node that the sender passes it on to."""

    origin: str
    stamp: Stamp


class Spool(NamedTuple):
    """`spool` names this life of the sender's spool; another one counts positions anew. The oldest that it can send is
    `first`."""

    spool: int
    first: int


class Resume(NamedTuple):
    """Send what is behind `position` of that spool."""

    spool: int
    position: int


class Publisher(NamedTuple):
    """From now on, `number` on this link is that client. `protocol`: the version of MQTT of its packets, 4 or 5."""

    number: int
    protocol: int
    client_id: str


class Run:
    """`messages` PUBLISH packets as they came in; their counters are consecutive. `position` is 0 for QoS 0. No tuple,
    because there is one for every message that comes alone, and compiled, a tuple with names takes six times as long to
    make."""

    def __init__(
        self,
        protocol: int,
        hops: int,
        messages: int,
        publisher: int,
        counter: int,
        origin: str,
        boot: int,
        position: int,
        packets: bytes,
    ) -> None:
        self.protocol = protocol
        self.hops = hops
        self.messages = messages
        self.publisher = publisher
        self.counter = counter
        self.origin = origin
        self.boot = boot
        self.position = position
        self.packets = packets

    def first(self, count: int) -> Run:
        """The same as if it had the first messages only; the packets stay."""
        return Run(
            *(self.protocol, self.hops, count, self.publisher, self.counter),
            *(self.origin, self.boot, self.position, self.packets),
        )

    def behind(self, count: int, packets: bytes) -> Run:
        """The messages behind the first ones, with their packets."""
        return Run(
            *(self.protocol, self.hops, self.messages - count, self.publisher, self.counter + count),
            *(self.origin, self.boot, self.position + count if self.position else 0, packets),
        )

    def _fields(self) -> tuple[int, int, int, int, int, str, int, int, bytes]:
        return (
            *(self.protocol, self.hops, self.messages, self.publisher, self.counter),
            *(self.origin, self.boot, self.position, self.packets),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"Run{self._fields()}"


class RetainedItem(NamedTuple):
    """A retained message as a PUBLISH packet, empty if it is deleted, with its stamp (`retained/`)."""

    time: int
    node: str
    packet: bytes


class Ack(NamedTuple):
    """All up to this position of the receiver's spool is on the sender's disk, with its effects."""

    position: int


class Heartbeat(NamedTuple):
    """`echo`: the last sequence that the sender has from the other side. `processed`: frames of the other side that
    the sender's data plane has dealt with, this link's life long."""

    sequence: int
    echo: int
    processed: int


class Gossip(NamedTuple):
    """A message of `membership`, which alone knows what is in it."""

    data: bytes


class Refuse(NamedTuple):
    """The last frame of a link that is not wanted, with why."""

    reason: str


class Leave(NamedTuple):
    """The node goes for good (`forget`), or for a while. All it wanted before it goes for good is void."""

    forget: bool


RetainedFrame = Branches | Leaves | Entries | Want | RetainedItem
Frame = (
    Proof
    | Have
    | Synced
    | StateBegin
    | StatePart
    | StateEnd
    | Change
    | Neighbours
    | InterestAck
    | Spool
    | Resume
    | Publisher
    | Run
    | Ack
    | Heartbeat
    | Gossip
    | Refuse
    | Leave
    | RetainedFrame
)
InterestFrame = Have | Synced | StateBegin | StatePart | StateEnd | Change | Neighbours | InterestAck
