"""What links owe and have applied, in the commits of the journal.

    p <peer> 0 <first>            a block of a spool: spool:8 messages:4, then as spool.py writes it
    a <peer>                      applied of a peer's spool: spool:8 position:8
    w <origin> 0 <boot> <number>  a part of the window of an origin, where messages are relayed
    k                             JSON: the other members, by node, with their addresses
    t <topic>                     the stamp of a retained message (retaining.py)
    v <stamp>                     a will that is due (wills.py)

Theory. One commit holds what a publisher sent, the blocks that other nodes are owed of it, what was applied of others'
spools, and what followed from that. So after a crash nothing is owed that was not published, and what was applied is
not applied again. Blocks are sent, and acknowledgements leave, when their commit is on disk.

Without a journal (`durability = none`) a turn is the commit: all of it is in memory, and a crash loses it.

Full: the channel that published what made a spool larger than its bound is paused, as for the delivery store, until the
peer has acknowledged enough. Who cannot be paused (REST, a will), or comes while many are paused, may use `SPARE` of
the bound more; then it is refused (`has_room` of the destination).
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from headwater.node.links.end import PeerEnd
from headwater.node.persistence.batch import Batch, Contributor
from headwater.node.persistence.journal import Journal
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.peering import windows
from headwater.peering.applied import Applied
from headwater.peering.forwarding import Forwarding
from headwater.peering.frames.frame import Resume
from headwater.peering.spool import Block, LinkSpool, MemoryStorage, SpoolStorage

log = logging.getLogger("headwater.cluster")

SPOOL: Final = b"p"
APPLIED: Final = b"a"
WINDOW: Final = b"w"
MEMBERS: Final = b"k"
STAMPS: Final = b"t"
GROUPS: Final = b"o"
CHUNKS: Final = windows.WINDOW // windows.CHUNK + 1
"""Parts of a window that are kept."""
UNPROVEN: Final = 1 << 20
"""Bytes that wait for a node that others tell of and that was never linked; then it is owed nothing until it is."""
MOST_FORGOTTEN: Final = 1024
"""Nodes that are no members any more of which it is known how far what they owed was applied."""
SPARE: Final = 0.25
RELIEF: Final = 0.75
"""Publishers go on when a spool is below this share of its bound."""

_BLOCK: Final = struct.Struct(">QI")
_APPLIED: Final = struct.Struct(">QQ")
_FIRST: Final = struct.Struct(">Q")
_CHUNK: Final = struct.Struct(">IQ")

Scan = Callable[[bytes], Iterator[tuple[bytes, bytes]]]
Get = Callable[[bytes], bytes | None]


class JournalStorage:
    """Blocks of spools in the journal's commits (peering/spool.py, `SpoolStorage`)."""

    def __init__(self, get: Get, scan: Scan) -> None:
        self._get = get
        self._found: dict[str, list[Block]] = {}
        self.puts: dict[bytes, bytes] = {}
        self.deletes: list[bytes] = []
        for key, value in scan(SPOOL):
            peer = key[1 : -_FIRST.size - 1].decode()
            spool, messages = _BLOCK.unpack_from(value)
            first = _FIRST.unpack_from(key, len(key) - _FIRST.size)[0]
            self._found.setdefault(peer, []).append(Block(spool, first, messages, len(value) - _BLOCK.size))

    @property
    def peers(self) -> list[str]:
        """Those for which something was there at the start."""
        return list(self._found)

    def put(self, peer: str, block: Block, data: bytes) -> None:
        self.puts[_block_key(peer, block.first)] = _BLOCK.pack(block.spool, block.messages) + data

    def get(self, peer: str, first: int) -> bytes:
        value = self._get(_block_key(peer, first))
        if value is None:
            raise RuntimeError(f"block {first} of the spool for {peer} is not where it was put")
        return value[_BLOCK.size :]

    def drop(self, peer: str, first: int) -> None:
        key = _block_key(peer, first)
        if self.puts.pop(key, None) is None:
            self.deletes.append(key)

    def blocks(self, peer: str) -> list[Block]:
        return self._found.pop(peer, [])


def _block_key(peer: str, first: int) -> bytes:
    return SPOOL + peer.encode() + b"\x00" + _FIRST.pack(first)


def _chunk_key(origin: str, boot: int, number: int) -> bytes:
    return WINDOW + origin.encode() + b"\x00" + _CHUNK.pack(boot, number)


