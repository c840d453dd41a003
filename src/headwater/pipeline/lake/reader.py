"""`format("headwater-delta")` for reading: a table as it is, as it was, what has changed since, and as a stream.

Theory. A query names a table and a version; the driver looks into the log once, and tasks get names of files, which do
not change. What is replaced meanwhile stays for `keep_replaced`. The version is that of when the DataFrame was loaded,
so all queries of it see the same rows.

A stream's offset is a version, `{"version": n}`: all that commits up to n have done is read. It begins with the table
as it is (offset `null`, as nothing is read before) or with a version that is given; each further batch has the rows
that commits added, each commit once. Compaction is no change (`commits`), and the rows of files that replace others are
compared with theirs (`changes`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headwater.pipeline.lake.asked import FORMAT, Asked, view_at
from headwater.pipeline.lake.changes import FEED, Piece, pieces
from headwater.pipeline.lake.commits import Commit, DataFile, read_commits
from headwater.pipeline.lake.conditions import all_of, expression
from headwater.pipeline.lake.dataset import dataset_of
from headwater.pipeline.lake.log import LakeError, Log, View
from headwater.pipeline.lake.rows import FilesGone, TableRows
from headwater.pipeline.lake.upkeep import FOREIGN
from headwater.pipeline.options import OptionError
from headwater.pipeline.portable import Portable
from headwater.suggestion import unknown

log_of_this = logging.getLogger(__name__)

VERSION: Final = "version"
PARTITION_BYTES: Final = 64 << 20
"""Of files that one task reads one after the other; a file is not cut."""
Offset = dict[str, Any]


class FilesPartition(InputPartition):
    """Whole files of a snapshot."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.files = files

    def __repr__(self) -> str:
        return f"{len(self.files)} files"


class ChangePartition(InputPartition):
    """A part of what a commit has changed."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece

    def __repr__(self) -> str:
        return f"{self.piece.kind} of version {self.piece.commit.version}"


def spark_schema(asked: Asked) -> StructType:
    """Of what comes out, if all columns are wanted."""
    schema = _table_schema(asked)
    return from_arrow_schema(pa.schema([*schema, *FEED]) if asked.feed else schema, prefer_timestamp_ntz=True)


def _table_schema(asked: Asked) -> pa.Schema:
    log = asked.log()
    foreign = set(FOREIGN) & set(log.features())
    if foreign:
        raise LakeError(f"{asked.path}: the table has {', '.join(sorted(foreign))}, which need a reader of Delta's own")
    return view_at(log, asked.at).schema


def _rows(asked: Asked, schema: StructType) -> TableRows:
    """The columns that the user has named, or all. Raises OptionError."""
    known = spark_schema(asked)
    for each in schema.fields:
        if each.name not in known.fieldNames():
            raise OptionError(unknown("column", each.name, known.fieldNames(), f" of the table in {asked.path}"))
        expected, said = known[each.name].dataType.simpleString(), each.dataType.simpleString()
        if said != expected:
            raise OptionError(f"format({FORMAT!r}): the column {each.name!r} is {expected}, not {said}; cast it later")
    return TableRows(asked.place, _table_schema(asked), to_arrow_schema(schema, timezone="UTC"))


class _Reading(Portable):
    """What both readers do."""

    def __init__(self, asked: Asked, schema: StructType) -> None:
        self.asked = asked
        self.rows = _rows(asked, schema)
        self.where: pc.Expression | None = None

    def _of_snapshot(self, view: View) -> list[InputPartition]:
        """Without the files that cannot have a row which is asked for."""
        wanted = {each.path for each in dataset_of(view, self.asked.place).get_fragments(self.where)}
        by = [each for each in view.files.column_names if each.startswith("partition.")]
        files = []
        for each in view.files.to_pylist():
            if each["path"] in wanted:
                partition = tuple((name.removeprefix("partition."), each[name]) for name in by)
                files.append(DataFile(each["path"], each["size_bytes"], partition))
        return [FilesPartition(group) for group in _packed(files)]

    def _of_commits(self, commits: Iterable[Commit]) -> list[InputPartition]:
        found: list[InputPartition] = []
        for each in commits:
            if each.only_removed is not None and not self.asked.feed:
                log_of_this.warning(
                    "version %d of %s removed %d rows; only rows that came are read (readChangeFeed tells both)",
                    *(each.version, self.asked.path, each.only_removed),
                )
            found += (ChangePartition(piece) for piece in pieces(each, self.asked.feed))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, FilesPartition):
            return self.rows.of_files(partition.files, self.where)
        if isinstance(partition, ChangePartition):
            return self._changed(partition.piece)
        return iter(())  # Spark makes a partition of its own where there are none

    def _changed(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.rows.of_piece(piece, self.asked.feed, self.where)
        except FilesGone as error:
            if piece.commit.only_removed is None:
                raise
            log_of_this.warning("%d rows were removed, and are not shown: %s", piece.commit.only_removed, error)


class TableReader(_Reading, DataSourceReader):
    """A snapshot, or changes. Spark asks once for each DataFrame that is loaded, and every query of it reads that."""

    def partitions(self) -> Sequence[InputPartition]:
        log = self.asked.log()
        if self.asked.is_of_changes:
            first, last = self.asked.span(log)
            return self._of_commits(read_commits(log, first, last))
        return self._of_snapshot(view_at(log, self.asked.at))


class PushingTableReader(TableReader):
    """The same, and what conditions exclude is not read. It has to be asked for, because Spark 4.3 keeps what one query
    of a DataFrame has pushed for all the others of it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        taken = []
        for each in filters:
            found = expression(each, self.rows.schema)
            if found is None:
                yield each
            taken.append(found)
        self.where = all_of(taken)


class TableStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Batch after batch, each the same whenever it is read."""

    def __init__(self, asked: Asked, schema: StructType) -> None:
        super().__init__(asked, schema)
        self._opened: Log | None = None
        self._commits: dict[int, Commit] = {}
        """Those that are not in a batch yet, or in the last one."""
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        if self.asked.start is None and not self.asked.from_latest:
            return {VERSION: None}
        now = self._log.look().version
        return {VERSION: self.asked.first(self._log, now) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.asked.most_files)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        before, last = start[VERSION], self._last()
        if before is None:
            return {VERSION: last}
        if before > last:
            raise LakeError(
                f"{self.asked.path}: the table is at version {last}, and {before} was read before: it was made anew, "
                "or has gone back in time. Begin with a new checkpoint."
            )
        end, files, size = before, 0, 0
        for commit in self._read(before + 1, last):
            files, size = files + len(commit.added) + len(commit.removed), size + commit.size
            is_full = files > self.asked.most_files or size > (self.asked.most_bytes or size)
            if end > before and is_full and not (isinstance(limit, ReadAllAvailable) and self._target is None):
                break
            end = commit.version
        return {VERSION: end}

    def reportLatestOffset(self) -> Offset | None:
        return {VERSION: self._last()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log.look().version

    @property
    def _log(self) -> Log:
        """Opened by the driver, when it asks first: a reader that travels to executors has none."""
        if self._opened is None:
            self._opened = self.asked.log()
        return self._opened

    def _last(self) -> int:
        return self._log.look().version if self._target is None else self._target

    def _read(self, first: int, last: int) -> Iterator[Commit]:
        """Each is read once from the log."""
        for version in range(first, last + 1):
            if version not in self._commits:
                [self._commits[version]] = read_commits(self._log, version, version)
            yield self._commits[version]

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        before, last = start[VERSION], end[VERSION]
        if before is None:
            return self._of_snapshot(view_at(self._log, last))
        found = self._of_commits(self._read(before + 1, last))
        self._commits = {version: each for version, each in self._commits.items() if version > last}
        return found

    def commit(self, end: Offset) -> None:
        """There is nothing to let go of."""

    def stop(self) -> None:
        """There is nothing to let go of."""


def _packed(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    for each in files:
        if group and sum(one.size for one in group) + each.size > PARTITION_BYTES:
            yield group
            group = []
        group.append(each)
    if group:
        yield group
