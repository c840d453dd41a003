"""Rows of stores, as tasks hand them to a table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.store.arrow import record_batch
from headwater.store.chunk import Chunk
from headwater.store.entry import Entry, microseconds

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY = date(2026, 1, 31)


def rows(store: str, first: int, last: int, **more: Any) -> pa.RecordBatch:
    """Positions of a store; further columns have the same value in each row."""
    count = last - first + 1
    columns: dict[str, Any] = {
        "store": pa.array([store] * count, pa.string()),
        "position": pa.array(range(first, last + 1), pa.int64()),
    }
    return pa.RecordBatch.from_pydict({**columns, **{name: [value] * count for name, value in more.items()}})


def messages(store: str, first: int, last: int, day: date = DAY) -> pa.RecordBatch:
    """Rows of bronze, as a store has them."""
    entries = []
    for position in range(first, last + 1):
        moment = microseconds(NOON + timedelta(seconds=position))
        entries.append(Entry(position, f"a/{position % 3}", b"\x00\xff", 1, False, "device", moment, moment, None))
    batch = record_batch(Chunk.of(entries))
    columns = {
        name: column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    days = pa.array([day] * len(entries), pa.date32())
    return pa.RecordBatch.from_pydict({"store": [store] * len(entries), **columns, "day": days})


def written(folder: Path, *batches: pa.RecordBatch, partition: str | None = None) -> list[WrittenFile]:
    return write_files(batches, str(folder), partition)


def contents(folder: Path) -> list[dict[str, Any]]:
    """What somebody else reads, who knows Delta and not us; by store and position."""
    found: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row.get("store") or "", row.get("position") or 0))


def names(folder: Path) -> list[tuple[str, int]]:
    return [(row["store"], row["position"]) for row in contents(folder)]


def span(store: str, first: int, last: int) -> list[tuple[str, int]]:
    return [(store, position) for position in range(first, last + 1)]


def parquet_files(folder: Path) -> list[str]:
    return sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*.parquet"))
