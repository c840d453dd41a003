"""Several definitions of windows, each in tables of its own, and windows that are open, in a table for any reader."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.moments import moment
from headwater.pipeline.jobs import erasing
from headwater.pipeline.jobs.erasing import Wanted
from headwater.pipeline.jobs.open_windows import OpenWindows
from headwater.pipeline.jobs.pipeline import PipelineError
from headwater.pipeline.jobs.remaking import make_plan
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import GOLD, LATE, OPEN, SILVER, Table, gold_of, late_of
from tests.pipeline.jobs.a_lake import (
    DERIVING,
    NOON,
    a_message,
    bring_up_to_date,
    contents,
    land,
    pipeline,
    settings,
)
from tests.spark_of_the_process import borrowed

QUARTER, SHORT = gold_of("quarter"), gold_of("short")
WINDOWS = [{"name": "quarter", "window": 900, "lateness": 60}, {"name": "short", "window": 20, "gap": 5.0}]


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def messages(first: int, last: int) -> list[dict[str, Any]]:
    """Each seventh arrives a minute after its time."""
    found = [a_message(each) for each in range(first, last + 1)]
    return [{**row, "time": row["time"] - timedelta(seconds=60 * (row["position"] % 7 == 0))} for row in found]


def anew(spark: SparkSession, lake: Lake, table: Table, given: Settings, name: str) -> list[dict[str, Any]]:
    """What a table has to be, made in one piece of all of silver."""
    until = moment(lake.snapshot(table).note("until") or 0)
    derive = late if table.name.startswith("late") else gold
    rows = derive(lake.snapshot(SILVER).read(spark), NOON - timedelta(days=1), until, given.definitions()[name])
    found = [row.asDict() for row in rows.collect()]
    return sorted(found, key=lambda row: [str(row[each]) for each in table.keys])


def rows_of(lake: Lake, table: Table) -> list[dict[str, Any]]:
    return contents(lake, table)


def same(spark: SparkSession, lake: Lake, given: Settings) -> None:
    for name in given.definitions():
        for table in (gold_of(name), late_of(name)):
            expected = anew(spark, lake, table, given, name)
            names = table.keys
            there = rows_of(lake, table)
            assert [
                [row[each] for each in names if row[each] is None or isinstance(row[each], str)] for row in there
            ] == [
                [row[each] for each in names if row[each] is None or isinstance(row[each], str)] for row in expected
            ], table.name
            numbers = [each for each in table.names if isinstance((expected or [{}])[0].get(each), int | float)]
            assert [[row[each] for each in numbers] for row in there] == [
                [row[each] for each in numbers] for row in expected
            ], table.name


def test_each_definition_has_tables_of_its_own_whatever_the_steps_were(spark: SparkSession, tmp_path: Path) -> None:
    lake, given = Lake(tmp_path), settings(windows=WINDOWS)
    for first, last in ((1, 50), (51, 55), (56, 260)):
        land(lake, messages(first, last))
        bring_up_to_date(pipeline(spark, lake, given))
    same(spark, lake, given)
    assert {row["window_end"] - row["window_start"] for row in contents(lake, QUARTER)} == {timedelta(minutes=15)}
    assert len(contents(lake, SHORT)) > len(contents(lake, GOLD)) > len(contents(lake, QUARTER)) > 0
    assert contents(lake, late_of("short")) and contents(lake, LATE)
    assert {table.name for table in lake.tables()} >= {"gold_quarter", "late_quarter", "gold_short", "late_short"}
    other = settings(windows=[{**WINDOWS[0], "lateness": 0}, WINDOWS[1]])
    with pytest.raises(
        PipelineError, match=r"gold_quarter was made with lateness = 60.*remake gold_quarter late_quarter"
    ):
        bring_up_to_date(pipeline(spark, lake, other))
    before = contents(lake, GOLD), contents(lake, SHORT)
    bring_up_to_date(pipeline(spark, lake, other, remake=make_plan(["gold_quarter", "late_quarter"])))
    same(spark, lake, other)
    assert (contents(lake, GOLD), contents(lake, SHORT)) == before
    bring_up_to_date(pipeline(spark, lake, other, remake=make_plan(["silver"])))
    same(spark, lake, other)
    lake.log(SHORT).open().delete("window_start < '2026-01-31 12:10:00Z'")
    plan = make_plan(["gold_short"], NOON, NOON + timedelta(minutes=12))
    bring_up_to_date(pipeline(spark, lake, other, remake=plan))
    same(spark, lake, other)
    wanted = Wanted(("plant/1",))
    erasing.erase(spark, lake, other, wanted, erasing.find(spark, lake, wanted), "on request")
    same(spark, lake, other)
    assert all(row["topic"] != "plant/1" for table in (SHORT, QUARTER, OPEN) for row in contents(lake, table))


def test_open_windows_are_a_table_that_any_reader_sees(spark: SparkSession, tmp_path: Path) -> None:
    lake, given = Lake(tmp_path), settings(windows=WINDOWS[:1])
    land(lake, messages(1, 30))
    bring_up_to_date(pipeline(spark, lake, given))
    first = contents(lake, OPEN)
    check_open(lake, first)
    assert {row["windows"] for row in first} == {"gold", "gold_quarter"}
    land(lake, messages(31, 33))
    bring_up_to_date(pipeline(spark, lake, given))
    second = contents(lake, OPEN)
    check_open(lake, second)
    assert second != first
    now = lake.snapshot(OPEN).version
    bring_up_to_date(pipeline(spark, lake, given))
    assert contents(lake, OPEN) == second
    assert lake.snapshot(OPEN).version <= now + 1  # a process that begins does not know that it is up to date
    land(lake, messages(34, 40))
    bring_up_to_date(pipeline(spark, lake, settings(windows=WINDOWS[:1], provisional=0)))
    assert contents(lake, OPEN) == second


def check_open(lake: Lake, rows: list[dict[str, Any]]) -> None:
    """They begin where the table of their definition ends; with it, they have all readings."""
    assert not any(row["final"] for row in rows)
    newest = max(row["arrival"] for row in contents(lake, SILVER))
    assert {row["seen"] for row in rows} == {newest}
    for table in (GOLD, QUARTER):
        until = moment(lake.snapshot(table).note("until") or 0)
        mine = [row for row in rows if row["windows"] == table.name]
        assert mine and all(row["window_start"] >= until for row in mine)
        tables = {GOLD: LATE, QUARTER: late_of("quarter")}
        final = sum(row["count"] for row in contents(lake, table)) + sum(row["count"] for row in mine)
        too_late = sum(row["behind"] + row["ahead"] for row in contents(lake, tables[table]))
        assert len(contents(lake, SILVER)) - 7 <= final + too_late <= len(contents(lake, SILVER))


def test_it_is_written_no_more_often_than_is_said_and_rests_for_what_it_took(tmp_path: Path) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    lake = Lake(tmp_path)
    lake.log(SILVER).commit([], {"silver/a": 1})
    made = OpenWindows(lake, 2.0, clock)
    assert made.is_due
    assert made.step(settings().definitions()) is None  # none is open
    took_until = now[0]
    assert not made.is_due
    while not made.is_due:
        pass
    assert now[0] >= took_until + 4.0
    assert not OpenWindows(lake, 0.0, clock).is_due


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([{"window": 60}], "windows 1: name is None"),
        ([{"name": "Hour"}], "windows 1: name is 'Hour'; it has to be small letters"),
        ([{"name": "rules"}], "another one than rules, quarantine, open"),
        ([{"name": "a"}, {"name": "a"}], "windows 2: another definition has the name a"),
        ([{"name": "a", "windw": 60}], "unknown setting 'windw' of windows; did you mean 'window'"),
        ([{"name": "a", "clock_ahead": 60}], "unknown setting 'clock_ahead' of windows"),
        ([{"name": "a", "window": 7}], "windows 1: window is 7; it has to be seconds that divide a day"),
        ([{"name": f"w{n}"} for n in range(21)], "21 definitions of windows; there may be 20"),
        ({"name": "a"}, "windows is a list of tables"),
    ],
)
def test_a_definition_that_cannot_be_is_named(windows: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings(windows=windows)


def test_what_is_not_said_is_as_in_deriving() -> None:
    found = settings(windows=WINDOWS).definitions()
    assert list(found) == ["", "quarter", "short"]
    assert (found["short"].window, found["short"].lateness, found["short"].gap) == (20, DERIVING["lateness"], 5.0)
