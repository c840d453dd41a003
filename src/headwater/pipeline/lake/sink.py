"""`format("headwater-delta")`: rows into a Delta table, exactly once, without a jar.

Theory. Executors write files (`files`), the driver commits them (`log`). Spark repeats the last batch of a query that
was killed, so each commit notes, under the name of its `app`, the query (Spark's id, which lives in its checkpoint) and
the batch. The next batch is compared with these notes, whatever its rows are:

    the same query    a larger number is a new batch, the same number is a repeat, a smaller one means that the
                      checkpoint is older than the table: refused
    another query     either the checkpoint is new, and its rows may be there already, or somebody else has taken the
                      name: refused, as the two cannot be told apart

One kind of query can be told more: one that brings every message of its stores, each store's in order, as bronze's
does. It says so (`byPosition`), and its commits note the last position of each store. Where batch numbers fail,
positions decide: a batch at or behind the noted positions is there, one beyond them is new, one across them is refused.
Other queries have rows with positions, too, but a join emits them late and a filter leaves some out: of those, a batch
behind the noted positions says nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import DateType, StructType

from headwater.objects import Place, PlaceError, is_remote, open_place
from headwater.pipeline.lake.asked import FORMAT, Asked, read_options
from headwater.pipeline.lake.files import WrittenFile, write_files
from headwater.pipeline.lake.log import LakeError, Log, View
from headwater.pipeline.lake.plain import WRITING, settle_batch, settle_rows
from headwater.pipeline.lake.reader import PushingTableReader, TableReader, TableStreamReader, spark_schema
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.options import OptionError, Options, storage_options
from headwater.pipeline.portable import Portable
from headwater.pipeline.tables import BY_NAME, Table

OPTIONS: Final = {
    "path": "the folder or URL of the table, the same for all executors",
    "app": "a name of the query, of which the table remembers the last batch; the same after a restart",
    "byPosition": "true: the query brings all messages of its stores in order; a new checkpoint goes on by positions",
    "table": "a declared table, such as bronze; else the table is made as the rows are",
    "partitionBy": "a column by which files are laid out, if the table is not a declared one",
    "layout": "delta, or parquet: files without a log",
    "epoch": "the number of the pipeline's lease, if the table is on an object store; older ones are refused",
}
LAYOUTS: Final = ("delta", "parquet")
PROPERTIES: Final = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 1 days"}
"""Of tables that are not declared ones: those have what the pipeline's settings say."""
CLEAN_EVERY: Final = 100
"""Batches between two looks for commits that are older than that."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
FIRST: Final = "first"
"""The note `first/STORE` has the first position that the table got of a store."""
QUERY: Final = "#query"
"""The note `APP#query` has the fingerprint of the query that wrote last under this name."""
QUERY_ID: Final = "sql.streaming.queryId"
"""By which Spark tells tasks whose they are."""


_held: dict[tuple[str, str | None], Log] = {}
"""By folder, and the column by which files are laid out."""


class Message(WriterCommitMessage):
    """From a task to the driver. `query` is Spark's id of the query."""

    def __init__(self, files: list[WrittenFile], query: str = "") -> None:
        self.files = files
        self.query = query


