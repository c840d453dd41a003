"""Which files of a table become one, and how.

Theory. A file a second has to become few, without rewriting all for each. So files are merged with those of about the
same size (within a factor of 8, a level): when a level has `few_files`, they become one file, of a level above. A byte
is rewritten once for each level, five times from 4 kB to 64 MB, and a day has less than `few_files` files of each level
beside the full ones. When a day is over and nothing was added to it for an hour, what is left of it is merged as well.

Rows are copied as they are, file after file in the order in which they were made: bounds of positions and times stay
narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.objects import Place
from headwater.objects.arrow import source
from headwater.pipeline.lake.files import TableWriter, WrittenFile
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings

SMALLEST: Final = 4096
FACTOR: Final = 8
SETTLED: Final = 3600.0
"""Seconds after the last file of a partition that is not the newest one."""
GROUP_ROWS: Final = 1 << 17
GROUP_BYTES: Final = 64 << 20
"""Of a row group, before compression."""


@dataclass(frozen=True)
class TableFile:
    """Of a table, as its log has it. `made` is in milliseconds since 1970."""

    path: str
    size: int
    made: int
    partition: Any = None


def files_of(files: pa.Table, partition: str | None) -> list[TableFile]:
    """From `View.files`."""
    names = ("path", "size_bytes", "modification_time")
    columns = [files.column(name).to_pylist() for name in names]
    values = [None] * files.num_rows if partition is None else files.column(f"partition.{partition}").to_pylist()
    return [TableFile(*each) for each in zip(*columns, values, strict=True)]


def groups(files: Iterable[TableFile], keeping: UpkeepSettings, now: float) -> Iterator[list[TableFile]]:
    """Files that are to become one, the oldest partition first; no group is larger than a file has to be."""
    partitions: dict[Any, list[TableFile]] = {}
    for each in files:
        partitions.setdefault(each.partition, []).append(each)
    newest = max(partitions) if len(partitions) > 1 else None
    for value, found in sorted(partitions.items()) if len(partitions) > 1 else partitions.items():
        small = [each for each in found if each.size < keeping.file_size // 2]
        if newest not in (None, value) and now - max(each.made for each in found) / 1000 > SETTLED:
            yield from _cut(small, keeping.file_size, 2)
        else:
            levels: dict[int, list[TableFile]] = {}
            for each in small:
                levels.setdefault(_level(each.size), []).append(each)
            for _, alike in sorted(levels.items()):
                if len(alike) >= keeping.few_files:
                    yield from _cut(alike, keeping.file_size, keeping.few_files)


def _level(size: int) -> int:
    return int(math.log(max(size, SMALLEST) / SMALLEST, FACTOR))


def _cut(files: Sequence[TableFile], most: int, least: int) -> Iterator[list[TableFile]]:
    """Into groups of up to so many bytes; none has fewer files than that."""
    group: list[TableFile] = []
    for each in sorted(files, key=lambda file: (file.made, file.path)):
        if group and sum(file.size for file in group) + each.size > most:
            if len(group) >= least:
                yield group
            group = []
        group.append(each)
    if len(group) >= least:
        yield group


def merge(place: Place, partition: str | None, schema: pa.Schema, files: Sequence[TableFile]) -> list[WrittenFile]:
    """The rows of files of one partition, in one file that no commit names yet. `schema` is the table's: files may lack
    columns that came later, or have a type that reads as the table's."""
    [value] = {each.partition for each in files}
    columns = {partition: value} if partition is not None else {}
    opened = [pq.ParquetFile(source(place, each.path)) for each in files]
    present = {name for each in opened for name in each.schema_arrow.names}
    wanted = pa.schema([each for each in schema if each.name in present or each.name in columns])
    with TableWriter(place, partition) as writer:
        for table in _groups(_batches(opened, wanted, columns)):
            for batch in table.combine_chunks().to_batches():
                writer.write(batch)
        return writer.close()


def _batches(sources: Iterable[pq.ParquetFile], schema: pa.Schema, known: Mapping[str, Any]) -> Iterator[pa.Table]:
    for each in sources:
        with each:
            for batch in each.iter_batches(GROUP_ROWS):
                yield _fitted(batch, schema, known)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, known: Mapping[str, Any]) -> pa.Table:
    columns = []
    for each in schema:
        if each.name in batch.schema.names:
            columns.append(batch.column(each.name).cast(each.type))
        else:
            columns.append(pa.array([known.get(each.name)] * batch.num_rows, each.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Of the size of a row group: a file of many small ones is read slowly, and is large."""
    waiting: list[pa.Table] = []
    for each in tables:
        waiting.append(each)
        if sum(one.num_rows for one in waiting) >= GROUP_ROWS or sum(one.nbytes for one in waiting) >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
