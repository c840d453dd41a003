"""Bronze: the one streaming query. Every stored message, as it is, exactly once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.asked import FORMAT as SINK
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.options import STORAGE
from headwater.pipeline.source.settings import FORMAT as SOURCE
from headwater.pipeline.tables import BRONZE, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

APP: Final = "bronze"


def start(spark: SparkSession, lake: Lake, settings: Settings, *, once: bool = False) -> StreamingQuery:
    """The query runs when this returns; `once`: it ends when all is read that is there now."""
    lake.log(BRONZE)
    writer = (
        with_day(_messages(spark, lake, settings))
        .writeStream.format(SINK)
        .queryName("bronze")
        .options(**place_options(lake, BRONZE))
        .option("table", BRONZE.name)
        .option("app", APP)
        .option("byPosition", "true")
        .option("checkpointLocation", str(lake.checkpoint("bronze")))
    )
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.trigger} seconds").start()


def place_options(lake: Lake, table: Table) -> dict[str, str]:
    """Where the sink writes, and how it gets there."""
    place = lake.log(table).place
    lease = {} if lake.epoch is None else {"epoch": str(lake.epoch)}
    return {"path": place.where, **lease, **{f"{STORAGE}{name}": value for name, value in place.options.items()}}


def with_day(messages: DataFrame) -> DataFrame:
    """Bronze's columns."""
    from pyspark.sql import functions as F

    return messages.withColumn("day", F.to_date("arrival")).select(*BRONZE.names)


def _messages(spark: SparkSession, lake: Lake, settings: Settings) -> DataFrame:
    reading = spark.readStream.format(SOURCE)
    for name, value in settings.source_options().items():
        reading = reading.option(name, value)
    known = lake.log(BRONZE).positions(APP)
    if known:  # the table knows where it goes on, also if the checkpoint is gone, or was made and nothing was read
        reading = reading.option("startingOffsets", json.dumps(known)).option("unknownStores", "keep")
    return reading.load()
