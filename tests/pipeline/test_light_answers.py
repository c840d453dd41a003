"""Questions without Spark: what is asked in Spark's SQL is answered by DuckDB, and nothing but reading is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.lake.dataset import dataset
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.light import Broken, answer
from headwater.pipeline.sql import NeedsSpark, Question, Refused, check_reads
from headwater.pipeline.tables import BRONZE, COMPLETENESS, GOLD, SILVER
from tests.pipeline.derive.rows import NOON, reading
from tests.pipeline.test_provisional import put

DOCUMENT = '{"device": "d1", "battery": {"level": 0.5}, "fw": "1.2"}'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """In a folder with a name that has to be quoted almost everywhere."""
    lake = Lake(tmp_path_factory.mktemp("light") / "a lake+ü=1")
    put(lake, SILVER, [reading(n, NOON + timedelta(seconds=n), n / 2, data=DOCUMENT) for n in (1, 2, 3)])
    put(lake, SILVER, [reading(4, NOON + timedelta(days=1), None, text="on")])
    message = {"store": "one", "topic": "a/b/c", "qos": 1, "retain": False, "publisher": "p", "time": NOON}
    rows = [
        {**message, "position": n, "payload": payload, "arrival": NOON, "day": NOON.date()}
        for n, payload in enumerate(("ä".encode(), b"\xff"), 1)
    ]
    put(lake, BRONZE, rows)
    lake.log(COMPLETENESS)
    return lake


def ask(lake: Lake, sql: str, most: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(lake, Question(sql), most).to_pylist()
    return found


def value(lake: Lake, expression: str, table: str = "silver", where: str = "position = 3") -> Any:
    [row] = ask(lake, f"select {expression} as x from {table} where {where}")
    return row["x"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("time", NOON + timedelta(seconds=3)),
        ("date_trunc('HOUR', time)", NOON),
        ("time - INTERVAL 3 SECONDS", NOON),
        ("time - arrival", timedelta(seconds=-1)),
        ("unix_seconds(time + INTERVAL 900 MILLISECONDS)", int(NOON.timestamp()) + 3),
        ("time > '2026-01-31T12:00:02Z'", True),
        ("day", NOON.date()),
        ("document:device::string", "d1"),
        ("document:battery.level::double", 0.5),
        ("variant_get(parse_json(data), '$.fw', 'string')", "1.2"),
        ("try_variant_get(parse_json(data), '$.device', 'double')", None),
        ("split(topic, '/')[1]", "7"),
        ("regexp_replace('a1b22', '[0-9]+', 'N')", "aNbN"),
        ("cast(value as int)", 1),
        ("cast(-1.9 as int)", -1),
        ("7 / 2", 3.5),
        ("try_divide(1, 0)", None),
        ("text <=> NULL", True),
        ("length(topic)", len("plant/7/heat")),
    ],
)
def test_an_expression_means_what_it_means_in_spark(lake: Lake, expression: str, expected: Any) -> None:
    assert value(lake, expression) == expected


def test_bytes_are_text_if_they_are(lake: Lake) -> None:
    assert value(lake, "cast(payload as string)", "bronze", "position = 1") == "ä"
    assert value(lake, "length(payload)", "bronze", "position = 1") == 2
    assert value(lake, "payload", "bronze", "position = 2") == b"\xff"


def test_aggregates(lake: Lake) -> None:
    [row] = ask(
        lake,
        "select count(*) n, count(distinct store, position) p, sum(position) s, percentile(value, 0.5) m, "
        "percentile(value, 0.25) q, cast(avg(position) as int) a from silver",
    )
    assert row == {"n": 4, "p": 4, "s": 10, "m": 1.0, "q": 0.75, "a": 2}
    assert isinstance(row["s"], int)


def test_nulls_come_first_as_in_spark(lake: Lake) -> None:
    assert [row["value"] for row in ask(lake, "select value from silver order by value")] == [None, 0.5, 1.0, 1.5]


def test_so_many_rows(lake: Lake) -> None:
    assert len(ask(lake, "select * from silver order by position", 2)) == 2


def test_filters_on_columns_without_bounds_find_rows(lake: Lake) -> None:
    """deltalake's own dataset finds none: the log has bounds of some columns only."""
    assert value(lake, "count(*)", where="clock = 'ok' and topic = 'plant/7/heat'") == 4
    assert value(lake, "count(*)", where="metric like 'he%'") == 4


