"""A node's map, written by that node alone, and how copies of it catch up.

Theory: Scuttlebutt reconciliation (van Renesse, Dumitriu, Gough, Thomas: "Efficient Reconciliation and Flow Control for
Anti-Entropy Protocols", LADIS 2008), as chitchat and Cassandra have it. Every change of a map gets the next version of
that map. A copy is described by one number: it has every change up to `version`. So two nodes compare numbers, and the
one that is ahead sends what is newer, oldest first; what does not fit into a message is left for another round, and the
copy is still described by one number. Changes that a later one of the same key has replaced are never sent.

Deletions are changes, too (tombstones). They cannot be listed for ever. The owner drops one when its time is over, and
notes in `collected` the highest version among those it dropped. A copy that has every change up to there has seen these
deletions, and drops them as well. A copy that has not may hold keys of which nobody knows any more that they are gone:
it starts again from nothing (`base` 0 in a delta with a newer `collected`). While it fills again it is *partial*
(`version` below `collected`): it holds only what was there when `collected` was noted, so it takes changes only from
copies that know of `collected`. The pair (`collected`, `version`) of a copy only grows, so all copies reach the
owner's. Of an owner that died they reach the highest that is left; what nobody has of its last changes is lost.

A restarted node has a higher generation, and its map starts from nothing: the former one is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .bounds import MAX_KEYS, MAX_MAP_BYTES, MAX_NUMBER, MAX_REPLICA_BYTES, MAX_VALUE
from .messages import KEY, Entry, NodeDelta, NodeDigest, entry_size, node_delta_size


class Replica:
    """What is known here of one node: its generation, how far it is alive, and its map."""

    def __init__(self, node: str, generation: int, heartbeat: int = 0, progress: int = 0) -> None:
        self.node: Final = node
        self.generation: Final = generation
        self.heartbeat = heartbeat
        self.progress = progress
        self.version = 0
        self.collected = 0
        self.entries: dict[str, Entry] = {}

    def get(self, key: str) -> bytes | None:
        entry = self.entries.get(key)
        return entry.value if entry else None

    def items(self) -> Iterator[tuple[str, bytes]]:
        """The keys that are not deleted, in the order of their keys."""
        for key in sorted(self.entries):
            value = self.entries[key].value
            if value is not None:
                yield key, value

    def is_partial(self) -> bool:
        return self.version < self.collected

    def digest(self) -> NodeDigest:
        return NodeDigest(self.node, self.generation, self.heartbeat, self.progress, self.version, self.collected)

    def size(self) -> int:
        return sum(entry_size(each.key, each.value) for each in self.entries.values())

    def lag(self, version: int, collected: int) -> int:
        """How many changes a copy with these numbers lacks; 0: none that we could send."""
        if self._must_restart(version, collected):
            return len(self.entries) + 1
        if self.version <= version:
            return 0
        return 1 + sum(each.version > version for each in self.entries.values())

    def delta(self, version: int, collected: int, room: int) -> NodeDelta | None:
        """What a copy with these numbers lacks, in at most `room` bytes; None: nothing, or nothing fits."""
        if not self.lag(version, collected):
            return None
        base = 0 if self._must_restart(version, collected) else version
        room -= node_delta_size(self.node)
        if room < 0:
            return None
        taken: list[Entry] = []
        for entry in sorted(each for each in self.entries.values() if each.version > base):
            room -= entry_size(entry.key, entry.value)
            if room < 0:
                if not taken:
                    return None
                return NodeDelta(self.node, self.generation, base, taken[-1].version, self.collected, tuple(taken))
            taken.append(entry)
        return NodeDelta(self.node, self.generation, base, self.version, self.collected, tuple(taken))

    def apply(self, delta: NodeDelta) -> bool:
        """Take these changes; False: they do not fit to what is here, or are too many, and nothing was changed."""
        if delta.generation != self.generation:
            return False
        restart = self.version < delta.collected and self.collected < delta.collected
        if restart:
            if delta.base:
                return False
            entries: dict[str, Entry] = {}
        else:
            if delta.base > self.version or (self.is_partial() and delta.collected < self.collected):
                return False
            entries = dict(self.entries)
        collected = max(self.collected, delta.collected)
        for entry in delta.entries:
            # What is not above our version is old, even if its key is unknown: it was deleted, and that was collected.
            if restart or entry.version > self.version:
                entries[entry.key] = entry
        if not restart:
            entries = _without_collected(entries, collected)
        if len(entries) > MAX_KEYS or sum(entry_size(e.key, e.value) for e in entries.values()) > MAX_REPLICA_BYTES:
            return False
        self.entries, self.collected = entries, collected
        self.version = delta.upto if restart else max(self.version, delta.upto)
        return True

    def note_collected(self, collected: int) -> None:
        """Others have dropped deletions up to this version; so may we, if we have seen them."""
        if self.collected < collected <= self.version:
            self.collected = collected
            self.entries = _without_collected(self.entries, collected)

    def _must_restart(self, version: int, collected: int) -> bool:
        return version < self.collected and collected < self.collected


class OwnMap(Replica):
    """Our own map, which nobody else writes."""

    def __init__(self, node: str, generation: int, tombstone_life: float) -> None:
        super().__init__(node, generation)
        self._tombstone_life = tombstone_life
        self._deleted_at: dict[str, float] = {}

    def set(self, key: str, value: bytes) -> None:
        """Raises ValueError if the key or value is none that others would take, or the map is full."""
        if KEY.fullmatch(key) is None or len(value) > MAX_VALUE:
            raise ValueError(f"{key!r} is no key, or its value is larger than {MAX_VALUE} bytes")
        if self.get(key) == value:
            return
        others = [each for each in self.entries.values() if each.key != key]
        while len(others) >= MAX_KEYS or _size(others) + entry_size(key, value) > MAX_MAP_BYTES:
            # Deletions give way to what is there, the oldest first.
            deleted = [each for each in others if each.value is None]
            if not deleted:
                raise ValueError("the node's map is full")
            self._collect(min(deleted).version)
            others = [each for each in others if each.key in self.entries]
        self._write(key, value)
        self._deleted_at.pop(key, None)

    def delete(self, key: str, now: float) -> None:
        if self.get(key) is not None:
            self._write(key, None)
            self._deleted_at[key] = now

    def collect(self, now: float) -> None:
        """Drop deletions whose time is over."""
        over = [key for key, since in self._deleted_at.items() if now - since >= self._tombstone_life]
        if over:
            self._collect(max(self.entries[key].version for key in over))

    def renewed(self, generation: int) -> OwnMap:
        """The same content, as of a later generation."""
        fresh = OwnMap(self.node, generation, self._tombstone_life)
        for key, value in self.items():
            fresh.set(key, value)
        fresh.heartbeat = self.heartbeat
        fresh.progress = self.progress
        return fresh

    def _write(self, key: str, value: bytes | None) -> None:
        if self.version >= MAX_NUMBER:
            raise ValueError("the node's map has been written too often; restart the node")
        self.version += 1
        self.entries[key] = Entry(self.version, key, value)

    def _collect(self, version: int) -> None:
        self.note_collected(version)
        self._deleted_at = {key: at for key, at in self._deleted_at.items() if key in self.entries}


def _size(entries: list[Entry]) -> int:
    return sum(entry_size(each.key, each.value) for each in entries)


def _without_collected(entries: dict[str, Entry], collected: int) -> dict[str, Entry]:
    return {key: each for key, each in entries.items() if each.value is not None or each.version > collected}
