"""How the members of shared groups did in each minute, from what brokers said of them in `$SYS/broker/shared/…`.

A broker says it every `sys_interval`, retained, of each member of which something has changed, and an empty message of
one that has gone. `sent` counts from when the member joined: what it got between two messages is the difference, or all
of it if the count has begun anew. So a minute is exact to one such interval; of the first message that is known of a
member nobody can tell when it got what it had by then, and that is left out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headwater.pipeline.derive.moments import MINUTE, at, begin_of, beginnings, day_of, timestamp, within
from headwater.pipeline.tables import MEMBERS

PREFIX: Final = "$SYS/broker/shared/"
SLOWEST: Final = 86_400.0
"""Seconds for a message; more, or no number, is no measurement."""
SAID: Final = (
    "sent bigint, in_flight bigint, waiting bigint, reported_seconds double, seconds_per_message double, online boolean"
)


def members(bronze: DataFrame, start: datetime, end: datetime) -> DataFrame:
    """MEMBERS' rows of the minutes with start ≤ minute < end; members of which nothing changed have none. `bronze` may
    have other topics as well, and should reach back before `start` by what a member may be silent for."""
    first, last = beginnings(start, end, MINUTE)
    said = _said(bronze.where(F.col("topic").startswith(PREFIX) & (F.col("arrival") < timestamp(last))))
    one = Window.partitionBy("store", "group", "member").orderBy("position")
    before = F.lag("sent").over(one)
    got = F.when(before.isNull(), None).when(F.col("sent") < before, F.col("sent")).otherwise(F.col("sent") - before)
    there = ~F.col("gone")
    counted = (
        said.withColumn("got", got)
        .where(within("arrival", first, last))
        .groupBy(begin_of(at("arrival"), MINUTE).alias("begin"), "group", "member")
        .agg(
            F.sum("got").alias("dispatched"),
            F.avg(F.when(there, F.col("backlog"))).alias("backlog"),
            F.avg(F.when(there, F.col("processing"))).alias("processing"),
        )
    )
    answers = {"minute": timestamp(F.col("begin")), "day": day_of(F.col("begin"))}
    return counted.select(*(answers.get(name, F.col(name)).alias(name) for name in MEMBERS.names))


def _said(messages: DataFrame) -> DataFrame:
    """One row for each message on a member that can be understood."""
    levels = F.split("topic", "/")
    is_member = (F.size(levels) == 7) & (F.element_at(levels, 6) == "member")
    said = F.from_json(F.col("payload").cast("string"), SAID)
    gone = F.length("payload") == 0
    plain = messages.where(is_member).select(
        "store",
        "position",
        "arrival",
        F.concat(F.lit("$share/"), _name(levels, 4), F.lit("/"), _name(levels, 5)).alias("group"),
        _name(levels, 7).alias("member"),
        gone.alias("gone"),
        said.alias("said"),
    )
    sent = F.when(F.col("gone"), F.lit(0)).otherwise(F.col("said.sent"))
    waiting = F.greatest(F.coalesce("said.in_flight", F.lit(0)), F.coalesce("said.waiting", F.lit(0)))
    took = F.coalesce(F.col("said.reported_seconds"), F.col("said.seconds_per_message"))
    return plain.select(
        *("store", "position", "arrival", "group", "member", "gone"),
        sent.alias("sent"),
        waiting.cast("double").alias("backlog"),
        F.when((took > 0) & (took < SLOWEST), took).alias("processing"),
    ).where(F.col("group").isNotNull() & F.col("member").isNotNull() & (F.col("sent") >= 0))


def _name(levels: Column, place: int) -> Column:
    """A percent-encoded level; null if it is none."""
    return F.try_url_decode(F.element_at(levels, place))
