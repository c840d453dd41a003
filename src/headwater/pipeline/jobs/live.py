"""Live: what comes by MQTT while it is published, for completeness to compare with the store. At least once."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.pipeline.jobs.bronze import place_options
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.asked import FORMAT as SINK
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import LIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

APP: Final = "live"
NAME: Final = "live.name"


def spool(lake: Lake) -> Path:
    return lake.scratch / "spool" / "live"


def start(spark: SparkSession, lake: Lake, settings: Settings) -> StreamingQuery:
    """Reads `settings.live_broker`, which has to be a node that stores: others tell no positions."""
    from pyspark.sql import functions as F

    lake.log(LIVE)
    reading = spark.readStream.format("mqtt").option("positions", "true")
    for name, value in settings.live_options().items():
        reading = reading.option(name, value)
    rows = reading.option("spool", str(spool(lake))).load()
    return (
        rows.where("store is not null and position is not null")
        .withColumn("day", F.to_date("received"))
        .select(*LIVE.names)
        .writeStream.format(SINK)
        .queryName("live")
        .options(**place_options(lake, LIVE))
        .option("table", LIVE.name)
        .option("app", _app(lake))
        .option("checkpointLocation", str(lake.checkpoint("live")))
        .trigger(processingTime=f"{settings.trigger} seconds")
        .start()
    )


def _app(lake: Lake) -> str:
    """The name by which the table remembers the last batch. It goes with the checkpoint: if that may be lost, a new one
    has another name."""
    if lake.is_folder:
        return APP
    file = lake.checkpoint(NAME)
    if not file.exists():
        shutil.rmtree(lake.checkpoint("live"), ignore_errors=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{APP}-{uuid.uuid4().hex[:12]}", encoding="utf-8")
    return file.read_text(encoding="utf-8")
