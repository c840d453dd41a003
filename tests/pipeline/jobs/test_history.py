"""Tables are a function of bronze and of the settings, whatever has happened to them before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.decoding import Rules
from headwater.pipeline.jobs import inference, remaking, silver
from headwater.pipeline.jobs.pipeline import PipelineError
from headwater.pipeline.jobs.remaking import can_be_cancelled, forget_plan, make_plan, stored_plan
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import COMPLETENESS, GOLD, INFERRED, LATE, LATEST, QUARANTINE, SILVER, TRAFFIC
from tests.pipeline.jobs.a_lake import (
    DERIVING,
    NOON,
    a_message,
    bring_up_to_date,
    contents,
    land,
    pipeline,
    settings,
    unaccounted,
)
from tests.spark_of_the_process import borrowed

DERIVED = (SILVER, QUARANTINE, GOLD, LATE, LATEST)


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def test_other_windows_are_refused_and_nothing_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, [a_message(position) for position in range(1, 40)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    assert unaccounted(lake) == 0
    land(lake, [a_message(position) for position in range(40, 400)])
    other = settings(deriving={**DERIVING, "window": 600})
    with pytest.raises(PipelineError, match=r"gold .*window = 60.* 600.*headwater pipeline remake gold late"):
        bring_up_to_date(pipeline(spark, lake, other))
    bring_up_to_date(pipeline(spark, lake, settings()))
    assert unaccounted(lake) == 0


def test_other_windows_remake_by_themselves_if_one_wants(spark: SparkSession, tmp_path: Path) -> None:
    lake, other = Lake(tmp_path / "lake"), {**DERIVING, "window": 600, "lateness": 30, "gap": 20.0}
    land(lake, [a_message(position) for position in range(1, 400)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    bring_up_to_date(pipeline(spark, lake, settings(deriving=other, changed_settings="remake")))
    assert unaccounted(lake) == 0
    fresh = Lake(tmp_path / "fresh")
    land(fresh, [a_message(position) for position in range(1, 400)])
    bring_up_to_date(pipeline(spark, fresh, settings(deriving=other)))
    assert contents(lake, GOLD) == contents(fresh, GOLD) != []
    assert contents(lake, LATE) == contents(fresh, LATE)
    land(lake, [a_message(position) for position in range(400, 500)])
    bring_up_to_date(pipeline(spark, lake, settings(deriving=other)))  # it goes on where the new one ends
    assert unaccounted(lake) == 0


INFERRING = [{"filter": "#", "decoder": "json", "mode": "inferred"}]


def test_silver_is_the_same_after_a_remake_whatever_the_steps_were(spark: SparkSession, tmp_path: Path) -> None:
    """A field that is a number first and a text later is a number in small steps, and would be a text in one step."""
    lake, given = Lake(tmp_path), settings(decoding=INFERRING)
    bodies = [b'{"x": 1}', b'{"x": 2, "late": true}', b'{"x": "three"}', b'{"x": 4, "late": "no"}', b"not json"]
    for position, body in enumerate(bodies, 1):
        land(lake, [a_message(position, body)])
        bring_up_to_date(pipeline(spark, lake, given))
    before = {table.name: contents(lake, table) for table in DERIVED}
    assert [row["x"] for row in before["silver"]] == [1.0, 2.0, None, 4.0]
    facts = contents(lake, INFERRED)
    assert [(row["column"], row["type"]) for row in facts] == [("late", "boolean"), ("x", "double")]
    shutil.rmtree(lake.path(INFERRED))  # as in a lake from before they were noted
    inference.adopt(lake, given.rules())
    assert [(row["column"], row["type"]) for row in contents(lake, INFERRED)] == [("late", "boolean"), ("x", "double")]
    bring_up_to_date(pipeline(spark, lake, given, remake=make_plan(["silver"])))
    assert {table.name: contents(lake, table) for table in DERIVED} == before
    shutil.rmtree(lake.path(SILVER))  # thrown away by hand, with what was made of it
    for table in (QUARANTINE, GOLD, LATE, LATEST):
        shutil.rmtree(lake.path(table))
    bring_up_to_date(pipeline(spark, lake, given))
    assert {table.name: contents(lake, table) for table in DERIVED} == before


def test_columns_beyond_the_most_are_the_same_ones_after_a_remake(spark: SparkSession, tmp_path: Path) -> None:
    lake, given = Lake(tmp_path), settings(decoding=INFERRING)
    few = Rules.from_settings(INFERRING, most_columns=3)
    for first in (1, 5):
        rows = [
            a_message(position, json.dumps({f"f{position}": 1, f"g{position}": "x"}).encode())
            for position in range(first, first + 4)
        ]
        land(lake, rows)
        assert silver.step(spark, lake, few, 100) is not None
    before = contents(lake, SILVER)
    assert len(before[0]) == len(SILVER.columns) + 3
    made = pipeline(spark, lake, given, remake=make_plan(["silver"]))
    made.rules = few
    bring_up_to_date(made)
    assert contents(lake, SILVER) == before


def test_a_remake_that_fails_leaves_what_is_there_and_can_be_given_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    land(lake, [a_message(position) for position in range(1, 40)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    before = {table.name: contents(lake, table) for table in DERIVED}

    def fails(*_: Any) -> Any:
        raise ImportError("no module named scales")

    with monkeypatch.context() as patched, pytest.raises(PipelineError, match="silver: no module named scales"):
        patched.setattr(silver, "decoded", fails)
        bring_up_to_date(pipeline(spark, lake, settings(), remake=make_plan(["silver"])))
    assert {table.name: contents(lake, table) for table in DERIVED} == before
    plan = stored_plan(lake)
    assert plan is not None and can_be_cancelled(lake, plan)
    forget_plan(lake)
    land(lake, [a_message(40)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    assert len(contents(lake, SILVER)) == 40


def test_who_is_killed_between_two_tables_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = Lake(tmp_path), settings(decoding=[{"filter": "#", "decoder": "json", "value": "v"}])
    land(lake, [a_message(position, b'{"v": 7}') for position in range(1, 60)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    place, taken = remaking.take_place, []

    def once(log: Any, *more: Any) -> None:
        if taken:
            raise KeyboardInterrupt
        taken.append(log.folder.name)
        place(log, *more)

    monkeypatch.setattr(remaking, "take_place", once)
    with pytest.raises(KeyboardInterrupt):
        bring_up_to_date(pipeline(spark, lake, other, remake=make_plan(["silver"])))
    monkeypatch.setattr(remaking, "take_place", place)
    assert {row["value"] for row in contents(lake, SILVER)} == {7.0}
    assert {row["value"] for row in contents(lake, LATEST)} != {7.0}  # the others have not taken their places yet
    bring_up_to_date(pipeline(spark, lake, other))
    assert {row["value"] for row in contents(lake, LATEST)} == {7.0} == {row["max"] for row in contents(lake, GOLD)}
    assert stored_plan(lake) is None and not (tmp_path / "building").exists()


def test_a_range_of_time_is_made_again_and_the_rest_stays(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody has spoilt the tables; of a range, they are as they should be again."""
    lake, given = Lake(tmp_path), settings()
    land(lake, [a_message(position) for position in range(1, 60)])
    bring_up_to_date(pipeline(spark, lake, given))
    everything = [*DERIVED, COMPLETENESS, TRAFFIC]
    before = {table.name: contents(lake, table) for table in everything}
    for table, column in ((SILVER, "arrival"), (GOLD, "window_start"), (TRAFFIC, "minute"), (COMPLETENESS, "minute")):
        lake.log(table).open().delete(f"{column} >= '2026-01-31 12:02:00Z' and {column} < '2026-01-31 12:05:00Z'")
        assert len(contents(lake, table)) < len(before[table.name])
    plan = make_plan(
        ["silver", "completeness", "operations_traffic"], NOON + timedelta(minutes=1), NOON + timedelta(minutes=6)
    )
    bring_up_to_date(pipeline(spark, lake, given, remake=plan))
    assert {table.name: contents(lake, table) for table in everything} == before
    assert stored_plan(lake) is None
    other = settings(deriving={**DERIVING, "window": 600})
    with pytest.raises(PipelineError, match="gold was made with window = 60"):  # two kinds of windows in one table
        bring_up_to_date(pipeline(spark, lake, other, remake=make_plan(["gold"], NOON, NOON + timedelta(minutes=6))))