def test_files_are_skipped_by_their_bounds(lake: Lake) -> None:
    rows = dataset(lake.log(SILVER))
    import pyarrow.dataset as ds

    late = ds.field("arrival") > pa.scalar(datetime(2026, 2, 1, 1, tzinfo=UTC))
    assert len(list(rows.get_fragments())) == 2
    assert len(list(rows.get_fragments(filter=late))) == 1


def test_a_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(lake, SILVER, [reading(1, NOON, 1.0)])
    log = lake.log(SILVER)
    later = pa.RecordBatch.from_pylist([{**reading(2, NOON, 2.0), "battery": 0.9}])
    schema = pa.schema([*dataset(log).schema, pa.field("battery", pa.float64())])
    full = pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in later.to_pylist()], schema
    )
    log.commit(write_files([full], str(log.folder), "day"), {})
    assert [row["battery"] for row in ask(lake, "select battery from silver order by position")] == [None, 0.9]


def test_an_empty_table(lake: Lake) -> None:
    assert ask(lake, "select * from completeness where lost > 0") == []


def test_what_there_is(lake: Lake) -> None:
    assert {row["name"] for row in ask(lake, "show tables")} >= {"silver", "bronze", "completeness"}
    assert "window_start" not in str(ask(lake, "describe silver"))


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "delete from gold",
        "DELETE FROM gold WHERE mean > 3",
        "insert into gold select * from gold",
        "with x as (select 1) insert into gold select * from x",
        "update gold set mean = 1",
        "merge into gold using silver on true when matched then delete",
        "drop table gold",
        "create table x as select 1",
        "truncate table gold",
        "alter table gold add column x int",
        "vacuum gold",
        "set x = 1",
        "copy gold to 'x'",
    ],
)
def test_only_reading_is_done(sql: str) -> None:
    with pytest.raises(Refused, match="this only reads"):
        Question(sql)
    with pytest.raises(Refused, match="this only reads"):
        check_reads(sql)


def test_one_statement_at_a_time() -> None:
    with pytest.raises(Refused, match="one statement at a time"):
        Question("select 1; drop table gold")
    with pytest.raises(Refused, match="no question"):
        Question(" -- nothing\n")


def test_words_that_only_spark_knows_are_left_to_it() -> None:
    with pytest.raises(Refused):
        Question("select stream of something that has no grammar at all (")
    assert check_reads("select stream of something that has no grammar at all (") is None
    with pytest.raises(Refused):
        check_reads("selec 1")


@pytest.mark.parametrize("sql", ["select window(time, '10 minutes') from silver", "select stack(2, 1, 2)"])
def test_what_needs_spark_is_said(lake: Lake, sql: str) -> None:
    with pytest.raises(NeedsSpark):
        ask(lake, sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select * from brass", "there is no table brass. There are bronze, silver, completeness"),
        ("select nix from bronze", '"nix" not found'),
        ("select 1 / 0", "division by zero"),
        ("select value / (position - position) from silver", "division by zero"),
    ],
)
def test_what_is_wrong_is_one_sentence(lake: Lake, sql: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        ask(lake, sql)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("sql", ["select * from read_csv('/etc/passwd')", "select * from read_text('/etc/hostname')"])
def test_it_reads_nothing_but_tables(lake: Lake, sql: str) -> None:
    with pytest.raises(Refused):
        ask(lake, sql)


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(lake, SILVER, [reading(1, NOON, 1.0)])
    lake.log(GOLD)
    for file in lake.path(SILVER).glob("*/*.parquet"):
        file.unlink()
    with pytest.raises(Broken):
        ask(lake, "select count(value) from silver")
    assert ask(lake, "select count(*) n from gold") == [{"n": 0}]
