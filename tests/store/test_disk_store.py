"""What a store on disk alone has to bear: threads that meet at bad moments, and crashes at any of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from headwater.disk.crash_points import STORE_POINTS
from headwater.disk.errors import StorageError
from headwater.store import disk_store
from headwater.store.disk_store import DiskStore
from headwater.store.entry import Entry
from headwater.store.extract import Extraction
from headwater.store.intake import Taken
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.shelf import BLOCK, EXTENT, LOG, Shelf, position_key
from headwater.store.store import PositionGone
from tests.disk.killed import copy_as_killed
from tests.store.messages import NOON, SECOND, Writer, found, positions

PATIENCE = 30.0
LATER = NOON + 1000 * SECOND
AGED = Retention(age=100 * SECOND)


class Stores:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[DiskStore] = []

    def open(self, name: str = "messages", **settings: Any) -> DiskStore:
        given = {"block_messages": 4, "cache": 1 << 20, "seal_in_background": False, "retention": AGED}
        store = DiskStore(self.folder / name, **{**given, **settings})
        self.opened.append(store)
        return store

    def reopen(self, store: DiskStore, **settings: Any) -> DiskStore:
        store.close()
        return self.open(**settings)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    for store in stores.opened:
        store.close()


def at_once(action: Callable[[], object]) -> Callable[..., None]:
    """Does it the first time it is called."""
    left = [action]

    def call(*_: object) -> None:
        if left:
            left.pop()()

    return call


def before(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, action: Callable[[], object]) -> None:
    """The next call of a method comes after this."""
    method, first = getattr(owner, name), at_once(action)

    def called(*arguments: Any) -> Any:
        first()
        return method(*arguments)

    monkeypatch.setattr(owner, name, called)


def wait_until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end
        time.sleep(0.001)


def is_waiting(store: DiskStore) -> bool:
    """Whether somebody waits for blocks; the one that makes them is kept from it by the test."""
    waiters: Any = vars(store._more)["_waiters"]
    return store._enough(disk_store.BEHIND) and len(waiters) > 0


# ---- threads -------------------------------------------------------------------------------------------------------


class TrimsMeanwhile(Extraction):
    """Times and values are looked for when the topics of a commit have their numbers, and nothing is written yet."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[..., object] = int

    def columns(self, taken: Taken) -> tuple[list[int], list[float]]:
        self.meanwhile()
        return super().columns(taken)


def test_a_topic_whose_last_message_is_removed_while_another_comes_keeps_its_name(stores: Stores) -> None:
    extraction = TrimsMeanwhile()
    store = stores.open(extraction=extraction)
    writer = Writer(store)
    writer.write("a", "b")
    store.seal(everything=True)
    extraction.meanwhile = at_once(lambda: store.trim(LATER))
    writer.take("b", b"late", arrival=LATER)
    writer.sync()
    assert store.first == 3
    assert [(each.topic, each.messages, each.first) for each in store.topics()] == [("b", 1, 3)]
    store = stores.reopen(store)
    assert [(entry.position, entry.topic, entry.payload) for entry in found(store)] == [(3, "b", b"late")]
    assert positions(store, Query(filter="b")) == [3]


def test_topics_without_messages_are_forgotten(stores: Stores) -> None:
    store = stores.open()
    writer = Writer(store)
    writer.write("a", "b")
    writer.write("b", "c")
    assert store.known_topics() == 3
    writer.take("c", arrival=LATER)
    writer.append()
    store.trim(LATER)
    assert [store.knows(topic) for topic in (b"a", b"b", b"c")] == [False, False, True]
    writer.sync()
    assert store.seal(everything=True) == 1
    assert store.trim(2 * LATER).messages == 1
    assert store.known_topics() == 0
    store = stores.reopen(store)
    assert (store.known_topics(), store.next) == (0, 6)


def test_commits_wait_for_blocks_of_large_messages(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_store, "BLOCK_BYTES", 10_000)
    store = stores.open(block_messages=1_000_000, seal_in_background=True)
    writer = Writer(store)
    commits: list[int] = []

    def write() -> None:
        for _ in range(100):
            writer.take(payload=bytes(5000))
            writer.sync()
            commits.append(store.statistics().unsealed)

    thread = threading.Thread(target=write, daemon=True)
    with store._sealing:  # nobody makes blocks
        thread.start()
        wait_until(lambda: is_waiting(store) or not thread.is_alive())
        assert len(commits) < 8
    thread.join(PATIENCE)
    assert len(commits) == 100
    assert positions(store) == list(range(1, 101))


def test_a_commit_that_waits_for_blocks_ends_when_the_store_is_closed(stores: Stores) -> None:
    store = stores.open(block_messages=1, seal_in_background=True)
    writer = Writer(store)
    thread = threading.Thread(target=lambda: writer.write(*"abcdefgh"), daemon=True)
    closing = threading.Thread(target=store.close, daemon=True)
    with store._sealing:
        thread.start()
        wait_until(lambda: is_waiting(store))
        closing.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    closing.join(PATIENCE)
    assert positions(stores.open()) == list(range(1, 9))


