"""The sink, called as Spark calls it: a batch that comes again is there once, and one that does not fit is refused."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from headwater.pipeline.lake.log import LakeError, Log
from headwater.pipeline.lake.sink import Batch, BatchWriter, DeltaSink, Noted, StreamWriter, is_there
from headwater.pipeline.options import OptionError
from headwater.pipeline.tables import BRONZE, SILVER
from tests.pipeline.lake.some_rows import DAY, contents, messages, names, parquet_files, rows, span

SPARK_TYPES: dict[str, Any] = {"store": StringType(), "position": LongType(), "day": DateType(), "x": LongType()}


def schema(*columns: str) -> StructType:
    """Types that are not named are of no account here."""
    return StructType([StructField(each, SPARK_TYPES.get(each, StringType())) for each in columns])


def stream(folder: Path, columns: Sequence[str] = ("store", "position"), **options: str) -> StreamWriter:
    given = {"path": str(folder), "app": "query", **options}
    return DeltaSink(given).streamWriter(schema(*columns), False)


def batch(folder: Path, columns: Sequence[str] = ("store", "position"), overwrite: bool = False, **options: str) -> Any:
    found: BatchWriter = DeltaSink({"path": str(folder), **options}).writer(schema(*columns), overwrite)
    return found


def tasks(
    writer: StreamWriter | BatchWriter, *batches: pa.RecordBatch, query: str = "q1"
) -> list[WriterCommitMessage | None]:
    """Each batch by a task of its own; what they say travels. One says nothing, as it was stopped. `query` is what
    Spark calls the query: another one if its checkpoint is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.pipeline.lake.sink.running_query", lambda: query)
        return [*(pickle.loads(pickle.dumps(writer.write(iter([each])))) for each in batches), None]


def bronze(folder: Path) -> StreamWriter:
    return stream(folder, BRONZE.names, table="bronze", byPosition="true")


