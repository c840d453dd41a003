"""Where records are: families of keys that are written together, and pages that go from the front."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.disk.errors import DiskFull, StorageError
from headwater.store.shelf import (
    LOG,
    TOPIC,
    Shelf,
    page_key,
    position_in,
    position_key,
    topic_in,
    topic_key,
)
from tests.disk.killed import copy_as_killed

LAST = (1 << 64) - 1


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = opened(tmp_path / "db")
    yield shelf
    shelf.close()


def opened(path: Path, create: bool = True) -> Shelf:
    return Shelf(path, 1 << 20, create)


@pytest.mark.parametrize("number", [0, 1, 255, 256, 1 << 31])
def test_keys_are_in_the_order_of_their_numbers(number: int) -> None:
    assert position_in(position_key(LOG, number)) == topic_in(topic_key(number)) == number
    assert position_key(LOG, number) < position_key(LOG, number + 1)
    assert topic_key(number) < topic_key(number + 1)
    assert page_key(number, 9) < page_key(number, 1000) < page_key(number + 1, 0)


def test_records_of_a_kind_in_order(shelf: Shelf) -> None:
    assert shelf.is_empty()
    shelf.write([(topic_key(2), b"b"), (topic_key(1), b"a"), (position_key(LOG, 1), b"x")])
    assert not shelf.is_empty()
    assert [value for _, value in shelf.scan(TOPIC)] == [b"a", b"b"]
    assert shelf.get(topic_key(2)) == b"b"
    shelf.write([(topic_key(3), b"c")], [topic_key(1)])
    assert [value for _, value in shelf.scan(TOPIC)] == [b"b", b"c"]
    assert shelf.get(topic_key(1)) is None


def test_pages_are_others_than_records(shelf: Shelf) -> None:
    shelf.write(
        [], pages=[(page_key(first, page), b"%d %d" % (first, page)) for first in (1, 7) for page in range(300)]
    )
    assert not shelf.is_empty()
    assert shelf.pages(1) == [b"1 %d" % page for page in range(300)]
    assert (shelf.page(7, 299), shelf.page(7, 300), shelf.pages(2)) == (b"7 299", None, [])
    assert list(shelf.scan(TOPIC)) == []


def test_pages_go_from_the_front_and_those_without_a_block_from_behind(shelf: Shelf) -> None:
    shelf.write([(topic_key(1), b"a")], pages=[(page_key(first, 0), b"%d" % first) for first in (1, 7, 9, LAST)])
    shelf.remove([topic_key(1)], [(topic_key(2), b"b")], pages_before=7)
    assert [shelf.page(first, 0) for first in (1, 7, 9, LAST)] == [None, b"7", b"9", b"%d" % LAST]
    assert list(shelf.scan(TOPIC)) == [(topic_key(2), b"b")]
    shelf.remove_pages_from(9)
    assert [shelf.page(first, 0) for first in (7, 9, LAST)] == [b"7", None, None]
    shelf.write([], pages=[(page_key(9, 0), b"again")])
    assert shelf.page(9, 0) == b"again"


def test_what_was_synced_is_there_after_a_kill_and_pages_and_records_go_together(shelf: Shelf, tmp_path: Path) -> None:
    shelf.write([(topic_key(1), b"a")], pages=[(page_key(1, 0), b"page")])
    shelf.sync()
    copy = opened(copy_as_killed(shelf.path, tmp_path / "copy"), create=False)
    assert (copy.get(topic_key(1)), copy.page(1, 0)) == (b"a", b"page")
    copy.close()


def test_a_checkpoint_has_all_there_was(shelf: Shelf, tmp_path: Path) -> None:
    shelf.write([(topic_key(1), b"a")], pages=[(page_key(1, 0), b"page")])
    shelf.checkpoint(tmp_path / "copy")
    shelf.write([(topic_key(1), b"changed")])
    copy = opened(tmp_path / "copy", create=False)
    assert (copy.get(topic_key(1)), copy.page(1, 0)) == (b"a", b"page")
    copy.close()


def test_compaction_leaves_what_is_there(shelf: Shelf) -> None:
    shelf.write([(topic_key(1), b"a")], pages=[(page_key(1, 0), b"1"), (page_key(2, 0), b"2")])
    shelf.remove([], [], pages_before=2)
    shelf.compact()
    assert (shelf.get(topic_key(1)), shelf.pages(1), shelf.pages(2)) == (b"a", [], [b"2"])


def test_what_is_not_there_is_not_made_unless_that_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        opened(tmp_path / "db", create=False)


class Failing:
    """A database on a disk that fails."""

    def __init__(self, db: Any, failing: str, text: str = "Input/output error") -> None:
        self.db = db
        self.failing = failing
        self.text = text

    def __getattr__(self, name: str) -> Any:
        if name == self.failing:
            raise OSError(self.text)
        return getattr(self.db, name)


@pytest.mark.parametrize("failing", ["write", "flush_wal"])
def test_what_found_no_room_can_be_written_again(failing: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shelf, "_db", Failing(shelf._db, failing, "No space left on device"))
        with pytest.raises(DiskFull):
            shelf.write([(topic_key(2), b"b")])
            shelf.sync()
    shelf.write([(topic_key(2), b"b")])
    shelf.sync()
    assert shelf.get(topic_key(2)) == b"b"


@pytest.mark.parametrize("failing", ["write", "flush_wal"])
def test_after_a_failure_nothing_is_written_any_more(
    failing: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.write([(topic_key(1), b"a")])
    with monkeypatch.context() as patch:
        patch.setattr(shelf, "_db", Failing(shelf._db, failing))
        with pytest.raises(StorageError, match="Input/output error"):
            shelf.write([(topic_key(2), b"b")])
            shelf.sync()
    for act in (lambda: shelf.write([(topic_key(3), b"c")]), shelf.sync, shelf.compact):
        with pytest.raises(StorageError, match="has failed before"):
            act()
    assert shelf.get(topic_key(1)) == b"a"


def test_closed_it_says_so_and_can_be_opened_again(tmp_path: Path) -> None:
    shelf = opened(tmp_path / "db")
    shelf.write([(topic_key(1), b"a")])
    shelf.close()
    shelf.close()
    for act in (lambda: shelf.get(b"x"), lambda: shelf.page(1, 1), lambda: shelf.scan(TOPIC), shelf.is_empty):
        with pytest.raises(StorageError, match="closed"):
            act()
    again = opened(tmp_path / "db", create=False)
    assert again.get(topic_key(1)) == b"a"
    again.close()