class DeltaSink(Portable, DataSource):
    """For reading, see `reader`."""

    asked: Asked | None = None
    """What is read, as it was when Spark asked for the columns."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        asked = read_options(self.options)
        if not asked.from_latest and not (asked.feed and asked.start is None):  # those are streams
            self.asked = asked = asked.pinned()
        return spark_schema(asked)

    def reader(self, schema: StructType) -> TableReader:
        asked = read_options(self.options, is_stream=False)
        return (PushingTableReader if asked.pushdown else TableReader)(self.asked or asked.pinned(), schema)

    def streamReader(self, schema: StructType) -> TableStreamReader:
        return TableStreamReader(read_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(Sink(self.options, schema, needs_app=False), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(Sink(self.options, schema, needs_app=True), overwrite)


class Sink:
    """What both writers know: where, and by which columns."""

    def __init__(self, given: Mapping[str, str], schema: StructType, needs_app: bool) -> None:
        self.storage, given = storage_options(given)
        options = Options(FORMAT, given, OPTIONS)
        self.path = options.needed("path", "/data/lake/tables/bronze")
        try:
            is_elsewhere = is_remote(self.path)
        except PlaceError as error:
            raise options.wrong("path", f"is {self.path}: {error}") from None
        self.epoch = options.count("epoch")
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
        self.by_position = options.flag("byPosition", False)
        self.layout = options.text("layout", "delta")
        if self.layout not in LAYOUTS:
            raise options.wrong("layout", f"is one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        if is_elsewhere and self.layout == "parquet":
            raise options.wrong("layout", "is parquet only in a folder: elsewhere files cannot be renamed")
        names = schema.fieldNames()
        if self.by_position and not {"store", "position"} <= set(names):
            raise options.wrong("byPosition", f"needs rows with store and position; there are {', '.join(names)}")
        if self.table is not None:
            _check_columns(self.table, names, options)
        elif self.partition is not None and self.partition not in names:
            raise options.wrong("partitionBy", f"names no column of the rows; there are {', '.join(names)}")
        elif self.partition is not None and schema[self.partition].dataType != DateType():
            raise options.wrong("partitionBy", f"is a column of dates, which {self.partition} is not")

    @property
    def place(self) -> Place:
        """Into which executors write."""
        place = open_place(self.path, self.storage)
        return place if self.layout == "delta" else place.below(WRITING)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Message:
        return Message(write_files(batches, self.place, self.partition), running_query())

    def log(self, files: Sequence[WrittenFile]) -> Log:
        """The table is made with the first rows, if it is not a declared one. Spark commits batch after batch in the
        same process, which holds the table."""
        place = (self.path, self.partition)
        if place not in _held:
            _held[place] = Log(self.place, self.partition, properties=PROPERTIES)
        log = _held[place]
        log.epoch = self.epoch
        if self.table is not None:
            log.properties = UpkeepSettings().properties(self.table.name)
            log.declare(self.table)
            return log
        if files and not log.exists():
            schema = files[0].arrow_schema()
            if self.partition is not None:
                schema = schema.append(pa.field(self.partition, pa.date32()))
            log.create(schema)
        return log

    def discard(self, files: Iterable[WrittenFile]) -> None:
        self.place.delete(each.path for each in files)

    def abort(self, files: Sequence[WrittenFile]) -> None:
        """Away with files, but for those that the table has got: a commit may have been made and failed to say so."""
        if self.layout == "delta":
            Log(self.place, self.partition).discard(files)
        else:
            self.discard(files)


class StreamWriter(Portable, DataSourceStreamArrowWriter):
    """With `overwrite` (the output mode `complete`), each batch is everything, and replaces what was there."""

    def __init__(self, sink: Sink, overwrite: bool = False) -> None:
        self.sink = sink
        self.overwrite = overwrite
        if overwrite and sink.by_position:
            raise OptionError(f"format({FORMAT!r}): the option 'byPosition' is for queries in the output mode append")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        files, query = _files(messages), _query(messages)
        if self.sink.layout == "parquet":
            settle_batch(Path(self.sink.path), self.sink.app, query, batchId, files, self.overwrite)
            return
        log = self.sink.log(files)
        if not log.exists():
            return
        seen = log.look()
        app, stores = self.sink.app, _stores(files) if self.sink.by_position else {}
        batch = Batch(app, query, batchId, self.sink.by_position, stores)
        if is_there(Noted.of(seen, app), batch, self.sink.path):
            self.sink.discard(files)
        elif files or self.overwrite:
            known = seen.positions(app) if stores else {}
            ends = {store: last for store, (_, last) in stores.items()}
            firsts = {f"{FIRST}/{store}": first for store, (first, _) in stores.items() if store not in known}
            notes = {app: batchId, f"{app}{QUERY}": query, **firsts}
            replaced = seen.paths() if self.overwrite else []
            log.commit(files, notes, job=app, positions=ends, replaced=replaced, seen=seen)
            if self.sink.table is None and batchId % CLEAN_EVERY == 0:
                log.open().cleanup_metadata()

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


# ---- is it there? --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noted:
    """What a table knows of an `app`: the last batch, the query it was of, and the last position of each store. Tables
    that were written by older versions know the batch only."""

    batch: int | None = None
    query: int | None = None
    positions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: View, app: str) -> Noted:
        return cls(seen.note(app), seen.note(f"{app}{QUERY}"), seen.positions(app))


@dataclass(frozen=True)
class Batch:
    """What is to be added. `stores` has the first and last position of each, if the query goes `by_position`."""

    app: str
    query: int
    number: int
    by_position: bool = False
    stores: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def is_there(noted: Noted, batch: Batch, path: str) -> bool:
    """Whether the table has the batch already. Raises LakeError if that cannot be known, or if it has a part."""
    if noted.batch is None:
        return False
    if batch.by_position and (noted.query is None or noted.query != batch.query or batch.number < noted.batch):
        return _is_behind(noted, batch, path)
    if noted.query not in (None, batch.query):
        raise LakeError(
            f"another query has written to {path} as {batch.app!r}, up to its batch {noted.batch}; or it is the same "
            "one, and its checkpoint was deleted. Give this query another `app` if its rows are new, or the checkpoint "
            "back that it had."
        )
    if batch.number < noted.batch:
        raise LakeError(
            f"{path} has batch {noted.batch} of the query {batch.app!r}, and now comes batch {batch.number}: its "
            "checkpoint is older than the table. Give the query the checkpoint back that it had, or another `app` if "
            "its rows are new."
        )
    if batch.number == noted.batch:
        return True
    _check_order(noted, batch, path)
    return False


def _is_behind(noted: Noted, batch: Batch, path: str) -> bool:
    """By positions. Raises LakeError if the table has a part of the batch."""
    ahead = [store for store, (_, last) in batch.stores.items() if last > noted.positions.get(store, 0)]
    if not ahead:
        return True
    for store, (first, last) in batch.stores.items():
        known = noted.positions.get(store, 0)
        if first <= known:
            raise LakeError(
                f"{path} contains the store {store} up to position {known}, and a batch with {first} to {last} "
                f'is to be added. Begin behind it: startingOffsets = {{"{store}": {known}}}, with a new checkpoint.'
            )
    return False


def _check_order(noted: Noted, batch: Batch, path: str) -> None:
    """Raises LakeError if a new batch is not what was promised."""
    for store, (first, _) in batch.stores.items():
        known = noted.positions.get(store, 0)
        if first <= known:
            raise LakeError(
                f"{path} contains the store {store} up to position {known}, and the new batch {batch.number} of "
                f"{batch.app!r} begins with {first}: the query does not bring positions in order. Leave out the option "
                "'byPosition'."
            )


def running_query() -> str:
    """Of the task that asks; empty if there is none."""
    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty(QUERY_ID) or ""


def fingerprint(query: str) -> int:
    """A note is a number: 63 bits of the query's id."""
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:8]) >> 1


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


def _query(messages: Iterable[WriterCommitMessage | None]) -> int:
    return fingerprint(next((message.query for message in messages if isinstance(message, Message)), ""))


def _stores(files: Sequence[WrittenFile]) -> dict[str, tuple[int, int]]:
    """First and last position of each store. Raises LakeError if a row has none."""
    found: dict[str, tuple[int, int]] = {}
    for each in files:
        if each.nulls.get("store") or each.nulls.get("position"):
            raise LakeError("a row has no store or no position: such a query cannot have the option 'byPosition'")
        for store, (first, last) in each.stores.items():
            low, high = found.get(store, (first, last))
            found[store] = (min(low, first), max(high, last))
    return found
