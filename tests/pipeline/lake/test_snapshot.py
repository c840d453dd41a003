"""Which files a snapshot opens, and that none is left out that has a row which is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.log import Log
from headwater.pipeline.lake.snapshot import Snapshot

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("store", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("arrival", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
    ]
)
Row = tuple[str, int]


def arrival(position: int) -> datetime:
    return START + timedelta(microseconds=position * 700_001)


def batch(rows: list[Row]) -> pa.RecordBatch:
    full = [
        {"store": store, "position": position, "arrival": arrival(position), "day": arrival(position).date()}
        for store, position in rows
    ]
    return pa.RecordBatch.from_pylist(full, SCHEMA)


def table(folder: Path, *files: list[Row]) -> Log:
    log = Log(folder, "day")
    log.create(SCHEMA)
    for rows in files:
        ends = dict(rows)
        log.commit(write_files([batch(rows)], str(folder), "day"), {}, job="job", positions=ends)
    return log


def rows_in(log: Log, files: list[str]) -> set[Row]:
    found = set()
    for name in files:
        read = pq.read_table(log.folder / name, partitioning=None)
        found |= set(zip(read["store"].to_pylist(), read["position"].to_pylist(), strict=True))
    return found


def test_files_by_position(tmp_path: Path) -> None:
    log = table(tmp_path, [("a", 1), ("a", 2)], [("a", 3)], [("b", 1), ("b", 2)], [("a", 4), ("b", 3)])
    snapshot = Snapshot(log)
    assert rows_in(log, snapshot.files_with({"a": (2, 3)})) == {("a", 3)} | {("a", 4), ("b", 3)}
    assert rows_in(log, snapshot.files_with({"b": (0, 2)})) == {("b", 1), ("b", 2)}
    assert snapshot.files_with({"c": (0, 100)}) == []
    assert snapshot.rows == 7
    assert snapshot.rows_of(snapshot.files_with({"a": (0, 2)})) == 2
    assert snapshot.positions("job") == {"a": 4, "b": 3}
    assert snapshot.note("job/a") == 4 and snapshot.note("other/a") is None


def test_when_a_message_arrived(tmp_path: Path) -> None:
    snapshot = Snapshot(table(tmp_path, [("a", 1), ("a", 2)], [("b", 2), ("a", 3)]))
    assert snapshot.arrival_of("a", 2) == arrival(2)
    assert snapshot.arrival_of("b", 2) == arrival(2)
    assert snapshot.arrival_of("b", 1) is None
    assert snapshot.arrival_of("a", 4) == arrival(3)  # of the last before it that is there


def test_an_empty_table(tmp_path: Path) -> None:
    snapshot = Snapshot(table(tmp_path))
    assert snapshot.files == [] and snapshot.rows == 0 and snapshot.size == 0
    assert snapshot.files_with({"a": (0, 9)}) == [] and snapshot.files_between("arrival", START, START) == []
    assert snapshot.arrival_of("a", 1) is None and snapshot.positions("job") == {}


def test_what_was_committed_later_is_not_in_it(tmp_path: Path) -> None:
    log = table(tmp_path, [("a", 1)])
    snapshot = Snapshot(log)
    log.commit(write_files([batch([("a", 2)])], str(tmp_path), "day"), {}, job="job", positions={"a": 2})
    assert snapshot.rows == 1 and snapshot.positions("job") == {"a": 1}
    assert Snapshot(log).rows == 2


@settings(max_examples=25, deadline=None)  # a table each
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), min_size=1, unique=True), max_size=4),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_no_row_that_is_asked_for_is_left_out(files: list[list[Row]], after: int, last: int) -> None:
    """By position, and by a time between two rows, or of a row to the microsecond."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = table(Path(folder), *files)
        snapshot = Snapshot(log)
        every = {row for rows in files for row in rows}
        for store in "abc":
            wanted = {(each, position) for each, position in every if each == store and after < position <= last}
            assert wanted <= rows_in(log, snapshot.files_with({store: (after, last)}))
        begin, end = arrival(after), arrival(last)
        wanted = {(each, position) for each, position in every if begin <= arrival(position) < end}
        assert wanted <= rows_in(log, snapshot.files_between("arrival", begin, end))
