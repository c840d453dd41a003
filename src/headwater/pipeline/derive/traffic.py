"""What each topic carried in each minute of arrival."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.derive.moments import MINUTE, at, begin_of, beginnings, day_of, timestamp, within
from headwater.pipeline.tables import TRAFFIC


def traffic(bronze: DataFrame, start: datetime, end: datetime) -> DataFrame:
    """TRAFFIC's rows of the minutes with start ≤ minute < end; topics that carried nothing have none."""
    rows = bronze.where(within("arrival", *beginnings(start, end, MINUTE)))
    counted = rows.groupBy(begin_of(at("arrival"), MINUTE).alias("begin"), "topic", "store").agg(
        F.count("*").alias("messages"),
        F.sum(F.length("payload").cast("bigint")).alias("bytes"),
        F.count_distinct("publisher").alias("publishers"),
    )
    answers = {"minute": timestamp(F.col("begin")), "day": day_of(F.col("begin"))}
    return counted.select(*(answers.get(name, F.col(name)).alias(name) for name in TRAFFIC.names))
