"""Where a forward begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.edge.forwarding.beginning import begin
from headwater.edge.forwarding.progress import Progress, ProgressFile, Span
from headwater.edge.forwarding.ranges import Ranges
from headwater.edge.forwarding.source import Source
from headwater.edge.forwarding.wishes import Wishes
from headwater.store.memory import MemoryStore
from tests.store.messages import Writer

WISHES = Wishes()


@pytest.fixture
def source() -> Source:
    store = MemoryStore("s")
    writer = Writer(store)
    for _ in range(9):
        writer.take()
    writer.append()
    store.sync()
    return Source(store, "r")


@pytest.fixture
def file(tmp_path: Path) -> ProgressFile:
    return ProgressFile(tmp_path / "cloud.json")


def kept(file: ProgressFile, **changed: object) -> None:
    """What an earlier process has left."""
    fields = {
        "store": "s",
        "live": 8,
        "owed": [Ranges([(3, 5)])],
        "wishes": [["#"], []],
        "target": "t",
        "sent": {7: Span(3, 3, 4, 0)},
        "releasing": {8},
    }
    file.save(Progress(**{**fields, **changed}).written())  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "live"), [("first", 1), ("next", 10)])
def test_a_new_one(file: ProgressFile, source: Source, start: str, live: int) -> None:
    found = begin("cloud", file, source, Wishes(start=start), "t")  # type: ignore[arg-type]
    assert (found.live, found.position, found.store) == (live, live - 1, "s")


def test_without_a_file_the_reader_counts(file: ProgressFile, source: Source) -> None:
    source.commit(5)
    assert begin("cloud", file, source, Wishes(start="next"), "t").live == 6


def test_it_goes_on_where_it_was(file: ProgressFile, source: Source) -> None:
    kept(file)
    found = begin("cloud", file, source, WISHES, "t")
    assert (found.live, found.position, list(found.owed[0])) == (8, 2, [(3, 5)])
    assert (found.sent, found.releasing) == ({7: Span(3, 3, 4, 0)}, {8})


def test_another_store(file: ProgressFile, source: Source) -> None:
    kept(file, store="other")
    found = begin("cloud", file, source, WISHES, "t")
    assert (found.store, found.live, found.sent) == ("s", 1, {})


def test_a_store_that_has_gone_back(file: ProgressFile, source: Source, caplog: pytest.LogCaptureFixture) -> None:
    kept(file, live=100, owed=[Ranges([(3, 5), (50, 60)])])
    found = begin("cloud", file, source, WISHES, "t")
    assert (found.live, list(found.owed[0])) == (10, [(3, 5)])
    assert "it has gone back, perhaps to a backup" in caplog.text


def test_another_target_and_other_wishes(file: ProgressFile, source: Source) -> None:
    kept(file)
    assert begin("cloud", file, source, WISHES, "another").sent == {}
    found = begin("cloud", file, source, Wishes(priorities=("a",)), "t")
    assert [list(each) for each in found.owed] == [[(3, 5)], [(3, 5)]]
    assert (found.sent, found.releasing) == ({}, {7, 8})
