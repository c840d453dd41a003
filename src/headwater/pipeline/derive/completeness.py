"""What a store gave positions to, and by which way it came here.

Theory. Positions have no gaps, and arrival never goes back in a store: a minute of arrival is a range of positions. It
ends with its last message, and begins behind the last message of the minutes before. A position in that range that is
not in bronze was made all the same; it belongs to the minute of the next message that is there. So per minute

    made = live + recovered + erased + lost

where live came by MQTT, recovered is in bronze and did not come by MQTT, erased is neither and was erased from the
lake, and lost is none of these. Bronze is meant to have
each position once, and this is where it would be seen if not, so doubles in it count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headwater.pipeline.derive.moments import MINUTE, at, begin_of, beginnings, day_of, timestamp
from headwater.pipeline.tables import COMPLETENESS


def completeness(
    bronze: DataFrame,
    live: DataFrame,
    stores: Mapping[str, int],
    start: datetime,
    end: datetime,
    erased: Sequence[tuple[str, int, int]] = (),
) -> DataFrame:
    """COMPLETENESS's rows: one for each of `stores` and each minute with start ≤ minute < end, those in which nothing
    was made included. `stores` says for each store the last position that is not to be looked at: 0, or the one before
    which accounts begin. Positions between it and the first message of the range are made in the range; so `bronze`
    either holds all from there on, or begins at `start` and `stores` says the last position that arrived before.
    `erased` are ranges of positions (store, first, last) that do not overlap. A copy that comes by MQTT after this was
    computed is not in it."""
    first, last = beginnings(start, end, MINUTE)
    here = bronze.where((F.col("position") > _of_store(stores)) & (F.col("arrival") < timestamp(last)))
    came = live.where(F.col("position") > _of_store(stores))
    ways = here.select("store", "position", "arrival", F.lit(0).alias("times")).unionByName(
        came.select("store", "position", F.lit(None).cast("timestamp").alias("arrival"), F.lit(1).alias("times"))
    )
    positions = ways.groupBy("store", "position").agg(F.min("arrival").alias("arrival"), F.sum("times").alias("times"))
    minutes = _minutes(positions.where(F.col("arrival").isNotNull()), stores)
    elsewhere = _counted_by(minutes, positions.where(F.col("arrival").isNull()))
    forgotten = _erased_by(minutes, positions, erased, stores)
    every = _every_minute(bronze.sparkSession, stores, first, last)
    counted = every.join(minutes, ["store", "begin"], "left").join(elsewhere, ["store", "begin"], "left")
    return _answers(counted.join(forgotten, ["store", "begin"], "left"))


def holes(bronze: DataFrame, expected: Mapping[str, tuple[int, int]]) -> DataFrame:
    """Rows (store, first, last): the ranges of positions, ends included, that bronze lacks of those `expected` (first
    and last of each store). They neither touch nor overlap."""
    for store, (first, last) in expected.items():
        if first > last + 1:
            raise ValueError(f"of store {store!r}, positions {first} to {last} are expected, which is no range")
    spark = bronze.sparkSession
    edges = [(store, edge) for store, (first, last) in expected.items() for edge in (first - 1, last + 1)]
    ends = spark.createDataFrame(edges, "store string, position bigint")
    lowest = _of_store({store: first for store, (first, _) in expected.items()})
    highest = _of_store({store: last for store, (_, last) in expected.items()})
    rows = bronze.where(F.col("position").between(lowest, highest)).select("store", "position").unionByName(ends)
    before = F.lag("position").over(Window.partitionBy("store").orderBy("position"))
    return (
        rows.select("store", "position", before.alias("before"))
        .where(F.col("position") - F.col("before") > 1)
        .select("store", (F.col("before") + 1).alias("first"), (F.col("position") - 1).alias("last"))
    )


def _of_store(positions: Mapping[str, int]) -> Column:
    """The number that belongs to the row's store; null, which no position is greater than, if it is not named."""
    found = F.lit(None).cast("bigint")
    for store, position in positions.items():
        found = F.when(F.col("store") == store, F.lit(position).cast("bigint")).otherwise(found)
    return found


def _minutes(positions: DataFrame, stores: Mapping[str, int]) -> DataFrame:
    """Per store and minute, from what is in bronze: its range (behind `low`, up to `high`) and what is in it."""
    by_minute = positions.groupBy("store", begin_of(at("arrival"), MINUTE).alias("begin")).agg(
        F.max("position").alias("high"),
        F.count("*").alias("here"),
        F.count_if(F.col("times") > 0).alias("came"),
        F.sum(_again()).alias("again"),
    )
    before = F.lag("high").over(Window.partitionBy("store").orderBy("begin"))
    return by_minute.withColumn("low", F.coalesce(before, _of_store(stores)))


def _again() -> Column:
    return F.greatest(F.col("times") - 1, F.lit(0))


def _counted_by(minutes: DataFrame, elsewhere: DataFrame) -> DataFrame:
    """Per store and minute: positions that came by MQTT and are not in bronze, of which there are few or none."""
    ranges = minutes.select("store", "begin", "low", "high")
    inside = (F.col("position") > F.col("low")) & (F.col("position") < F.col("high"))
    found = elsewhere.join(ranges, "store").where(inside)
    return found.groupBy("store", "begin").agg(F.count("*").alias("came_only"), F.sum(_again()).alias("again_only"))


def _erased_by(
    minutes: DataFrame, positions: DataFrame, erased: Sequence[tuple[str, int, int]], stores: Mapping[str, int]
) -> DataFrame:
    """Per store and minute: positions that were erased, and are not here by any way."""
    left = [(store, max(first, stores[store] + 1), last) for store, first, last in erased if store in stores]
    rows = [each for each in left if each[1] <= each[2]]
    ranges = minutes.select("store", "begin", "low", "high")
    if not rows:  # nearly always
        return ranges.select("store", "begin", F.lit(0).cast("bigint").alias("forgotten"))
    gone = minutes.sparkSession.createDataFrame(rows, "store string, first bigint, last bigint")
    first = F.greatest("first", F.col("low") + 1)
    last = F.least("last", "high")
    parts = gone.join(ranges, "store").select("store", "begin", first.alias("first"), last.alias("last"))
    each = parts.where("first <= last").select(
        "store", "begin", F.explode(F.sequence("first", "last")).alias("position")
    )
    absent = each.join(positions.select("store", "position"), ["store", "position"], "left_anti")
    return absent.groupBy("store", "begin").agg(F.count("*").alias("forgotten"))


def _every_minute(spark: SparkSession, stores: Mapping[str, int], first: int, last: int) -> DataFrame:
    named = spark.createDataFrame([(store,) for store in stores], "store string")
    minutes = spark.range(first, last, MINUTE, 1).select(F.col("id").alias("begin"))
    return named.crossJoin(minutes)


def _answers(counted: DataFrame) -> DataFrame:
    filled = counted.fillna(0)
    made = F.col("high") - F.col("low")
    recovered = F.col("here") - F.col("came")
    live = F.col("came") + F.col("came_only")
    answers = {
        "minute": timestamp(F.col("begin")),
        "made": made,
        "live": live,
        "recovered": recovered,
        "duplicate": F.col("again") + F.col("again_only"),
        "lost": made - live - recovered - F.col("forgotten"),
        "erased": F.col("forgotten"),
        "day": day_of(F.col("begin")),
    }
    return filled.select(*(answers.get(name, F.col(name)).alias(name) for name in COMPLETENESS.names))
