"""`spark.read` and `spark.readStream` of tables, as Spark itself runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.log import Log
from headwater.pipeline.tables import BRONZE
from tests.pipeline.lake.some_rows import contents, messages
from tests.spark_of_the_process import borrowed

PATIENCE = 120


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """With three commits: what was committed first is merged with the second one in the last."""
    log = Log.of(tmp_path / "bronze", BRONZE)
    add(log, 1, 5)
    add(log, 6, 10)
    merged = write_files([messages("a", 1, 10)], str(log.folder), "day")
    log.commit(merged, {}, replaced=log.paths(), changes=False)
    return log


def add(log: Log, first: int, last: int) -> None:
    log.commit(write_files([messages("a", first, last)], str(log.folder), "day"), {"app": last})


def load(spark: SparkSession, log: Log, **options: Any) -> DataFrame:
    return spark.read.format("headwater-delta").options(**options).load(str(log.folder))


def positions(rows: DataFrame) -> list[int]:
    return sorted(row["position"] for row in rows.select("position").collect())


def test_a_table_now_before_and_what_has_changed(spark: SparkSession, log: Log) -> None:
    rows = load(spark, log)
    assert rows.toArrow().sort_by("position").to_pylist() == contents(log.folder)
    assert positions(rows.where("position > 8 or topic = 'a/1'")) == [1, 4, 7, 9, 10]
    assert positions(load(spark, log, versionAsOf=1)) == [1, 2, 3, 4, 5]
    feed = load(spark, log, startingVersion=2, readChangeFeed=True)
    assert {tuple(row) for row in feed.select("position", "_change_type", "_commit_version").collect()} == {
        (position, "insert", 2) for position in range(6, 11)
    }
    assert positions(load(spark, log, pushdown=True).where("position between 3 and 4")) == [3, 4]
    named = spark.read.format("headwater-delta").schema("topic string, position bigint").load(str(log.folder))
    assert named.where("position = 3").collect() == [("a/0", 3)]
    with pytest.raises(PySparkException, match="no version 9"):
        load(spark, log, versionAsOf=9)


def test_a_stream_from_one_table_to_another_goes_on_where_it_was(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    def run() -> list[int]:
        rows = spark.readStream.format("headwater-delta").option("maxFilesPerTrigger", 1).load(str(log.folder))
        query = (
            rows.writeStream.format("headwater-delta")
            .options(path=str(tmp_path / "copy"), app="copy", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE), "the query does not end"
        return [row["position"] for row in contents(tmp_path / "copy")]

    assert run() == [*range(1, 11)]
    add(log, 11, 12)
    add(log, 13, 14)
    assert run() == [*range(1, 15)]
