"""What every store of messages promises: positions, what can be read and when, and what is still there afterwards.

Queries are in test_stores_reading.py, readers in test_stores_readers.py, retention in test_stores_keeping.py, threads
in test_stores_threads.py, histories at random in test_stores_at_random.py.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.store.entry import LATEST, Entry
from headwater.store.intake import Intake
from headwater.store.query import Query
from headwater.store.shelf import Shelf
from headwater.store.store import Store
from tests.contract.conftest import Stores
from tests.disk.killed import copy_as_killed
from tests.store.kinds import Kind, every_kind, every_kind_on_disk
from tests.store.messages import (
    MICROSECONDS,
    NOON,
    SECOND,
    Writer,
    asked,
    contents,
    found,
    numbered,
    payload,
    positions,
    queries,
    read,
)

# ---- positions -----------------------------------------------------------------------------------------------------


@every_kind
def test_a_new_store_has_nothing(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    assert (store.first, store.next) == (1, 1)
    assert found(store) == []
    assert found(store, Query(filter="a", after=0)) == []
    assert store.topics() == []
    assert store.latest("a") is None
    assert store.readers() == []
    statistics = store.statistics()
    assert (statistics.id, statistics.first, statistics.next) == (store.id, 1, 1)
    assert (statistics.topics, statistics.payload_size, statistics.unsealed) == (0, 0, 0)


@every_kind
def test_ids_are_unlike_each_other_unless_they_are_given(kind: Kind, stores: Stores) -> None:
    one, other, given = [stores.open(kind, name, id=id) for name, id in (("a", None), ("b", None), ("c", "edge-1"))]
    assert one.id and other.id and one.id != other.id
    assert given.id == given.statistics().id == "edge-1"


@every_kind
@pytest.mark.parametrize("size", [1, 3, 7, 8, 100])
def test_positions_have_no_gaps_however_messages_are_handed_over(kind: Kind, size: int, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for start in range(0, 100, size):
        writer.write(*"a" * min(size, 100 - start))
        assert store.next == writer.next
    assert positions(store) == list(range(1, 101))
    assert (store.first, store.next) == (1, 101)


@every_kind
def test_all_of_a_message_is_kept(kind: Kind, stores: Stores) -> None:
    entries = numbered(
        [
            Entry(0, "a", b"", 0, False, "", NOON, NOON, None),
            Entry(0, "a/b", bytes(range(256)) * 300, 1, True, "é日本🚰", NOON, NOON, None),
            Entry(0, "/", payload(5, -2.5), 2, True, "x" * 1000, 5, NOON + 1, -2.5, b'{"user":[["a","b"]]}'),
            Entry(0, "日本/🚰", payload(LATEST, 1e308), 2, False, "device", LATEST, NOON - SECOND, 1e308),
            Entry(0, "x" * 60_000, b"17", 0, False, "device", 0, 0, 17.0, b"{}"),
        ]
        * 4
    )
    store = stores.open(kind)
    writer = Writer(store)
    writer.write_entries(entries)
    writer.sync()
    assert found(store) == entries
    for entry in entries:
        assert found(store, Query(after=entry.position - 1, limit=1)) == [entry]


@every_kind
def test_a_large_message_among_small_ones(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    bodies = [b"x", b"y" * 3_000_000, b"z", b"", b"w" * 100_000] * 2
    for body in bodies:
        writer.take("a", body)
    writer.sync()
    assert [entry.payload for entry in found(store)] == bodies


# ---- writing -------------------------------------------------------------------------------------------------------


@every_kind
def test_nothing_can_be_read_before_it_is_synced(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    writer.write("a")
    for topic in ["a", "b"] * 10:
        writer.take(topic)
        writer.append()
    assert store.next == 2
    assert positions(store) == [1]
    assert [(each.topic, each.messages, each.last) for each in store.topics()] == [("a", 1, 1)]
    [latest] = read([store.latest("a") or pytest.fail("nothing")])
    assert latest.position == 1
    assert store.latest("b") is None
    assert (store.statistics().next, store.statistics().topics) == (2, 1)
    with pytest.raises(ValueError, match="not been given"):
        store.commit("r", 2)
    store.sync()
    assert store.next == 22
    assert positions(store) == list(range(1, 22))
    assert [each.messages for each in store.topics()] == [11, 10]
    assert store.commit("r", 21).position == 21


@every_kind
def test_what_does_not_follow_is_refused(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    writer.write("a", "a")
    writer.take("a")
    writer.append()
    for first in (1, 2, 3, 5, 100):
        writer.intake = Intake(first)
        writer.take("wrong")
        with pytest.raises(ValueError, match=f"position {first} does not follow 3"):
            writer.append(b"wrong")
    assert (store.knows(b"wrong"), store.note()) == (False, b"")
    writer.intake = Intake(4)
    writer.write("a")
    assert [(entry.position, entry.topic) for entry in found(store)] == [(1, "a"), (2, "a"), (3, "a"), (4, "a")]


@every_kind
def test_a_note_stays_until_another_takes_its_place(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    assert store.note() == b""
    for note, expected in ((b"", b""), (b"one", b"one"), (b"", b"one"), (b"\0\xff" * 1000, b"\0\xff" * 1000)):
        writer.take()
        writer.append(note)
        writer.sync()
        assert store.note() == expected


@every_kind
def test_it_knows_the_topics_of_which_it_has_or_gets_messages(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    assert (store.known_topics(), store.knows(b"a")) == (0, False)
    writer.write("a", "é", "a")
    assert store.known_topics() == 2
    assert [store.knows(topic.encode()) for topic in ("a", "é", "b", "e")] == [True, True, False, False]
    writer.take("b")
    writer.append()
    assert (store.known_topics(), store.knows(b"b"), store.knows(b"")) == (3, True, False)
    writer.sync()
    assert (store.known_topics(), store.knows(b"b")) == (3, True)


@every_kind
def test_watchers_are_told_of_what_can_be_read_by_the_thread_that_writes(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    told: list[tuple[str, list[int], threading.Thread]] = []

    def first() -> None:
        told.append(("first", positions(store), threading.current_thread()))

    def second() -> None:
        told.append(("second", positions(store), threading.current_thread()))

    store.watch(first)
    store.watch(second)
    store.sync()
    writer.take()
    writer.append()
    assert told == []
    writer.take()
    writer.sync()
    me = threading.current_thread()
    assert sorted(told, key=lambda each: each[0]) == [("first", [1, 2], me), ("second", [1, 2], me)]
    store.sync()
    assert len(told) == 2
    store.unwatch(first)
    writer.write("a")
    assert told[2:] == [("second", [1, 2, 3], me)]
    store.unwatch(second)
    writer.write("a")
    assert len(told) == 3


@every_kind
def test_a_watcher_may_leave_while_it_is_told(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    told: list[str] = []

    def once() -> None:
        told.append("once")
        store.unwatch(once)

    store.watch(once)
    store.watch(lambda: told.append("always"))
    writer = Writer(store)
    writer.write("a")
    writer.write("a")
    assert sorted(told) == ["always", "always", "once"]


@every_kind
def test_closing_twice_is_fine(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    Writer(store).write("a")
    store.close()
    store.close()


# ---- statistics ----------------------------------------------------------------------------------------------------


@every_kind
def test_statistics(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for number in range(20):
        writer.take(f"t/{number % 3}", b"x" * number)
    writer.sync()
    statistics = store.statistics()
    assert (statistics.id, statistics.first, statistics.next, statistics.topics) == (store.id, 1, 21, 3)
    assert statistics.payload_size == sum(range(20))
    assert statistics.size > 0
    assert 0 <= statistics.unsealed <= 20
    assert kind.on_disk or (statistics.blocks, statistics.unsealed) == (0, 20)


# ---- what outlives a process ---------------------------------------------------------------------------------------


@every_kind_on_disk
@settings(max_examples=25, deadline=None)
@given(messages=st.lists(contents(), max_size=40), cuts=st.sets(st.integers(0, 40)), query=queries(40))
def test_opened_again_it_is_the_same(kind: Kind, messages: list[Entry], cuts: set[int], query: Query) -> None:
    entries = numbered(messages)
    with TemporaryDirectory() as name:
        folder = Path(name) / "store"
        for start in (0, 20):
            store = kind.open(folder, extraction=MICROSECONDS)
            assert found(store) == entries[:start]
            writer = Writer(store)
            for entry in entries[start : start + 20]:
                writer.write_entries([entry])
                if entry.position in cuts:
                    writer.sync()
            writer.append()
            id, known = store.id, store.topics()
            store.close()
        store = kind.open(folder, extraction=MICROSECONDS)
        try:
            assert (store.id, store.first, store.next) == (id, 1, len(entries) + 1)
            assert found(store) == entries
            assert found(store, query) == asked(entries, query)
            assert {each.topic for each in known} <= {each.topic for each in store.topics()}
        finally:
            store.close()


@every_kind_on_disk
def test_what_was_synced_outlives_a_kill_and_what_was_not_leaves_no_gap(
    kind: Kind, stores: Stores, tmp_path: Path
) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for round in range(1, 21):
        writer.write("a", f"new/{round}", "a")
        note = store.note()
        writer.take("unsynced", b"%d" % round)
        writer.append(b"note of %d" % round)
        if round % 5 == 0:
            copy_as_killed(tmp_path / "store", tmp_path / f"killed {round}")
            found_again = stores.open(kind, f"killed {round}")
            next = found_again.next
            assert writer.next - 1 <= next <= writer.next
            assert positions(found_again) == list(range(1, next))
            assert found_again.note() == (note if next == store.next else b"note of %d" % round)
            assert found_again.knows(b"new/%d" % round)
            assert found(found_again, Query(before=store.next)) == found(store)
            again = Writer(found_again)
            again.write("b")
            assert positions(found_again, Query(filter="b")) == [next]


@every_kind_on_disk
def test_what_was_promised_outlives_a_power_cut(kind: Kind, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves what there was at the last sync, at least."""
    store = stores.open(kind)
    disk = stores.folder / "disk"
    shelf_sync = Shelf.sync

    def sync(shelf: Shelf) -> None:
        shelf_sync(shelf)
        if shelf.path.is_relative_to(stores.folder / "store"):
            shutil.rmtree(disk, ignore_errors=True)
            copy_as_killed(stores.folder / "store", disk)

    def after_power_cut(name: str) -> Store:
        return stores.open(kind, shutil.copytree(disk, stores.folder / name).name)

    monkeypatch.setattr(Shelf, "sync", sync)
    writer = Writer(store)
    for round in range(3):
        writer.write(*"ab" * 3, f"new/{round}")
        assert found(after_power_cut(f"written {round}")) == found(store)
        store.commit("reader", 2 * round)
        store.commit("forgotten", round)
        assert after_power_cut(f"read {round}").readers() == store.readers()
        store.forget("forgotten")
        again = after_power_cut(f"forgotten {round}")
        assert (again.readers(), found(again)) == (store.readers(), found(store))
