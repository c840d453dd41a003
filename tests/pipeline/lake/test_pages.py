"""A table with one row for each key: whatever changes, it is right, and little more is written than changed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.jobs import latest
from headwater.pipeline.jobs.latest import paged_rows, write_pages
from headwater.pipeline.lake import pages
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.lake.pages import SMALLEST
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import LATEST

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOPICS = 10_000
CHANGED = 10
Key = tuple[str, str | None, str | None]


def reading(topic: int, position: int, second: float = 0.0, clock: str = "ok", **more: Any) -> dict[str, Any]:
    return {
        "topic": f"plant/{topic // 100}/press/{topic}/temperature",
        "device": f"device-{topic}",
        "metric": "temperature",
        "time": NOON + timedelta(seconds=second),
        "arrival": NOON + timedelta(seconds=position),
        "clock": clock,
        "value": position / 7,
        "text": None,
        "store": "4f1c0d2ab9e7",
        "position": position,
        "part": 0,
        **more,
    }


class Paged:
    """The table `latest` in a lake, and what a process knows of its files."""

    def __init__(self, folder: Path) -> None:
        self.log = Lake(folder).log(LATEST)
        self.pages = paged_rows()
        self.position = 0

    def add(self, rows: Iterable[dict[str, Any]]) -> int:
        """How many bytes were written for it."""
        seen = self.log.look()
        fresh = pa.Table.from_pylist(list(rows), arrow_schema(LATEST))
        change = self.pages.change(self.log.place, seen.paths(), fresh)
        files = write_pages(self.log.place, change)
        self.position += 1
        self.log.commit(files, {}, job="latest", positions={"s": self.position}, replaced=change.replaced, seen=seen)
        return sum(each.size for each in files)

    def rows(self) -> list[dict[str, Any]]:
        """As others see it."""
        found: list[dict[str, Any]] = DeltaTable(str(self.log.folder)).to_pyarrow_table().to_pylist()
        return found

    def by_topic(self) -> dict[str, int]:
        found = {row["topic"]: row["position"] for row in self.rows()}
        assert len(found) == len(self.rows()), "one row for each topic"
        return found


def moment(row: dict[str, Any]) -> tuple[Any, ...]:
    when = row["arrival"] if row["clock"] == "ahead" else row["time"]
    return when, row["store"], row["position"], row["part"]


def key(row: dict[str, Any]) -> Key:
    return row["topic"], row["device"], row["metric"]


readings = st.builds(
    reading,
    topic=st.integers(0, 150),
    position=st.integers(1, 1000),
    second=st.integers(0, 20),
    clock=st.sampled_from(["ok", "ahead", "behind"]),
    device=st.sampled_from(["d", "", None]),
    metric=st.sampled_from(["m", None]),
)


steps_of_rows = st.tuples(st.booleans(), st.lists(readings, max_size=120, unique_by=lambda row: row["position"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(steps_of_rows, max_size=6))
def test_after_any_changes_there_is_the_latest_row_of_each_key(steps: list[tuple[bool, list[dict[str, Any]]]]) -> None:
    """Also for a process that was started in between; rows may come again and in any order."""
    expected: dict[Key, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        table = Paged(Path(folder))
        for restarted, rows in steps:
            if restarted:
                table.pages = paged_rows()
            table.add(rows)
            for row in rows:
                known = expected.get(key(row))
                if known is None or moment(row) > moment(known):
                    expected[key(row)] = row
            found = table.rows()
            assert len(found) == len(expected)
            assert all(moment(row) == moment(expected[key(row)]) for row in found)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Paged:
    table = Paged(tmp_path_factory.mktemp("large"))
    table.add(reading(topic, 1) for topic in range(TOPICS))
    return table


def test_what_changes_again_and_again_is_all_that_is_written(large: Paged) -> None:
    whole = sum(large.log.look().files.column("size_bytes").to_pylist())
    some = random.Random(1).sample(range(TOPICS), CHANGED)
    written = [large.add(reading(topic, number, number) for topic in some) for number in range(2, 12)]
    assert max(written[1:]) < whole / 100
    found = large.by_topic()
    assert len(found) == TOPICS and sorted(found.values())[-CHANGED - 1 :] == [1] + [11] * CHANGED


def test_what_changes_at_random_costs_a_page_each(large: Paged) -> None:
    whole = sum(large.log.look().files.column("size_bytes").to_pylist())
    chance = random.Random(2)
    written = []
    for number in range(100, 160):
        some = chance.sample(range(TOPICS), CHANGED)
        written.append(large.add(reading(topic, number, number) for topic in some))
    assert sum(written) / len(written) < whole / 5
    assert len(large.by_topic()) == TOPICS


def test_pages_that_shrank_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 20
    monkeypatch.setattr(pages, "MOST_PAGES", most)
    table, chance, found = Paged(tmp_path), random.Random(3), []
    table.add(reading(topic, 1) for topic in range(500))
    for number in range(2, 80):
        table.add(reading(topic, number, number) for topic in chance.sample(range(500), 2))
        found.append(len(table.log.look().paths()))
    assert max(found) <= most and any(after < before for before, after in itertools.pairwise(found))
    assert len(table.by_topic()) == 500


def test_devices_that_report_in_turn_are_written_once_each(large: Paged) -> None:
    """A twelfth of all in each step, as at one report a minute and a step every 5 s: after a turn they lie together."""
    whole = sum(large.log.look().files.column("size_bytes").to_pylist())
    for number in (500, 501, 502):
        written = [large.add(reading(topic, number, number) for topic in range(turn, TOPICS, 12)) for turn in range(12)]
    assert max(written) < whole / 12 * 1.5
    assert set(large.by_topic().values()) == {502}


def test_a_small_table_is_one_file(tmp_path: Path) -> None:
    table = Paged(tmp_path)
    for number in range(1, 5):
        table.add(reading(topic, number, number) for topic in range(0, SMALLEST, number))
        assert len(table.log.look().paths()) == 1
    assert len(table.by_topic()) == SMALLEST


def test_nothing_is_written_for_what_is_older(tmp_path: Path) -> None:
    table = Paged(tmp_path)
    table.add([reading(1, 5, 5.0)])
    assert table.add([reading(1, 4, 4.0), reading(1, 5, 5.0)]) == 0
    assert table.log.positions("latest") == {"s": 2}
    assert [row["position"] for row in table.rows()] == [5]


def test_a_file_that_somebody_else_made_of_ours_is_one_of_the_table(tmp_path: Path) -> None:
    table = Paged(tmp_path)
    table.add(reading(topic, 1) for topic in range(500))
    table.log.open().optimize.compact()
    assert len(table.log.look().paths()) == 1
    table.add([reading(7, 2, 2.0)])
    assert sorted(table.by_topic().values()) == [1] * 499 + [2]


def test_what_was_replaced_meanwhile_is_not_written_twice(tmp_path: Path) -> None:
    table, other = Paged(tmp_path), Paged(tmp_path)
    table.add([reading(1, 1)])
    fresh = pa.Table.from_pylist([reading(1, 2, 2.0)], arrow_schema(LATEST))
    seen = other.log.look()
    change = other.pages.change(other.log.place, seen.paths(), fresh)
    files = write_pages(other.log.place, change)
    table.add([reading(1, 3, 3.0)])
    with pytest.raises(LakeError):
        other.log.commit(files, {}, job="latest", positions={"s": 2}, replaced=change.replaced, seen=seen)
    assert [row["position"] for row in table.rows()] == [3]


def test_a_page_that_cannot_be_written_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Paged(tmp_path)
    write, left = latest.write_files, [2]

    def full(*given: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(*given, **more)

    monkeypatch.setattr(latest, "write_files", full)
    with pytest.raises(OSError, match="No space"):
        table.add(reading(topic, 1) for topic in range(500))
    assert not list(table.log.folder.glob("*.parquet"))
