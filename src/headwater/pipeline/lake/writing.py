"""A DataFrame into files of tables: executors write, and tell the driver what they wrote. Nothing is committed here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.objects import Place
from headwater.pipeline.lake.files import TableWriter, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.pipeline.lake.log import Log

Split = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]
"""Of one batch of rows, batches for tables by name."""
Places = dict[str, tuple[Place, str | None]]
"""Of each table by name, its place and the column by which its files are laid out."""


def write_rows(rows: DataFrame, log: Log) -> list[WrittenFile]:
    """As they are, into one table's place."""
    return write_tables(rows, partial(_whole, "rows"), {"rows": (log.place, log.partition)}).get("rows", [])


def write_tables(rows: DataFrame, split: Split, places: Places) -> dict[str, list[WrittenFile]]:
    """What `split` makes of each batch, into several tables in one pass. It is called on executors and has to be
    picklable."""
    told = rows.mapInArrow(partial(_write, split, places), "told binary").collect()
    found: dict[str, list[WrittenFile]] = {}
    for (message,) in told:
        for name, files in pickle.loads(bytes(message)).items():
            found.setdefault(name, []).extend(files)
    return found


def _whole(name: str, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
    return [(name, batch)]


def _write(split: Split, places: Places, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for each task: what it wrote."""
    writers = {name: TableWriter(*place) for name, place in places.items()}
    try:
        for batch in batches:
            for name, part in split(batch):
                writers[name].write(part)
        told: dict[str, Any] = {name: writer.close() for name, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.__exit__()
    yield pa.RecordBatch.from_pydict({"told": pa.array([pickle.dumps(told)], pa.binary())})
