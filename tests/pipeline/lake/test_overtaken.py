"""Two who write to one table: a driver that was killed may leave a process behind that commits later (the Python that
commits for a streaming query is a child of Java). What it commits then must not be there twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.log import LakeError, Log

JOB = "bronze"
SCHEMA = pa.schema([("store", pa.string()), ("position", pa.int64())])


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """With positions 1 to 4."""
    made = Log(tmp_path / "table")
    made.create(SCHEMA)
    made.commit(files(made, 1, 4), {}, job=JOB, positions={"s": 4})
    return made


def files(log: Log, first: int, last: int, **more: pa.Array) -> list[WrittenFile]:
    count = last - first + 1
    rows = {"store": pa.array(["s"] * count), "position": pa.array(range(first, last + 1)), **more}
    return write_files([pa.RecordBatch.from_pydict(rows)], str(log.folder), log.partition)


def positions_in(log: Log) -> list[int]:
    found = [pq.read_table(log.folder / path)["position"].to_pylist() for path in log.paths()]
    return sorted(position for each in found for position in each)


def test_what_somebody_else_has_committed_since_one_looked_is_not_committed_again(log: Log) -> None:
    seen = log.look()
    written = files(log, 5, 8)
    log.commit(files(log, 5, 8), {}, job=JOB, positions={"s": 8})
    with pytest.raises(LakeError, match="somebody else has written"):
        log.commit(written, {}, job=JOB, positions={"s": 8}, seen=seen)
    assert positions_in(log) == list(range(1, 9))


def test_new_columns_do_not_hide_it(log: Log) -> None:
    seen = log.look()
    written = files(log, 5, 5, depth=pa.array([1.5]))
    log.commit(files(log, 5, 5), {}, job=JOB, positions={"s": 5})
    with pytest.raises(LakeError, match="somebody else has written"):
        log.commit(written, {}, job=JOB, positions={"s": 5}, seen=seen)
    assert positions_in(log) == list(range(1, 6))


def test_commits_about_something_else_do_no_harm(log: Log) -> None:
    seen = log.look()
    log.commit([], {"another": 1}, job="recovery", positions={"s": 8})
    log.commit(files(log, 5, 8), {}, job=JOB, positions={"s": 8}, seen=seen)
    assert positions_in(log) == list(range(1, 9))
    assert log.positions(JOB) == {"s": 8}


def test_a_commit_that_comes_while_another_is_under_way_is_refused(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the notes in `commit` and the commit itself."""
    written, other = files(log, 5, 8), files(log, 5, 8)

    def overtake(point: str, about: str = "") -> None:
        if point == "pipeline-before-commit":
            monkeypatch.undo()
            Log(log.folder).commit(other, {}, job=JOB, positions={"s": 8})  # of another process

    monkeypatch.setattr("headwater.pipeline.lake.log.crash_point", overtake)
    with pytest.raises(LakeError, match="at the same time"):
        log.commit(written, {}, job=JOB, positions={"s": 8}, seen=log.look())
    assert positions_in(log) == list(range(1, 9))


def test_files_that_are_replaced_while_they_are_replaced_are_there_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the files in `commit` and the commit itself; notes do not tell of it."""
    log.commit(files(log, 5, 8), {}, job=JOB, positions={"s": 8})
    written, other, replaced = files(log, 1, 8), files(log, 1, 8), log.paths()

    def overtake(point: str, about: str = "") -> None:
        if point == "pipeline-before-commit":
            monkeypatch.undo()
            Log(log.folder).commit(other, {}, replaced=replaced, changes=False)

    monkeypatch.setattr("headwater.pipeline.lake.log.crash_point", overtake)
    with pytest.raises(LakeError, match="somebody else has replaced files"):
        log.commit(written, {}, replaced=replaced, changes=False)
    assert positions_in(log) == list(range(1, 9))


def test_a_commit_between_the_looks_does_not_keep_files_from_being_replaced(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze goes on while its files are compacted."""
    log.commit(files(log, 5, 8), {}, job=JOB, positions={"s": 8})
    written, other, replaced = files(log, 1, 8), files(log, 9, 9), log.paths()

    def overtake(point: str, about: str = "") -> None:
        if point == "pipeline-before-commit":
            monkeypatch.undo()
            Log(log.folder).commit(other, {}, job=JOB, positions={"s": 9})

    monkeypatch.setattr("headwater.pipeline.lake.log.crash_point", overtake)
    log.commit(written, {}, replaced=replaced, changes=False)
    assert positions_in(log) == list(range(1, 10)) and log.positions(JOB) == {"s": 9}
