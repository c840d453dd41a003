"""With Spark itself: what it asks, what it repeats, and what it says when something is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.client import SyncClient
from tests.pipeline.mqtt.queries import Query, numbered, options, publish
from tests.spark_of_the_process import borrowed

PATIENCE = 200
"""Seconds: for machines that have much else to do."""


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


def source(port: int, folder: Path, **more: str) -> dict[str, str]:
    return {
        "broker": f"mqtt://127.0.0.1:{port}",
        "topics": "plant/#",
        "spool": str(folder),
        "clientId": folder.parent.name[-30:],
        "settle": "0.5",
        "linger": "4",
        **more,
    }


def run_once(rows: DataFrame, checkpoint: Path, format: str, **more: str) -> Any:
    writer = rows.writeStream.format(format).option("checkpointLocation", str(checkpoint)).options(**more)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE), "the query does not end"
    return query


def test_available_now_takes_what_is_there_and_the_next_run_the_rest(
    broker: int, spark: SparkSession, tmp_path: Path
) -> None:
    given = source(broker, tmp_path / "spool", maxRowsPerTrigger="80", rowsPerPartition="30")
    rows = spark.readStream.format("mqtt").options(**given).load()

    def run() -> list[int]:
        query = run_once(rows, tmp_path / "checkpoint", "parquet", path=str(tmp_path / "rows"))
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    reading = Query(options(broker, tmp_path / "spool", **given))
    try:
        assert run() == []
        publish(broker, numbered(0, 200))
        assert run() == [80, 80, 40]
        publish(broker, numbered(200, 230))
        assert run() == [30]
    finally:
        reading.end_spooler()
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.columns == ["topic", "payload", "qos", "retain", "properties", "received"]
    assert sorted((bytes(row.payload) for row in found.collect()), key=int) == numbered(0, 230)


def test_a_batch_that_is_written_again_is_not_sent_again(broker: int, spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "one").write_text("\n".join(f"{number}" for number in range(50)))
    rows = spark.readStream.text(str(lines)).repartition(2).selectExpr("'out/row' AS topic", "value AS payload")
    checkpoint = tmp_path / "checkpoint"
    with SyncClient("127.0.0.1", broker, receive_maximum=1000) as client:
        client.subscribe("out/#", qos=1)
        to = {"broker": f"mqtt://127.0.0.1:{broker}"}
        run_once(rows, checkpoint, "mqtt", **to)
        commit = checkpoint / "commits" / "0"
        for times in (1, 2):  # as if the driver had been killed before it noted the end of the batch
            commit.unlink()
            (commit.parent / ".0.crc").unlink()
            if times == 2:
                shutil.rmtree(checkpoint / "mqtt-sent")
            run_once(rows, checkpoint, "mqtt", **to)
            assert commit.exists()
        client.publish("out/end", qos=1)
        found = []
        while (message := client.receive(timeout=10)).topic != "out/end":
            found.append(message)
    assert sorted((each.payload for each in found[:50]), key=int) == numbered(0, 50)
    assert len(found) == 100  # nothing the first time; all of it without the ledger
    marks = [dict(each.properties.user_properties or [])["headwater-batch"] for each in found]
    assert len(set(marks)) == 50 and set(marks[:50]) == set(marks[50:])


def test_rows_of_a_batch_are_published_and_a_named_run_once(broker: int, spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 20, 1, 2).select(
        f.concat(f.lit("out/"), f.col("id") % 2).alias("topic"), f.col("id").cast("string").alias("payload")
    )
    to = {"broker": f"mqtt://127.0.0.1:{broker}", "run": "today", "ledger": str(tmp_path / "ledger")}
    with SyncClient("127.0.0.1", broker) as client:
        client.subscribe("out/#", qos=1)
        for _ in range(2):
            rows.write.format("mqtt").options(**to).mode("append").save()
        client.publish("out/end", qos=1)
        found = []
        while (message := client.receive(timeout=10)).topic != "out/end":
            found.append((message.topic, message.payload))
    assert sorted(found) == sorted((f"out/{number % 2}", b"%d" % number) for number in range(20))


def test_what_is_wrong_is_said_at_once(broker: int, spark: SparkSession, tmp_path: Path) -> None:
    given = source(broker, tmp_path / "spool")
    with pytest.raises(AnalysisException, match="did you mean 'topics'"):
        spark.readStream.format("mqtt").options(**given, topcs="a").load()
    with pytest.raises(AnalysisException, match=r"use spark\.readStream"):
        spark.read.format("mqtt").options(**given).load().collect()
    rows = spark.range(1).selectExpr("'a' AS topic", "id AS payload")
    with pytest.raises(AnalysisException, match="the column payload is string or binary, not bigint"):
        rows.write.format("mqtt").option("broker", given["broker"]).mode("append").save()
