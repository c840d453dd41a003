"""Tasks that read Parquet by themselves: together they have each row once, whatever the files are."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.objects import open_place
from headwater.pipeline.lake.scan import BATCH, LEAST, MOST, between, read, tasks_of

DAY = date(2026, 11, 19)
NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("position", pa.int64()),
        ("arrival", pa.timestamp("us", "UTC")),
        ("later", pa.float64()),
        ("day", pa.date32()),
    ]
)
NAMES = ["position", "later", "day"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven row groups of three rows; it has neither `day` nor `later`, a column that came later."""
    path = tmp_path_factory.mktemp("scan") / "part #1*.parquet"
    rows = pa.table(
        {
            "store": pa.array(["s1"] * 21).dictionary_encode(),  # as other writers have it
            "position": pa.array(range(1, 22), pa.int64()),
            "arrival": pa.array([NOON + timedelta(seconds=row) for row in range(21)], SCHEMA.field("arrival").type),
        }
    )
    pq.write_table(rows, path, row_group_size=3)
    return path


def found(path: Path, parts: int, cores: int = 1, where: ds.Expression | None = None) -> list[Any]:
    """What all tasks read, with a file in so many parts."""
    count = parts * LEAST * cores
    place = open_place(str(path.parent))
    tasks = tasks_of([(path.name, count, {"day": DAY})], cores * parts)
    batches = [batch for task in tasks for share in task for batch in read(place, share, SCHEMA, NAMES, where)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 7, 20])
def test_parts_of_a_file_have_each_row_once(file: Path, parts: int) -> None:
    """Also if there are more parts than row groups: then some have nothing."""
    rows = found(file, parts)
    assert [row["position"] for row in rows] == list(range(1, 22))
    assert all(row["later"] is None and row["day"] == DAY for row in rows)


@pytest.mark.parametrize("parts", [1, 3])
def test_only_what_is_asked_for_is_read(file: Path, parts: int) -> None:
    where = (pc.field("store") == "s1") & (pc.field("position") > 4)
    where &= between("arrival", NOON + timedelta(seconds=2), NOON + timedelta(seconds=8))
    assert [row["position"] for row in found(file, parts, where=where)] == [5, 6, 7, 8]
    assert found(file, parts, where=pc.field("store") == "s2") == []


def test_a_file_that_is_gone_is_no_empty_one(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        found(file.with_name("gone.parquet"), 2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3_000_000), max_size=12), st.integers(1, 64))
def test_every_part_of_every_file_is_in_one_task(counts: list[int], cores: int) -> None:
    tasks = tasks_of([(str(number), count, {}) for number, count in enumerate(counts)], cores)
    shares = [share for task in tasks for share in task]
    parts = {(share.path, share.number, share.of) for share in shares}
    assert len(parts) == len(shares)
    for number in range(len(counts)):
        of = [share for share in shares if share.path == str(number)]
        assert [share.number for share in of] == list(range(of[0].of))
    rows = {str(number): count for number, count in enumerate(counts)}
    sizes = [sum(rows[share.path] / share.of for share in task) for task in tasks]
    assert all(size <= 1.5 * MOST + len(counts) for size in sizes)


def test_few_rows_are_one_task_and_many_are_for_all_cores() -> None:
    few = [(str(number), 100, {}) for number in range(50)]
    assert len(tasks_of(few, 8)) == 1
    assert len(tasks_of([("one", 250_000, {})], 2)) == 2
    assert len(tasks_of([(str(number), 250_000, {}) for number in range(4)], 2)) == 4
    assert BATCH <= MOST
