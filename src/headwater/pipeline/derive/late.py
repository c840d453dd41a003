"""Readings that no window has: counted by the minute in which they arrived, and kept in silver."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.derive.belonging import belongs, is_number, window_start
from headwater.pipeline.derive.moments import MINUTE, at, begin_of, beginnings, day_of, timestamp, within
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.tables import LATE


def late(silver: DataFrame, start: datetime, end: datetime, settings: Settings) -> DataFrame:
    """LATE's rows of the minutes of arrival with start ≤ minute < end. Of the readings with a number, each is either in
    the count of one window of gold, or here: `ahead` if its clock was, else `behind`."""
    rows = silver.where(within("arrival", *beginnings(start, end, MINUTE)))
    rows = rows.where(is_number() & ~belongs(settings))
    is_ahead = F.col("clock") == "ahead"
    counted = rows.groupBy(
        window_start(settings).alias("begin"), "topic", begin_of(at("arrival"), MINUTE).alias("arrived")
    ).agg(F.count_if(~is_ahead).alias("behind"), F.count_if(is_ahead).alias("ahead"))
    answers = {
        "window_start": timestamp(F.col("begin")),
        "minute": timestamp(F.col("arrived")),
        "day": day_of(F.col("arrived")),
    }
    return counted.select(*(answers.get(name, F.col(name)).alias(name) for name in LATE.names))
