"""What an executor does for a table: Arrow batches into Parquet files, and a note of each for whoever commits them.

Theory. A file belongs to a table when a commit names it, and not before. So an executor writes under a name that nobody
else has, tells the driver, and forgets: a task that dies, is repeated or runs twice leaves files that no commit
names, which reading never sees and vacuum removes.

Notes have the least and greatest store, position and times of a file: readers skip files by them, and the commit learns
from them how far the table goes.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.disk.crash_points import crash_point
from headwater.objects import Place, PlaceError, open_place
from headwater.objects.arrow import output

MEASURED: Final = ("store", "position", "time", "arrival", "window_start", "minute")
"""Columns whose bounds are noted, if they are text, whole numbers or times: others have none that JSON can say."""
COMPRESSION: Final = "zstd"
LEAN: Final = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
LARGEST_GROUP: Final = 1 << 20
NUMBERED: Final = ("position", "time", "arrival")
"""Columns whose values hardly repeat: a dictionary of them is made in vain, and then kept beside them."""
DOCUMENTS: Final = ("payload", "data", "raw")
"""Columns whose values repeat in some tables, and are long."""
SAMPLE: Final = 4096
"""Rows that are looked at to see it."""


@dataclass
class WrittenFile:
    """A file that no commit names yet; `path` is relative to the table's folder. Picklable."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    low: dict[str, Any]
    high: dict[str, Any]
    schema: bytes
    stores: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each store the first and last position in it."""
    made: int = 0
    """Milliseconds since 1970."""
    nulls: dict[str, int] = field(default_factory=dict)
    """Of each column that has bounds, how many rows have no value in it."""

    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


def write_files(
    batches: Iterable[pa.RecordBatch], where: str | Place, partition: str | None, *, lean: bool = False
) -> list[WrittenFile]:
    """Everything, into files of the table at this place; nothing is left of them if it fails."""
    with TableWriter(where, partition, lean=lean) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


class TableWriter:
    """Batches into a file for each value of the partition's column and each schema: payloads may bring new columns,
    and those have a file of their own. The place is the table's; what of it is not there is made. Left before
    `close`, it leaves nothing. `lean` files lack what makes a large one quick to read, and a small one twice as
    large."""

    def __init__(self, where: str | Place, partition: str | None, *, lean: bool = False) -> None:
        self._place = where if isinstance(where, Place) else open_place(where)
        self._partition = partition
        self._options = LEAN if lean else {}
        self._open: dict[tuple[str, str], _OpenFile] = {}
        crash_point("pipeline-before-file", self._place.name)

    def write(self, batch: pa.RecordBatch) -> None:
        for value, part in _by_partition(batch, self._partition):
            key = (value, part.schema.to_string())
            if key not in self._open:
                options: Mapping[str, Any] = self._options or {"use_dictionary": repeating(part)}
                self._open[key] = _OpenFile(self._place, self._partition, value, part.schema, options)
            self._open[key].write(part)

    def close(self) -> list[WrittenFile]:
        """All files are on disk when this returns: a commit may name them."""
        written = [each.close() for each in self._open.values()]
        self._open.clear()
        return written

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open.values():
            each.discard()


def _by_partition(batch: pa.RecordBatch, partition: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    if partition is None:
        yield "", batch
        return
    values = batch.column(partition)
    bounds = pc.min_max(values).as_py()
    rest = batch.drop_columns([partition])
    if bounds["min"] == bounds["max"] and values.null_count == 0:  # nearly always
        yield str(bounds["min"]), rest
        return
    for value in pc.unique(values).to_pylist():
        if value is None:
            raise ValueError(f"a row has no {partition}, by which the files of its table are laid out")
        yield str(value), rest.filter(pc.equal(values, pa.scalar(value, values.type)))


class _OpenFile:
    def __init__(
        self, place: Place, partition: str | None, value: str, schema: pa.Schema, options: Mapping[str, Any]
    ) -> None:
        self._partition = {} if partition is None else {partition: value}
        home = "" if partition is None else f"{partition}={value}/"
        self._table = place.name
        self._name = f"{home}part-{uuid.uuid4().hex}.parquet"
        self._schema = schema
        self._target = _LocalFile(place.folder / self._name) if place.folder else _Object(place, self._name)
        try:
            self._writer = pq.ParquetWriter(self._target.output, schema, compression=COMPRESSION, **options)
        except BaseException:
            self._target.discard()
            raise
        self._rows = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls: dict[str, int] = {}
        self._stores: dict[str, tuple[int, int]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch, row_group_size=LARGEST_GROUP)
        self._rows += batch.num_rows
        for name in measured(batch.schema):
            self._nulls[name] = self._nulls.get(name, 0) + batch.column(name).null_count
            bounds = pc.min_max(batch.column(name)).as_py()
            if bounds["min"] is not None:
                self._low[name] = min(self._low.get(name, bounds["min"]), bounds["min"])
                self._high[name] = max(self._high.get(name, bounds["max"]), bounds["max"])
        if {"store", "position"} <= self._nulls.keys():
            self._note_stores(batch)

    def _note_stores(self, batch: pa.RecordBatch) -> None:
        """Rows without a store or position, which a join may bring, do not count."""
        named = pa.table({"store": batch.column("store"), "position": batch.column("position")}).drop_null()
        found = named.group_by("store").aggregate([("position", "min"), ("position", "max")]).to_pylist()
        for each in found:
            low, high = self._stores.get(each["store"], (each["position_min"], each["position_max"]))
            self._stores[each["store"]] = (min(low, each["position_min"]), max(high, each["position_max"]))

    def close(self) -> WrittenFile:
        """On disk when this returns: a commit may name it."""
        self._writer.close()
        size = self._target.finish()
        crash_point("pipeline-after-file", self._table)
        return WrittenFile(
            self._name,
            size,
            self._rows,
            self._partition,
            self._low,
            self._high,
            self._schema.serialize().to_pybytes(),
            self._stores,
            time.time_ns() // 1_000_000,
            self._nulls,
        )

    def discard(self) -> None:
        """Whatever has happened, a full disk among it."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._target.discard()


