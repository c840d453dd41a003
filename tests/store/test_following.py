"""A store that another one writes: what is seen of it, and when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.store import following
from headwater.store.disk_store import DiskStore
from headwater.store.following import FollowingStore
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.shelf import LOG, FollowedShelf
from headwater.store.store import PositionGone
from tests.store.followed import Beside
from tests.store.messages import Writer, positions
from tests.store.steady import assert_is_whole, at, written


def followed(path: Path, store: DiskStore) -> FollowingStore:
    return FollowingStore(path / "db", path / "follower", store.id, Beside(store), 1 << 20)


def look(follower: FollowingStore) -> None:
    with follower._following:
        follower._catch_up()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[DiskStore, FollowingStore]]:
    store = DiskStore(tmp_path / "s", block_messages=10, seal_in_background=False)
    follower = followed(tmp_path / "s", store)
    yield store, follower
    follower.close()
    store.close()


def test_what_is_not_synced_is_not_there(both: tuple[DiskStore, FollowingStore]) -> None:
    store, follower = both
    writer = Writer(store)
    writer.write("a", "b")
    writer.take("secret")
    writer.append()
    assert positions(follower) == [1, 2]
    writer.take("c")
    writer.append()
    assert follower.next == 3
    look(follower)  # whatever it was told
    assert positions(follower) == [1, 2]
    assert [each.topic for each in follower.topics()] == ["a", "b"]
    assert follower.latest("secret") is None
    store.sync()
    assert positions(follower) == [1, 2, 3, 4]
    assert [each.topic for each in follower.topics()] == ["a", "b", "c", "secret"]


def test_who_begins_late_sees_the_same(both: tuple[DiskStore, FollowingStore], tmp_path: Path) -> None:
    store, follower = both
    written(store, 95)
    store.seal()
    written(store, 20)
    store.retention = Retention(age=1)
    store.trim(at(50))
    late = FollowingStore(tmp_path / "s" / "db", tmp_path / "late", store.id, Beside(store))
    for each in (store, follower, late):
        assert_is_whole(each)
    assert late.topics() == follower.topics() == store.topics()
    assert late.statistics() == follower.statistics() == store.statistics()
    late.close()


@pytest.mark.parametrize("every", [1, 3, 7])
def test_blocks_that_come_and_go_unseen(every: int, tmp_path: Path) -> None:
    """Looks that come late see the same in the end, whatever happened in between."""
    store = DiskStore(tmp_path / "s", block_messages=5, seal_in_background=False)
    follower = followed(tmp_path / "s", store)
    store.retention = Retention(age=0)
    writer = Writer(store)
    for step in range(1, 60):
        for _ in range(4):
            writer.take(f"t/{step % 11}", arrival=at(writer.next))
        writer.sync()
        if step % 2 == 0:
            store.seal()
        if step % 5 == 0:
            store.trim(at(store.next - 12))
            store.give_back()
        if step % every == 0:
            assert positions(follower) == list(range(store.first, store.next))
            assert follower.topics() == store.topics()
    assert follower.topics() == store.topics()
    assert follower.statistics() == store.statistics()
    follower.close()
    store.close()


def test_a_block_of_which_a_part_was_seen_is_counted_without_its_messages(
    both: tuple[DiskStore, FollowingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have 32 MiB, several times that while it is read, and only how many there are of each topic is asked."""
    store, follower = both
    writer = Writer(store)
    writer.write("old", "both", "old")
    look(follower)
    writer.write("both", "new", *["old"] * 4, "new")
    store.seal()
    assert store.statistics().blocks == 1
    monkeypatch.setattr(FollowedShelf, "pages", None)
    monkeypatch.setattr(FollowedShelf, "page", None)
    assert follower.topics() == store.topics()
    monkeypatch.undo()
    assert positions(follower) == list(range(1, 11))


