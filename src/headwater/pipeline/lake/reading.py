"""Files of a table that Spark cannot read by itself: tasks read them by Arrow, from wherever they are.

The wheels of PySpark have no file system but that of folders, and its jars for object stores are on no package index.
So the driver says which task reads which files (all that the log knows of them goes along), and tasks read by the
options with which the lake was opened. What the condition and the bounds of row groups exclude is not fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from headwater.objects import Place
from headwater.objects.arrow import filesystem
from headwater.pipeline.lake.types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE: Final = "_file"
"""The column with the name of the file, without its folder."""
TASK_BYTES: Final = 16 << 20
"""Of files that one task reads, at least if there are many: a task costs some milliseconds."""
BATCH: Final = 1 << 16


@dataclass(frozen=True)
class Files:
    """Of a table with this schema, laid out by `partition`: names, sizes in bytes and the partition's values."""

    place: Place
    schema: pa.Schema
    partition: str | None
    files: Sequence[tuple[str, int, Any]]

    def read(self, spark: SparkSession, where: pc.Expression | None = None, *, names: bool = False) -> DataFrame:
        """Their rows; with `names`, each with its file's."""
        groups = list(_grouped(self.files))
        ddl = ddl_of(self.schema) + (f", {FILE} string" if names else "")
        if not groups:
            return spark.createDataFrame([], ddl)
        tasks = spark.range(0, len(groups), 1, len(groups))  # a task has one row, which is its number
        return tasks.mapInArrow(partial(_read, self, groups, where, names), ddl)

    def batches(
        self, files: Sequence[tuple[str, int, Any]], where: pc.Expression | None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """With the names of their files."""
        format, place = ds.ParquetFileFormat(), filesystem(self.place)
        for name, _, value in files:
            known = None
            if self.partition is not None:
                known = ds.field(self.partition) == pa.scalar(value, self.schema.field(self.partition).type)
            fragment = format.make_fragment(name, place, partition_expression=known)
            found = ds.FileSystemDataset([fragment], self.schema, format, place)
            for batch in found.to_batches(filter=where, batch_size=BATCH, batch_readahead=1, use_threads=False):
                if batch.num_rows:
                    yield name, batch


def _grouped(files: Sequence[tuple[str, int, Any]]) -> Iterator[list[tuple[str, int, Any]]]:
    group: list[tuple[str, int, Any]] = []
    for each in files:
        if group and sum(size for _, size, _ in group) + each[1] > TASK_BYTES:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _read(
    files: Files,
    groups: Sequence[Sequence[tuple[str, int, Any]]],
    where: pc.Expression | None,
    names: bool,
    tasks: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for task in tasks:
        for number in task.column(0).to_pylist():
            for name, batch in files.batches(groups[number], where):
                if names:
                    short = pa.array([PurePosixPath(name).name] * batch.num_rows, pa.string())
                    yield batch.append_column(FILE, short)
                else:
                    yield batch
