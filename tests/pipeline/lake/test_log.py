"""Commits of tables: all or nothing, with notes, and readable by those who know Delta only."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from headwater.pipeline.lake.log import NAMES, LakeError, Log
from headwater.pipeline.lake.types import ARROW, arrow_schema, ddl_of
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import BRONZE, TABLES, Table
from tests.pipeline.lake.some_rows import DAY, contents, messages, names, parquet_files, rows, span, written

JOB = "job"
CHECKPOINT_EVERY = UpkeepSettings().checkpoint_every


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Of a table with positions only."""
    found = Log(tmp_path / "table")
    found.create(rows("s", 1, 1).schema)
    return found


def add(log: Log, store: str, first: int, last: int) -> int:
    return log.commit(written(log.folder, rows(store, first, last)), {}, job=JOB, positions={store: last})


# ---- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_declared_table_is_what_others_see(tmp_path: Path, table: Table) -> None:
    Log.of(tmp_path, table)
    Log.of(tmp_path, table)  # nothing, as it is there
    found = DeltaTable(str(tmp_path))
    assert found.version() == 0
    assert found.metadata().name == table.name and found.metadata().description == table.doc
    assert found.metadata().partition_columns == ([] if table.partition is None else [table.partition])
    schema = pa.schema(found.schema().to_arrow())
    assert {each.name: (each.type, each.nullable) for each in schema} == {
        each.name: (ARROW[each.type], each.nullable) for each in table.columns
    }


def found_by_others(folder: Path) -> dict[str, int]:
    """How many rows of bronze deltalake finds by conditions that some of them, or all, fulfil."""
    rows = DeltaTable(str(folder)).to_pyarrow_dataset()
    conditions = {
        "bounded": ds.field("position") == 4,
        "text": ds.field("topic") == "a/1",
        "flag": ds.field("retain") == pa.scalar(False),
        "nothing": ds.field("value").is_null(),
        "day": ds.field("day") == pa.scalar(DAY),
    }
    return {name: rows.to_table(filter=each).num_rows for name, each in conditions.items()}


def test_readers_that_filter_find_rows_by_columns_without_bounds(tmp_path: Path) -> None:
    log = Log.of(tmp_path, BRONZE)
    log.commit(written(tmp_path, messages("s", 1, 6), partition="day"), {})
    assert found_by_others(tmp_path) == {"bounded": 1, "text": 2, "flag": 6, "nothing": 6, "day": 6}


def test_a_table_that_does_not_say_which_columns_have_bounds_is_told_to(tmp_path: Path) -> None:
    """As tables of older versions are."""
    DeltaTable.create(str(tmp_path), arrow_schema(BRONZE), partition_by=["day"])
    log = Log(tmp_path, "day")
    log.commit(written(tmp_path, messages("s", 1, 6), partition="day"), {})
    log.configure()
    assert found_by_others(tmp_path) == {"bounded": 1, "text": 2, "flag": 6, "nothing": 6, "day": 6}
    assert log.look().files.column("max.position").to_pylist() == [6]


def test_a_table_without_any_bounds_is_found_by_filters(tmp_path: Path) -> None:
    log = Log(tmp_path / "table")
    batch = pa.RecordBatch.from_pydict({"name": ["a", "b"], "number": [1.0, None]})
    log.create(batch.schema)
    log.commit(written(log.folder, batch), {})
    rows = DeltaTable(str(log.folder)).to_pyarrow_dataset()
    assert rows.to_table(filter=ds.field("name") == "b").to_pylist() == [{"name": "b", "number": None}]


def test_messages_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = Log.of(tmp_path, BRONZE)
    later = messages("s2", 1, 2).column("day")[0].as_py() + timedelta(days=1)
    batches = [messages("s1", 1, 5), messages("s2", 1, 2, later)]
    log.commit(written(tmp_path, *batches, partition="day"), {})
    expected = [row for batch in batches for row in batch.to_pylist()]
    assert contents(tmp_path) == expected
    found = log.open().get_add_actions(flatten=True)
    assert sum(found.column("num_records").to_pylist()) == 7
    assert pa.schema(log.open().schema().to_arrow()).names == list(BRONZE.names)


def test_bounds_let_others_skip_files_and_never_rows(tmp_path: Path) -> None:
    """Delta has milliseconds, rows have microseconds."""
    log = Log.of(tmp_path, BRONZE)
    batch = messages("s", 1, 3)
    index = batch.schema.get_field_index("time")
    moments = [each + timedelta(microseconds=1) for each in batch.column("time").to_pylist()]
    batch = batch.set_column(index, batch.schema.field("time"), pa.array(moments, pa.timestamp("us", "UTC")))
    log.commit(written(tmp_path, batch, partition="day"), {})
    for moment in moments:
        found = DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("time", "=", moment)])
        assert found.column("time").to_pylist() == [moment]
    assert DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("position", ">", 3)]).num_rows == 0


