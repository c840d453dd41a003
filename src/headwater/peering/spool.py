"""What a link owes its peer: QoS ≥ 1 messages by position, until the peer has acknowledged them.

Theory. Messages for a peer get consecutive positions. Those of one commit are one block on disk, under the position of
its first message. A position goes through these states, each a number up to which it holds:

    appended ≥ sealed (written into a commit) ≥ durable (it is on disk) ≥ sent ≥ acknowledged (blocks are dropped)

Nothing is sent before it is durable: else a node that dies in between would give the position to another message, which
the peer would take for one that it has. The publisher is acknowledged when its message is durable in all spools, and a
block is dropped when the peer has acknowledged its last message, which it does when what follows from it is on the
peer's disk. After a reconnect the peer says how far it has come (Resume), and the rest is sent again.

A spool has a name, a number that no other one of this node for the same peer has had: one that is empty at a start, or
is made for a peer that was forgotten, counts anew under another name, so that nothing has to be written when the last
block is dropped.

Full: `has_room` is False, and publishers are paused, as for the store. Relayed messages may use a share more for each
hop that they have come, up to twice the bound: whoever is further on its way never waits for those behind it, so nodes
in a ring that are all full do not wait for each other for ever (a structured buffer pool). Sent and not acknowledged
are `in_flight` bytes at most: so much the receiver may have to keep until its own spools have room.

Storage (`SpoolStorage`) is the journal's; with `durability = none`, `MemoryStorage`, and a crash loses what is in it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from headwater.peering.frames.fields import U16, U32, U64, Fields, short
from headwater.peering.frames.frame import MAX_NUMBER, MalformedFrame, Spool

FORM: Final = 1
EXPIRING: Final = 2
"""Forms of blocks on disk: the second where a message of it expires."""
MAX_BYTES: Final = 256 << 20
IN_FLIGHT: Final = 1 << 20
RECENT: Final = 1 << 20
"""Bytes of blocks that are not read from disk again when they are sent."""
ENTRY: Final = 64
"""Bytes that a run counts with beside its packets and its publisher's name."""
_ENTRY: Final = struct.Struct("!IBBHQI")


class SpooledRun:
    """`messages` PUBLISH packets of one client as they came in; see `frames.Run`. `origin` is never "". `expires` is
    when all of them do, in milliseconds of Unix time; 0: never."""

    def __init__(
        self,
        protocol: int,
        hops: int,
        messages: int,
        counter: int,
        origin: str,
        boot: int,
        client_id: str,
        packets: bytes,
        expires: int = 0,
    ) -> None:
        self.protocol = protocol
        self.hops = hops
        self.messages = messages
        self.counter = counter
        self.origin = origin
        self.boot = boot
        self.client_id = client_id
        self.packets = packets
        self.expires = expires

    def _fields(self) -> tuple[int, int, int, int, str, int, str, bytes, int]:
        return (
            *(self.protocol, self.hops, self.messages, self.counter, self.origin),
            *(self.boot, self.client_id, self.packets, self.expires),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpooledRun) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"SpooledRun{self._fields()}"


class Block(NamedTuple):
    spool: int
    first: int
    messages: int
    size: int


class SpoolStorage(Protocol):
    """Blocks by peer and first position. What is put is durable when the commit is that it becomes part of."""

    def put(self, peer: str, block: Block, data: bytes) -> None: ...

    def get(self, peer: str, first: int) -> bytes: ...

    def drop(self, peer: str, first: int) -> None: ...

    def blocks(self, peer: str) -> list[Block]:
        """In order."""
        ...


class MemoryStorage:
    """For `durability = none`, and for tests."""

    def __init__(self) -> None:
        self.data: dict[tuple[str, int], tuple[Block, bytes]] = {}

    def put(self, peer: str, block: Block, data: bytes) -> None:
        self.data[peer, block.first] = (block, data)

    def get(self, peer: str, first: int) -> bytes:
        return self.data[peer, first][1]

    def drop(self, peer: str, first: int) -> None:
        self.data.pop((peer, first), None)

    def blocks(self, peer: str) -> list[Block]:
        return sorted(block for (owner, _), (block, _) in self.data.items() if owner == peer)


