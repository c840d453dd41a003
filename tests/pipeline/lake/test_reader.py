"""`format("headwater-delta")` as a reader, against a model of the table: versions, changes, streams, conditions."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from headwater.pipeline.lake.asked import read_options
from headwater.pipeline.lake.commits import REMOVED
from headwater.pipeline.lake.compaction import files_of, merge
from headwater.pipeline.lake.conditions import expression
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.log import LakeError, Log
from headwater.pipeline.lake.reader import TableReader, spark_schema
from headwater.pipeline.lake.rows import FilesGone
from headwater.pipeline.options import OptionError
from tests.pipeline.lake.reads import read, rows_of, stream

DAY = date(2026, 1, 31)
SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
    ]
)
Row = tuple[int, str | None]
"""Position, which decides time and day, and topic."""
ROWS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b/1", None])), min_size=1, max_size=6)


def full(row: Row) -> dict[str, Any]:
    position, topic = row
    moment = datetime(2026, 1, 31, 12, position, 0, 700 * position, UTC)
    return {"position": position, "topic": topic, "time": moment, "day": DAY if position % 2 else date(2026, 2, 1)}


def bare(row: dict[str, Any]) -> Row:
    assert full((row["position"], row["topic"])).items() <= row.items(), "a column has what it was written with"
    return row["position"], row["topic"]


def written(folder: Path, rows: list[Row]) -> list[Any]:
    if not rows:
        return []
    return write_files([pa.RecordBatch.from_pylist([full(each) for each in rows], SCHEMA)], str(folder), "day")


class Model:
    """A table, and what it has had at each version."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder, "day")
        self.log.create(SCHEMA)
        self.versions: dict[int, Counter[Row]] = {0: Counter()}

    @property
    def now(self) -> Counter[Row]:
        return self.versions[max(self.versions)]

    def _commit(self, after: Counter[Row], rows: list[Row], **more: Any) -> None:
        notes = more.pop("notes", {})
        self.log.commit(written(self.log.folder, rows), notes, **more)
        self.versions[self.log.look().version] = after

    def append(self, rows: list[Row]) -> None:
        self._commit(self.now + Counter(rows), rows)

    def replace(self, rows: list[Row]) -> None:
        """All that is there, by rows that are partly the same."""
        kept = list(self.now.elements())[::2] + rows
        self._commit(Counter(kept), kept, replaced=self.log.paths())

    def erase(self, position: int) -> None:
        kept = [each for each in self.now.elements() if each[0] != position]
        gone = self.now.total() - len(kept)
        self._commit(Counter(kept), kept, replaced=self.log.paths(), notes={REMOVED: gone})

    def compact(self) -> None:
        view = self.log.look()
        files = [each for each in files_of(view.files, "day") if each.partition == DAY]
        if len(files) > 1:
            merged = merge(self.log.place, "day", view.schema, files)
            self.log.commit(merged, {}, replaced=[each.path for each in files], changes=False)
            self.versions[self.log.look().version] = self.now

    def delete(self, position: int) -> None:
        """As another tool does."""
        before = self.log.look().version
        DeltaTable(str(self.log.folder)).delete(f"position = {position}")
        if self.log.look().version > before:
            after = Counter({row: count for row, count in self.now.items() if row[0] != position})
            self.versions[self.log.look().version] = after


STEPS: dict[str, Callable[[Model, list[Row]], None]] = {
    "append": Model.append,
    "replace": Model.replace,
    "erase": lambda model, rows: model.erase(rows[0][0]),
    "compact": lambda model, rows: model.compact(),
    "delete": lambda model, rows: model.delete(rows[0][0]),
}


