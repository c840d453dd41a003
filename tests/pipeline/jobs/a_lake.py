"""A lake with a bronze of our own making, and what is made of it: for tests of what happens to derived tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.pipeline.jobs.bronze import APP
from headwater.pipeline.jobs.pipeline import Pipeline
from headwater.pipeline.jobs.settings import Settings, make_settings
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.sink import FIRST
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import BRONZE, GOLD, LATE, SILVER, Table

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DERIVING = {"window": 60, "lateness": 0, "clock_behind": 90_000.0}


def a_message(
    position: int, payload: bytes | None = None, topic: str | None = None, store: str = "a", second: float | None = None
) -> dict[str, Any]:
    """A row of bronze: a message every ten seconds, of three topics in turn."""
    arrival = NOON + timedelta(seconds=10 * position if second is None else second)
    body = json.dumps({"v": position}).encode() if payload is None else payload
    found = {"store": store, "position": position, "topic": topic or f"plant/{position % 3}", "payload": body, "qos": 1}
    found |= {"retain": False, "publisher": f"device-{position % 3}", "time": arrival, "arrival": arrival}
    return {**found, "value": float(position), "properties": None, "day": arrival.date()}


def land(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> None:
    """A commit of bronze, as the sink makes it."""
    log = lake.log(BRONZE)
    files = write_files([pa.RecordBatch.from_pylist(list(rows), arrow_schema(BRONZE))], str(log.folder), log.partition)
    ranges = [(store, low, high) for file in files for store, (low, high) in file.stores.items()]
    known = log.positions(APP)
    firsts = {f"{FIRST}/{store}": low for store, low, _ in reversed(ranges) if store not in known}
    log.commit(files, firsts, job=APP, positions={store: high for store, _, high in ranges})


def settings(**given: Any) -> Settings:
    return make_settings({"deriving": DERIVING, "urls": ["http://127.0.0.1:9"], **given})


def pipeline(spark: SparkSession, lake: Lake, given: Settings, **more: Any) -> Pipeline:
    """Nothing lands but what a test lands."""
    return Pipeline(spark, lake, given, landing=False, **more)


def bring_up_to_date(made: Pipeline) -> None:
    """All that can be made of bronze; no store answers."""
    made.hurry = True
    with made:
        while not made.round({}).is_idle:
            pass


def contents(lake: Lake, table: Table) -> list[dict[str, Any]]:
    """All rows, in an order of their own."""
    found: list[dict[str, Any]] = lake.log(table).open().to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: [str(row[name]) for name in table.keys])


def unaccounted(lake: Lake) -> int:
    """Readings with a number that arrived before windows were final, and are neither in gold nor in late."""
    until = lake.snapshot(GOLD).note("until") or 0
    final = [row for row in contents(lake, SILVER) if row["time"].timestamp() * 1e6 < until]
    late: int = sum(row["behind"] + row["ahead"] for row in contents(lake, LATE))
    return len(final) - sum(int(row["count"]) for row in contents(lake, GOLD)) - late