def test_rows_without_a_value_are_found(tmp_path: Path) -> None:
    times = pa.array([None, None], pa.timestamp("us", "UTC"))
    log = Log(tmp_path)
    files = written(tmp_path, pa.RecordBatch.from_pydict({"x": [1, 2], "time": times}))
    log.create(files[0].arrow_schema())
    log.commit(files, {})
    found = log.open().get_add_actions(flatten=True)
    assert found.column("null_count.time").to_pylist() == [2]


def test_there_is_no_table(tmp_path: Path) -> None:
    log = Log(tmp_path / "none")
    assert not log.exists()
    with pytest.raises(LakeError, match="there is no table in"):
        log.commit([], {"a": 1})


def test_what_tables_have_can_be_said_to_spark() -> None:
    assert ddl_of(pa.schema([("a", pa.int64()), ("b c", pa.timestamp("us", "UTC"))])) == "`a` bigint, `b c` timestamp"
    with pytest.raises(ValueError, match="the column a is of type float, which no table"):
        ddl_of(pa.schema([("a", pa.float32())]))
    for table in TABLES:
        assert ddl_of(arrow_schema(table)).replace("`", "").split(", ") == [
            f"{each.name} {each.type}" for each in table.columns
        ]


# ---- commits and notes ---------------------------------------------------------------------------------------------


def test_a_commit_has_files_notes_and_positions(log: Log) -> None:
    assert log.positions(JOB) == {} and log.batch("query") is None and log.stores() == []
    version = log.commit(
        written(log.folder, rows("s1", 1, 5), rows("s2", 1, 2, x=1)),
        {"query": 7},
        job=JOB,
        positions={"s1": 5, "s2": 2},
    )
    assert version == log.open().version()
    assert log.positions(JOB) == {"s1": 5, "s2": 2} and log.batch("query") == 7
    assert log.positions("another") == {}
    assert names(log.folder) == span("s1", 1, 5) + span("s2", 1, 2)
    assert sorted(log.paths()) == parquet_files(log.folder)


def test_notes_alone_are_a_commit_and_nothing_is_none(log: Log) -> None:
    before = log.open().version()
    assert log.commit([], {}) == before
    assert log.commit([], {"query": 3}) == before + 1
    assert log.commit([], {}, job=JOB, positions={"s": 9}) == before + 2
    assert (log.batch("query"), log.positions(JOB), log.paths()) == (3, {"s": 9}, [])


def test_files_that_no_commit_names_are_not_in_the_table(log: Log) -> None:
    add(log, "s", 1, 2)
    written(log.folder, rows("s", 3, 4))
    assert names(log.folder) == span("s", 1, 2)


def test_replaced_files_are_not_in_the_table(log: Log) -> None:
    add(log, "s", 1, 2)
    add(log, "s", 3, 4)
    old = log.paths()
    log.commit(written(log.folder, rows("s", 1, 4)), {}, replaced=old)
    assert names(log.folder) == span("s", 1, 4) and len(log.paths()) == 1
    assert log.positions(JOB) == {"s": 4}


def test_what_was_replaced_already_is_not_replaced_again(log: Log) -> None:
    """Or its rows would be there twice."""
    add(log, "s", 1, 4)
    old = log.paths()
    log.commit(written(log.folder, rows("s", 1, 4)), {}, replaced=old)
    with pytest.raises(LakeError, match=r"somebody else has replaced files .*1 of 1"):
        log.commit(written(log.folder, rows("s", 1, 4)), {}, replaced=old)
    assert names(log.folder) == span("s", 1, 4)


def test_replaced_files_of_days(tmp_path: Path) -> None:
    log = Log.of(tmp_path, BRONZE)
    log.commit(written(tmp_path, messages("s", 1, 2), partition="day"), {})
    log.commit(written(tmp_path, messages("s", 1, 3), partition="day"), {}, replaced=log.paths())
    assert names(tmp_path) == span("s", 1, 3)
    removed = log.open().vacuum(0, dry_run=True, enforce_retention_duration=False)
    assert len(removed) == 1


def test_checkpoints_keep_notes_and_names(log: Log) -> None:
    for position in range(1, CHECKPOINT_EVERY + 6):
        log.commit([], {"query": position}, job=JOB, positions={f"s{position % 3}": position})
    assert list((log.folder / "_delta_log").glob("*.checkpoint.parquet"))
    opened = log.open()
    opened.cleanup_metadata()
    for old in sorted((log.folder / "_delta_log").glob("*.json"))[: CHECKPOINT_EVERY - 5]:
        old.unlink()  # as others do after a month
    for each in (log, Log(log.folder)):
        assert each.positions(JOB) == {"s0": 24, "s1": 25, "s2": 23}
        assert each.batch("query") == 25