class _LocalFile:
    """Arrow writes it by itself, which is quicker than through Python; nobody else has its name."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.output = path

    def finish(self) -> int:
        """It is on disk; its size."""
        descriptor = os.open(self.output, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        self.output.unlink(missing_ok=True)


class _Object:
    """It appears when it is whole; parts of one that does not are the store's to forget."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self._sink = place.sink(name)
        self.output = output(self._sink)

    def finish(self) -> int:
        with self._sink:
            pass
        found = self._place.head(self._name)
        if found is None:
            raise PlaceError(f"{self._place.url}: {self._name} was written, and is not there")
        return found.size

    def discard(self) -> None:
        self._place.delete([self._name])


def repeating(batch: pa.RecordBatch) -> list[str] | bool:
    """The columns that are to have a dictionary, by the first batch of a file; True: all."""
    if any(pa.types.is_nested(each.type) for each in batch.schema):
        return True
    rare = {name for name in DOCUMENTS if name in batch.schema.names and _hardly_repeats(batch.column(name))}
    return [name for name in batch.schema.names if name not in rare and name not in NUMBERED]


def _hardly_repeats(column: pa.Array) -> bool:
    some = column.slice(0, SAMPLE)
    there: int = len(some) - some.null_count
    found: int = pc.count_distinct(some).as_py()
    return found > there // 2


def measured(schema: pa.Schema) -> list[str]:
    """The columns of which a file has bounds."""
    return [name for name in MEASURED if name in schema.names and _has_bounds(schema.field(name).type)]


def _has_bounds(kind: pa.DataType) -> bool:
    is_one = (pa.types.is_string, pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date)
    return any(each(kind) for each in is_one)
