"""A client of a Spark that does not have our package: lands stores in bronze, and says what it saw. It is a process of
its own, as a process has one Spark, and of one kind.

python -m tests.pipeline.landing '{"master": …, "url": …, "token": …, "folder": …, "settings": …}'

Its last line is JSON: what tasks found of our package before and after it was shipped, how many messages a batch read
has seen, what came of a sweep, and which rows a read of the table has.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headwater.pipeline.session import make_session, ship
from headwater_lab.reproduce.balance.grid import points, run_point
from headwater_lab.sweep import sweep

TASKS = 4
PATIENCE = 120
GRID = points([1], quick=True)[-3:]


def where_is_the_package() -> str:
    """In a task."""
    try:
        import headwater
    except ImportError:
        return "nowhere"
    return str(headwater.__file__)


def found_by_tasks(spark: SparkSession) -> list[str]:
    look = f.udf(lambda _: where_is_the_package(), "string")
    rows = spark.range(0, TASKS, 1, TASKS).select(look("id").alias("found")).collect()
    return sorted({row.found for row in rows})


def plain_session(master: str, settings: dict[str, str]) -> SparkSession:
    """As somebody makes one who does not know of us."""
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    plain: SparkSession = builder.getOrCreate()
    return plain


def land(spark: SparkSession, source: dict[str, str], folder: Path) -> None:
    """What is in the stores now, into bronze."""
    messages = spark.readStream.format("headwater").options(**source).load()
    query = (
        messages.withColumn("day", f.to_date("arrival"))
        .writeStream.format("headwater-delta")
        .option("path", str(folder / "bronze"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(app="bronze", table="bronze", byPosition="true")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE), "the query does not end"


def main(given: dict[str, Any]) -> dict[str, Any]:
    os.environ.pop("PYTHONPATH", None)  # ours has come by it here; Java is not to hand it to Spark's processes
    plain = plain_session(given["master"], given["settings"])
    before = found_by_tasks(plain)
    plain.stop()
    spark = make_session(given["master"], settings=given["settings"])
    ship(spark, given["master"], "headwater_lab")
    source = {"url": given["url"], "token": given["token"], **given["source"]}
    found = spark.read.format("headwater").options(**source).load()
    said = {
        "before": before,
        "after": found_by_tasks(spark),
        "messages": found.where("topic = 'a'").count(),
        "swept": [each.mean_ms for each in sweep(run_point, GRID, spark)],
    }
    land(spark, source, Path(given["folder"]))
    table = spark.read.format("headwater-delta").load(str(Path(given["folder"], "bronze")))
    said["read"] = sorted(map(list, table.where("topic = 'a'").select("store", "position").collect()))
    spark.stop()
    return said


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