@settings(deadline=None, max_examples=25)  # a table each
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), ROWS), max_size=6), data=st.data())
def test_versions_and_changes_are_those_of_the_model(steps: list[tuple[str, list[Row]]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        model = Model(Path(name))
        for step, rows in steps:
            STEPS[step](model, rows)
        versions = sorted(model.versions)
        for version in versions:
            assert Counter(map(bare, read(Path(name), versionAsOf=version))) == model.versions[version]
        first = data.draw(st.sampled_from(versions))
        found: dict[str, Counter[tuple[int, Row]]] = {"insert": Counter(), "delete": Counter()}
        for row in read(Path(name), startingVersion=first, readChangeFeed=True):
            found[row["_change_type"]][row["_commit_version"], bare(row)] += 1
        for version in [each for each in versions if each >= max(first, 1)]:
            before, after = model.versions[max(each for each in versions if each < version)], model.versions[version]
            assert {row: count for (of, row), count in found["insert"].items() if of == version} == after - before
            assert {row: count for (of, row), count in found["delete"].items() if of == version} == before - after
        added = read(Path(name), startingVersion=first)
        assert Counter(map(bare, added)) == Counter(row for _, row in found["insert"].elements())


@settings(deadline=None, max_examples=15)
@given(
    before=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), ROWS), max_size=3),
    after=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), ROWS), max_size=5),
    files=st.integers(1, 4),
)
def test_a_stream_brings_the_table_and_then_each_commit_once(
    before: list[tuple[str, list[Row]]], after: list[tuple[str, list[Row]]], files: int
) -> None:
    """Another reader reads the same batch, and has the same rows."""
    with tempfile.TemporaryDirectory() as name:
        model = Model(Path(name))
        for step, rows in before:
            STEPS[step](model, rows)
        reader = stream(Path(name), maxFilesPerTrigger=files)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxFiles(files))
        found = Counter(map(bare, rows_of(stream(Path(name)), reader.partitions(start, end))))
        assert found == model.now
        known = len(model.versions)
        for step, rows in after:
            STEPS[step](model, rows)
        while (start := end) != (end := reader.latestOffset(start, ReadMaxFiles(files))):
            tried = [each.partitions(start, end) for each in (reader, stream(Path(name)))]
            one, other = (Counter(map(bare, rows_of(stream(Path(name)), each))) for each in tried)
            assert one == other
            found += one
        assert end == reader.reportLatestOffset() == {"version": model.log.look().version}
        versions = [model.versions[each] for each in sorted(model.versions)][known - 1 :]
        came = sum((later - earlier for earlier, later in pairwise(versions)), Counter[Row]())
        assert found == versions[0] + came


CONDITIONS: dict[str, tuple[spark.Filter, Callable[[dict[str, Any]], bool]]] = {
    "equal": (spark.EqualTo(("topic",), "a"), lambda row: row["topic"] == "a"),
    "not equal": (spark.Not(spark.EqualTo(("topic",), "a")), lambda row: row["topic"] not in ("a", None)),
    "in": (spark.In(("position",), (1, 2, 5)), lambda row: row["position"] in (1, 2, 5)),
    "not in": (spark.Not(spark.In(("topic",), ("a",))), lambda row: row["topic"] not in ("a", None)),
    "above": (spark.GreaterThan(("position",), 4), lambda row: row["position"] > 4),
    "from": (spark.GreaterThanOrEqual(("position",), 4), lambda row: row["position"] >= 4),
    "below": (spark.LessThan(("time",), datetime(2026, 1, 31, 12, 3, 0, 2100)), lambda row: row["position"] < 3),
    "up to": (spark.LessThanOrEqual(("time",), datetime(2026, 1, 31, 12, 3, 0, 2100)), lambda row: row["position"] < 4),
    "day": (spark.EqualTo(("day",), DAY), lambda row: row["position"] % 2 == 1),
    "null": (spark.IsNull(("topic",)), lambda row: row["topic"] is None),
    "not null": (spark.IsNotNull(("topic",)), lambda row: row["topic"] is not None),
    "prefix": (spark.StringStartsWith(("topic",), "b/"), lambda row: row["topic"] == "b/1"),
    "suffix": (spark.StringEndsWith(("topic",), "1"), lambda row: row["topic"] == "b/1"),
    "contains": (spark.StringContains(("topic",), "/"), lambda row: row["topic"] == "b/1"),
}


@settings(deadline=None, max_examples=25)
@given(batches=st.lists(ROWS, max_size=4), names=st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=3))
def test_conditions_leave_the_rows_that_meet_them(batches: list[list[Row]], names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        model = Model(Path(name))
        for rows in batches:
            model.append(rows)
        wanted = Counter(row for row in model.now.elements() if all(CONDITIONS[each][1](full(row)) for each in names))
        filters = [CONDITIONS[each][0] for each in names]
        assert Counter(map(bare, read(Path(name), filters))) == wanted
        assert Counter(map(bare, read(Path(name), filters, startingVersion=0))) == wanted


def test_what_means_something_else_to_arrow_is_left_to_spark(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("value", pa.float64()), pa.field("position", pa.int64()), pa.field("topic", pa.string())]
    )
    for condition in (
        spark.GreaterThan(("value",), 1.0),  # NaN is greater
        spark.EqualNullSafe(("topic",), "a"),
        spark.Not(spark.In(("topic",), ("a", None))),
        spark.EqualTo(("topic", "inner"), "a"),
        spark.EqualTo(("other",), "a"),
        spark.EqualTo(("position",), "a"),
        spark.EqualTo(("position",), 1 << 70),
    ):
        assert expression(condition, schema) is None


