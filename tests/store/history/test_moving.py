"""Blocks in object storage have the same messages, in the same order, for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.store.entry import Entry
from headwater.store.query import Query
from headwater.store.store import PositionGone
from tests.store.history.moving import LATE, Moving
from tests.store.messages import NOON, SECOND, Writer, asked, contents, found, numbered, positions, queries
from tests.store.steady import written


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=10)
    yield moving
    moving.close()


def test_what_has_left_the_disk_is_read_from_history(moving: Moving) -> None:
    written(moving.store, 45)
    before = found(moving.store)
    moving.move()
    assert found(moving.tiered) == before == found(moving.store)
    moving.drop()
    assert moving.store.first == 46
    assert positions(moving.store) == []
    assert (moving.tiered.first, moving.tiered.next) == (1, 46)
    assert found(moving.tiered) == before
    written(moving.store, 7)
    assert positions(moving.tiered) == list(range(1, 53))
    assert positions(moving.tiered, Query(after=40, before=49)) == list(range(41, 49))
    assert positions(moving.tiered, Query(after=43, limit=4)) == [44, 45, 46, 47]


def test_a_block_stays_on_disk_until_it_is_in_history(moving: Moving) -> None:
    written(moving.store, 45)
    moving.store.seal(everything=True)
    assert moving.store.trim(LATE).held_by == "object storage"
    assert moving.store.first == 1
    steps = moving.mover.run(LATE, moving.store.next)
    for _ in range(3):
        step = next(steps)
        moving.told(step.first, step.end)
    moving.drop()
    assert moving.store.first == step.end > 1
    assert positions(moving.tiered) == list(range(1, 46))


def test_readers_do_not_hold_back_what_is_in_history_but_parts_of_the_node_do(moving: Moving) -> None:
    written(moving.store, 40)
    moving.store.commit("lakehouse", 5)
    moving.store.commit("forward:cloud", 12)
    moving.move()
    assert moving.store.trim(LATE).held_by == "forward:cloud"
    assert 1 < moving.store.first <= 13
    moving.store.commit("forward:cloud", 40)
    moving.drop()
    assert moving.store.first == 41
    assert moving.store.reader("lakehouse")[1:3] == (5, 0)
    assert moving.store.commit("lakehouse", 2).position == 2  # it can still be read
    with pytest.raises(PositionGone):
        moving.tiered.commit("lakehouse", -1)


def test_history_ends_by_its_own_retention_and_readers_are_told(tmp_path: Path) -> None:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), keep=100 * SECOND, block_messages=10)
    written(moving.store, 60)
    moving.store.commit("lakehouse", 5)
    moving.move(NOON + 61 * SECOND)
    moving.drop()
    assert positions(moving.tiered) == list(range(1, 61))
    moving.move(NOON + 125 * SECOND)
    first = moving.manifest.first
    assert 11 <= first <= 26
    assert positions(moving.tiered) == list(range(first, 61))
    assert moving.store.reader("lakehouse")[1:3] == (first - 1, first - 6)
    with pytest.raises(PositionGone) as gone:
        moving.tiered.select(Query(after=3))
    assert gone.value.first == first
    moving.move(NOON + 100_000 * SECOND)
    assert (moving.tiered.first, moving.tiered.next, moving.manifest.objects) == (61, 61, 0)
    objects = [each.name for each in moving.catalog.place.list()]
    assert objects == ["s1/manifest.json"]
    written(moving.store, 5)
    moving.move(NOON + 70 * SECOND)
    assert positions(moving.tiered) == list(range(61, 66))
    moving.close()


def test_what_hard_limits_took_before_it_was_moved_is_said_to_be_gone(tmp_path: Path) -> None:
    from headwater.store.retention import Retention

    hard = Retention(age=SECOND, hard_age=50 * SECOND)
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=10, retention=hard)
    written(moving.store, 20)
    moving.move(NOON + 21 * SECOND)
    written(moving.store, 40)
    moving.store.seal(everything=True)
    moving.drop(NOON + 91 * SECOND)  # object storage is away
    first = moving.store.first
    assert first == 41
    for _ in range(2):
        with pytest.raises(PositionGone) as gone:
            positions(moving.tiered)
        assert (gone.value.asked, gone.value.first) == (21, first)
        assert positions(moving.tiered, Query(before=21)) == list(range(1, 21))
        assert positions(moving.tiered, Query(after=first - 1)) == list(range(first, 61))
        moving.move(NOON + 91 * SECOND)
        moving.drop(NOON + 91 * SECOND)
    assert moving.store.first == 61
    moving.close()


@settings(deadline=None, max_examples=10)
@given(st.lists(contents(), max_size=60), st.lists(queries(), min_size=1, max_size=5), st.integers(1, 9), st.data())
def test_any_question_has_the_same_answer_wherever_messages_are(
    entries: list[Entry], asking: list[Query], block: int, data: st.DataObject
) -> None:
    entries = numbered(entries)
    with TemporaryDirectory() as folder:
        moving = Moving(Path(folder), (Path(folder) / "place").as_uri(), block_messages=block)
        try:
            cut = data.draw(st.integers(0, len(entries)))
            writer = Writer(moving.store)
            writer.write_entries(entries[:cut])
            writer.sync()
            moving.move(1 << 62)
            moving.drop(1 << 62)
            writer.write_entries(entries[cut:])
            writer.sync()
            for query in asking:
                assert found(moving.tiered, query) == asked(entries, query)
        finally:
            moving.close()
