"""The last reading of each topic, device and metric.

Theory. Readings of a key are ordered by (moment, store, position, part). The moment is the time of measurement; if the
clock was ahead, it is the arrival: a clock in the year 2100 would else win for ever, and one that is set right again
would not be heard. A clock that is behind cannot be told from a message that was kept for long, so its reading counts
at its time, and does not win over what was measured later; `arrival` says how old such an answer is.

No two readings share that name, so of two sets of rows there is one latest. Hence
`latest(a ∪ b) = latest(latest(a) ∪ latest(b))`, also if a and b have rows in common: increments are merged into the
table in any order and any number of times, by a union and `latest` again, or by MERGE with `same_key` and `newer`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.tables import LATEST

ORDER: Final = ("store", "position", "part")


def latest(rows: DataFrame) -> DataFrame:
    """`rows` are silver's, or LATEST's, or both; the result has LATEST's columns."""
    moment = F.when(F.col("clock") == "ahead", F.col("arrival")).otherwise(F.col("time"))
    others = [name for name in LATEST.names if name not in (*LATEST.keys, *ORDER)]
    last = F.max(F.struct(moment.alias("moment"), *ORDER, *others))
    found = rows.groupBy(*LATEST.keys).agg(last.alias("last"))
    return found.select(
        *(F.col(name) if name in LATEST.keys else F.col(f"last.{name}").alias(name) for name in LATEST.names)
    )


def same_key(left: str, right: str) -> str:
    """SQL for "the rows are of the same topic, device and metric", where nulls are equal. Both names are aliases."""
    return " AND ".join(f"({left}.{name} IS NOT DISTINCT FROM {right}.{name})" for name in LATEST.keys)


def newer(left: str, right: str) -> str:
    """SQL for "the row `left` is to replace the row `right`", for MERGE in Spark, deltalake or any other engine."""
    names = [(_moment(left), _moment(right)), *((f"{left}.{name}", f"{right}.{name}") for name in ORDER)]
    condition = ""
    for one, other in reversed(names):
        condition = f"({one} > {other} OR ({one} = {other} AND {condition}))" if condition else f"{one} > {other}"
    return condition


def _moment(alias: str) -> str:
    return f"CASE WHEN {alias}.clock = 'ahead' THEN {alias}.arrival ELSE {alias}.time END"
