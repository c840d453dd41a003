"""Gold and late against a plain recomputation, in whatever order and increments rows come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.moments import final_until
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.tables import GOLD, LATE
from tests.pipeline.derive import plain
from tests.pipeline.derive.rows import NOON, Row, found, of, random_silver, reading

SETTINGS = Settings(window=300, lateness=450.0, gap=40.5, flatline=4, jump_factor=12.0, jump_absolute=900.0)
RANGE = (datetime(1950, 1, 1, tzinfo=UTC), datetime(2150, 1, 1, tzinfo=UTC))
ROUNDED = ("mean", "p50", "p95")
SILVER = random_silver(Random(16), 6000, SETTINGS)


def same(windows: list[Row], expected: list[Row]) -> None:
    """Equal, and what is rounded is as near to the exact figure as floats allow."""
    expected = sorted(expected, key=lambda row: tuple(str(row[key]) for key in GOLD.keys))
    assert len(windows) == len(expected)
    for window, exact in zip(windows, expected, strict=True):
        assert list(window) == list(GOLD.names)
        size = max(abs(exact["min"]), abs(exact["max"]))
        for name in ROUNDED:
            assert window[name] == pytest.approx(float(exact[name]), rel=1e-13, abs=size * 1e-14)
            assert exact["min"] <= window[name] <= exact["max"]
        rest = [{name: row[name] for name in GOLD.names if name not in ROUNDED} for row in (window, exact)]
        assert rest[0] == rest[1]


def test_windows_are_those_of_a_plain_recomputation(spark: SparkSession) -> None:
    windows = found(gold(of(spark, SILVER), *RANGE, SETTINGS), *GOLD.keys)
    same(windows, plain.gold(SILVER, *RANGE, SETTINGS))
    said = {flag for window in windows for flag in window["flags"].split(",")}
    assert said == {"", "gap", "flatline", "jump"}
    figures = [window[name] for window in windows for name in ("min", "max", "p50", "p95", "first", "last", "mean")]
    assert 0.0 in figures
    assert "-0.0" not in map(str, figures)  # which is equal, and would depend on how somebody sorts


def test_a_window_is_the_same_to_the_bit_in_whatever_order_rows_come(spark: SparkSession) -> None:
    shuffled = Random(1).sample(SILVER, len(SILVER))
    first, second = (
        found(gold(of(spark, rows).repartition(parts), *RANGE, SETTINGS), *GOLD.keys)
        for rows, parts in ((SILVER, 1), (shuffled, 5))
    )
    assert repr(first) == repr(second)


def test_a_range_has_the_windows_that_begin_in_it(spark: SparkSession) -> None:
    start, end = NOON + timedelta(seconds=301), NOON + timedelta(seconds=1501)
    windows = found(gold(of(spark, SILVER), start, end, SETTINGS), *GOLD.keys)
    same(windows, plain.gold(SILVER, start, end, SETTINGS))
    begins = {(window["window_start"] - NOON).total_seconds() for window in windows}
    assert begins == {600, 900, 1200, 1500}


def test_increments_give_the_same_windows_as_all_at_once(spark: SparkSession) -> None:
    """Stores come at their own pace; a window is made when it is final, from what is there by then."""
    chance = Random(7)
    stores = [[row for row in SILVER if row["store"] == store] for store in ("one", "two", "three")]
    steps = [sorted(chance.sample(range(len(store)), 4)) for store in stores]
    windows: list[Row] = []
    final = RANGE[0]
    for cut in range(5):
        here = [store[: ends[cut] if cut < 4 else None] for store, ends in zip(stores, steps, strict=True)]
        clock = min(rows[-1]["arrival"] for rows in here) if cut < 4 else RANGE[1]
        until = max(final, final_until(clock, SETTINGS.window, SETTINGS.lateness))
        # What arrived at the clock's very moment may go on behind the cut; it is not on time for what is final.
        windows += found(gold(of(spark, [row for rows in here for row in rows]), final, until, SETTINGS), *GOLD.keys)
        final = until
    once = found(gold(of(spark, SILVER), *RANGE, SETTINGS), *GOLD.keys)
    windows.sort(key=lambda row: tuple(str(row[key]) for key in GOLD.keys))
    assert repr(windows) == repr(once)


def test_late_counts_what_no_window_has(spark: SparkSession) -> None:
    counted = found(late(of(spark, SILVER), *RANGE, SETTINGS), *LATE.keys)
    expected = plain.late(SILVER, *RANGE, SETTINGS)
    assert counted == sorted(expected, key=lambda row: tuple(str(row[key]) for key in LATE.keys))
    assert all(list(row) == list(LATE.names) for row in counted)
    behind, ahead = (sum(row[name] for row in counted) for name in ("behind", "ahead"))
    assert min(behind, ahead) > 0
    in_windows = sum(row["count"] for row in plain.gold(SILVER, *RANGE, SETTINGS))
    assert in_windows + behind + ahead == sum(map(plain.is_number, SILVER))


def test_late_has_the_minutes_of_its_range_and_ranges_add_up(spark: SparkSession) -> None:
    cuts = [RANGE[0], NOON + timedelta(seconds=200), NOON + timedelta(seconds=1200), RANGE[1]]
    parts = [found(late(of(spark, SILVER), *each, SETTINGS), *LATE.keys) for each in pairwise(cuts)]
    assert all(parts)
    whole = found(late(of(spark, SILVER), *RANGE, SETTINGS), *LATE.keys)
    key = lambda row: tuple(str(row[key]) for key in LATE.keys)  # noqa: E731
    assert sorted((row for part in parts for row in part), key=key) == whole


def test_on_time_is_before_the_end_and_the_lateness_to_the_microsecond(spark: SparkSession) -> None:
    final = NOON + timedelta(seconds=300 + 450)
    rows = [
        reading(1, NOON, 1.0, arrival=final - timedelta(microseconds=1)),
        reading(2, NOON + timedelta(seconds=299.999999), 2.0, arrival=final),
        reading(3, NOON + timedelta(seconds=300), 3.0, arrival=final),
        reading(4, NOON - timedelta(microseconds=1), 4.0, arrival=NOON, clock="ahead"),
        reading(5, NOON, 5.0, arrival=NOON, clock="behind"),
    ]
    windows = found(gold(of(spark, rows), *RANGE, SETTINGS), *GOLD.keys)
    assert [(window["window_start"], window["count"], window["last"]) for window in windows] == [
        (NOON, 1, 1.0),
        (NOON + timedelta(seconds=300), 1, 3.0),
    ]
    counted = found(late(of(spark, rows), *RANGE, SETTINGS), *LATE.keys)
    assert [(row["window_start"], row["minute"], row["behind"], row["ahead"]) for row in counted] == [
        (NOON - timedelta(seconds=300), NOON, 0, 1),
        (NOON, NOON, 1, 0),
        (NOON, NOON + timedelta(minutes=12), 1, 0),
    ]


def series(topic: str, values: list[float], every: float = 30.0, begin: float = 0.0) -> list[Row]:
    return [
        reading(at + 1, NOON + timedelta(seconds=begin + at * every), value, topic=topic)
        for at, value in enumerate(values)
    ]


def test_what_flags_say(spark: SparkSession) -> None:
    wave = [20.0, 20.1, 20.0, 20.2, 20.1, 20.0, 20.1, 20.0, 20.1, 20.2]
    rows = [
        *series("quiet", wave),
        *series("silent", wave[:4]),
        *series("twice", [20.0], begin=150.0),
        *series("flat", [7.25] * 10),
        *series("flat/short", [7.25] * 3, every=100.0),
        *series("spike", [*wave[:5], 85.0, *wave[6:]]),
        *series("large", [20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 1020.0]),
        *series("setpoint", [20.0] * 5 + [25.0] * 5),
        *series("huge", [1.7e308, 1.7e308, -1.7e308, 1.7e308], every=75.0),
    ]
    settings = Settings(window=300, gap=120.0, flatline=4, jump_factor=12.0, jump_absolute=900.0)
    windows = found(gold(of(spark, rows), *RANGE, settings), *GOLD.keys)
    said = {window["topic"]: (window["flags"], window["why"]) for window in windows}
    assert said == {
        "quiet": ("", ""),
        "silent": ("gap", "silent for 210.0 s"),
        "twice": ("gap", "silent 2 times, up to 150.0 s"),
        "flat": ("flatline", "all 10 readings are 7.250"),
        "flat/short": ("", ""),
        "spike": ("jump", "a step of 64.90 where 0.1000 is typical"),
        "large": ("jump", "a step of 1000"),
        "setpoint": ("", ""),
        "huge": ("jump", "a step of Infinity"),
    }
    means = {window["topic"]: window["mean"] for window in windows}
    assert means["flat"] == 7.25
    assert means["huge"] == pytest.approx(0.85e308)
