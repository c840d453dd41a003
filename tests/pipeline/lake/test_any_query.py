"""The sink under real queries of other people: whatever a query emits in whatever order is in the table, once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.lake.log import Log
from tests.pipeline.lake.some_rows import contents
from tests.spark_of_the_process import borrowed

PATIENCE = 120
ROWS = 100
DDL = "store string, position bigint, at timestamp"
NOON = "2026-01-31T12:00:00Z"
LATER = "2026-01-31T15:00:00Z"


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


def put(folder: Path, name: str, positions: range, at: str = NOON) -> None:
    """A file for a stream of files."""
    folder.mkdir(exist_ok=True)
    rows = [{"store": "s", "position": position, "at": at} for position in positions]
    (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """A batch for each file."""
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", "1").json(str(folder))


def write(rows: DataFrame, table: Path, checkpoint: Path, mode: str = "append", **more: str) -> None:
    """All that is there now. Raises what Spark does."""
    options = {"path": str(table), "app": "app", "checkpointLocation": str(checkpoint), **more}
    query = rows.writeStream.format("headwater-delta").outputMode(mode).options(**options).trigger(availableNow=True)
    assert query.start().awaitTermination(PATIENCE), "the query does not end"


def positions(table: Path) -> list[int]:
    return sorted(row["position"] for row in contents(table))


def test_rows_that_a_join_emits_late_are_all_there(spark: SparkSession, tmp_path: Path) -> None:
    """A left outer join emits what has found no partner when the watermark has passed it: behind positions that are in
    the table already, and with nulls."""
    put(tmp_path / "left", "1", range(1, ROWS + 1))
    put(tmp_path / "right", "1", range(2, ROWS + 1, 2))
    put(tmp_path / "left", "2", range(1001, 1002), LATER)
    put(tmp_path / "right", "2", range(1001, 1002), LATER)
    left = stream(spark, tmp_path / "left").withWatermark("at", "1 second").alias("l")
    right = stream(spark, tmp_path / "right").withWatermark("at", "1 second").alias("r")
    joined = left.join(right, F.expr("l.position = r.position and l.at = r.at"), "leftOuter")
    found = joined.selectExpr("l.store", "l.position", "r.store as `minute`")
    write(found, tmp_path / "table", tmp_path / "checkpoint")
    assert positions(tmp_path / "table") == [*range(1, ROWS + 1), 1001]
    partnerless = [row["position"] for row in contents(tmp_path / "table") if row["minute"] is None]
    assert sorted(partnerless) == list(range(1, ROWS, 2))


def test_a_second_query_is_refused_the_name_of_the_first_and_has_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """Or the table could not tell a batch that comes again from one that is new."""
    table = tmp_path / "table"
    put(tmp_path / "one", "1", range(1, 2 * ROWS + 1, 2))
    put(tmp_path / "two", "1", range(2, 2 * ROWS + 1, 2))
    one, two = (stream(spark, tmp_path / name) for name in ("one", "two"))
    write(one, table, tmp_path / "first")
    with pytest.raises(PySparkException, match=r"another query has written .* as 'app'.*another `app`"):
        write(two, table, tmp_path / "second")
    assert positions(table) == list(range(1, 2 * ROWS + 1, 2))
    shutil.rmtree(tmp_path / "second")
    write(two, table, tmp_path / "second", app="backfill")
    assert positions(table) == list(range(1, 2 * ROWS + 1))
    put(tmp_path / "one", "2", range(1, 4))  # positions that are there already: this query has promised no order
    write(one, table, tmp_path / "first")
    assert len(positions(table)) == 2 * ROWS + 3


def test_a_query_that_tells_everything_each_time_replaces_everything(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    put(tmp_path / "rows", "1", range(1, 11))
    counted: Any = stream(spark, tmp_path / "rows").groupBy("store").count()
    write(counted, table, tmp_path / "checkpoint", mode="complete")
    put(tmp_path / "rows", "2", range(11, 31))
    write(counted, table, tmp_path / "checkpoint", mode="complete")
    assert contents(table) == [{"store": "s", "count": 30}]
    assert len(Log(table).paths()) == 1
