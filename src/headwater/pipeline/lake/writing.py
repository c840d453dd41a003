"""A DataFrame into files of tables: executors write, and tell the driver what they wrote. Nothing is committed here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.objects import Place
from headwater.pipeline.lake.files import TableWriter, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.pipeline.lake.log import Log
    from headwater.pipeline.lake.scan import Rows

Split = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]
"""Of one batch of rows, batches for tables by name."""
Places = dict[str, tuple[Place, str | None]]
"""Of each table by name, its place and the column by which its files are laid out."""


@dataclass
class Written:
    """`files` by table. What `split` made for a name that has no place is `told`: batches, which have to be small."""

    files: dict[str, list[WrittenFile]] = field(default_factory=dict)
    told: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)


def write_rows(rows: DataFrame, log: Log) -> list[WrittenFile]:
    """As they are, into one table's place."""
    return write_tables(rows, partial(_whole, "rows"), {"rows": (log.place, log.partition)}).files.get("rows", [])


def write_tables(rows: Rows, split: Split, places: Places) -> Written:
    """What `split` makes of each batch, into several tables in one pass. It is called on executors and has to be
    picklable."""
    messages = rows.mapInArrow(partial(_write, split, places), "told binary").collect()
    found = Written()
    for (message,) in messages:
        part: Written = pickle.loads(bytes(message))
        for name, files in part.files.items():
            found.files.setdefault(name, []).extend(files)
        for name, batches in part.told.items():
            found.told.setdefault(name, []).extend(batches)
    return found


def _whole(name: str, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
    return [(name, batch)]


def _write(split: Split, places: Places, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for each task: what it wrote."""
    writers = {name: TableWriter(*place) for name, place in places.items()}
    found = Written()
    try:
        for batch in batches:
            for name, part in split(batch):
                if name in writers:
                    writers[name].write(part)
                elif part.num_rows:
                    found.told.setdefault(name, []).append(part)
        found.files = {name: writer.close() for name, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.__exit__()
    yield pa.RecordBatch.from_pydict({"told": pa.array([pickle.dumps(found)], pa.binary())})
