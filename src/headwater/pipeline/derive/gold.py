"""Windows: what was measured, by topic, device and metric, and what is odd about it.

Theory. The readings of a window are collected and sorted by (time, store, position, part), which no two readings share;
everything else is computed from that sorted array. So a window is the same to the bit whatever order rows were read in:
a sum of floats depends on its order, and the order is always this one.

- silences: from the window's start to the first reading, between readings, from the last one to the window's end.
  What is silent within a window for longer than `gap` was silent for at least so long, so edges give no false alarm;
  a silence across a border of which neither part is longer than `gap` is not seen.
- steps: |difference| of consecutive readings. The typical step is their lower median: at least half of them are not
  larger. One wild reading makes two wild steps and moves that little. If it is 0, readings stand still and change now
  and then, as a setpoint does; no step can be measured with it, and only `jump_absolute` can find a jump.
- mean: the sum in order / count. A sum beyond all floats is made again of the readings / count. Rounding never
  carries it out of min … max.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.derive.belonging import belongs, is_number, window_start
from headwater.pipeline.derive.moments import SECOND, at, beginnings, day_of, microseconds, timestamp, within
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.tables import GOLD

KEYS = ("topic", "device", "metric")


def gold(silver: DataFrame, start: datetime, end: datetime, settings: Settings) -> DataFrame:
    """Windows with start ≤ window_start < end, with GOLD's columns. `silver` has to hold all that arrived in
    `belonging.arrivals(start, end, settings)`; what else it holds does not matter."""
    first, last = beginnings(start, end, settings.window * SECOND)
    rows = silver.where(within("time", first, last) & is_number() & belongs(settings))
    reading = F.struct(at("time").alias("at"), "store", "position", "part", _without_sign_of_zero().alias("value"))
    windows = rows.groupBy(window_start(settings).alias("begin"), *KEYS)
    sorted_readings = F.sort_array(F.collect_list(reading))
    arrays = _arrays(windows.agg(sorted_readings.alias("readings")), settings)
    return _answers(_odd(_figures(arrays), settings))


def _without_sign_of_zero() -> Column:
    """-0.0 and 0.0 are equal, and which of them is the least must not depend on how an engine sorts."""
    return F.when(F.col("value") == 0.0, F.lit(0.0)).otherwise(F.col("value"))


def _arrays(windows: DataFrame, settings: Settings) -> DataFrame:
    """Per window: the values in order, their sum, the values by size, silences in microseconds, the steps by size."""
    end = F.col("begin") + F.lit(settings.window * SECOND)
    times = F.transform("readings", lambda each: each["at"])
    values = F.transform("readings", lambda each: each["value"])
    windows = windows.select("begin", end.alias("end"), *KEYS, times.alias("times"), values.alias("values"))
    before = F.concat(F.array("begin"), F.col("times"))
    after = F.concat(F.col("times"), F.array("end"))
    count = F.size("values")
    steps = F.zip_with(
        F.slice("values", 1, count - 1), F.slice("values", 2, count - 1), lambda one, next: F.abs(next - one)
    )
    return windows.select(
        *("begin", "end", *KEYS, "values"),
        F.aggregate("values", F.lit(0.0), lambda sum, each: sum + each).alias("sum"),
        F.sort_array("values").alias("by_size"),
        F.zip_with(before, after, lambda one, next: next - one).alias("silences"),
        F.sort_array(steps).alias("steps"),
    )


def _figures(windows: DataFrame) -> DataFrame:
    count = F.size("values")
    return windows.select(
        *("begin", "end", *KEYS, "steps", "silences"),
        count.cast("bigint").alias("count"),
        _mean().alias("mean"),
        _item("by_size", F.lit(0)).alias("min"),
        _item("by_size", count - 1).alias("max"),
        _percentile("by_size", 0.5).alias("p50"),
        _percentile("by_size", 0.95).alias("p95"),
        _item("values", F.lit(0)).alias("first"),
        _item("values", count - 1).alias("last"),
    )


def _item(array: str, index: Column) -> Column:
    return F.get(array, index.cast("int"))


def _mean() -> Column:
    count = F.size("values").cast("double")
    parts = F.aggregate("values", F.lit(0.0), lambda sum, each: sum + each / count)
    mean = F.when(F.abs("sum") < F.lit(float("inf")), F.col("sum") / count).otherwise(parts)
    return F.least(F.greatest(mean, _item("by_size", F.lit(0))), _item("by_size", F.size("values") - 1))


def _percentile(array: str, share: float) -> Column:
    """Between the two readings beside it, in proportion, as Spark's own `percentile`."""
    place = (F.size(array) - 1) * F.lit(share)
    low, high = _item(array, F.floor(place)), _item(array, F.ceil(place))
    between = low * (F.ceil(place) - place) + high * (place - F.floor(place))
    return F.when(low == high, low).otherwise(between)


