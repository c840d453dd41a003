"""What is asked of a place for a question, and what is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.objects import PlaceError
from headwater.store.history import reading as module
from headwater.store.history.manifest import Entry
from headwater.store.history.reading import AHEAD, History
from headwater.store.history.rows import Topics, Wanted
from headwater.store.query import Query
from headwater.store.rest.scanning import scanned
from tests.store.history.moving import Moving
from tests.store.messages import NOON, SECOND
from tests.store.steady import written


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=10)
    for _ in range(8):
        written(moving.store, 10)
        moving.store.seal(everything=True)
    moving.move()
    yield moving
    moving.close()


def test_no_more_objects_are_read_ahead_than_there_are_threads(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    rows_of, lock = module.rows_of, threading.Lock()

    def counted(source: object, entry: Entry, wanted: Wanted, columns: tuple[str, ...]) -> object:
        with lock:
            begun.append(entry.first)
        return rows_of(source, entry, wanted, columns)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "rows_of", counted)
    for taken, _ in enumerate(moving.history.parts(Wanted(), 81), 1):
        assert len(begun) <= taken + AHEAD
    assert sorted(begun) == list(range(1, 81, 10))


@pytest.mark.parametrize(
    ("wanted", "objects"),
    [
        (Wanted(start=NOON + 35 * SECOND, end=NOON + 52 * SECOND), [31, 41, 51]),
        (Wanted(after=39, before=41), [31]),
        (Wanted(topics=Topics("old"), beginning="old"), [1, 11, 21, 31, 41, 51, 61, 71]),
    ],
)
def test_objects_that_cannot_have_it_are_not_read(
    wanted: Wanted, objects: list[int], moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    rows = History._rows

    def noted(history: History, entry: Entry, *arguments: object) -> object:
        read.append(entry.first)
        return rows(history, entry, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(History, "_rows", noted)
    list(moving.history.parts(wanted, 81))
    assert sorted(read) == objects


def test_an_object_that_is_damaged_or_lost_is_an_error(moving: Moving, tmp_path: Path) -> None:
    entries = list(moving.catalog.entries(moving.manifest))
    file = tmp_path / "place" / entries[3].name
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(PlaceError, match="cannot be read"):
        list(moving.history.parts(Wanted(), 81))
    file.unlink()
    with pytest.raises(PlaceError, match="is lost"):
        list(moving.history.parts(Wanted(), 81))
    assert [each.num_rows for each in moving.history.parts(Wanted(after=40), 81)] == [10] * 4


def test_nobody_is_held_while_object_storage_is_slow(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.drop()
    go = threading.Event()
    rows = History._rows

    def slow(history: History, *arguments: object) -> object:
        go.wait(30)
        return rows(history, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(History, "_rows", slow)
    steps = scanned(moving.tiered, Query())
    assert [next(steps) for _ in range(3)] == [None] * 3
    go.set()
    assert [position for chunk in steps if chunk is not None for position in chunk.position.tolist()] == list(
        range(1, 81)
    )