def test_blocks_are_not_made_of_what_comes_meanwhile(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would never end, with blocks of a message each."""
    store = stores.open(block_messages=100)
    writer = Writer(store)
    writer.write("a")
    seal, left = store._seal, [1] * 10

    def sealing(parts: Any) -> None:
        if left:
            left.pop()
            writer.write("b")
        seal(parts)

    monkeypatch.setattr(store, "_seal", sealing)
    assert store.seal(everything=True) == 1
    assert (store.statistics().blocks, store.statistics().unsealed) == (1, 1)


def test_who_asks_for_a_topic_that_is_removed_meanwhile_is_told_so(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would go on behind what it has never seen."""
    store = stores.open()
    Writer(store).write("a", "b")
    before(monkeypatch, store._topics, "matching", lambda: store.trim(LATER))
    with pytest.raises(PositionGone):
        store.select(Query(filter="a", after=0))


@pytest.mark.parametrize("later", [True, False])
def test_the_latest_when_retention_is_quicker(later: bool, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open()
    writer = Writer(store)
    writer.write("a")
    store.seal(everything=True)

    def meanwhile() -> None:
        if later:
            writer.take("a", b"later", arrival=LATER)
            writer.sync()
        store.trim(LATER)

    before(monkeypatch, store._shelved, "select", meanwhile)
    latest = store.latest("a")
    assert (latest is None) != later
    assert latest is None or latest.payload.rows() == [b"later"]


def test_blocks_that_cannot_be_made_end_the_next_commit(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(chunk: object) -> None:
        raise ArithmeticError("no")

    monkeypatch.setattr(disk_store, "sealed", fails)
    store = stores.open(seal_in_background=True)
    writer = Writer(store)
    with pytest.raises(StorageError, match="ArithmeticError"):
        for _ in range(10_000):
            writer.write("a")
    assert "messages cannot be put into a block" in caplog.text


# ---- crashes -------------------------------------------------------------------------------------------------------


def contents(store: DiskStore) -> list[Entry]:
    """What there is, of which all ways to ask say the same."""
    entries = found(store)
    assert [entry.position for entry in entries] == list(range(store.first, store.next))
    topics = sorted({entry.topic for entry in entries})
    counted = [(topic, [entry for entry in entries if entry.topic == topic]) for topic in topics]
    assert [each[:4] for each in store.topics()] == [
        (topic, len(of_it), of_it[0].position, of_it[-1].position) for topic, of_it in counted
    ]
    for topic, of_it in counted:
        assert found(store, Query(filter=topic)) == of_it
        latest = store.latest(topic)
        assert latest is not None
        assert list(latest.entries()) == of_it[-1:]
    statistics = store.statistics()
    assert statistics.payload_size == sum(len(entry.payload) for entry in entries)
    assert statistics.topics == len(topics)
    return entries


@pytest.mark.parametrize("point", STORE_POINTS)
def test_killed_at_any_point_all_that_was_synced_is_there_once(
    point: str, stores: Stores, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each time that a point is passed, the folder is copied, as a kill would leave it."""
    store = stores.open()
    writer = Writer(store)
    expected: list[tuple[set[int], list[Entry], int]] = []

    def passed(name: str) -> None:
        if name == point:
            copy_as_killed(tmp_path / "messages", tmp_path / f"copy {len(expected)}")
            ends = {store.next, store._appended, writer.next}
            expected.append((ends, known + coming, store.first))

    monkeypatch.setattr(disk_store, "crash_point", passed)
    known: list[Entry] = []
    coming: list[Entry] = []
    for commit in range(12):
        for number in range(commit % 3 + 1):
            topic, body, arrival = f"t/{commit // 3}/{number}", b"%d" % commit * number, NOON + commit * 50 * SECOND
            position = writer.take(topic, body, arrival=arrival)
            coming.append(Entry(position, topic, body, 0, False, "device", arrival, arrival, None))
        writer.sync()
        known, coming = known + coming, []
        store.seal(everything=commit % 4 == 3)
        store.trim(NOON + commit * 50 * SECOND)
    assert expected
    monkeypatch.undo()
    for copy, (ends, entries, first) in enumerate(expected):
        copied = stores.open(f"copy {copy}", id=store.id)
        there = contents(copied)
        assert copied.next in ends
        assert first <= copied.first <= store.first
        value_free = [entry._replace(value=None) for entry in there]  # a number is its own value
        assert value_free == [entry for entry in entries if copied.first <= entry.position < copied.next]
        assert pages_of(copied._shelf) == {block.first for block in copied._blocks}
        Writer(copied).write("after")
        assert contents(copied)[-1].topic == "after"


def pages_of(shelf: Shelf) -> set[int]:
    """The blocks whose pages are on the shelf."""
    return {int.from_bytes(key[:8], "big") for key, _ in shelf._items(shelf._pages.iter(), b"", b"")}


# ---- damage --------------------------------------------------------------------------------------------------------


def without_key(stores: Stores, store: DiskStore, key: bytes) -> None:
    store.close()
    database = Rdict(str(stores.folder / "messages" / "db"))
    assert key in database
    del database[key]
    database.close()


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        (position_key(BLOCK, 3), "position 5 follows 2"),
        (position_key(EXTENT, 3), "from position 3 to 4 are damaged"),
        (position_key(LOG, 7), "position 8 follows 6"),
    ],
)
def test_messages_that_are_missing_are_not_passed_over(key: bytes, complaint: str, stores: Stores) -> None:
    store = stores.open(block_messages=2)
    writer = Writer(store)
    for _ in range(3):
        writer.write("a", "b")
    store.seal()
    writer.write("c")
    writer.write("d")
    without_key(stores, store, key)
    with pytest.raises(StorageError, match=complaint):
        stores.open()


def test_a_folder_that_cannot_be_opened_is_let_go_of(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.open().close()
    monkeypatch.setattr(DiskStore, "_load", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stores.open()
    monkeypatch.undo()
    assert stores.open().next == 1