class LinkSpool:
    """Of one peer. `name` is for it if there is nothing from before."""

    def __init__(
        self,
        storage: SpoolStorage,
        peer: str,
        name: int,
        max_bytes: int = MAX_BYTES,
        in_flight: int = IN_FLIGHT,
        hop_limit: int = 1,
    ) -> None:
        self.peer = peer
        self.max_bytes = max_bytes
        self.in_flight = in_flight
        self.hop_limit = hop_limit
        self._storage = storage
        self._blocks = deque(storage.blocks(peer))
        self.spool = self._blocks[0].spool if self._blocks else name
        self.acknowledged = self._blocks[0].first - 1 if self._blocks else 0
        self.appended = self._blocks[-1].first + self._blocks[-1].messages - 1 if self._blocks else 0
        self.sealed = self.durable = self.recovered = self.appended
        """`recovered`: nothing behind this has been sent by this node, as far as its disk knew at the start."""
        self.bytes = sum(block.size for block in self._blocks)
        self._sent: int | None = None
        self._flying: deque[tuple[int, int]] = deque()
        self._flying_bytes = 0
        self._open: list[SpooledRun] = []
        self._open_bytes = 0
        self._unsent: deque[Block] = deque()
        """Of `_blocks`, those behind what was sent; the first of them may have been sent in part."""
        self._recent: dict[int, tuple[int, list[SpooledRun]]] = {}
        """What blocks were made of, by their first positions, with their sizes."""
        self._recent_bytes = 0

    # ---- towards the disk ----------------------------------------------------------------------------------------

    def has_room(self, hops: int = 0) -> bool:
        """For messages that are published here (0 hops), or have come so many."""
        return self.bytes < self.max_bytes + self.max_bytes * hops // self.hop_limit

    def append(self, run: SpooledRun) -> int:
        """The position of its first message."""
        first = self.appended + 1
        self.appended += run.messages
        self._open.append(run)
        size = len(run.packets) + len(run.client_id) + ENTRY
        self._open_bytes += size
        self.bytes += size
        return first

    def seal(self) -> int:
        """Write what was appended since the last time into the commit that is being made; the last position in it."""
        if self._open:
            first = self.sealed + 1
            runs = self._open
            data = encode_block(runs)
            block = Block(self.spool, first, self.appended - self.sealed, len(data))
            self._storage.put(self.peer, block, data)
            self._blocks.append(block)
            if self._sent is not None:
                self._unsent.append(block)
            self.bytes += block.size - self._open_bytes
            self._open = []
            self._open_bytes = 0
            self.sealed = self.appended
            self._remember(block, runs)
        return self.sealed

    def committed(self, position: int) -> None:
        """All up to there is on disk."""
        self.durable = max(self.durable, position)

    # ---- towards the peer ----------------------------------------------------------------------------------------

    def greeting(self) -> Spool:
        """What to say when the link is up; the peer answers with Resume."""
        self.cut()
        return Spool(self.spool, self.acknowledged + 1)

    def resume(self, spool: int, position: int) -> None:
        """The peer wants what is behind that. Raises MalformedFrame."""
        if spool != self.spool or not self.acknowledged <= position <= self.durable:
            raise MalformedFrame(f"resumed at {position} of {spool}")
        self._sent = position
        self.recovered = MAX_NUMBER  # from now on this node knows what it has sent
        self._unsent = deque(block for block in self._blocks if block.first + block.messages - 1 > position)
        self._flying.clear()
        self._flying_bytes = 0

    def rename(self, name: int) -> None:
        """All that is here is to be sent, under another name: the peer has more under this one than there ever was, as
        far as this node knows. Its disk is an older copy of what it was, and positions mean other messages by now."""
        self.spool = name
        self._blocks = deque(block._replace(spool=name) for block in self._blocks)
        for block in self._blocks:
            recent = self._recent.get(block.first)
            data = self._storage.get(self.peer, block.first) if recent is None else encode_block(recent[1])
            self._storage.put(self.peer, block, data)

    def cut(self) -> None:
        """The link is down."""
        self._sent = None
        self._unsent.clear()

    def take(self) -> list[tuple[int, SpooledRun]]:
        """What may be sent now, with positions; it counts as sent."""
        found: list[tuple[int, SpooledRun]] = []
        if self._sent is None or self._sent >= self.durable:
            return found
        unsent = self._unsent
        while unsent and unsent[0].first <= self.durable and self._flying_bytes < self.in_flight:
            block = unsent[0]
            self._take_from(block, found)
            if block.first + block.messages - 1 > self._sent:
                break
            unsent.popleft()
        return found

    def acknowledge(self, position: int) -> None:
        """Raises MalformedFrame if that was not sent."""
        if self._sent is None or position > self._sent:
            raise MalformedFrame(f"acknowledgement of {position}, which was not sent")
        self.acknowledged = max(self.acknowledged, position)
        while self._flying and self._flying[0][0] <= position:
            self._flying_bytes -= self._flying.popleft()[1]
        while self._blocks and self._blocks[0].first + self._blocks[0].messages - 1 <= position:
            block = self._blocks.popleft()
            self._storage.drop(self.peer, block.first)
            self.bytes -= block.size
            self._forget(block.first)

    def unacknowledged(self) -> Iterator[SpooledRun]:
        """What the peer may not have, in order."""
        for block in list(self._blocks):
            recent = self._recent.get(block.first)
            runs = decode_block(self._storage.get(self.peer, block.first)) if recent is None else recent[1]
            last = block.first - 1
            for run in runs:
                last += run.messages
                if last > self.acknowledged:
                    yield run
        yield from list(self._open)

    def discard(self) -> None:
        """The peer will not come back: it is owed nothing."""
        for block in self._blocks:
            self._storage.drop(self.peer, block.first)
        self._blocks.clear()
        self._open = []
        self._recent.clear()
        self._recent_bytes = self._open_bytes = self.bytes = 0
        self.cut()

    @property
    def waiting(self) -> int:
        """Messages that the peer has not acknowledged."""
        return self.appended - self.acknowledged

    def _take_from(self, block: Block, found: list[tuple[int, SpooledRun]]) -> None:
        assert self._sent is not None
        recent = self._recent.get(block.first)
        runs = decode_block(self._storage.get(self.peer, block.first)) if recent is None else recent[1]
        position = block.first
        for run in runs:
            last = position + run.messages - 1
            if last > self._sent and self._flying_bytes < self.in_flight:
                found.append((position, run))
                self._sent = last
                self._flying.append((last, len(run.packets)))
                self._flying_bytes += len(run.packets)
            position = last + 1

    def _remember(self, block: Block, runs: list[SpooledRun]) -> None:
        self._recent[block.first] = (block.size, runs)
        self._recent_bytes += block.size
        while self._recent_bytes > RECENT:
            self._forget(next(iter(self._recent)))

    def _forget(self, first: int) -> None:
        recent = self._recent.pop(first, None)
        if recent is not None:
            self._recent_bytes -= recent[0]


