"""The queries of docs/pipeline-answers.md run, and answer, over the tables of a fleet's day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.decoding import Rules, decode
from headwater.pipeline.derive.completeness import completeness
from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.latest import latest
from headwater.pipeline.derive.moments import moment
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.light import answer as duckdb_answer
from headwater.pipeline.sql import Question
from headwater.pipeline.tables import BY_NAME
from headwater.pipeline.views import answer as spark_answer
from headwater_lab.fleet_day import START, Plan, batches

PAGE = Path(__file__).parents[3] / "docs" / "pipeline-answers.md"
QUERIES = dict(re.findall(r"^(\d+)\. .*?```sql\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
PLAN = Plan(devices=60, seconds=5400, silent=0.3, wrong_clocks=0.1, spikes=0.01, broken=0.02, huge=0.0, repeated=0.02)
DAY = (moment(START), moment(START) + timedelta(hours=5))
EVER = (moment(0), moment(1 << 52))
NOTHING = {"11"}
"""Queries that find nothing if all is well."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same tables, for the engine that needs no Spark."""
    return Lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, files: Lake) -> Iterator[SparkSession]:
    day = list(batches(PLAN))
    rules = Rules.from_settings([{"filter": "fleet/#", "decoder": "json", "device": "{3}"}])
    decoded = [decode(batch, rules) for batch in day]
    bronze = spark.createDataFrame(pa.Table.from_batches(day))
    silver = spark.createDataFrame(pa.Table.from_batches([each.readings for each in decoded]))
    live = bronze.where("position % 5 <> 0").selectExpr("store", "position", "topic", "arrival AS received", "day")
    tables = {
        "bronze": bronze,
        "silver": silver,
        "quarantine": spark.createDataFrame(pa.Table.from_batches([each.quarantined for each in decoded])),
        "live": live,
        "gold": gold(silver, *EVER, Settings()),
        "late": late(silver, *DAY, Settings()),
        "latest": latest(silver),
        "completeness": completeness(bronze, live, {"store-00": 0, "store-01": 0}, *DAY),
        "operations_traffic": traffic(bronze, *DAY),
    }
    for name, table in tables.items():
        # As rows and no longer as what they are derived by, which would be computed again by each query.
        rows = table.toArrow()
        spark.createDataFrame(rows).createOrReplaceTempView(name)
        log = files.log(BY_NAME[name])
        batches_ = rows.select(BY_NAME[name].names).cast(arrow_schema(BY_NAME[name])).combine_chunks().to_batches()
        log.commit(write_files(batches_, str(log.folder), BY_NAME[name].partition), {})
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than these few rows
    yield spark


def asked(lake: SparkSession, query: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.sql(query).collect()]


@pytest.fixture(scope="module")
def answers(lake: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Of Spark, to each query; all of them, as which of equal rows are the first is anybody's choice."""
    return {number: spark_answer(lake, without_limit(query)).to_pylist() for number, query in QUERIES.items()}


def without_limit(query: str) -> str:
    return re.sub(r"LIMIT \d+\s*$", "", query)


def test_each_query_runs_and_answers(answers: dict[str, list[dict[str, Any]]]) -> None:
    assert [int(number) for number in QUERIES] == list(range(1, 17))
    assert {number for number, rows in answers.items() if not rows} == NOTHING


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Of equally short payloads (query 10), which is taken is anybody's choice, too."""
    return sorted(str({name: _rounded(row[name]) for name in row if name != "shortest"}) for row in rows)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}") + 0.0
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


@pytest.mark.parametrize("number", QUERIES)
def test_duckdb_answers_as_spark_does(answers: dict[str, list[dict[str, Any]]], files: Lake, number: str) -> None:
    found = duckdb_answer(files, Question(without_limit(QUERIES[number]))).to_pylist()
    assert comparable(found) == comparable(answers[number])


def test_every_reading_is_in_gold_or_late(lake: SparkSession) -> None:
    (row,) = asked(lake, QUERIES["13"])
    assert row["readings"] == row["in_windows"] + row["too_late"] + row["ahead"]
    assert min(row.values()) > 0


def test_wrong_clocks_are_found_with_how_wrong_they_are(lake: SparkSession) -> None:
    found = {row["clock"]: row["seconds_ahead"] for row in asked(lake, QUERIES["8"])}
    assert set(found) == {"ok", "ahead", "behind"}
    assert found["ok"] == pytest.approx(-5 * 3600, abs=3600)


def test_windows_that_are_missing_are_not_there(lake: SparkSession) -> None:
    there = {(row["topic"], row["window_start"]) for row in asked(lake, "SELECT topic, window_start FROM gold")}
    missing = {(row["topic"], row["window_start"]) for row in asked(lake, QUERIES["7"])}
    assert missing
    assert not missing & there