class Spooling(Contributor):
    """`send` is called for an end that may have something to send: blocks, or an acknowledgement; `disown` for a node
    that is to be owed nothing."""

    def __init__(
        self,
        core: Core,
        boot: int,
        forwarding: Forwarding,
        max_bytes: int,
        send: Callable[[PeerEnd], None],
        disown: Callable[[str], None],
    ) -> None:
        self.core = core
        self.boot = boot
        self.forwarding = forwarding
        self.max_bytes = max_bytes
        self.send = send
        self.disown = disown
        self.ends: dict[str, PeerEnd] = {}
        self._made = 0
        self.since = 0
        """Boot: spools with names of earlier ones are from an older copy of this node's disk (identity.py)."""
        self.members: dict[str, str] = {}
        self._journal: Journal | None = core.journal
        self._journaled: JournalStorage | None = None
        self._storage: SpoolStorage = MemoryStorage()
        self._applied: dict[str, tuple[int, int]] = {}
        self._changed: dict[PeerEnd, None] = {}
        """Those of which something is not in a commit yet."""
        self._sealed: list[tuple[int, PeerEnd, int, int, int]] = []
        """By commit: up to where spool and applied are in it; the latter with the spool's name."""
        self._chunks: dict[bytes, bytes] = {}
        self._are_members_new = False
        if self._journal is not None:
            self._take_up(self._journal)

    def _take_up(self, journal: Journal) -> None:
        committer = journal.committer
        self._storage = self._journaled = JournalStorage(committer.get, committer.scan)
        for key, value in committer.scan(APPLIED):
            self._applied[key[1:].decode()] = _APPLIED.unpack(value)
        chunks: list[tuple[bytes, str, int, int]] = []
        for key, value in committer.scan(WINDOW):
            boot, number = _CHUNK.unpack_from(key, len(key) - _CHUNK.size)
            origin = key[1 : -_CHUNK.size - 1].decode()
            self.forwarding.windows.window(origin, boot).restore(number, value)
            chunks.append((key, origin, boot, number))
        for key, origin, boot, number in chunks:
            if not self.forwarding.windows.has_use_for(origin, boot, number):  # of an earlier life, or counters jumped
                self._journaled.deletes.append(key)
                self.touch()
        for _, value in committer.scan(MEMBERS):
            self.members = json.loads(value)
        journal.contributor = self

    def end_of(self, peer: str) -> PeerEnd:
        """That of a member; made if there is none yet."""
        end = self.ends.get(peer)
        if end is None:
            # One that was forgotten and comes back knows how far it had come in the spool that is void: no two of them
            # have the same name, in this life or another one.
            name = self._new_name()
            most = min(self.max_bytes, UNPROVEN)
            spool = LinkSpool(self._storage, peer, name, most, hop_limit=self.forwarding.hop_limit)
            if spool.spool >> 32 < self.since:
                spool.rename(name)
                self.touch()
            end = PeerEnd(self.core.hot, peer, spool, Applied(*self._applied.pop(peer, (0, 0))))
            self.ends[peer] = end
            if spool.waiting:
                self.is_proven(end)
        return end

    def _new_name(self) -> int:
        self._made += 1
        return (self.boot << 32) + self._made - 1

    def resume(self, end: PeerEnd, resume: Resume) -> None:
        """The peer says how far it has come. Raises MalformedFrame."""
        spool = end.spool
        if resume.spool == spool.spool and resume.position > min(spool.durable, spool.recovered) and not end.is_renamed:
            log.warning(
                "node %s has had more of this node than its disk has (%d, and here are %d): it is an older copy. "
                "What waits for that node is sent again",
                *(end.peer, resume.position, min(spool.durable, spool.recovered)),
            )
            end.is_renamed = True
            spool.rename(self._new_name())
            self.touch()
            end.send(spool.greeting())
        else:
            spool.resume(resume.spool, resume.position)
            self.send(end)

    def is_proven(self, end: PeerEnd) -> None:
        """It exists: it may be owed as much as any."""
        end.is_proven = True
        end.spool.max_bytes = self.max_bytes

    def forget(self, peer: str) -> None:
        """It is no member any more: what it was owed is void."""
        end = self.ends.pop(peer, None)
        if end is not None:
            end.spool.discard()
            self._relieve(end)
            self._changed.pop(end, None)
            self._sealed = [each for each in self._sealed if each[1] is not end]
            self._keep_applied(end)

    def _keep_applied(self, end: PeerEnd) -> None:
        """Of a node that is no member any more: it may not know that, or may come back with what it owed us before."""
        applied, peer = end.applied, end.peer
        self._applied[peer] = (applied.spool, applied.received)
        changed = {APPLIED + peer.encode(): _APPLIED.pack(applied.spool, applied.received)}
        if len(self._applied) > MOST_FORGOTTEN:
            oldest = next(iter(self._applied))
            del self._applied[oldest]
            if self._journaled is not None:
                self._journaled.deletes.append(APPLIED + oldest.encode())
        if self._journaled is not None:
            self._journaled.puts.update(changed)
            self.touch()

    def keep_members(self, members: dict[str, str]) -> None:
        """Who the others are, for the next start."""
        if members != self.members:
            self.members = dict(members)
            self._are_members_new = True
            self.touch()

    def stamps(self) -> list[tuple[str, bytes]]:
        """Of retained messages, as they were kept (retaining.py)."""
        return [(key[1:].decode(), value) for key, value in self.kept(STAMPS)]

    def keep_stamp(self, topic: str, record: bytes | None) -> None:
        """In the commit that the message is part of; None: there is none any more."""
        self.keep(STAMPS + topic.encode(), record)

    def kept(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """What was there at the start."""
        return [] if self._journal is None else list(self._journal.committer.scan(prefix))

    def keep(self, key: bytes, record: bytes | None) -> None:
        """In the next commit; None: it is deleted, and not put again in the same commit."""
        if self._journaled is None:
            return
        if record is None:
            self._journaled.puts.pop(key, None)
            self._journaled.deletes.append(key)
        else:
            self._journaled.puts[key] = record
        self.touch()

    def groups(self) -> list[tuple[str, str]]:
        """Shared groups that other nodes had members of, as they were kept: node and name."""
        if self._journal is None:
            return []
        found = [key[1:].decode().partition("\0") for key, _ in self._journal.committer.scan(GROUPS)]
        return [(node, name) for node, _, name in found]

    def keep_group(self, node: str, name: str, is_there: bool) -> None:
        """For the next start: until that node is linked, what is published for its members has to be kept."""
        if self._journaled is None:
            return
        key = GROUPS + node.encode() + b"\0" + name.encode()
        if is_there:
            self._journaled.puts[key] = b""
        else:
            self._journaled.puts.pop(key, None)
            self._journaled.deletes.append(key)
        self.touch()

    def touch(self) -> None:
        """Something will have to go into a commit."""
        if self._journal is not None:
            self.core.hot.changed = True

    # ---- what changes --------------------------------------------------------------------------------------------

    def appended(self) -> None:
        """Something was appended to spools."""
        if self._journal is None:
            self._commit_in_memory()

    def applied(self, end: PeerEnd) -> None:
        """More was applied of what this peer sent."""
        self._changed[end] = None
        if self._journal is None:
            self._commit_in_memory()
        else:
            self._journal.go_together()
            self.touch()

    def keep_window(self, origin: str, boot: int, counter: int, count: int) -> None:
        """Which messages of an origin have come, where they may come by several ways."""
        if self._journal is None or self.forwarding.hop_limit == 1:
            return
        for number, chunk in self.forwarding.windows.window(origin, boot).chunks(counter, count).items():
            self._chunks[_chunk_key(origin, boot, number)] = chunk
            if number >= CHUNKS and self._journaled is not None:
                self._journaled.deletes.append(_chunk_key(origin, boot, number - CHUNKS))

    def _commit_in_memory(self) -> None:
        for end in self.ends.values():
            end.spool.committed(end.spool.seal())
            end.applied.committed(end.applied.received)
            self.send(end)
        self._changed.clear()

    # ---- commits -------------------------------------------------------------------------------------------------

    def is_owed(self) -> bool:
        return bool(self._changed) or any(end.spool.appended > end.spool.sealed for end in self.ends.values())

    def fill(self, batch: Batch) -> None:
        outgoing = self.core.hot.outgoing
        if outgoing is not None and outgoing.is_open:
            outgoing.settle()
        storage = self._journaled
        assert storage is not None
        for end in self.ends.values():
            spool, applied = end.spool, end.applied
            if spool.appended > spool.sealed or end in self._changed:
                self._sealed.append((batch.sequence, end, spool.seal(), applied.spool, applied.received))
            if end in self._changed:
                batch.puts.append((APPLIED + end.peer.encode(), _APPLIED.pack(applied.spool, applied.received)))
        self._changed.clear()
        batch.puts += storage.puts.items()
        batch.puts += self._chunks.items()
        batch.deletes += storage.deletes
        storage.puts = {}
        storage.deletes = []
        self._chunks = {}
        if self._are_members_new:
            self._are_members_new = False
            batch.puts.append((MEMBERS, json.dumps(self.members).encode()))

    def on_disk(self, sequence: int) -> None:
        ready: dict[PeerEnd, None] = {}
        while self._sealed and self._sealed[0][0] <= sequence:
            _, end, position, spool, received = self._sealed.pop(0)
            end.spool.committed(position)
            if end.applied.spool == spool:
                end.applied.committed(received)
            ready[end] = None
        for end in ready:
            self.send(end)

    # ---- room ----------------------------------------------------------------------------------------------------

    def is_full(self, end: PeerEnd, channel: Channel | None) -> None:
        """The spool has more than it may have; `channel` published the last message, if it can be paused."""
        spool = end.spool
        if not end.is_proven:
            self.core.timers.at(self.core.hot.now, partial(self.disown, end.peer))
            return
        if not end.is_full and spool.bytes >= spool.max_bytes * (1 + SPARE):
            end.is_full = True
            self.core.budget.full_queues += 1
        if channel is not None and channel.peer is None:
            self.core.outruns_store(channel)
        if not end.is_told:
            end.is_told = True
            log.warning(
                "%d bytes wait for node %s (cluster.max_spool is %d): who publishes for it is paused until it is back "
                "or forgotten (headwater cluster forget %s)",
                *(spool.bytes, end.peer, spool.max_bytes, end.peer),
            )

    def acknowledged(self, end: PeerEnd) -> None:
        """The peer has acknowledged something."""
        self.touch()
        if end.spool.bytes < end.spool.max_bytes * RELIEF:
            self._relieve(end)

    def _relieve(self, end: PeerEnd) -> None:
        if end.is_full:
            end.is_full = False
            self.core.budget.full_queues -= 1
        if end.is_told:
            end.is_told = False
            log.info("there is room again for what node %s is owed", end.peer)
        self.core.store_keeps_up()
