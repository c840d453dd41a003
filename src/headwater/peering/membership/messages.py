"""The wire form of gossip: three messages, one byte sequence each, and one error for everything that is none.

A round of Scuttlebutt (van Renesse et al., "Efficient Reconciliation and Flow Control for Anti-Entropy Protocols",
2008) is SYN (what I know: a digest), SYNACK (what I know, and what you lack) and ACK (what you lack, unless that is
nothing). Heartbeats are part of the digest, so a quiet cluster exchanges digests alone.

    message  version:1  kind:1  cluster:text  sender:text  generation:4  then by kind
             SYN: digest       SYNACK: digest delta        ACK: delta
    digest   count:2  then for each node, ids ascending:
             id:text  generation:4 heartbeat:4 progress:4 version:4 collected:4
    delta    count:2  then for each node, ids ascending:
             id:text  generation:4 base:4 upto:4 collected:4  count:1  then, versions ascending:
             version:4  key:text  size:2 (0xFFFF: deleted)  value
    text     size:1  bytes

Numbers are big-endian. A value has one form only: what was parsed is written again to the same bytes. Messages come
whole, as links have frames; each beginning of a message that is not all of it is malformed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from .bounds import (
    MAX_CLUSTER_NAME,
    MAX_KEY,
    MAX_KEYS,
    MAX_MESSAGE,
    MAX_NODE_ID,
    MAX_NODES,
    MAX_VALUE,
)

VERSION: Final = 1
DELETED: Final = 0xFFFF

HEAD: Final = struct.Struct("!BB")
NUMBER: Final = struct.Struct("!I")
COUNT: Final = struct.Struct("!H")
DIGEST: Final = struct.Struct("!IIIII")
DELTA: Final = struct.Struct("!IIIIB")

ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NODE_ID}}}")
NAME: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_CLUSTER_NAME}}}")
KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY}}}")


class MalformedGossip(ValueError):
    """Bytes that are no message of this version."""


class Kind(IntEnum):
    SYN = 1
    SYNACK = 2
    ACK = 3


class NodeDigest(NamedTuple):
    """How far the sender's knowledge of one node goes."""

    node: str
    generation: int
    heartbeat: int
    progress: int
    """The heartbeat at which the node's data plane was last seen to advance; never above `heartbeat`."""
    version: int
    collected: int
    """Deletions up to this version are no longer listed."""


class Entry(NamedTuple):
    version: int
    key: str
    value: bytes | None
    """None: the key was deleted."""


class NodeDelta(NamedTuple):
    """Changes of one node's map above `base`, all of them up to `upto`."""

    node: str
    generation: int
    base: int
    upto: int
    collected: int
    entries: tuple[Entry, ...]


class GossipMessage(NamedTuple):
    kind: Kind
    cluster: str
    sender: str
    generation: int
    digest: tuple[NodeDigest, ...] = ()
    delta: tuple[NodeDelta, ...] = ()


def largest_digest() -> int:
    """Bytes of a digest with all nodes that there may be."""
    return COUNT.size + MAX_NODES * (1 + MAX_NODE_ID + DIGEST.size)


def entry_size(key: str, value: bytes | None) -> int:
    return NUMBER.size + 1 + len(key) + COUNT.size + len(value or b"")


def node_delta_size(node: str) -> int:
    """Bytes of a node's delta without entries."""
    return 1 + len(node) + DELTA.size


def delta_size(delta: NodeDelta) -> int:
    return node_delta_size(delta.node) + sum(entry_size(each.key, each.value) for each in delta.entries)


def _text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode("ascii")


def _encode_digest(digest: tuple[NodeDigest, ...]) -> bytes:
    parts = [COUNT.pack(len(digest))]
    parts += [_text(each[0]) + DIGEST.pack(*each[1:]) for each in digest]
    return b"".join(parts)


