"""Rows of a table for tasks that are Python in any case: they read Parquet by Arrow, and Java does not touch a row.

Theory. What Java reads for Python it makes rows of, and batches of those, and writes them into a socket; that takes
longer than to decode them. So Spark is told numbers of tasks, and each task opens its files by itself: Spark still
says where it runs, and runs it again if it fails. A task has whole row groups, since those are what Parquet can skip
to. How many a file has is known to who opens it, so the driver gives out shares: "the second of three parts".

There are as many tasks as cores, none of them so small that it costs more than it does nor so large that its files
would be; and the same rows are in the same tasks if a step is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from headwater.objects import Place
from headwater.objects.arrow import filesystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.pipeline.lake.snapshot import Ranges, Snapshot

LEAST: Final = 32_768
"""Rows that a task has, if there are so many."""
MOST: Final = 262_144
"""And those that it does not have many more of."""
BATCH: Final = 65_536
WorkOnBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Rows(Protocol):
    """A DataFrame as those see it who give it to Python, or a Scan."""

    def mapInArrow(self, func: Any, schema: Any) -> DataFrame: ...


@dataclass(frozen=True)
class Share:
    """Part `number` of `of` of the row groups of a file; `known` is what the names of folders say of its rows."""

    path: str
    known: Mapping[str, Any]
    number: int = 0
    of: int = 1


@dataclass(frozen=True)
class Scan:
    """Picklable but for its session, which stays with the driver."""

    spark: SparkSession
    place: Place
    tasks: Sequence[Sequence[Share]]
    schema: pa.Schema
    columns: Sequence[str]
    where: ds.Expression | None

    def mapInArrow(self, func: WorkOnBatches, schema: str) -> DataFrame:
        """As that of a DataFrame with these rows."""
        count = max(1, len(self.tasks))
        work = partial(_work, func, self.place, self.tasks, self.schema, self.columns, self.where)
        return self.spark.range(0, count, 1, count).mapInArrow(work, schema)


def scan(
    spark: SparkSession,
    table: Snapshot,
    ranges: Ranges,
    columns: Sequence[str],
    further: ds.Expression | None = None,
) -> Scan:
    """These columns of the rows of these positions that fulfil the `further` condition, too."""
    position = ds.field("position")
    wanted = [
        (ds.field("store") == store) & (position > after) & (position <= last)
        for store, (after, last) in ranges.items()
    ]
    where = reduce(lambda one, other: one | other, wanted, ds.scalar(False))
    files = table.known_of(table.files_with(ranges))
    cores = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    wanted_rows = where if further is None else where & further
    return Scan(spark, table.log.place, tasks_of(files, cores), table.schema, tuple(columns), wanted_rows)


def between(column: str, start: datetime, end: datetime) -> ds.Expression:
    """start ≤ column < end, for times."""
    time = pa.timestamp("us", "UTC")
    return (ds.field(column) >= pa.scalar(start, time)) & (ds.field(column) < pa.scalar(end, time))


def tasks_of(files: Sequence[tuple[str, int, Mapping[str, Any]]], cores: int) -> list[list[Share]]:
    """Files, each with its rows and what is known of them, as tasks of about as many rows each."""
    rows = sum(count for _, count, _ in files)
    size = min(MOST, max(LEAST, -(-rows // cores)))
    tasks: list[list[Share]] = [[]]
    room = size
    for path, count, known in files:
        parts = max(1, round(count / size))
        for number in range(parts):
            if tasks[-1] and count // parts > room:
                tasks.append([])
                room = size
            tasks[-1].append(Share(path, known, number, parts))
            room -= count // parts
    return tasks


def _work(
    func: WorkOnBatches,
    place: Place,
    tasks: Sequence[Sequence[Share]],
    schema: pa.Schema,
    columns: Sequence[str],
    where: ds.Expression | None,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    mine = [number for batch in numbers for number in batch.column(0).to_pylist()]
    shares = [share for number in mine if number < len(tasks) for share in tasks[number]]
    return func(batch for share in shares for batch in read(place, share, schema, columns, where))


def read(
    place: Place, share: Share, schema: pa.Schema, columns: Sequence[str], where: ds.Expression | None
) -> Iterator[pa.RecordBatch]:
    """Columns that the file does not have are null. Row groups whose bounds exclude `where` are not read."""
    known = [ds.field(name) == pa.scalar(value, schema.field(name).type) for name, value in share.known.items()]
    holds = reduce(lambda one, other: one & other, known) if known else None
    format, files = ds.ParquetFileFormat(), filesystem(place)
    fragment = format.make_fragment(share.path, files, partition_expression=holds)
    if share.of > 1:
        groups = fragment.row_groups
        cuts = [len(groups) * number // share.of for number in (share.number, share.number + 1)]
        fragment = format.make_fragment(
            share.path,
            files,
            partition_expression=holds,
            row_groups=[each.id for each in groups[slice(*cuts)]],
        )
    one = ds.FileSystemDataset([fragment], schema, format, files)
    for batch in one.to_batches(columns=list(columns), filter=where, batch_size=BATCH, use_threads=False):
        if batch.num_rows:
            yield batch
