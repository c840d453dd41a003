"""Where the messages of each minute went. Looked up in the tables by position, not taken from those who filled them."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.derive.moments import MINUTE, at, begin_of, beginnings, day_of, timestamp, within
from headwater.pipeline.tables import OUTCOMES

WAYS = ("silver", "quarantine", "dropped")


def outcomes(
    bronze: DataFrame, silver: DataFrame, quarantine: DataFrame, dropped: DataFrame, start: datetime, end: datetime
) -> DataFrame:
    """OUTCOMES' rows of the minutes of arrival with start ≤ minute < end that have messages. Each table has to hold all
    that arrived in them."""
    first, last = beginnings(start, end, MINUTE)
    tables = {"messages": bronze, "silver": silver, "quarantine": quarantine, "dropped": dropped.where("whole")}
    found: DataFrame | None = None
    for name, rows in tables.items():
        named = rows.where(within("arrival", first, last)).select(
            "store", "position", "arrival", *((F.lit(name == each)).alias(each) for each in tables)
        )
        found = named if found is None else found.unionByName(named)
    assert found is not None
    begin = begin_of(at("arrival"), MINUTE).alias("begin")
    positions = found.groupBy("store", begin, "position").agg(*(F.max(name).alias(name) for name in tables))
    ways = sum((F.col(name).cast("int") for name in WAYS), F.lit(0))
    counted = positions.groupBy("store", "begin").agg(
        F.count_if("messages").alias("messages"),
        *(F.count_if(F.col(name) & (ways == 1)).alias(name) for name in WAYS),
        F.count_if((ways != 1) | ~F.col("messages")).alias("unaccounted"),
    )
    answers = {"minute": timestamp(F.col("begin")), "day": day_of(F.col("begin"))}
    return counted.select(*(answers.get(name, F.col(name)).alias(name) for name in OUTCOMES.names))
