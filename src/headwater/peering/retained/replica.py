"""Which stamp the retained message of each topic has at this node, and fingerprints of parts of that.

Theory. A topic belongs to one of 65,536 leaves by a hash of it, and 256 leaves to one of 256 branches. The fingerprint
of a leaf is the exclusive or of hashes of its topics with their stamps, and that of a branch the same of its leaves, so
a change costs a few hashes, whatever there is. Two nodes that differ in few topics find these by three messages of a
few kilobytes (reconciling.py). This is range-based set reconciliation (Meyer 2023) with two fixed levels.

A deletion is a stamp without a message. It is kept for `TOMBSTONE_LIFE`, `MAX_TOMBSTONES` at most: a node that was away
for longer may bring back what was deleted meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Final, NamedTuple

from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp

LEAVES: Final = 65536
BRANCHES: Final = 256
IN_BRANCH: Final = LEAVES // BRANCHES
MAX_TOMBSTONES: Final = 100_000
TOMBSTONE_LIFE: Final = 86_400.0


class Entry(NamedTuple):
    stamp: Stamp
    is_deleted: bool


NOTHING: Final = Entry(NEVER_WRITTEN, True)


class Replica:
    def __init__(self, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self.max_tombstones = max_tombstones
        self._entries: dict[str, Entry] = {}
        self._tombstones: OrderedDict[str, float] = OrderedDict()
        """When they were made here, oldest first."""
        self._topics: dict[int, dict[str, None]] = {}
        """By leaf."""
        self._fingerprints: dict[int, int] = {}
        """Of leaves."""
        self._branches = [0] * BRANCHES

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, topic: str) -> Entry:
        return self._entries.get(topic, NOTHING)

    def put(self, topic: str, entry: Entry, now: float) -> bool:
        """Take an entry, if it is later than what is here."""
        before = self._entries.get(topic)
        if before is not None and before.stamp >= entry.stamp:
            return False
        leaf = leaf_of(topic)
        if before is None:
            self._topics.setdefault(leaf, {})[topic] = None
        else:
            self._change(leaf, topic, before)
            self._tombstones.pop(topic, None)
        self._entries[topic] = entry
        self._change(leaf, topic, entry)
        if entry.is_deleted:
            self._tombstones[topic] = now
            if len(self._tombstones) > self.max_tombstones:
                self._drop(next(iter(self._tombstones)))
        return True

    def drop(self, topic: str) -> None:
        """Its message has expired, which it does everywhere: there is nothing to tell."""
        if topic in self._entries:
            self._drop(topic)

    def collect(self, now: float) -> None:
        """Forget deletions that are old."""
        while self._tombstones:
            topic, since = next(iter(self._tombstones.items()))
            if now - since < TOMBSTONE_LIFE:
                return
            self._drop(topic)

    def _drop(self, topic: str) -> None:
        entry = self._entries.pop(topic)
        self._tombstones.pop(topic, None)
        leaf = leaf_of(topic)
        self._change(leaf, topic, entry)
        topics = self._topics[leaf]
        del topics[topic]
        if not topics:
            del self._topics[leaf]

    def _change(self, leaf: int, topic: str, entry: Entry) -> None:
        """Add or take away: both are the same."""
        before = self._fingerprints.get(leaf, 0)
        changed = before ^ fingerprint(topic, entry)
        # The leaf is part of it: two leaves of a branch that have each other's topics must not look the same.
        self._branches[leaf // IN_BRANCH] ^= _mixed(leaf, before) ^ _mixed(leaf, changed)
        if changed:
            self._fingerprints[leaf] = changed
        else:
            self._fingerprints.pop(leaf, None)

    # ---- parts -----------------------------------------------------------------------------------------------------

    def branches(self) -> tuple[int, ...]:
        """A fingerprint of each branch."""
        return tuple(self._branches)

    def leaves(self, branch: int) -> tuple[int, ...]:
        """The fingerprints of a branch's leaves."""
        first = branch * IN_BRANCH
        return tuple(self._fingerprints.get(leaf, 0) for leaf in range(first, first + IN_BRANCH))

    def entries(self, leaf: int) -> dict[str, Entry]:
        return {topic: self._entries[topic] for topic in self._topics.get(leaf, ())}


def leaf_of(topic: str) -> int:
    return int.from_bytes(blake2b(topic.encode(), digest_size=2).digest(), "big")


def fingerprint(topic: str, entry: Entry) -> int:
    stamp = entry.stamp
    text = f"{stamp.time} {stamp.node} {int(entry.is_deleted)} {topic}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _mixed(leaf: int, value: int) -> int:
    if not value:
        return 0
    data = leaf.to_bytes(2, "big") + value.to_bytes(8, "big")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
