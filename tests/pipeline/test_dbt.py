"""The example project of dbt: its models are what the tables say, and its contract finds what breaks it."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from headwater.pipeline.java import QUICK_JAVA
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BY_NAME, COMPLETENESS, GOLD
from tests.pipeline.jobs.a_lake import a_message, bring_up_to_date, contents, land, pipeline, settings
from tests.pipeline.test_provisional import put
from tests.spark_of_the_process import borrowed

PROJECT = Path(__file__).parent.parent.parent / "examples" / "dbt"
DAY = 24 * 3600
PATIENCE = 400.0
Invoke = Callable[..., Any]


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        session.sql(f"CREATE DATABASE analytics LOCATION '{tmp_path_factory.mktemp('analytics')}'")
        try:
            yield session
        finally:
            session.sql("DROP DATABASE analytics CASCADE")
            for table in session.catalog.listTables("global_temp"):
                session.catalog.dropGlobalTempView(table.name)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(PROJECT / "run.py"))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Seven minutes of three devices, as the pipeline made it."""
    lake = Lake(tmp_path_factory.mktemp("dbt") / "lake")
    land(lake, [a_message(number) for number in range(1, 40)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    return lake


@pytest.fixture(scope="module")
def invoke(spark: SparkSession, example: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Invoke]:
    """A command of dbt over a lake as it is now: the names of what did not end well."""
    from dbt.cli.main import dbtRunner

    made = tmp_path_factory.mktemp("made")
    before = dict(os.environ)
    os.environ["DBT_LOG_LEVEL_FILE"] = "none"  # dbt never closes its log

    def invoke(lake: Lake, *words: str) -> set[str]:
        example["show_tables"](spark, lake)
        failed: set[str] = set()

        def hear(event: Any) -> None:
            if event.info.name == "LogTestResult" and event.data.status != "pass":
                failed.add(event.data.name)
            elif event.info.name == "LogFreshnessResult" and event.data.status != "pass":
                failed.add(event.data.table_name)

        done = example["run_dbt"](list(words), made, dbtRunner(callbacks=[hear]))
        assert done or failed, "dbt failed, and no test did"
        return failed

    try:
        yield invoke
    finally:
        os.environ.clear()
        os.environ.update(before)


def hours(lake: Lake) -> list[tuple[Any, ...]]:
    """By device, metric and hour, from the rows of gold: readings, lowest and highest."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in contents(lake, GOLD):
        hour = row["window_start"].replace(minute=0, second=0, microsecond=0)
        found.setdefault((row["device"], row["metric"], hour.replace(tzinfo=None)), []).append(row)
    return sorted(
        (*key, sum(row["count"] for row in rows), min(row["min"] for row in rows), max(row["max"] for row in rows))
        for key, rows in found.items()
    )


def asked(spark: SparkSession, sql: str) -> list[tuple[Any, ...]]:
    rows = spark.sql(sql).toArrow().to_pylist()
    plain = lambda each: each.replace(tzinfo=None) if isinstance(each, datetime) else each  # noqa: E731
    return sorted(tuple(map(plain, row.values())) for row in rows)


HOURS = "select device, metric, hour, readings, lowest, highest from analytics.hours"


def test_what_the_pipeline_makes_keeps_the_contract_and_models_are_what_it_says(
    spark: SparkSession, lake: Lake, invoke: Invoke
) -> None:
    assert invoke(lake, "build") == set()
    assert asked(spark, HOURS) == hours(lake) != []
    made = sum(row["made"] for row in contents(lake, COMPLETENESS))  # in minutes that are over
    assert asked(spark, "select sum(made), sum(lost) from analytics.delivery") == [(made, 0)] != [(0, 0)]
    assert len(asked(spark, "select * from analytics.devices")) == 3

    land(lake, [a_message(number, second=DAY + 10 * number) for number in range(40, 70)])
    bring_up_to_date(pipeline(spark, lake, settings()))
    before = asked(spark, HOURS)
    assert invoke(lake, "run") == set()
    assert asked(spark, HOURS) == hours(lake) != before


def test_the_contract_finds_what_breaks_it(spark: SparkSession, lake: Lake, invoke: Invoke, tmp_path: Path) -> None:
    broken = Lake(shutil.copytree(lake.folder, tmp_path / "broken"))
    again = contents(broken, GOLD)[0]
    put(broken, GOLD, [again])
    minute = max(contents(broken, COMPLETENESS), key=lambda row: row["minute"])
    put(broken, COMPLETENESS, [{**minute, "minute": minute["minute"] + timedelta(hours=5), "lost": 1}])
    assert invoke(broken, "test", "--select", "source:*") == {
        "nothing_lost",
        "source_unique_key_lake_gold_window_start__topic__device__metric",
    }
    assert invoke(broken, "source", "freshness") == {"silver", "completeness"}


def test_the_contract_is_what_the_tables_declare() -> None:
    given = yaml.safe_load((PROJECT / "models" / "sources.yml").read_text(encoding="utf-8"))
    [source] = given["sources"]
    assert [table["name"] for table in source["tables"]] == ["silver", "gold", "latest", "completeness"]
    for table in source["tables"]:
        declared = BY_NAME[table["name"]]
        assert [(each["name"], each["data_type"]) for each in table["columns"]] == [
            (each.name, each.type) for each in declared.columns
        ]
        [unique] = [each["unique_key"] for each in table["data_tests"] if isinstance(each, dict)]
        assert unique["arguments"]["columns"] == list(declared.keys)
        known = {each.name for each in declared.columns if not each.nullable}
        assert {each["name"] for each in table["columns"] if "data_tests" in each} <= known


def test_as_a_reader_runs_it(lake: Lake, tmp_path: Path) -> None:
    words = [sys.executable, str(PROJECT / "run.py"), str(lake.folder), "run", "--select", "delivery"]
    path = os.environ.get("PYTHONPATH", "src").split(os.pathsep)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, path)),
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
    }
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR=0" in done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["headwater-dbt"]
    assert (tmp_path / "headwater-dbt" / "warehouse" / "analytics.db" / "delivery").is_dir()
