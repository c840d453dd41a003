"""Files that tasks write: complete and noted, or not there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.lake.files import TableWriter, write_files
from tests.pipeline.lake.some_rows import DAY, NOON, messages, parquet_files, rows, written


def test_batches_of_one_kind_are_one_file_with_bounds(tmp_path: Path) -> None:
    [file] = written(tmp_path, messages("s1", 1, 3), messages("s2", 7, 7), messages("s1", 4, 9), partition="day")
    assert (file.rows, file.partition) == (10, {"day": "2026-01-31"})
    assert file.path.startswith("day=2026-01-31/part-") and file.size == (tmp_path / file.path).stat().st_size
    assert file.stores == {"s1": (1, 9), "s2": (7, 7)}
    assert (file.low["store"], file.high["store"]) == ("s1", "s2")
    assert (file.low["position"], file.high["position"]) == (1, 9)
    assert (file.low["arrival"], file.high["arrival"]) == (NOON + timedelta(seconds=1), NOON + timedelta(seconds=9))
    assert file.arrow_schema() == messages("s1", 1, 1).drop_columns(["day"]).schema
    assert pickle.loads(pickle.dumps(file)) == file
    found = pq.read_table(tmp_path / file.path, partitioning=None)
    assert found.num_rows == 10 and "day" not in found.schema.names


def test_only_what_repeats_has_a_dictionary(tmp_path: Path) -> None:
    """A dictionary of what never repeats takes time, and room beside the values."""
    count = 1000
    columns = {
        "position": pa.array(range(count)),
        "topic": pa.array([f"t/{row % 50}" for row in range(count)]),
        "payload": pa.array([b"%d" % row for row in range(count)], pa.binary()),
        "data": pa.array(["on" if row % 2 else "off" for row in range(count)]),
        "raw": pa.nulls(count, pa.binary()),
    }
    [file] = written(tmp_path, pa.RecordBatch.from_pydict(columns), partition=None)
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    has_one = {column.path_in_schema for column in map(group.column, range(5)) if column.has_dictionary_page}
    assert {"topic", "data"} <= has_one <= {"topic", "data", "raw"}
    nested = pa.RecordBatch.from_pydict({"list": pa.array([["a"], ["a"]])})
    [file] = written(tmp_path / "nested", nested, partition=None)
    assert pq.ParquetFile(tmp_path / "nested" / file.path).metadata.row_group(0).column(0).has_dictionary_page


def test_each_day_and_each_schema_has_its_file(tmp_path: Path) -> None:
    later = DAY + timedelta(days=1)
    mixed = pa.Table.from_batches([messages("s1", 1, 2), messages("s1", 3, 5, later)]).combine_chunks().to_batches()[0]
    wide = messages("s1", 6, 6).append_column("humidity", pa.array([0.5]))
    found = written(tmp_path, mixed, wide, messages("s1", 7, 8, later), partition="day")
    assert [(each.partition["day"], each.rows, each.stores["s1"]) for each in found] == [
        ("2026-01-31", 2, (1, 2)),
        ("2026-02-01", 5, (3, 8)),
        ("2026-01-31", 1, (6, 6)),
    ]
    assert "humidity" in found[2].arrow_schema().names


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=5))
@settings(max_examples=25, deadline=None)
def test_every_row_is_in_the_file_of_its_day(tmp_path_factory: pytest.TempPathFactory, days: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    number = 0
    batches, expected = [], set()
    for batch in days:
        ids = list(range(number, number + len(batch)))
        number += len(batch)
        dates = [DAY + timedelta(days=each) for each in batch]
        batches.append(
            pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "day": pa.array(dates, pa.date32())})
        )
        expected |= set(zip(ids, dates, strict=True))
    found = set()
    for file in write_files(batches, str(folder), "day"):
        for each in pq.read_table(folder / file.path, partitioning=None)["id"].to_pylist():
            found.add((each, date.fromisoformat(file.partition["day"])))
    assert found == expected


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, messages("s", 1, 1).slice(0, 0), partition="day") == []
    assert parquet_files(tmp_path) == []


def test_rows_without_positions_have_none_noted(tmp_path: Path) -> None:
    [file] = written(tmp_path, pa.RecordBatch.from_pydict({"x": [1, 2]}))
    assert (file.stores, file.low, file.partition) == ({}, {}, {})


def test_what_has_no_value_is_counted(tmp_path: Path) -> None:
    times = pa.array([NOON, None, None], pa.timestamp("us", "UTC"))
    nothing = pa.array([None] * 3, pa.timestamp("us", "UTC"))
    [file] = written(tmp_path, pa.RecordBatch.from_pydict({"time": times, "arrival": nothing}))
    assert file.nulls == {"time": 2, "arrival": 3}
    assert (file.low, file.high) == ({"time": NOON}, {"time": NOON})


def failing(*batches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("the task dies")


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the task dies"):
        write_files(failing(messages("s", 1, 5), messages("s", 6, 7, date(2026, 2, 3))), str(tmp_path), "day")
    assert parquet_files(tmp_path) == []


def test_rows_of_no_day_are_an_error_and_leave_nothing(tmp_path: Path) -> None:
    without = pa.RecordBatch.from_pydict({"x": [1, 2], "day": pa.array([DAY, None], pa.date32())})
    with pytest.raises(ValueError, match="a row has no day"):
        written(tmp_path, rows("s", 1, 2, day=DAY), without, partition="day")
    assert parquet_files(tmp_path) == []


def test_a_type_that_parquet_has_not_leaves_nothing(tmp_path: Path) -> None:
    odd = pa.RecordBatch.from_pydict({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pytest.raises(pa.ArrowNotImplementedError):
        written(tmp_path, rows("s", 1, 5), odd)
    assert parquet_files(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the files that are closed nor of the one that cannot be."""

    class Full:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.writer = real(*arguments, **options)
            opened.append(self)

        def write_batch(self, *arguments: Any, **options: Any) -> None:
            self.writer.write_batch(*arguments, **options)

        def close(self) -> None:
            self.writer.close()
            if opened.index(self):
                raise OSError(28, "No space left on device")

    real, opened = pq.ParquetWriter, list[Full]()
    monkeypatch.setattr(pq, "ParquetWriter", Full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path, rows("s", 1, 5), rows("s", 6, 7, x=1), rows("s", 8, 9, y=1))
    assert len(opened) == 3 and parquet_files(tmp_path) == []


def test_a_writer_that_is_left_before_its_end_leaves_nothing(tmp_path: Path) -> None:
    with TableWriter(str(tmp_path), None) as writer:
        writer.write(rows("s", 1, 5))
    assert parquet_files(tmp_path) == []
    with TableWriter(str(tmp_path), None) as writer:
        writer.write(rows("s", 1, 5))
        [file] = writer.close()
    assert parquet_files(tmp_path) == [file.path]
