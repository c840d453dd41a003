"""Reads of a table as Spark does them: its readers, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter

from headwater.pipeline.lake.asked import read_options
from headwater.pipeline.lake.reader import PushingTableReader, TableReader, TableStreamReader, spark_schema


def rows_of(reader: TableReader | TableStreamReader, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    """All of these partitions, which travel as they do to executors."""
    arrived = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in partitions for batch in arrived.read(pickle.loads(pickle.dumps(each)))]
    assert all(each.schema == reader.rows.shape for each in batches), "Spark refuses other schemas"
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, reader.rows.shape).to_pylist()
    return found


def as_text(folder: Path | str, options: Mapping[str, object]) -> dict[str, str]:
    return {"path": str(folder), **{name: str(value) for name, value in options.items()}}


def read(folder: Path | str, filters: Sequence[Filter] = (), **options: object) -> list[dict[str, Any]]:
    asked = read_options(as_text(folder, options), is_stream=False)
    reader = PushingTableReader(asked.pinned(), spark_schema(asked))
    left = list(reader.pushFilters(list(filters)))
    assert not left, "Spark would have to look at these"
    return rows_of(reader, reader.partitions())


def stream(folder: Path | str, **options: object) -> TableStreamReader:
    asked = read_options(as_text(folder, options), is_stream=True)
    return TableStreamReader(asked, spark_schema(asked))
