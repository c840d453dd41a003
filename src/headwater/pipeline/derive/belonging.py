"""Which readings belong to a window, and which came too late for it: one rule, by which gold and late are disjoint and
together are all readings with a number.

Theory. A reading is on time if it arrived before its window's end + lateness. Both moments are properties of the
message, not of the batch it was read in, so no two readers can disagree ("A window is written once", ADR 16).
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater.pipeline.derive.moments import SECOND, at, begin_of, beginnings, microseconds
from headwater.pipeline.derive.settings import Settings

LARGEST = 1.7976931348623157e308


def is_number() -> Column:
    """Neither nothing, nor NaN, nor infinite."""
    return F.coalesce(F.abs("value") <= F.lit(LARGEST), F.lit(False)) & ~F.isnan("value")


def window_start(settings: Settings) -> Column:
    """In microseconds."""
    return begin_of(at("time"), settings.window * SECOND)


def on_time(settings: Settings) -> Column:
    final = window_start(settings) + F.lit(settings.window * SECOND + microseconds(settings.lateness))
    return at("arrival") < final


def belongs(settings: Settings) -> Column:
    return (F.col("clock") == "ok") & on_time(settings)


def arrivals(start: datetime, end: datetime, settings: Settings) -> tuple[int, int]:
    """Between which arrivals (microseconds, from ≤ arrival < to) all readings lie that can belong to windows that begin
    in the range. A reading arrives at most `clock_ahead` before its time, or its clock is not ok."""
    first, last = beginnings(start, end, settings.window * SECOND)
    return first - microseconds(settings.clock_ahead), last + microseconds(settings.lateness)
