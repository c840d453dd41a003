"""Rows of bronze, for tests of what is done with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import BRONZE

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def bronze_rows(store: str, first: int, last: int) -> pa.RecordBatch:
    """Positions from first to last, one a second."""
    rows = []
    for position in range(first, last + 1):
        arrival = START + timedelta(seconds=position)
        row = {"store": store, "position": position, "topic": "t", "payload": b"1", "qos": 1, "retain": False}
        row |= {"publisher": "p", "time": arrival, "arrival": arrival, "value": 1.0, "properties": None}
        rows.append({**row, "day": arrival.date()})
    return pa.RecordBatch.from_pylist(rows, arrow_schema(BRONZE))