def _encode_delta(delta: tuple[NodeDelta, ...]) -> bytes:
    parts = [COUNT.pack(len(delta))]
    for node in delta:
        parts += (
            _text(node.node),
            DELTA.pack(node.generation, node.base, node.upto, node.collected, len(node.entries)),
        )
        for version, key, value in node.entries:
            size = DELETED if value is None else len(value)
            parts += (NUMBER.pack(version), _text(key), COUNT.pack(size), value or b"")
    return b"".join(parts)


def encode(message: GossipMessage) -> bytes:
    head = HEAD.pack(VERSION, message.kind) + _text(message.cluster) + _text(message.sender)
    body = NUMBER.pack(message.generation)
    if message.kind != Kind.ACK:
        body += _encode_digest(message.digest)
    if message.kind != Kind.SYN:
        body += _encode_delta(message.delta)
    return head + body


class _Reader:
    """A place in the bytes of a message. Raises MalformedGossip, or struct.error at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fields(self, form: struct.Struct) -> tuple[int, ...]:
        found = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise MalformedGossip("message cut short")
        found = self.data[self.at : end]
        self.at = end
        return found

    def text(self, form: re.Pattern[str]) -> str:
        # Latin-1 never fails, and the patterns allow ASCII only.
        text = self.raw(self.raw(1)[0]).decode("latin-1")
        if form.fullmatch(text) is None:
            raise MalformedGossip("malformed name")
        return text

    def count(self) -> int:
        [count] = self.fields(COUNT)
        if count > MAX_NODES:
            raise MalformedGossip("too many nodes")
        return count

    def digest(self) -> tuple[NodeDigest, ...]:
        nodes = tuple(NodeDigest(self.text(ID), *self.fields(DIGEST)) for _ in range(self.count()))
        if any(each.progress > each.heartbeat for each in nodes):
            raise MalformedGossip("progress ahead of heartbeat")
        _check_ascending([each.node for each in nodes])
        return nodes

    def delta(self) -> tuple[NodeDelta, ...]:
        nodes = tuple(self.node_delta() for _ in range(self.count()))
        _check_ascending([each.node for each in nodes])
        return nodes

    def node_delta(self) -> NodeDelta:
        node = self.text(ID)
        generation, base, upto, collected, count = self.fields(DELTA)
        if count > MAX_KEYS:
            raise MalformedGossip("too many keys")
        entries = tuple(self.entry() for _ in range(count))
        _check_ascending([base, *(each.version for each in entries)])
        if len({each.key for each in entries}) < count or upto < (entries[-1].version if entries else base):
            raise MalformedGossip("malformed changes")
        return NodeDelta(node, generation, base, upto, collected, entries)

    def entry(self) -> Entry:
        [version] = self.fields(NUMBER)
        key = self.text(KEY)
        [size] = self.fields(COUNT)
        if size == DELETED:
            return Entry(version, key, None)
        if size > MAX_VALUE:
            raise MalformedGossip("value too large")
        return Entry(version, key, self.raw(size))


def _check_ascending(keys: Sequence[str] | Sequence[int]) -> None:
    """One order only, and nothing twice."""
    if any(before >= after for before, after in pairwise(keys)):  # type: ignore[operator]
        raise MalformedGossip("items out of order")


def parse(data: bytes) -> GossipMessage:
    """The message that these bytes are, all of them. Raises MalformedGossip."""
    if len(data) > MAX_MESSAGE:
        raise MalformedGossip("message too large")
    reader = _Reader(data)
    try:
        version, number = reader.fields(HEAD)
        if version != VERSION:
            raise MalformedGossip(f"gossip version {version} is not supported")
        kind = Kind(number)
        cluster, sender = reader.text(NAME), reader.text(ID)
        [generation] = reader.fields(NUMBER)
        digest = reader.digest() if kind != Kind.ACK else ()
        delta = reader.delta() if kind != Kind.SYN else ()
    except MalformedGossip:
        raise
    except (struct.error, ValueError) as error:  # the end of the bytes, or no kind of message
        raise MalformedGossip("malformed message") from error
    if reader.at != len(data):
        raise MalformedGossip("bytes after the message")
    return GossipMessage(kind, cluster, sender, generation, digest, delta)