def test_files_that_cannot_have_a_row_are_not_opened(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.append([(1, "a"), (3, "a")])
    model.append([(5, "a"), (7, None)])
    model.append([(2, "a"), (4, "a")])
    for path in tmp_path.rglob("*.parquet"):
        if path.relative_to(tmp_path).as_posix() in model.log.paths()[:1] or path.parent.name != f"day={DAY}":
            path.unlink()
    found = read(tmp_path, [spark.LessThan(("position",), 5), spark.EqualTo(("day",), DAY)])
    assert sorted(map(bare, found)) == [(1, "a"), (3, "a")]


def test_columns_that_are_named_and_no_others(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.append([(1, "a")])
    asked = read_options({"path": str(tmp_path)}, is_stream=False)
    reader = TableReader(asked.pinned(), StructType().add("day", "date").add("position", "long"))
    assert rows_of(reader, reader.partitions()) == [{"day": DAY, "position": 1}]
    with pytest.raises(OptionError, match=r"unknown column 'positon' .* did you mean 'position'"):
        TableReader(asked, StructType().add("positon", "long"))
    with pytest.raises(OptionError, match="'position' is bigint, not string"):
        TableReader(asked, StructType().add("position", "string"))


def test_a_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.append([(1, "a")])
    wider = SCHEMA.append(pa.field("unit", pa.string()))
    batch = pa.RecordBatch.from_pylist([{**full((3, "a")), "unit": "C"}], wider)
    model.log.commit(write_files([batch], str(tmp_path), "day"), {})
    assert {row["position"]: row["unit"] for row in read(tmp_path)} == {1: None, 3: "C"}
    assert "unit" not in read(tmp_path, versionAsOf=1)[0]


def test_a_large_difference_is_cut_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of rows where it is cut, and of those that have no value there."""
    model = Model(tmp_path)
    model.append([(position, "a") for position in range(0, 60, 2)])
    without = {**full((0, "n")), "position": None}
    model.log.commit(write_files([pa.RecordBatch.from_pylist([without], SCHEMA)], str(tmp_path), "day"), {})
    kept = [(position, "a") for position in range(0, 60, 4)] + [(58, "b"), (2, "a"), (16, "c")]
    model._commit(Counter(kept), kept, replaced=model.log.paths())
    monkeypatch.setattr("headwater.pipeline.lake.changes.COMPARED", 5)
    asked = read_options({"path": str(tmp_path), "startingVersion": "3", "readChangeFeed": "true"}, is_stream=False)
    reader = TableReader(asked.pinned(), spark_schema(asked))
    partitions = reader.partitions()
    assert len(partitions) == 8
    found = Counter((row["_change_type"], row["position"], row["topic"]) for row in rows_of(reader, partitions))
    went = Counter(("delete", position, "a") for position in range(6, 60, 4)) + Counter([("delete", None, "n")])
    assert found == went + Counter([("insert", 58, "b"), ("insert", 16, "c")])


def test_the_table_at_a_time(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.append([(1, "a")])
    made = [row["_commit_timestamp"] for row in read(tmp_path, startingVersion=1, readChangeFeed=True)]
    model.append([(3, "a")])
    [before, later] = sorted(row["_commit_timestamp"] for row in read(tmp_path, startingVersion=1, readChangeFeed=True))
    assert made == [before] and before <= later
    assert read(tmp_path, startingTimestamp="2000-01-01") == read(tmp_path, startingVersion=0)
    assert read(tmp_path, startingTimestamp="9000-01-01T00:00:00+00:00") == []
    assert len(read(tmp_path, startingVersion=0, endingTimestamp="9000-01-01")) == 2
    assert len(read(tmp_path, timestampAsOf="9000-01-01")) == 2
    assert len(read(tmp_path, startingVersion=1, endingVersion=1)) == 1


def test_a_table_as_it_was_when_it_was_loaded(tmp_path: Path) -> None:
    """Whatever is committed before the rows are read."""
    model = Model(tmp_path)
    model.append([(1, "a")])
    asked = read_options({"path": str(tmp_path)}, is_stream=False).pinned()
    changes = read_options({"path": str(tmp_path), "startingVersion": "0"}, is_stream=False).pinned()
    model.append([(3, "a")])
    model.compact()
    for each in (asked, changes):
        reader = TableReader(each, spark_schema(each))
        assert [bare(row) for row in rows_of(reader, reader.partitions())] == [(1, "a")]


def test_replaced_files_that_are_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A commit that only removed has added nothing, which is known without them; of others it is not known."""
    model = Model(tmp_path)
    model.append([(1, "a"), (3, "a")])
    model.erase(1)
    model.log.open().vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert read(tmp_path, startingVersion=2) == []
    assert "removed 1 rows" in caplog.text
    assert read(tmp_path, startingVersion=2, readChangeFeed=True) == []
    assert "1 rows were removed, and are not shown" in caplog.text
    model.replace([(5, "b/1")])
    model.log.open().vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(FilesGone, match=r"version \d .* keep_replaced"):
        read(tmp_path, startingVersion=3)


def test_what_changes_nothing_is_not_read(tmp_path: Path) -> None:
    """Merged files are no change, and a commit that only removed has added nothing."""
    model = Model(tmp_path)
    model.append([(1, "a")])
    model.append([(3, "a")])
    model.compact()
    model.erase(1)
    reader = stream(tmp_path, startingVersion=3)
    assert reader.partitions({"version": 2}, {"version": 4}) == []
    asked = read_options({"path": str(tmp_path), "startingVersion": "3", "readChangeFeed": "true"}, is_stream=False)
    [erased] = TableReader(asked.pinned(), spark_schema(asked)).partitions()
    assert repr(erased) == "both of version 4"


def test_a_batch_of_a_stream_has_as_many_files_as_it_may_or_one_commit(tmp_path: Path) -> None:
    model = Model(tmp_path)
    for positions in ([1], [3], [5], [1, 2], [1, 2], [3]):  # a file for each day, which follows from the position
        model.append([(each, "a") for each in positions])

    def ends(**options: object) -> list[int]:
        reader = stream(tmp_path, startingVersion=1, **options)
        found = [reader.initialOffset()]
        while (end := reader.latestOffset(found[-1], reader.getDefaultReadLimit())) != found[-1]:
            found.append(end)
        return [each["version"] for each in found]

    assert ends(maxFilesPerTrigger=2) == [0, 2, 3, 4, 5, 6]
    assert ends(maxFilesPerTrigger=1) == ends(maxBytesPerTrigger=1) == [0, 1, 2, 3, 4, 5, 6]
    assert ends() == [0, 6]


def test_commits_that_the_log_has_no_more(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.append([(1, "a")])
    model.append([(3, "a")])
    model.log.open().create_checkpoint()
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(LakeError, match=r"commit of version 1 is not in the table's log .* keep_log"):
        read(tmp_path, startingVersion=1)
    assert len(read(tmp_path, startingVersion=2)) == 1
    with pytest.raises(LakeError, match="startingVersion is 9, and the table's last version is 2"):
        read(tmp_path, startingVersion=9)
    with pytest.raises(LakeError, match="no version 7"):
        read(tmp_path, versionAsOf=7)


def test_a_stream_from_a_version(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.append([(1, "a")])
    model.append([(3, "a")])
    assert stream(tmp_path, startingVersion=2).initialOffset() == {"version": 1}
    reader = stream(tmp_path, startingVersion="latest")
    start = reader.initialOffset()
    assert start == {"version": 2} == reader.latestOffset(start, ReadAllAvailable())
    reader.prepareForTriggerAvailableNow()
    model.append([(5, "a")])
    assert reader.latestOffset(start, ReadAllAvailable()) == start, "it was committed after the query had begun"
    with pytest.raises(LakeError, match="was made anew"):
        reader.latestOffset({"version": 7}, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "is_stream", "why"),
    [
        ({}, False, "'path' is needed"),
        ({"path": "/x", "versionAsOf": "-1"}, False, "'versionAsOf' is a whole number"),
        ({"path": "/x", "versionAsOf": "1"}, True, r"'versionAsOf' is for spark\.read"),
        ({"path": "/x", "maxFilesPerTrigger": "1"}, False, r"'maxFilesPerTrigger' is for spark\.readStream"),
        ({"path": "/x", "timestampAsOf": "noon"}, False, "'timestampAsOf' is a time such as"),
        ({"path": "/x", "versionAsOf": "1", "timestampAsOf": "2026-01-31"}, False, "give one of them"),
        ({"path": "/x", "versionAsOf": "1", "startingVersion": "1"}, False, "'versionAsOf' is for the table as it was"),
        ({"path": "/x", "readChangeFeed": "true"}, False, "'startingVersion' is needed"),
        ({"path": "/x", "endingVersion": "3"}, False, "'startingVersion' is needed"),
        ({"path": "/x", "startingVersion": "latest"}, False, "'startingVersion' is a whole number"),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], is_stream: bool, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        read_options(options, is_stream=is_stream)
