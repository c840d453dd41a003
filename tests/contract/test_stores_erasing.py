"""What every store of messages does when some of them are erased: they are gone for good, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.routing.topics import matches
from headwater.store.disk_store import DiskStore
from headwater.store.entry import Entry
from headwater.store.erasing import CHANGED_BLOCKS, Doomed
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.store import Store
from tests.contract.conftest import Stores
from tests.disk.killed import copy_as_killed
from tests.store.kinds import Kind, every_kind, every_kind_on_disk
from tests.store.messages import Writer, found, read
from tests.store.steady import MESSAGES, at, written


def erase(store: Store, filter: str | None = None, positions: list[tuple[int, int]] | None = None) -> int:
    """All of it, part by part."""
    doomed, erased, more = Doomed(filter, positions or ()), 0, True
    while more:
        messages, after, more = store.erase(doomed)
        assert after > doomed.after or not more
        doomed, erased = doomed._replace(after=after), erased + messages
    return erased


def assert_has(store: Store, entries: list[Entry]) -> None:
    """These messages and no other, and everything says the same of them."""
    assert found(store) == entries
    topics = sorted({entry.topic for entry in entries})
    assert [each.topic for each in store.topics()] == topics
    for each in store.topics():
        of_it = [entry for entry in entries if entry.topic == each.topic]
        assert (each.messages, each.first, each.last) == (len(of_it), of_it[0].position, of_it[-1].position)
        assert (each.first_time, each.last_time) == (of_it[0].time, of_it[-1].time)
        assert read([store.latest(each.topic) or pytest.fail("nothing")]) == [of_it[-1]]
        assert found(store, Query(filter=each.topic)) == of_it
    statistics = store.statistics()
    assert (statistics.first, statistics.next, statistics.topics) == (store.first, store.next, len(topics))
    assert statistics.payload_size == sum(len(entry.payload) for entry in entries)
    there = {entry.position for entry in entries}
    gone = [position for position in range(store.first, store.next) if position not in there]
    assert [each for low, high in store.erased(0, 1 << 20) for each in range(low, high + 1)] == gone


@every_kind
def test_messages_of_a_topic_are_gone_and_all_others_are_there(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind))
    before = found(store)
    left = [entry for entry in before if entry.topic != "old"]
    assert erase(store, "old") == len(before) - len(left)
    assert (store.first, store.next) == (1, MESSAGES + 1)
    assert_has(store, left)
    assert not store.knows(b"old")
    assert erase(store, "old") == 0
    assert Writer(store).take("old") == MESSAGES + 1  # it may come again


@every_kind
def test_positions_are_gone_wherever_they_are(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind))
    left = [entry for entry in found(store) if not (5 <= entry.position <= 43 or entry.position in (100, MESSAGES))]
    assert erase(store, positions=[(5, 43), (100, 100), (MESSAGES, MESSAGES)]) == 41
    assert_has(store, left)
    assert [first for first, _ in store.erased(20, 1)] == [21]


@every_kind_on_disk
def test_what_is_erased_is_erased_when_the_store_is_opened_again(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind))
    erase(store, "a")
    left = found(store)
    store.close()
    store = stores.open(kind)
    assert_has(store, left)
    written(store, 30)
    assert [entry.position for entry in found(store)][-30:] == list(range(MESSAGES + 1, MESSAGES + 31))


@every_kind
def test_retention_removes_holes_as_it_removes_messages(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=Retention(age=60 * 1_000_000)))
    erase(store, positions=[(1, 20), (90, 120), (130, 160)])
    store.trim(at(170))
    left = found(store)
    assert store.first <= 111
    assert store.first > min(89, 111 - kind.grain)
    assert_has(store, left)
    assert all(first >= store.first for first, _ in store.erased(0, 100))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(1, 30)),
            st.tuples(st.just("erase"), st.sampled_from(["a", "b", "old", "#"])),
            st.tuples(st.just("erase"), st.tuples(st.integers(1, 60), st.integers(0, 30))),
            st.tuples(st.just("trim"), st.integers(1, 100)),
        ),
        max_size=12,
    )
)
@settings(max_examples=15, deadline=None)
@every_kind_on_disk
def test_any_history(kind: Kind, steps: list[tuple[str, object]]) -> None:
    with TemporaryDirectory() as folder:
        store = kind.open(Path(folder) / "s", retention=Retention(age=1_000_000))
        try:
            entries: list[Entry] = []
            for what, how in steps:
                if what == "write" and isinstance(how, int):
                    end = store.next
                    written(store, how)
                    entries += found(store, Query(after=end - 1))
                elif what == "trim" and isinstance(how, int):
                    store.trim(at(how))
                    entries = [entry for entry in entries if entry.position >= store.first]
                elif isinstance(how, str):
                    erase(store, how)
                    entries = [entry for entry in entries if not matches(how, entry.topic)]
                elif isinstance(how, tuple):
                    erase(store, positions=[(how[0], sum(how))])
                    entries = [entry for entry in entries if not how[0] <= entry.position <= sum(how)]
                assert_has(store, entries)
        finally:
            store.close()


# ---- for good ------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    store = DiskStore(tmp_path / "s", block_messages=50, seal_in_background=False)
    yield store
    store.close()


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_byte_of_it_is_in_a_file(store: DiskStore) -> None:
    secret, topic = os.urandom(64), "device-" + os.urandom(16).hex()
    writer = Writer(store)
    for number in range(120):
        writer.take("other", b"%d" % number)
        if number % 40 == 0:
            writer.take(topic, secret, publisher=topic)
        writer.sync()
    store.seal()
    assert secret in files(store.path)
    assert topic.encode() in files(store.path)
    pages = [page for _, page in store._shelf.all_pages()]
    assert erase(store, topic) == 3
    store._shelf.flush()
    left = files(store.path)
    assert secret not in left
    assert topic.encode() not in left
    now = {page for _, page in store._shelf.all_pages()}
    assert not [page for page in pages if page not in now and page in left]


def test_a_call_does_a_bounded_part(store: DiskStore) -> None:
    for _ in range(CHANGED_BLOCKS + 2):
        written(store, 50)
        store.seal(everything=True)
    _, position, more = store.erase(Doomed("b"))
    assert (position, more) == (50 * CHANGED_BLOCKS, True)
    assert store.erase(Doomed("b", after=position)) == (50, store.next - 1, False)


@pytest.mark.parametrize("moment", ["store-before-erase", "store-after-erase"])
def test_who_is_killed_has_erased_all_of_a_block_or_nothing(
    store: DiskStore, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        written(store, 50)
        store.seal(everything=True)
    before = found(store)
    copies: list[Path] = []

    def killed(name: str) -> None:
        if name == moment:
            copies.append(copy_as_killed(store.path, tmp_path / f"killed{len(copies)}"))

    monkeypatch.setattr("headwater.store.disk_erasing.crash_point", killed)
    erase(store, "a")
    assert len(copies) == 4
    for number, path in enumerate(copies):
        there = DiskStore(path, block_messages=50, seal_in_background=False)
        done = 50 * (number + (moment == "store-after-erase"))
        assert_has(there, [entry for entry in before if entry.topic != "a" or entry.position > done])
        erase(there, "a")
        assert_has(there, [entry for entry in before if entry.topic != "a"])
        there.close()


def test_a_question_that_is_being_answered_meanwhile_is_answered(store: DiskStore) -> None:
    written(store)
    store.seal(everything=True)
    left = found(store, Query(filter="b", after=3))
    reading = store.select(Query(filter="b"))
    first = next(reading)
    erase(store, "a")
    erase(store, positions=[(1, 3)])
    assert store.latest("a") is None
    assert [entry for entry in [*read([first]), *read(reading)] if entry.position > 3] == left
