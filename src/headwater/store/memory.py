"""A store in memory: the plain meaning of the contract, for tests and throw-away nodes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import numpy

from headwater.routing.topics import check_filter, matches
from headwater.store.chunk import Chunk
from headwater.store.entry import OPTIONAL, Entry
from headwater.store.erasing import Doomed, Erased, joined
from headwater.store.extract import Extraction
from headwater.store.intake import Taken
from headwater.store.query import Query
from headwater.store.readers import ReadStore
from headwater.store.retention import Extent, Retention, trimmed, without
from headwater.store.store import PositionGone, Statistics, TopicStatistics, Trimmed

CHUNK = 1000


class MemoryStore(ReadStore):
    def __init__(
        self, id: str | None = None, extraction: Extraction | None = None, retention: Retention | None = None
    ) -> None:
        super().__init__(lambda name, record: None)
        self.id = id or uuid.uuid4().hex
        self.extraction = extraction or Extraction()
        self.retention = retention or Retention()
        self._appended: list[Entry] = []
        self._entries: list[Entry] = []
        self._names: set[bytes] = set()
        self._note = b""
        self._erased: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def append(self, taken: Taken, note: bytes = b"") -> None:
        end = self._appended[-1].position + 1 if self._appended else self.next
        if taken.first != end:
            raise ValueError(f"position {taken.first} does not follow {end - 1}")
        times, values = self.extraction.columns(taken)
        numbers: dict[str, int] = {}
        topic = [numbers.setdefault(name.decode(), len(numbers)) for name in taken.topics]
        entries = Chunk.taken(taken, numpy.array(topic, numpy.int32), list(numbers), times, values).entries()
        with self._lock:
            self._appended += entries
            self._names.update(taken.topics)
            self._note = note or self._note

    def note(self) -> bytes:
        return self._note

    def sync(self) -> None:
        if not self._appended:
            return
        with self._lock:
            self._entries += self._appended
            self.next = self._entries[-1].position + 1
            self._appended = []
        self.tell_watchers()

    def select(self, query: Query) -> Iterator[Chunk]:
        _check(query.filter)
        with self._lock:
            if query.after is not None and query.after + 1 < self.first:
                raise PositionGone(query.after + 1, self.first)
            found = [entry for entry in self._entries if _meets(entry, query)]
        if query.limit is not None:
            found = found[: query.limit]
        return (Chunk.of(found[start : start + CHUNK]) for start in range(0, len(found), CHUNK))

    def topics(self, filter: str | None = None, may_read: Callable[[str], bool] | None = None) -> list[TopicStatistics]:
        _check(filter)
        of: dict[str, list[Entry]] = {}
        with self._lock:
            for entry in self._entries:
                of.setdefault(entry.topic, []).append(entry)
        return [
            TopicStatistics(
                *(topic, len(found), found[0].position, found[-1].position),
                *(found[0].time, found[-1].time),
            )
            for topic, found in sorted(of.items())
            if (filter is None or matches(filter, topic)) and (may_read is None or may_read(topic))
        ]

    def topics_page(
        self, filter: str | None, may_read: Callable[[str], bool] | None, after: str, limit: int
    ) -> tuple[list[TopicStatistics], str | None]:
        found = [each for each in self.topics(filter, may_read) if each.topic > after]
        return found[:limit], found[limit - 1].topic if len(found) > limit else None

    def knows(self, topic: bytes) -> bool:
        return topic in self._names

    def known_topics(self) -> int:
        return len(self._names)

    def latest(self, topic: str) -> Chunk | None:
        with self._lock:
            for entry in reversed(self._entries):
                if entry.topic == topic:
                    return Chunk.of([entry])
        return None

    def statistics(self) -> Statistics:
        with self._lock:
            size = sum(map(_size, self._entries))
            payload = sum(len(entry.payload) for entry in self._entries)
            topics = len({entry.topic for entry in self._entries})
            return Statistics(self.id, self.first, self.next, topics, size, payload, 0, len(self._entries))

    def erase(self, doomed: Doomed) -> Erased:
        _check(doomed.filter)
        with self._lock:
            gone = [entry for entry in self._entries if _is_doomed(entry, doomed)]
            positions = {entry.position for entry in gone}
            self._entries = [entry for entry in self._entries if entry.position not in positions]
            self._names = {entry.topic.encode() for entry in (*self._entries, *self._appended)}
            self._erased = joined(self._erased, [(position, position) for position in positions])
        if gone:
            self.tell_watchers()
        return Erased(len(gone), self.next - 1, False)

    def erased(self, after: int, most: int) -> list[tuple[int, int]]:
        with self._lock:
            return [(max(low, after + 1), high) for low, high in self._erased if high > after][:most]

    def trim(self, now: int) -> Trimmed:
        with self._readers.lock, self._lock:
            extents = [
                Extent(entry.position, entry.position + 1, _size(entry), entry.arrival) for entry in self._entries
            ]
            size = sum(extent.size for extent in extents)
            gone, held_by = trimmed(extents, size, self._readers.all(), self.retention, now)
            if gone:
                del self._entries[:gone]
                self.first = extents[gone - 1].end
                self._erased = [(max(low, self.first), high) for low, high in self._erased if high >= self.first]
                self._names = {entry.topic.encode() for entry in (*self._entries, *self._appended)}
                self._readers.overtaken(without(self._readers.all(), self.first))
        if gone:
            self.tell_watchers()
        return Trimmed(self.first, gone, sum(extent.size for extent in extents[:gone]), held_by)

    def compact(self) -> None:
        pass

    def close(self) -> None:
        self.sync()


def _check(filter: str | None) -> None:
    if filter is not None:
        check_filter(filter, len(filter) + 1)


def _size(entry: Entry) -> int:
    optional = sum([len(getattr(entry, name)) for name in OPTIONAL])
    return len(entry.payload) + len(entry.topic) + len(entry.publisher) + optional


def _is_doomed(entry: Entry, doomed: Doomed) -> bool:
    if not doomed.after < entry.position <= doomed.last:
        return False
    if doomed.filter is not None:
        return matches(doomed.filter, entry.topic)
    return any(first <= entry.position <= last for first, last in doomed.positions)


def _meets(entry: Entry, query: Query) -> bool:
    return (
        (query.filter is None or matches(query.filter, entry.topic))
        and (query.may_read is None or query.may_read(entry.topic))
        and (query.after is None or entry.position > query.after)
        and (query.before is None or entry.position < query.before)
        and (query.start is None or entry.time >= query.start)
        and (query.end is None or entry.time < query.end)
        and (query.low is None or (entry.value is not None and entry.value >= query.low))
        and (query.high is None or (entry.value is not None and entry.value <= query.high))
    )