def _odd(windows: DataFrame, settings: Settings) -> DataFrame:
    """Adds what flags are about, and whether they hold."""
    longest = F.array_max("silences")
    gaps = F.size(F.filter("silences", lambda each: each > F.lit(microseconds(settings.gap))))
    steps = F.size("steps")
    windows = windows.select(
        *("begin", "end", *KEYS, "count", "mean", "min", "max", "p50", "p95", "first", "last"),
        gaps.alias("gaps"),
        (longest / F.lit(float(SECOND))).alias("longest_gap"),
        _item("steps", steps - 1).alias("step"),
        _item("steps", F.floor((steps - 1) / 2)).alias("typical"),
    )
    flat = (F.col("count") >= settings.flatline) & (F.col("min") == F.col("max"))
    return windows.select(
        "*",
        (F.col("gaps") > 0).alias("is_gap"),
        flat.alias("is_flat"),
        _relative_jump(settings).alias("is_relative_jump"),
        _absolute_jump(settings).alias("is_absolute_jump"),
    )


def _relative_jump(settings: Settings) -> Column:
    if settings.jump_factor is None:
        return F.lit(False)
    enough = (F.col("count") >= settings.jump_readings) & (F.col("typical") > 0)
    return enough & (F.col("step") > F.col("typical") * F.lit(float(settings.jump_factor)))


def _absolute_jump(settings: Settings) -> Column:
    if settings.jump_absolute is None:
        return F.lit(False)
    return F.coalesce(F.col("step") > F.lit(float(settings.jump_absolute)), F.lit(False))


def _answers(windows: DataFrame) -> DataFrame:
    is_jump = F.col("is_relative_jump") | F.col("is_absolute_jump")
    flags = [("is_gap", "gap"), ("is_flat", "flatline")]
    named = [*(F.when(F.col(holds), name) for holds, name in flags), F.when(is_jump, "jump")]
    answers = {
        "window_start": timestamp(F.col("begin")),
        "window_end": timestamp(F.col("end")),
        "flags": F.concat_ws(",", *named),
        "why": F.concat_ws("; ", *_reasons()),
        "day": day_of(F.col("begin")),
    }
    return windows.select(*(answers.get(name, F.col(name)).alias(name) for name in GOLD.names))


def _reasons() -> list[Column]:
    """Sentences, where their flags hold; figures have four digits that count."""
    gap = F.when(F.col("gaps") == 1, F.format_string("silent for %.1f s", "longest_gap")).otherwise(
        F.format_string("silent %d times, up to %.1f s", "gaps", "longest_gap")
    )
    flat = F.format_string("all %d readings are %.4g", "count", "min")
    relative = F.format_string("a step of %.4g where %.4g is typical", "step", "typical")
    absolute = F.format_string("a step of %.4g", "step")
    jump = F.when(F.col("is_relative_jump"), relative).when(F.col("is_absolute_jump"), absolute)
    return [F.when(F.col("is_gap"), gap), F.when(F.col("is_flat"), flat), jump]
