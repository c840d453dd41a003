"""Latest, completeness, holes and traffic against a plain recomputation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from headwater.pipeline.derive.completeness import completeness, holes
from headwater.pipeline.derive.latest import latest, newer, same_key
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.tables import BRONZE, COMPLETENESS, LATEST, LIVE, TRAFFIC
from tests.pipeline.derive import plain
from tests.pipeline.derive.rows import (
    NOON,
    Row,
    found,
    frame,
    of,
    random_bronze,
    random_live,
    random_silver,
    reading,
)

SILVER = random_silver(Random(3), 900, Settings())
BRONZE_ROWS = random_bronze(Random(4), 3000)
LIVE_ROWS = random_live(Random(5), BRONZE_ROWS)
HOUR = (NOON + timedelta(minutes=3), NOON + timedelta(minutes=63))
EVER = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))


def ordered(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(str(row[key]) for key in keys))


# ---- latest ------------------------------------------------------------------------------------------------------


def test_latest_is_that_of_a_plain_recomputation(spark: SparkSession) -> None:
    made = latest(of(spark, SILVER))
    assert made.columns == list(LATEST.names)
    assert repr(_plainly(found(made, *LATEST.keys))) == repr(_plainly(ordered(plain.latest(SILVER), LATEST.keys)))


def _plainly(rows: list[Row]) -> list[Row]:
    """With times as numbers, whose form does not depend on the library that names their zone."""
    return [
        {name: each.timestamp() if isinstance(each, datetime) else each for name, each in row.items()} for row in rows
    ]


def test_latest_of_increments_is_latest_of_all(spark: SparkSession) -> None:
    shuffled = Random(1).sample(SILVER, len(SILVER))
    first, second = of(spark, shuffled[:500]), of(spark, shuffled[400:])
    merged = latest(latest(second).unionByName(latest(first)).unionByName(latest(first)))
    assert repr(found(merged, *LATEST.keys)) == repr(found(latest(of(spark, SILVER)), *LATEST.keys))


def test_a_clock_that_is_ahead_counts_at_its_arrival(spark: SparkSession) -> None:
    century = NOON.replace(year=2100)
    rows = [
        reading(1, century, 1.0, topic="set right", arrival=NOON, clock="ahead"),
        reading(2, NOON + timedelta(seconds=5), 2.0, topic="set right"),
        reading(3, NOON, 3.0, topic="goes wrong"),
        reading(4, century, 4.0, topic="goes wrong", arrival=NOON + timedelta(seconds=9), clock="ahead"),
        reading(5, NOON, 5.0, topic="kept for long"),
        reading(6, NOON - timedelta(days=9), 6.0, topic="kept for long", arrival=NOON + timedelta(1), clock="behind"),
    ]
    values = {row["topic"]: row["value"] for row in found(latest(of(spark, rows)), *LATEST.keys)}
    assert values == {"set right": 2.0, "goes wrong": 4.0, "kept for long": 5.0}


def test_merge_by_sql_is_the_same_in_deltalake(spark: SparkSession, tmp_path: Path) -> None:
    """Increments of one batch each, one of them twice and in no order: the table ends as `latest` of all."""
    shuffled = Random(2).sample(SILVER, len(SILVER))
    parts = [shuffled[:300], shuffled[600:], shuffled[250:650], shuffled[:300]]
    increments = [latest(of(spark, part)).toArrow() for part in parts]
    write_deltalake(tmp_path, increments[0])
    for increment in increments[1:]:
        merge = DeltaTable(tmp_path).merge(increment, same_key("new", "old"), source_alias="new", target_alias="old")
        merge.when_matched_update_all(newer("new", "old")).when_not_matched_insert_all().execute()
    table: pa.Table = DeltaTable(tmp_path).to_pyarrow_table()
    expected = found(latest(of(spark, SILVER)), *LATEST.keys)
    assert repr(_plainly(ordered(table.to_pylist(), LATEST.keys))) == repr(_plainly(expected))


# ---- completeness -----------------------------------------------------------------------------------------------


def without(bronze: list[Row], share: float, chance: Random) -> list[Row]:
    """Bronze with holes of one and of many positions."""
    kept = [row for row in bronze if chance.random() >= share]
    return [row for row in kept if not (row["store"] == "two" and 300 <= row["position"] < 420)]


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_completeness_is_that_of_a_plain_recomputation(spark: SparkSession, share: float) -> None:
    bronze = without(BRONZE_ROWS, share, Random(6)) if share else BRONZE_ROWS
    stores = {"one": 0, "two": 0, "three": 60, "silent": 0}
    erased = [("two", 310, 400), ("one", 1, 40), ("three", 50, 70), ("gone", 1, 9)]
    made = completeness(frame(spark, BRONZE, bronze), frame(spark, LIVE, LIVE_ROWS), stores, *HOUR, erased)
    rows = found(made, *COMPLETENESS.keys)
    assert rows == ordered(plain.completeness(bronze, LIVE_ROWS, stores, *HOUR, erased), COMPLETENESS.keys)
    assert made.columns == list(COMPLETENESS.names)
    assert len(rows) == 4 * 60
    assert all(row["made"] == row["live"] + row["recovered"] + row["erased"] + row["lost"] for row in rows)
    assert (sum(row["lost"] for row in rows) > 0) == (sum(row["erased"] for row in rows) > 0) == (share > 0)
    assert all(sum(row[name] for row in rows) > 0 for name in ("made", "live", "recovered", "duplicate"))


def test_completeness_of_increments_is_that_of_all(spark: SparkSession) -> None:
    """Each increment has the rows of its minutes only, and is told the last position before them."""
    bronze = without(BRONZE_ROWS, 0.05, Random(6))
    half = HOUR[0] + timedelta(minutes=25)
    rows: list[Row] = []
    for start, end in ((HOUR[0], half), (half, HOUR[1])):
        before = [row for row in bronze if row["arrival"] < start]
        stores = {
            store: max((row["position"] for row in before if row["store"] == store), default=0)
            for store in ("one", "two", "three")
        }
        own = frame(spark, BRONZE, [row for row in bronze if row["arrival"] >= start])
        rows += found(completeness(own, frame(spark, LIVE, LIVE_ROWS), stores, start, end), *COMPLETENESS.keys)
    expected = plain.completeness(bronze, LIVE_ROWS, {"one": 0, "two": 0, "three": 0}, *HOUR)
    assert ordered(rows, COMPLETENESS.keys) == ordered(expected, COMPLETENESS.keys)


def test_a_message_that_is_in_bronze_twice_hides_no_loss(spark: SparkSession) -> None:
    bronze = [row for row in BRONZE_ROWS if row["position"] not in (10, 11)]
    twice = [*bronze, *(row for row in bronze if row["position"] in (12, 13))]
    none = frame(spark, LIVE, [])
    rows = found(completeness(frame(spark, BRONZE, twice), none, {"one": 0}, NOON, HOUR[1]), *COMPLETENESS.keys)
    assert sum(row["lost"] for row in rows) == 2


# ---- holes ------------------------------------------------------------------------------------------------------


def test_holes_are_the_ranges_that_are_missing(spark: SparkSession) -> None:
    bronze = without(BRONZE_ROWS, 0.05, Random(8))
    bronze = [row for row in bronze if row["store"] != "one" or row["position"] not in (1, 2, 3, 1000)]
    expected = {"one": (1, 1000), "two": (305, 1003), "three": (7, 6), "new": (1, 5)}
    rows = found(holes(frame(spark, BRONZE, bronze), expected), "store", "first")
    assert rows == ordered(plain.holes(bronze, expected), ("store", "first"))
    assert {row["store"] for row in rows} == {"one", "two", "new"}
    with pytest.raises(ValueError, match="of store 'one', positions 9 to 7 are expected, which is no range"):
        holes(frame(spark, BRONZE, []), {"one": (9, 7)})


# ---- traffic ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("range", [HOUR, EVER])
def test_traffic_is_that_of_a_plain_recomputation(spark: SparkSession, range: tuple[datetime, datetime]) -> None:
    made = traffic(frame(spark, BRONZE, BRONZE_ROWS), *range)
    assert made.columns == list(TRAFFIC.names)
    rows = found(made, *TRAFFIC.keys)
    assert rows == ordered(plain.traffic(BRONZE_ROWS, *range), TRAFFIC.keys)
    assert (sum(row["messages"] for row in rows) == len(BRONZE_ROWS)) == (range is EVER)
