"""Random silver, bronze and live rows, small and nasty, as Python values and as DataFrames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.tables import SILVER, Table

Row = dict[str, Any]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "tinyint": pa.int8(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
NASTY = (0.0, -0.0, 5e-324, 1.7e308, -1.7e308, 0.1, 1e16, 1.0, None, float("nan"), float("inf"), float("-inf"))
WRONG_CLOCKS = (timedelta(days=3), timedelta(days=27_000), timedelta(hours=-30), timedelta(days=-20_000))


def frame(spark: SparkSession, table: Table, rows: list[Row]) -> DataFrame:
    """A DataFrame of the table with these rows; columns that they lack are null."""
    columns = [pa.array([row.get(each.name) for row in rows], ARROW[each.type]) for each in table.columns]
    made = spark.createDataFrame(pa.table(columns, names=list(table.names)))
    assert made.columns == list(table.names)
    return made


def of(spark: SparkSession, silver: list[Row]) -> DataFrame:
    return frame(spark, SILVER, silver)


def found(made: DataFrame, *keys: str) -> list[Row]:
    """Its rows in the order of the keys, of which none is there twice."""
    rows: list[Row] = made.toArrow().to_pylist()
    name = lambda row: tuple(str(row[key]) for key in keys)  # noqa: E731
    assert len({name(row) for row in rows}) == len(rows)
    return sorted(rows, key=name)


def reading(position: int, time: datetime, value: float | None, **more: Any) -> Row:
    """A reading that arrived a second after it was made, if nothing else is said."""
    row = {
        "store": "one",
        "position": position,
        "part": 0,
        "topic": "plant/7/heat",
        "device": "7",
        "metric": "heat",
        "time": time,
        "arrival": time + timedelta(seconds=1),
        "clock": "ok",
        "value": value,
        "decoder": "json",
        **more,
    }
    return {**row, "day": row["arrival"].date()}


def clock_of(time: datetime, arrival: datetime, settings: Settings) -> str:
    if time - arrival > timedelta(seconds=settings.clock_ahead):
        return "ahead"
    return "behind" if arrival - time > timedelta(seconds=settings.clock_behind) else "ok"


def random_silver(chance: Random, count: int, settings: Settings) -> list[Row]:
    """Arrivals never go back in a store. Times are of few values, so that many are equal."""
    rows: list[Row] = []
    for store in ("one", "two", "three"):
        arrival = NOON
        for position in range(1, count // 3 + 1):
            arrival += timedelta(seconds=chance.choice((0, 0, 1, 4, 17)))
            for part in range(chance.choice((1, 1, 1, 3))):
                rows.append(_random_reading(chance, store, position, part, arrival, settings))
    return rows


def _random_reading(chance: Random, store: str, position: int, part: int, arrival: datetime, settings: Settings) -> Row:
    back = chance.choice((0, 0, 0, 0, 10, 60, 300, 600, 1000, 2500, -20))
    time = arrival - timedelta(seconds=back)
    time -= timedelta(seconds=time.second % 5, microseconds=time.microsecond)
    if chance.random() < 0.03:
        time = arrival + chance.choice(WRONG_CLOCKS)
    key = chance.randrange(9)
    value = chance.choice(NASTY) if chance.random() < 0.05 else _ordinary(chance, key)
    return reading(
        position,
        time,
        value,
        store=store,
        part=part,
        arrival=arrival,
        clock=clock_of(time, arrival, settings),
        topic=f"plant/{key % 3}",
        device=None if key == 8 else f"d{key // 3}",
        metric=None if key == 7 else "heat",
        text=chance.choice((None, "on")),
    )


def _ordinary(chance: Random, key: int) -> float:
    if key == 5:
        return 0.1  # stands still, and three of it are not 0.3
    if chance.random() < 0.01:
        return 1000.0
    return round(20 + key + chance.gauss(0, 0.3), chance.choice((1, 3, 15)))


def random_bronze(chance: Random, count: int) -> list[Row]:
    rows: list[Row] = []
    for store in ("one", "two", "three"):
        arrival = NOON
        for position in range(1, count // 3 + 1):
            arrival += timedelta(seconds=chance.choice((0, 1, 5, 11)), microseconds=chance.randrange(3))
            if chance.random() < 0.001:
                arrival += timedelta(seconds=400)
            rows.append(
                {
                    "store": store,
                    "position": position,
                    "topic": f"plant/{chance.randrange(3)}",
                    "qos": 1,
                    "payload": b"x" * chance.randrange(4),
                    "retain": False,
                    "arrival": arrival,
                    "time": arrival,
                    "publisher": f"gateway-{chance.randrange(3)}",
                    "day": arrival.date(),
                }
            )
    return rows


def random_live(chance: Random, bronze: list[Row]) -> list[Row]:
    """Most messages came by MQTT, some of them more than once."""
    return [
        {"store": row["store"], "position": row["position"], "topic": row["topic"], "received": row["arrival"]}
        for row in bronze
        for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 4)))
    ]
