"""Rows of a small declared table, for tests of what is done to tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import LIVE

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def live_rows(store: str, first: int, last: int) -> pa.RecordBatch:
    """Positions from first to last."""
    rows = []
    for position in range(first, last + 1):
        received = START + timedelta(seconds=position)
        values = {"store": store, "position": position, "topic": "t", "received": received, "day": received.date()}
        rows.append(values)
    return pa.RecordBatch.from_pylist(rows, arrow_schema(LIVE))