def plain(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": pa.array(numbers, pa.int64())})


# ---- any query -----------------------------------------------------------------------------------------------------

NEW, REPEAT = False, True


@pytest.mark.parametrize(
    ("noted", "number", "found"),
    [
        (Noted(), 0, NEW),
        (Noted(), 7, NEW),  # those before had no rows
        (Noted(3, 1), 4, NEW),
        (Noted(3, 1), 9, NEW),
        (Noted(3, 1), 3, REPEAT),
        (Noted(3, 1), 2, "checkpoint is older than the table"),
        (Noted(3, 2), 4, "another query has written"),
        (Noted(3, 2), 0, "another query has written"),
        (Noted(3, 2), 3, "another query has written"),
        (Noted(3), 4, NEW),  # of a version that did not note queries
        (Noted(3), 3, REPEAT),
        (Noted(3), 0, "checkpoint is older than the table"),
    ],
)
def test_a_batch_is_known_by_its_query_and_number(noted: Noted, number: int, found: bool | str) -> None:
    batch = Batch("app", 1, number)
    if isinstance(found, bool):
        assert is_there(noted, batch, "table") is found
    else:
        with pytest.raises(LakeError, match=found):
            is_there(noted, batch, "table")


@pytest.mark.parametrize(
    ("query", "number", "first", "last", "found"),
    [
        (1, 4, 6, 9, NEW),
        (1, 3, 6, 9, REPEAT),  # whatever it has
        (1, 4, 5, 9, "does not bring positions in order"),
        (1, 4, 1, 3, "does not bring positions in order"),  # and is not dropped
        (1, 2, 1, 5, REPEAT),  # the checkpoint is older than the table, and positions still hold
        (1, 2, 6, 9, NEW),
        (2, 0, 1, 5, REPEAT),  # the checkpoint is new
        (2, 0, 6, 9, NEW),
        (2, 1, 6, 9, NEW),
        (2, 0, 4, 9, "Begin behind it: startingOffsets"),
    ],
)
def test_where_numbers_fail_positions_decide_if_they_come_in_order(
    query: int, number: int, first: int, last: int, found: bool | str
) -> None:
    noted, batch = Noted(3, 1, {"s": 5}), Batch("app", query, number, True, {"s": (first, last)})
    if isinstance(found, bool):
        assert is_there(noted, batch, "table") is found
    else:
        with pytest.raises(LakeError, match=found):
            is_there(noted, batch, "table")


def test_rows_behind_those_that_are_there_are_added(tmp_path: Path) -> None:
    """A query of somebody else may emit positions late, twice, or not at all."""
    writer = stream(tmp_path)
    for number, (first, last) in enumerate([(50, 60), (1, 3), (2, 2), (55, 70)]):
        writer.commit(tasks(writer, rows("s", first, last)), number)
        writer.commit(tasks(writer, rows("s", first, last)), number)
    assert names(tmp_path) == sorted(span("s", 50, 60) + span("s", 1, 3) + span("s", 2, 2) + span("s", 55, 70))


def test_a_batch_that_comes_again_with_other_rows_is_not_added(tmp_path: Path) -> None:
    """What was committed first counts: a source that cannot say the same again has no better answer."""
    writer = stream(tmp_path)
    writer.commit(tasks(writer, rows("s", 1, 5)), 0)
    writer.commit(tasks(writer, rows("s", 3, 9)), 0)
    assert names(tmp_path) == span("s", 1, 5)
    assert len(parquet_files(tmp_path)) == 1


def test_who_is_killed_before_the_commit_writes_again_and_who_is_killed_behind_it_does_not(tmp_path: Path) -> None:
    tasks(stream(tmp_path), rows("s", 1, 5))  # written, and nobody commits
    for _ in range(2):
        writer = stream(tmp_path)
        writer.commit(tasks(writer, rows("s", 1, 5)), 0)
    assert names(tmp_path) == span("s", 1, 5)


def test_a_query_whose_checkpoint_is_new_is_refused_its_name(tmp_path: Path) -> None:
    """Its rows may be there, or not: the table cannot know."""
    writer = stream(tmp_path)
    writer.commit(tasks(writer, rows("s", 1, 5)), 0)
    told = tasks(writer, rows("s", 6, 9), query="q2")
    with pytest.raises(LakeError, match=r"another query has written .* as 'query', up to its batch 0.*another `app`"):
        writer.commit(told, 0)
    writer.abort(told, 0)
    assert names(tmp_path) == span("s", 1, 5) and len(parquet_files(tmp_path)) == 1


def test_everything_anew_in_each_batch(tmp_path: Path) -> None:
    """The output mode `complete`."""
    writer = DeltaSink({"path": str(tmp_path), "app": "query"}).streamWriter(schema("store", "position"), True)
    for number, last in ((0, 3), (1, 5), (1, 5)):
        writer.commit(tasks(writer, rows("s", 1, last)), number)
    assert names(tmp_path) == span("s", 1, 5) and len(Log(tmp_path).paths()) == 1
    writer.commit(tasks(writer, rows("s", 1, 0)), 2)
    assert names(tmp_path) == []


def test_rows_without_a_position_are_rows(tmp_path: Path) -> None:
    """As a left outer join brings them; and columns of our names may be of any type."""
    both = {"store": pa.array(["s", None]), "position": pa.array([7, None], pa.int64())}
    strange = {"time": pa.array([{"a": 1}, None]), "minute": [b"\xff", None], "arrival": [float("nan"), None]}
    writer = stream(tmp_path, ["store", "position", "time", "minute", "arrival"])
    writer.commit(tasks(writer, pa.RecordBatch.from_pydict({**both, **strange})), 0)
    assert sorted((row["store"] or "", row["position"]) for row in contents(tmp_path)) == [("", None), ("s", 7)]
    ordered = stream(tmp_path / "ordered", byPosition="true")
    with pytest.raises(LakeError, match="a row has no store or no position"):
        ordered.commit(tasks(ordered, pa.RecordBatch.from_pydict(both)), 0)


# ---- queries that bring positions in order -------------------------------------------------------------------------


def test_a_batch_is_one_commit_with_the_positions_of_its_stores(tmp_path: Path) -> None:
    writer = bronze(tmp_path)
    writer.commit(tasks(writer, messages("s1", 1, 5), messages("s1", 6, 9), messages("s2", 1, 2)), 0)
    log = Log(tmp_path)
    assert log.open().version() == 1
    assert (log.positions("query"), log.batch("query")) == ({"s1": 9, "s2": 2}, 0)
    assert names(tmp_path) == span("s1", 1, 9) + span("s2", 1, 2)
    assert contents(tmp_path)[0] == messages("s1", 1, 1).to_pylist()[0]


@pytest.mark.parametrize("query", ["q1", "q2"], ids=["the same checkpoint", "a new one"])
def test_a_batch_that_comes_again_is_there_once(tmp_path: Path, query: str) -> None:
    writer = bronze(tmp_path)
    writer.commit(tasks(writer, messages("s1", 1, 5), messages("s2", 1, 2)), 0)
    files = parquet_files(tmp_path)
    writer = bronze(tmp_path)  # of another process
    writer.commit(tasks(writer, messages("s1", 1, 3), messages("s1", 4, 5), messages("s2", 1, 2), query=query), 0)
    assert names(tmp_path) == span("s1", 1, 5) + span("s2", 1, 2)
    assert parquet_files(tmp_path) == files and Log(tmp_path).open().version() == 1


def test_batches_that_are_counted_anew_go_on(tmp_path: Path) -> None:
    """The checkpoint was deleted, and startingOffsets are the table's positions."""
    writer = bronze(tmp_path)
    for number in range(5):
        writer.commit(tasks(writer, messages("s1", number * 2 + 1, number * 2 + 2)), number)
    for number in range(3):
        first = 11 + 2 * number
        writer.commit(tasks(writer, messages("s1", first, first + 1), query="q2"), number)
    assert names(tmp_path) == span("s1", 1, 16)
    assert Log(tmp_path).positions("query") == {"s1": 16}


@pytest.mark.parametrize("second", [[("s1", 5, 6)], [("s1", 1, 6)], [("s1", 2, 3), ("s2", 3, 4)]])
def test_a_batch_that_is_there_in_part_is_refused(tmp_path: Path, second: list[tuple[str, int, int]]) -> None:
    writer = bronze(tmp_path)
    writer.commit(tasks(writer, messages("s1", 1, 5), messages("s2", 1, 2)), 0)
    files = parquet_files(tmp_path)
    told = tasks(writer, *(messages(*each) for each in second), query="q2")
    with pytest.raises(LakeError, match=r's1 up to position 5.*startingOffsets = \{"s1": 5\}'):
        writer.commit(told, 0)
    writer.abort(told, 0)
    assert names(tmp_path) == span("s1", 1, 5) + span("s2", 1, 2)
    assert parquet_files(tmp_path) == files


def test_queries_of_other_names_do_not_know_each_other(tmp_path: Path) -> None:
    for app in ("one", "two"):
        writer = stream(tmp_path, app=app)
        for _ in range(2):
            writer.commit(tasks(writer, rows("s", 1, 2), query=app), 0)
    assert names(tmp_path) == [("s", 1), ("s", 1), ("s", 2), ("s", 2)]


def test_a_batch_of_nothing_changes_nothing(tmp_path: Path) -> None:
    writer = stream(tmp_path / "table")
    writer.commit(tasks(writer), 0)
    assert not (tmp_path / "table").exists()
    writer = bronze(tmp_path / "bronze")
    writer.commit(tasks(writer), 0)
    assert Log(tmp_path / "bronze").open().version() == 0


def test_an_aborted_batch_leaves_no_files(tmp_path: Path) -> None:
    writer = bronze(tmp_path)
    told = tasks(writer, messages("s1", 1, 5), messages("s1", 6, 9, DAY + timedelta(days=1)))
    assert len(parquet_files(tmp_path)) == 2
    writer.abort(told, 0)
    assert parquet_files(tmp_path) == []


def test_an_abort_after_the_commit_takes_nothing_from_the_table(tmp_path: Path) -> None:
    """A commit can be made, and its author fail before it can say so: Spark then aborts."""
    for writer, number in ((bronze(tmp_path), (0,)), (batch(tmp_path, BRONZE.names, table="bronze"), ())):
        told = tasks(writer, messages("s1", 1, 5))
        writer.commit(told, *number)
        writer.abort(told, *number)
    assert names(tmp_path) == sorted(span("s1", 1, 5) * 2)


# ---- other rows ----------------------------------------------------------------------------------------------------


def test_rows_without_positions_are_known_by_their_batch(tmp_path: Path) -> None:
    writer = stream(tmp_path, ["x"])
    writer.commit(tasks(writer, plain(1, 2)), 0)
    writer.commit(tasks(writer, plain(1, 2)), 0)
    writer.commit(tasks(writer, plain(3)), 1)
    writer.commit(tasks(writer, plain(3)), 1)
    assert sorted(row["x"] for row in contents(tmp_path)) == [1, 2, 3]
    assert len(parquet_files(tmp_path)) == 2
    with pytest.raises(LakeError, match=r"has batch 1 of the query 'query', and now comes batch 0: its checkpoint"):
        writer.commit(tasks(writer, plain(4)), 0)


# ---- batch writes --------------------------------------------------------------------------------------------------


def test_batch_writes_add_or_replace(tmp_path: Path) -> None:
    for numbers in ((1, 2), (3,)):
        writer = batch(tmp_path)
        writer.commit(tasks(writer, rows("s", numbers[0], numbers[-1])))
    assert names(tmp_path) == span("s", 1, 3)
    writer = batch(tmp_path, overwrite=True)
    writer.commit(tasks(writer, rows("s", 7, 8)))
    assert names(tmp_path) == span("s", 7, 8)
    writer.commit(tasks(writer))
    assert names(tmp_path) == []


def test_days_of_a_table_that_is_not_declared(tmp_path: Path) -> None:
    writer = batch(tmp_path, ["x", "day"], partitionBy="day")
    day = pa.array([DAY, DAY + timedelta(days=1)], pa.date32())
    writer.commit(tasks(writer, pa.RecordBatch.from_pydict({"x": [1, 2], "day": day})))
    found = {row["x"]: row["day"] for row in contents(tmp_path)}
    assert found == {1: DAY, 2: DAY + timedelta(days=1)}
    assert all(path.startswith("day=2026-") for path in parquet_files(tmp_path))


# ---- files without a log -------------------------------------------------------------------------------------------


def visible(folder: Path) -> list[int]:
    """What Spark would see: no folder whose name begins with an underscore."""
    files = [path for path in parquet_files(folder) if not path.startswith("_")]
    return sorted(x for path in files for x in pq.read_table(folder / path, partitioning=None)["x"].to_pylist())


def test_a_batch_of_files_takes_the_place_of_its_first_try(tmp_path: Path) -> None:
    writer = stream(tmp_path, ["x"], layout="parquet", app="q")
    writer.commit(tasks(writer, plain(1, 2), plain(3)), 0)
    writer.commit(tasks(writer, plain(4)), 1)
    assert visible(tmp_path) == [1, 2, 3, 4]
    writer.commit(tasks(writer, plain(1, 2, 3)), 0)
    writer.commit(tasks(writer, plain(4)), 1)
    assert visible(tmp_path) == [1, 2, 3, 4]
    assert not (tmp_path / "_delta_log").exists()


def test_a_query_takes_no_files_of_another_whose_name_begins_alike(tmp_path: Path) -> None:
    for app, number in (("q", 1), ("q-0123456789abcdef", 0), ("q-0123456789abcdef-x", 0)):
        writer = stream(tmp_path, ["x"], layout="parquet", app=app)
        writer.commit(tasks(writer, plain(number)), number)
    writer = stream(tmp_path, ["x"], layout="parquet", app="q")
    writer.commit(tasks(writer, plain(1)), 1)
    assert visible(tmp_path) == [0, 0, 1]


def test_files_are_seen_when_their_batch_is_done(tmp_path: Path) -> None:
    writer = stream(tmp_path, ["x", "day"], layout="parquet", partitionBy="day")
    day = pa.array([DAY], pa.date32())
    told = tasks(writer, pa.RecordBatch.from_pydict({"x": [1], "day": day}))
    dead = tasks(writer, pa.RecordBatch.from_pydict({"x": [1], "day": day}))
    assert visible(tmp_path) == []
    writer.commit(told, 0)
    assert visible(tmp_path) == [1]
    [file] = (tmp_path / "day=2026-01-31").iterdir()
    assert re.fullmatch(r"query-[0-9a-f]{16}-000000000000-00000\.parquet", file.name)
    writer.abort(dead, 0)
    assert len(parquet_files(tmp_path)) == 1


def test_files_of_another_query_of_the_same_name_stay(tmp_path: Path) -> None:
    writer = stream(tmp_path, ["x"], layout="parquet")
    writer.commit(tasks(writer, plain(1)), 0)
    with pytest.raises(LakeError, match="another query has written"):
        writer.commit(tasks(writer, plain(2), query="q2"), 0)
    assert visible(tmp_path) == [1]
    whole = DeltaSink({"path": str(tmp_path), "app": "query", "layout": "parquet"}).streamWriter(schema("x"), True)
    whole.commit(tasks(whole, plain(3)), 1)
    assert visible(tmp_path) == [3]


def test_batch_writes_of_files_add_or_replace(tmp_path: Path) -> None:
    for numbers in ((1, 2), (3,)):
        writer = batch(tmp_path, ["x"], layout="parquet")
        writer.commit(tasks(writer, plain(*numbers)))
    assert visible(tmp_path) == [1, 2, 3]
    writer = batch(tmp_path, ["x"], overwrite=True, layout="parquet")
    writer.commit(tasks(writer, plain(9)))
    assert visible(tmp_path) == [9]
    assert not (tmp_path / "_delta_log").exists()


# ---- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({"path": ""}, ["x"], "'path' is needed, such as /data"),
        ({"app": ""}, ["x"], "'app' is needed for a stream"),
        ({"app": "a/b"}, ["x"], "'app' has letters, digits, dots, dashes and underscores, unlike 'a/b'"),
        ({"table": "brnze"}, ["x"], "'table' is one of bronze, silver"),
        ({"tabel": "bronze"}, ["x"], "did you mean 'table'?"),
        ({"layout": "iceberg"}, ["x"], "'layout' is one of delta, parquet, not 'iceberg'"),
        ({"partitionBy": "day"}, ["x"], "'partitionBy' names no column of the rows; there are x"),
        ({"byPosition": "true"}, ["x"], "'byPosition' needs rows with store and position; there are x"),
        ({"partitionBy": "x"}, ["x"], "'partitionBy' is a column of dates, which x is not"),
        ({"table": "bronze"}, ["store", "position"], "is bronze, and the rows lack its columns topic, payload"),
        ({"table": "bronze"}, [*BRONZE.names, "more"], "is bronze, which has no columns more"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, str], columns: list[str], said: str) -> None:
    with pytest.raises(OptionError) as error:
        stream(tmp_path, columns, **options)
    assert said in str(error.value)


def test_a_table_that_payloads_widen_takes_further_columns(tmp_path: Path) -> None:
    assert stream(tmp_path, [*SILVER.names, "humidity"], table="silver").sink.partition == "day"
