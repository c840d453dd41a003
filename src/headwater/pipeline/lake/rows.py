"""What an executor does when a table is read: files into Arrow batches in the form that Spark expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from headwater.objects import Place
from headwater.objects.arrow import filesystem
from headwater.pipeline.lake.changes import DELETE, FEED, INSERT, Piece, difference, feed_columns
from headwater.pipeline.lake.commits import DataFile
from headwater.pipeline.lake.conditions import all_of

BATCH: Final = 1 << 16
"""Rows of a batch."""


class FilesGone(Exception):
    """Files that a commit has replaced were removed since; the text says what to do."""


@dataclass(frozen=True)
class TableRows:
    """`schema` is the table's, `shape` what is to come out, with the columns of the change feed if those are asked for.
    Picklable."""

    place: Place
    schema: pa.Schema
    shape: pa.Schema

    @property
    def columns(self) -> list[str]:
        """Those that files have."""
        return [each for each in self.shape.names if each not in FEED.names or each in self.schema.names]

    def of_files(self, files: Sequence[DataFile], where: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self._scan(files, self.columns, where):
            yield self._shaped(batch.columns)

    def of_piece(
        self, piece: Piece, with_removed: bool, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Of what a commit has changed. Raises FilesGone."""
        if piece.kind == "insert":
            for batch in self._scan(piece.added, self.columns, where):
                yield self._told(batch, INSERT, piece)
            return
        try:
            if piece.kind == "delete":
                for batch in self._scan(piece.removed, self.columns, where):
                    yield self._told(batch, DELETE, piece)
                return
            # All columns, as rows that differ in one that is not asked for are not the same.
            came, went = difference(*(self._whole(files, piece, where) for files in (piece.added, piece.removed)))
        except FileNotFoundError as error:
            raise FilesGone(
                f"version {piece.commit.version} of the table in {self.place.where} replaced files that have been "
                f"removed since ({error.filename or error}): what it changed is not known any more. Replaced files "
                "stay for keep_replaced seconds ([upkeep]). Begin with a later version, or read the table as it is."
            ) from None
        for kind, rows in ((INSERT, came), (DELETE, went)):
            for batch in rows.to_batches(BATCH) if kind == INSERT or with_removed else ():
                yield self._told(batch.select(self.columns), kind, piece)

    def _whole(self, files: Sequence[DataFile], piece: Piece, where: pc.Expression | None) -> pa.Table:
        conditions = [where]
        if piece.cut is not None:
            name, low, high = piece.cut
            column, type = pc.field(name), self.schema.field(name).type
            if high is not None:
                conditions.append(column < pa.scalar(high, type))
            if low is not None:
                behind = column >= pa.scalar(low, type)
                conditions.append(behind if high is not None else behind | column.is_null())
        batches = self._scan(files, self.schema.names, all_of(conditions))
        return pa.Table.from_batches(batches, self.schema)

    def _scan(
        self, files: Sequence[DataFile], columns: list[str], where: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        format, files_at = ds.ParquetFileFormat(), filesystem(self.place)
        for each in files:  # one after the other: a task has one core, and its memory is bounded
            known = all_of(_is(name, value, self.schema) for name, value in each.partition)
            fragment = format.make_fragment(each.path, files_at, partition_expression=known)
            dataset = ds.FileSystemDataset([fragment], self.schema, format, files_at)
            yield from (
                batch
                for batch in dataset.to_batches(
                    columns=columns, filter=where, batch_size=BATCH, batch_readahead=1, use_threads=False
                )
                if batch.num_rows
            )

    def _told(self, batch: pa.RecordBatch, kind: str, piece: Piece) -> pa.RecordBatch:
        known = dict(zip(FEED.names, feed_columns(batch.num_rows, kind, piece.commit), strict=True))
        known |= dict(zip(batch.schema.names, batch.columns, strict=True))
        return self._shaped([known[name] for name in self.shape.names])

    def _shaped(self, columns: Iterable[pa.Array]) -> pa.RecordBatch:
        fitted = [column.cast(each.type) for column, each in zip(columns, self.shape, strict=True)]
        return pa.RecordBatch.from_arrays(fitted, schema=self.shape)


def _is(name: str, value: Any, schema: pa.Schema) -> pc.Expression:
    if value is None:
        return pc.field(name).is_null()
    return pc.field(name) == pa.array([value]).cast(schema.field(name).type)[0]