def test_names_of_stores_survive_those_who_write_at_the_same_time_and_torn_lines(log: Log) -> None:
    other = Log(log.folder)
    add(log, "s1", 1, 1)
    with (log.folder / NAMES).open("a") as file:
        file.write("s2-was-cut-o")
    add(other, "s 3", 1, 1)
    add(log, "s2", 1, 1)
    assert log.positions(JOB) == other.positions(JOB) == {"s1": 1, "s 3": 1, "s2": 1}


def test_tidying_leaves_the_names_of_stores(log: Log) -> None:
    add(log, "s1", 1, 1)
    stray = written(log.folder, rows("s", 3, 4))[0]
    log.open().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not (log.folder / stray.path).exists()
    assert log.positions(JOB) == {"s1": 1} and names(log.folder) == [("s1", 1)]


# ---- held tables ---------------------------------------------------------------------------------------------------


def test_a_view_does_not_change_while_the_table_does(log: Log) -> None:
    """Files of one version and positions of another would lose rows."""
    add(log, "s", 1, 2)
    view = log.look()
    assert log.look() is view
    add(log, "s", 3, 4)
    add(Log(log.folder), "s", 5, 6)  # of another process
    assert (view.positions(JOB), len(view.paths())) == ({"s": 2}, 1)
    now = log.look()
    assert (now.positions(JOB), len(now.paths()), now.version) == ({"s": 6}, 3, 3)


def test_a_table_that_was_made_anew_is_not_taken_for_the_one_before(log: Log) -> None:
    for position in range(1, 4):
        add(log, "s", position, position)
    shutil.rmtree(log.folder)
    assert not log.exists()
    other = Log(log.folder)
    other.create(rows("s", 1, 1).schema)
    add(other, "t", 1, 9)
    assert log.positions(JOB) == {"t": 9} and len(log.paths()) == 1
    add(log, "t", 10, 11)
    assert names(log.folder) == span("t", 1, 11)


def test_a_held_table_follows_when_commits_it_has_not_read_are_gone(log: Log) -> None:
    add(log, "s", 1, 1)
    other = Log(log.folder)
    for position in range(2, 2 * CHECKPOINT_EVERY):
        add(other, "s", position, position)
    for old in sorted((log.folder / "_delta_log").glob("*.json"))[:CHECKPOINT_EVERY]:
        old.unlink()
    assert log.positions(JOB) == {"s": 2 * CHECKPOINT_EVERY - 1}
    assert len(log.paths()) == 2 * CHECKPOINT_EVERY - 1


def test_properties_of_a_table_that_is_there_are_changed_once(log: Log) -> None:
    other = Log(log.folder, properties=UpkeepSettings(keep_log=7200.0).properties())
    other.configure()
    assert DeltaTable(str(log.folder)).metadata().configuration["delta.logRetentionDuration"] == "interval 7200 seconds"
    version = other.look().version
    other.configure()
    assert other.look().version == version


# ---- schemas -------------------------------------------------------------------------------------------------------


def test_columns_that_files_bring_are_added(log: Log) -> None:
    add(log, "s", 1, 1)
    log.commit(written(log.folder, rows("s", 2, 2, x=1.5), rows("s", 3, 3, y="text")), {})
    assert contents(log.folder) == [
        {"store": "s", "position": 1, "x": None, "y": None},
        {"store": "s", "position": 2, "x": 1.5, "y": None},
        {"store": "s", "position": 3, "x": None, "y": "text"},
    ]
    add(log, "s", 4, 4)  # and one without them


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([rows("s", 2, 2, x="text")], "the column x is .*double.* in the table, and .*string.* in what is to be added"),
        ([rows("s", 2, 2, y=1), rows("s", 3, 3, y="text")], "the column y is .*long.*and .*string"),
        ([rows("s", 2, 2, X=1.0)], "has a column x, and X is to be added"),
        ([rows("s", 2, 2, y=1), rows("s", 3, 3, Y=1)], "has a column y, and Y is to be added"),
    ],
)
def test_columns_that_do_not_fit_are_an_error_and_change_nothing(
    log: Log, others: list[pa.RecordBatch], said: str
) -> None:
    log.commit(written(log.folder, rows("s", 1, 1, x=1.5)), {})
    before = log.open().version()
    with pytest.raises(LakeError, match=said):
        log.commit(written(log.folder, *others), {"query": 1})
    assert log.open().version() == before and log.batch("query") is None
    assert names(log.folder) == [("s", 1)]
