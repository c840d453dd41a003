"""Any history of a store of messages leaves what a plain list of them says."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.store.disk_store import DiskStore
from headwater.store.entry import Entry
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.store import PositionGone, Reader, Store, TopicStatistics, UnknownReader
from tests.disk.killed import copy_as_killed
from tests.routing.strategies import filters, topics
from tests.store.kinds import MEMORY, Kind
from tests.store.messages import (
    MICROSECONDS,
    NOON,
    SECOND,
    Writer,
    asked,
    contents,
    found,
    numbered,
    queries,
    topic_matches,
)

NAMES = ["spark", "mirror", "a reader with a bad name"]
MOST = 120
"""Positions that a history hardly goes beyond."""

ages = st.none() | st.integers(0, 100).map(lambda seconds: seconds * SECOND)
sizes = st.none() | st.integers(0, 3000)
retentions = st.just(Retention()) | st.builds(Retention, age=ages, size=sizes, hard_age=ages, hard_size=sizes)


class Histories(RuleBasedStateMachine):
    """`entries` are all that were ever appended, of which those before `next` were synced and those before `first` are
    gone. How many retention removes together differs from store to store: what it may remove is checked here, what it
    has to in test_stores_keeping.py."""

    kind = MEMORY

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "store"
        self.lives = 0
        self.entries: list[Entry] = []
        self.first = 1
        self.next = 1
        self.readers: dict[str, Reader] = {}
        self.notes = [(0, b"")]
        """With the position of the last message that each came with."""
        self.told = 0

    @initialize(retention=retentions)
    def open(self, retention: Retention) -> None:
        self.retention = retention
        self.opened()
        self.id = self.store.id

    def opened(self) -> None:
        self.store: Store = self.kind.open(self.path, extraction=MICROSECONDS, retention=self.retention)
        self.store.watch(self.tell)
        self.writer = Writer(self.store)

    def tell(self) -> None:
        self.told += 1

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.folder.cleanup()

    @property
    def left(self) -> list[Entry]:
        return self.entries[self.first - 1 : self.next - 1]

    # ---- writing -----------------------------------------------------------------------------------------------

    @rule(messages=st.lists(contents(), min_size=1, max_size=12), note=st.binary(max_size=3))
    def append(self, messages: list[Entry], note: bytes) -> None:
        entries = numbered(messages, len(self.entries) + 1)
        self.writer.write_entries(entries)
        self.writer.append(note)
        self.entries += entries
        if note:
            self.notes.append((len(self.entries), note))

    @rule()
    def sync(self) -> None:
        told = self.told
        self.store.sync()
        assert (self.told > told) is (len(self.entries) >= self.next)
        self.next = len(self.entries) + 1

    @rule(messages=st.lists(contents(), min_size=1, max_size=30))
    def append_and_sync(self, messages: list[Entry]) -> None:
        self.append(messages, b"")
        self.sync()

    @precondition(lambda self: self.kind.on_disk)
    @rule(everything=st.booleans())
    def seal(self, everything: bool) -> None:
        assert isinstance(self.store, DiskStore)
        self.store.seal(everything)

    # ---- reading -----------------------------------------------------------------------------------------------

    @rule(query=queries(MOST))
    def select(self, query: Query) -> None:
        try:
            chosen = found(self.store, query)
        except PositionGone as gone:
            assert query.after is not None
            assert (gone.asked, gone.first) == (query.after + 1, self.first)
            assert gone.asked < self.first
        else:
            assert query.after is None or query.after + 1 >= self.first
            assert chosen == asked(self.left, query)

    @rule(filter=st.none() | filters | topics)
    def list_topics(self, filter: str | None) -> None:
        expected = []
        for topic in sorted({entry.topic for entry in self.left}):
            of_it = [entry for entry in self.left if entry.topic == topic]
            if topic_matches(filter, topic):
                first, last = of_it[0], of_it[-1]
                expected.append(
                    TopicStatistics(topic, len(of_it), first.position, last.position, first.time, last.time)
                )
        assert self.store.topics(filter) == expected
        listed: list[TopicStatistics] = []
        after: str | None = ""
        while after is not None:
            some, after = self.store.topics_page(filter, None, after, 2)
            listed += some
            assert len(some) == 2 or after is None
        assert listed == expected

    @rule(topic=topics)
    def latest(self, topic: str) -> None:
        chunk = self.store.latest(topic)
        expected = [entry for entry in self.left if entry.topic == topic][-1:]
        assert (list(chunk.entries()) if chunk is not None else []) == expected

    @invariant()
    def knows_what_there_is(self) -> None:
        if hasattr(self, "store"):
            assert (self.store.first, self.store.next) == (self.first, self.next)
            assert self.store.readers() == [self.readers[name] for name in sorted(self.readers)]
            assert self.store.note() == self.notes[-1][1]
            known = {entry.topic for entry in self.entries[self.first - 1 :]}
            assert all(self.store.knows(topic.encode()) for topic in known)
            assert self.store.known_topics() >= len(known)

    @rule()
    def statistics(self) -> None:
        statistics = self.store.statistics()
        assert statistics[:3] == (self.id, self.first, self.next)
        assert statistics.topics == len({entry.topic for entry in self.left})
        assert statistics.payload_size == sum(len(entry.payload) for entry in self.left)
        assert (statistics.size > 0) is (self.next > self.first)
        assert 0 <= statistics.unsealed <= self.next - self.first

    # ---- readers -----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), position=st.integers(0, MOST))
    def commit(self, name: str, position: int) -> None:
        begin = time.time_ns() // 1000
        try:
            reader = self.store.commit(name, position)
        except PositionGone as gone:
            assert (gone.asked, gone.first) == (position + 1, self.first)
            assert position < self.first - 1
        except ValueError:
            assert position >= self.next or " " in name
        else:
            assert self.first - 1 <= position < self.next
            known = self.readers.get(name, Reader(name, 0, 0, reader.created, 0))
            assert reader == known._replace(position=position, committed=reader.committed)
            assert reader.committed >= begin
            self.readers[name] = reader

    @rule(name=st.sampled_from(NAMES))
    def forget(self, name: str) -> None:
        try:
            self.store.forget(name)
        except UnknownReader:
            assert name not in self.readers
        else:
            del self.readers[name]

    # ---- keeping -----------------------------------------------------------------------------------------------

    @rule(seconds=st.integers(0, 250))
    def trim(self, seconds: int) -> None:
        now = NOON + seconds * SECOND
        before = self.store.statistics().size
        trimmed = self.store.trim(now)
        assert self.first <= trimmed.first <= self.next
        assert trimmed.messages == trimmed.first - self.first
        # Some messages may have been put into a block meanwhile: many become smaller by that, few become larger.
        size = max(before, self.store.statistics().size + trimmed.size)
        self.check_removed(self.entries[self.first - 1 : trimmed.first - 1], size, now)
        self.first = trimmed.first
        for reader in self.readers.values():
            lost = self.first - 1 - reader.position
            if lost > 0:
                self.readers[reader.name] = reader._replace(position=self.first - 1, lost=reader.lost + lost)
        slowest = min((reader.position for reader in self.readers.values()), default=self.next)
        if trimmed.held_by is not None:
            assert self.readers[trimmed.held_by].position == slowest < self.next - 1

    def check_removed(self, removed: list[Entry], size: int, now: int) -> None:
        """`size` is that of the store when it had these."""
        age, most, hard_age, hard_most = self.retention[:4]
        slowest = min((reader.position for reader in self.readers.values()), default=len(self.entries))
        for entry in removed:
            assert (age is not None and entry.arrival < now - age) or (most is not None and size > most)
            if entry.position > slowest:
                assert (hard_age is not None and entry.arrival < now - max(hard_age, age or 0)) or (
                    hard_most is not None and size > max(hard_most, most or 0)
                )

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @precondition(lambda self: self.kind.on_disk)
    @rule()
    def close_and_open_again(self) -> None:
        self.store.close()
        self.opened()
        self.next = len(self.entries) + 1
        assert self.store.id == self.id

    @precondition(lambda self: self.kind.on_disk)
    @rule()
    def kill_and_open_again(self) -> None:
        self.lives += 1
        copy = copy_as_killed(self.path, Path(self.folder.name) / f"life {self.lives}")
        self.store.close()
        self.path = copy
        self.opened()
        assert self.store.id == self.id
        assert self.next <= self.store.next <= len(self.entries) + 1
        self.next = self.store.next
        del self.entries[self.next - 1 :]
        self.notes = [(position, note) for position, note in self.notes if position < self.next]


class HistoriesOnDisk(Histories):
    kind = Kind("disk-7", 7)


class HistoriesSealedByHand(Histories):
    kind = Kind("disk-5", 5, by_hand=True)


TestMemory = Histories.TestCase
TestMemory.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestOnDisk = HistoriesOnDisk.TestCase
TestOnDisk.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
TestSealedByHand = HistoriesSealedByHand.TestCase
TestSealedByHand.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