def test_a_question_that_retention_overtakes(both: tuple[DiskStore, FollowingStore]) -> None:
    store, follower = both
    written(store, 400)
    store.seal()
    chunks = follower.select(Query())
    first = next(chunks)
    store.retention = Retention(age=1)
    store.trim(at(390))
    store.give_back()
    look(follower)
    with pytest.raises(PositionGone):
        list(chunks)
    assert int(first.position[0]) == 1
    with pytest.raises(PositionGone):
        follower.select(Query(after=3))


class Forgetful:
    """Looks at a secondary instance that miss something, as RocksDB's sometimes do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.missing = 0
        scan = FollowedShelf.scan_from

        def missing(shelf: FollowedShelf, kind: bytes, key: bytes) -> Iterator[tuple[bytes, bytes]]:
            records = list(scan(shelf, kind, key))
            if kind == LOG and self.missing and records:
                self.missing -= 1
                del records[len(records) // 2]
            return iter(records)

        monkeypatch.setattr(FollowedShelf, "scan_from", missing)


def test_what_is_missing_for_a_moment_is_waited_for(
    both: tuple[DiskStore, FollowingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, follower = both
    forgetful = Forgetful(monkeypatch)
    writer = Writer(store)
    for _ in range(9):
        writer.write("a", "b")
    forgetful.missing = 3
    assert positions(follower) == list(range(1, 19))
    assert forgetful.missing == 0
    assert follower.topics() == store.topics()


def test_what_stays_missing_is_said(both: tuple[DiskStore, FollowingStore], monkeypatch: pytest.MonkeyPatch) -> None:
    store, follower = both
    monkeypatch.setattr(following, "ATTEMPTS", 3)
    forgetful = Forgetful(monkeypatch)
    forgetful.missing = 1000
    writer = Writer(store)
    for _ in range(3):
        writer.write("a")
    with pytest.raises(StorageError, match="cannot be found"):
        positions(follower)
    forgetful.missing = 0
    assert positions(follower) == [1, 2, 3]


def test_much_that_is_written_while_buffers_become_files(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", block_messages=4000)
    follower = followed(tmp_path / "s", store)
    writer = Writer(store)
    for _ in range(150):
        for _ in range(200):
            writer.take(f"t/{writer.next % 50}", os.urandom(900))
        writer.sync()
        last = store.next - 1
        assert [int(chunk.position[-1]) for chunk in follower.select(Query(after=last - 1))] == [last]
    assert positions(follower) == list(range(1, 30_001))
    assert follower.topics() == store.topics()
    follower.close()
    store.close()


def test_how_much_there_is_costs_no_look(
    both: tuple[DiskStore, FollowingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for messages asks that again and again, while they are being written."""
    store, follower = both
    follower.commit("spark", 0)
    looks: list[FollowedShelf] = []
    caught_up = FollowedShelf.catch_up

    def counted(shelf: FollowedShelf) -> None:
        looks.append(shelf)
        caught_up(shelf)

    monkeypatch.setattr(FollowedShelf, "catch_up", counted)
    written(store, 95)
    store.seal()
    assert follower.statistics() == store.statistics()
    assert [each.name for each in follower.readers()] == ["spark"]
    assert follower.reader("spark").lost == 0
    assert not looks
    store.retention = Retention(age=1, hard_age=1)
    store.trim(at(1000))
    assert follower.reader("spark") == store.reader("spark")
    assert follower.reader("spark").lost > 0
    assert follower.statistics() == store.statistics()
    assert len(looks) == 1


def test_what_readers_lost_in_object_storage_is_seen(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", block_messages=10, seal_in_background=False, has_history=True)
    follower = followed(tmp_path / "s", store)
    written(store, 30)
    follower.commit("r", 5)
    assert follower.reader("r").lost == 0
    store.moved(1, 21)
    store.trim(at(1000))
    store.moved(11, 21)
    assert follower.reader("r")[1:3] == store.reader("r")[1:3]
    follower.close()
    store.close()
