"""`format("headwater-delta")`: rows into a Delta table, exactly once, without a jar.

Theory. Executors write files (`files`), the driver commits them (`log`). Spark repeats the last batch of a query that
was killed, so the driver asks the table whether it is there:

    rows that have a store and a position    the table's notes say up to which position of each store it goes;
                                             a batch at or below is there, one that overlaps is an error
    other rows                               the table's note of the query says which batch was the last

The first holds also if the query's checkpoint was deleted and batches are counted anew; the second cannot, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import DateType, StructType

from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.log import LakeError, Log, Positions
from headwater.pipeline.lake.plain import WRITING, settle_batch, settle_rows
from headwater.pipeline.options import Options
from headwater.pipeline.portable import Portable
from headwater.pipeline.tables import BY_NAME, Table

FORMAT: Final = "headwater-delta"
OPTIONS: Final = {
    "path": "the folder of the table, the same for all executors",
    "app": "a name of the query, of which the table remembers the last batch; the same after a restart",
    "table": "a declared table, such as bronze; else the table is made as the rows are",
    "partitionBy": "a column by which files are laid out, if the table is not a declared one",
    "layout": "delta, or parquet: files without a log",
}
LAYOUTS: Final = ("delta", "parquet")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
FIRST: Final = "first"
"""The note `first/STORE` has the first position that the table got of a store."""


class Message(WriterCommitMessage):
    """From a task to the driver."""

    def __init__(self, files: list[WrittenFile]) -> None:
        self.files = files


class DeltaSink(Portable, DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(Sink(self.options, schema, needs_app=False), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(Sink(self.options, schema, needs_app=True))


class Sink:
    """What both writers know: where, and by which columns."""

    def __init__(self, given: Mapping[str, str], schema: StructType, needs_app: bool) -> None:
        options = Options(FORMAT, given, OPTIONS)
        self.path = options.needed("path", "/data/lake/tables/bronze")
        self.app = options.text("app") or ""
        if self.app and not NAME.fullmatch(self.app):
            raise options.wrong("app", f"has letters, digits, dots, dashes and underscores, unlike {self.app!r}")
        if needs_app and not self.app:
            raise options.wrong("app", "is needed for a stream: the table remembers by it which batches it has")
        name = options.text("table")
        if name is not None and name not in BY_NAME:
            raise options.wrong("table", f"is one of {', '.join(BY_NAME)}, not {name!r}")
        self.table = None if name is None else BY_NAME[name]
        self.partition = options.text("partitionBy") if self.table is None else self.table.partition
        self.by_position = self.table is None or self.table.by_position
        self.layout = options.text("layout", "delta")
        if self.layout not in LAYOUTS:
            raise options.wrong("layout", f"is one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        names = schema.fieldNames()
        if self.table is not None:
            _check_columns(self.table, names, options)
        elif self.partition is not None and self.partition not in names:
            raise options.wrong("partitionBy", f"names no column of the rows; there are {', '.join(names)}")
        elif self.partition is not None and schema[self.partition].dataType != DateType():
            raise options.wrong("partitionBy", f"is a column of dates, which {self.partition} is not")

    @property
    def folder(self) -> str:
        """Into which executors write."""
        return self.path if self.layout == "delta" else str(Path(self.path, WRITING))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Message:
        return Message(write_files(batches, self.folder, self.partition))

    def log(self, files: Sequence[WrittenFile]) -> Log:
        """The table is made with the first rows, if it is not a declared one."""
        if self.table is not None:
            return Log.of(self.path, self.table)
        log = Log(self.path, self.partition)
        if files and not log.exists():
            schema = files[0].arrow_schema()
            if self.partition is not None:
                schema = schema.append(pa.field(self.partition, pa.date32()))
            log.create(schema)
        return log

    def discard(self, files: Iterable[WrittenFile]) -> None:
        for each in files:
            Path(self.folder, each.path).unlink(missing_ok=True)

    def abort(self, files: Sequence[WrittenFile]) -> None:
        """Away with files, but for those that the table has got: a commit may have been made and failed to say so."""
        log = Log(self.path, self.partition)
        named = set(log.paths()) if self.layout == "delta" and log.exists() else set()
        self.discard(each for each in files if each.path not in named)


class StreamWriter(Portable, DataSourceStreamArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        files = _files(messages)
        if self.sink.layout == "parquet":
            settle_batch(Path(self.sink.path), self.sink.app, batchId, files)
            return
        log = self.sink.log(files)
        if not files and not log.exists():
            return
        stores = _stores(files) if self.sink.by_position else None
        if stores is None:
            if is_there(log, self.sink.app, batchId):
                self.sink.discard(files)
            else:
                log.commit(files, {self.sink.app: batchId})
            return
        seen = log.open()
        known = log.positions(self.sink.app, seen)
        if overlaps(stores, known, self.sink.path):
            self.sink.discard(files)
        elif files:
            ends = {store: last for store, (_, last) in stores.items()}
            firsts = {f"{FIRST}/{store}": first for store, (first, _) in stores.items() if store not in known}
            log.commit(files, {self.sink.app: batchId, **firsts}, job=self.sink.app, positions=ends, seen=seen)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.abort(_files(messages))


class BatchWriter(Portable, DataSourceArrowWriter):
    """Appends, or replaces everything. Not repeated by Spark, so there is nothing to remember."""

    def __init__(self, sink: Sink, overwrite: bool) -> None:
        self.sink = sink
        self.overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = _files(messages)
        if self.sink.layout == "parquet":
            settle_rows(Path(self.sink.path), files, self.overwrite)
            return
        log = self.sink.log(files)
        if not log.exists():
            return
        log.commit(files, {}, replaced=log.paths() if self.overwrite else [])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.abort(_files(messages))


def is_there(log: Log, app: str, batch: int) -> bool:
    """Whether the table has a batch already. Raises LakeError if batches are counted anew."""
    last = log.batch(app) if log.exists() else None
    if last is not None and batch < last:
        raise LakeError(
            f"{log.folder} has batch {last} of the query {app!r}, and now comes batch {batch}: its checkpoint was "
            "deleted or is another. Give the query its checkpoint back, or another `app` if this is new data."
        )
    return last == batch


def overlaps(stores: Mapping[str, tuple[int, int]], known: Positions, path: str) -> bool:
    """Whether the table has all of these ranges already. Raises LakeError if it has a part."""
    there = {store: last <= known.get(store, 0) for store, (_, last) in stores.items()}
    if stores and all(there.values()):
        return True
    for store, (first, last) in stores.items():
        if first <= known.get(store, 0):
            raise LakeError(
                f"{path} contains the store {store} up to position {known[store]}, and a batch with {first} to {last} "
                "is to be added. Begin behind it: startingOffsets = "
                f'{{"{store}": {known[store]}}}, with a new checkpoint.'
            )
    return False


def _check_columns(table: Table, names: Sequence[str], options: Options) -> None:
    """Raises OptionError if rows do not fit the table."""
    lacking = [each.name for each in table.columns if not each.nullable and each.name not in names]
    if lacking:
        raise options.wrong("table", f"is {table.name}, and the rows lack its columns {', '.join(lacking)}")
    others = [each for each in names if each not in table.names]
    if others and not table.evolves:
        raise options.wrong("table", f"is {table.name}, which has no columns {', '.join(others)}")


def _files(messages: Iterable[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [file for message in messages if isinstance(message, Message) for file in message.files]


def _stores(files: Sequence[WrittenFile]) -> dict[str, tuple[int, int]] | None:
    """First and last position of each store; None if the rows have no positions."""
    if any(not each.stores for each in files):
        return None
    found: dict[str, tuple[int, int]] = {}
    for each in files:
        for store, (first, last) in each.stores.items():
            low, high = found.get(store, (first, last))
            found[store] = (min(low, first), max(high, last))
    return found