def encode_block(runs: list[SpooledRun]) -> bytes:
    """form:1, then for each run
    size:4 protocol:1 hops:1 count:2 counter:8 boot:4 [expires:8, in the form EXPIRING] origin:text1 client:text2
    packets"""
    form = FORM
    for run in runs:
        if run.expires:
            form = EXPIRING
    made = [bytes((form,))]
    for run in runs:
        client = run.client_id.encode()
        names = short(run.origin) + U16.pack(len(client)) + client
        if form == EXPIRING:
            names = U64.pack(run.expires) + names
        size = _ENTRY.size - U32.size + len(names) + len(run.packets)
        made.append(_ENTRY.pack(size, run.protocol, run.hops, run.messages, run.counter, run.boot))
        made.append(names)
        made.append(run.packets)
    return b"".join(made)


def decode_block(data: bytes) -> list[SpooledRun]:
    """Raises MalformedFrame: the disk has something else than was written."""
    fields = Fields(data)
    form = fields.u8()
    if form not in (FORM, EXPIRING):
        raise MalformedFrame("a block of a spool in an unknown form")
    found = []
    while fields.at < len(data):
        entry = Fields(fields.take(fields.u32()))
        protocol, hops, count, counter, boot = entry.u8(), entry.u8(), entry.u16(), entry.u64(), entry.u32()
        expires = entry.u64() if form == EXPIRING else 0
        origin, client_id = entry.node(), entry.text(entry.u16())
        found.append(SpooledRun(protocol, hops, count, counter, origin, boot, client_id, entry.rest(), expires))
    return found
