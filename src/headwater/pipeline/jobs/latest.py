"""The last reading of each topic: a small table that is written anew when something changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.pipeline.derive.latest import latest
from headwater.pipeline.jobs.silver import JOB as SILVER_JOB
from headwater.pipeline.jobs.silver import pending
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.writing import write_rows
from headwater.pipeline.tables import LATEST, SILVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "latest"


def step(spark: SparkSession, lake: Lake, most: int) -> int | None:
    """What is new in silver; how many topics the table has then, or None if there is nothing new. Its files are
    replaced in the commit that says how far they go."""
    silver, old = lake.snapshot(SILVER), lake.snapshot(LATEST)
    ranges = pending(silver.positions(SILVER_JOB), [old.positions(JOB)], most)
    if not ranges:
        return None
    new = silver.read_positions(spark, ranges).select(*LATEST.names)
    log = lake.log(LATEST)
    files = write_rows(latest(new.unionByName(old.read(spark))).coalesce(1), str(log.folder), log.partition)
    ends = {store: last for store, (_, last) in ranges.items()}
    log.commit(files, {}, job=JOB, positions=ends, replaced=old.files, seen=old.view)
    return sum(file.rows for file in files)
