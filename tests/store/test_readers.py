from __future__ import annotations

import pytest

from headwater.store.readers import MOST, Readers
from headwater.store.store import PositionGone, Reader, UnknownReader


class Disk:
    """What was kept, by name; fails if it is told to."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.broken = False

    def keep(self, name: str, record: bytes | None) -> None:
        if self.broken:
            raise OSError("the disk is full")
        if record is None:
            del self.records[name]
        else:
            self.records[name] = record

    def restored(self) -> Readers:
        readers = Readers(self.keep)
        for record in self.records.values():
            readers.restore(record)
        return readers


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_what_was_kept_comes_back(disk: Disk) -> None:
    readers = Readers(disk.keep)
    for name, position in (("b", 5), ("a", 0), ("c", 3), ("b", 7)):
        readers.commit(name, position, 1, 10)
    readers.overtaken([readers.get("a")._replace(position=4, lost=4)])
    readers.forget("c")
    assert [(reader.name, reader.position, reader.lost) for reader in readers.all()] == [("a", 4, 4), ("b", 7, 0)]
    assert disk.restored().all() == readers.all()
    assert sorted(disk.records) == ["a", "b"]


def test_where_a_commit_may_go() -> None:
    readers = Readers(lambda name, record: None)
    for position in (4, 5, 9):
        assert readers.commit("a", position, 5, 10).position == position
    for position in (10, 11):
        with pytest.raises(ValueError, match="the last one is 9"):
            readers.commit("a", position, 5, 10)
    for position in (3, 0, -1):
        with pytest.raises(PositionGone) as gone:
            readers.commit("a", position, 5, 10)
        assert (gone.value.asked, gone.value.first) == (position + 1, 5)
    assert readers.get("a").position == 9


def test_what_could_not_be_kept_did_not_happen(disk: Disk) -> None:
    readers = Readers(disk.keep)
    readers.commit("a", 1, 1, 10)
    before = readers.all()
    disk.broken = True
    for attempt in (
        lambda: readers.commit("a", 5, 1, 10),
        lambda: readers.commit("b", 5, 1, 10),
        lambda: readers.forget("a"),
        lambda: readers.overtaken([Reader("a", 9, 8)]),
    ):
        with pytest.raises(OSError, match="full"):
            attempt()
        assert readers.all() == before


def test_what_lost_something_keeps_when_it_was_made(disk: Disk) -> None:
    readers = Readers(disk.keep)
    made = readers.commit("a", 1, 1, 10)
    readers.overtaken([made._replace(position=5, lost=4)])
    again = readers.commit("a", 8, 6, 10)
    assert again == Reader("a", 8, 4, made.created, again.committed)
    assert disk.restored().get("a") == again


def test_the_list_does_not_change_with_the_readers() -> None:
    readers = Readers(lambda name, record: None)
    readers.commit("a", 1, 1, 10)
    known = readers.all()
    readers.commit("b", 1, 1, 10)
    assert [reader.name for reader in known] == ["a"]


def test_there_are_so_many_and_no_more() -> None:
    readers = Readers(lambda name, record: None)
    for number in range(MOST):
        readers.commit(f"r{number}", 0, 1, 1)
    with pytest.raises(ValueError, match=f"{MOST} readers already"):
        readers.commit("one-more", 0, 1, 1)
    assert len(readers.all()) == MOST
    assert readers.commit("r5", 0, 1, 1).position == 0
    with pytest.raises(UnknownReader):
        readers.get("one-more")
