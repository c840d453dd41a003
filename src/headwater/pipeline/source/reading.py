"""What an executor does: a range of positions of one store, as Arrow batches in the form that Spark expects."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from headwater.pipeline.jobs.positions import Members, union
from headwater.pipeline.source.settings import Settings
from headwater.store.arrow_schema import PLAIN
from headwater.store.columns import COLUMNS
from headwater.store.direct import Direct, Place
from headwater.store.reader import Gone, StoreReader, Unreachable

DDL: Final = ", ".join(["store STRING NOT NULL", *(each.ddl for each in COLUMNS)])
"""The columns of the source, in Spark's words."""
SCHEMA: Final = pa.schema([pa.field("store", pa.string(), False), *PLAIN])
"""The same in Arrow's."""
LOST_FOR: Final = 2.0
"""Seconds between two tries of a store that has gone."""

log = logging.getLogger(__name__)


class DataMissing(Exception):
    """A store did not give what its positions promise."""


@dataclass(frozen=True)
class Range:
    """Positions `after` < position ≤ `last` of a store, with what was pushed down to it."""

    store: str
    url: str
    after: int
    last: int
    topic: str | None = None
    measured_from: str | None = None
    measured_to: str | None = None
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    place: Place | None = None
    """Where older positions of the store are, if they are to be read from there."""

    @property
    def is_whole(self) -> bool:
        """Nothing is left out, so every position has to come."""
        return self.topic is None and self.measured_from is None and self.measured_to is None

    def parts(self, rows: int, ends: Sequence[int] = ()) -> list[Range]:
        """The same in pieces of about equal size, of so many positions at most. With `ends`, the last positions of
        objects, they are cut there, where they have no more than a quarter too many: no object is read twice then."""
        if ends:
            return self._of_objects(rows, ends)
        size = self.last - self.after
        pieces = -(-size // rows)
        cuts = [self.after + size * piece // pieces for piece in range(pieces + 1)] if pieces else []
        return [replace(self, after=low, last=high) for low, high in pairwise(cuts)]

    def _of_objects(self, rows: int, ends: Sequence[int]) -> list[Range]:
        most = rows + rows // 4
        cuts = [self.after]
        inside = [end for end in ends if self.after < end < self.last]
        for end, behind in pairwise([*inside, self.last]):
            if behind - cuts[-1] > most:
                cuts.append(end)
        pieces = [replace(self, after=low, last=high) for low, high in pairwise([*cuts, self.last])]
        return [part for each in pieces for part in (each.parts(rows) if each.last - each.after > most else [each])]


def read(range: Range, settings: Settings) -> Iterator[pa.RecordBatch]:
    """All of it, in the order of positions; a store that does not answer is waited for. Raises Gone (or, if losses are
    allowed, goes on behind them), Unreachable, DataMissing."""
    schema = pa.schema([SCHEMA.field(name) for name in range.columns])
    direct = None if range.place is None else Direct(settings.history_options, {range.url: range.place})
    client = settings.client(range.url, direct=direct)
    after = range.after
    rows = lost = 0
    lacking: list[tuple[int, int]] = []
    while True:
        try:
            for batch in _batches(client, range, after, settings):
                if range.is_whole:
                    lacking += _lacking(batch.column(0), after)
                after = batch.column(0)[-1].as_py()
                rows += batch.num_rows
                yield _shaped(batch, range.store, schema)
            break
        except Gone as gone:
            if settings.fail_on_loss:
                raise
            lost += max(0, min(gone.first, range.last + 1) - after - 1)
            after = max(after, min(gone.first - 1, range.last))
            log.warning("%s: %s; going on behind it, as failOnDataLoss is false", range.store, gone)
    if range.is_whole and rows + lost != range.last - range.after:
        if after < range.last:
            lacking.append((after + 1, range.last))
        if _were_erased(client, lacking):
            return
        raise DataMissing(
            f"the store {range.store} has given {rows} messages for the positions {range.after + 1} to {range.last}"
        )


def _lacking(positions: pa.Array, after: int) -> list[tuple[int, int]]:
    """Ranges that are not among the positions behind `after`."""
    if positions[-1].as_py() - after == len(positions):
        return []
    there = [after, *positions.to_pylist()]
    return [(low + 1, high - 1) for low, high in pairwise(there) if high > low + 1]


def _were_erased(client: StoreReader, lacking: list[tuple[int, int]]) -> bool:
    """Whether the store says so of all of these, which are in order."""
    if not lacking:
        return False
    erased = Members(union(("", first, last) for first, last in _erased_until(client, lacking[0][0], lacking[-1][1])))
    return all(erased.has_all("", first, last) for first, last in lacking)


def _erased_until(client: StoreReader, first: int, last: int) -> Iterator[tuple[int, int]]:
    for low, high in client.erased(first - 1):
        if low > last:
            return
        yield low, high


def _batches(client: StoreReader, range: Range, after: int, settings: Settings) -> Iterator[pa.RecordBatch]:
    """As the store gives them; waits for one that does not answer."""
    began = time.monotonic()
    while after < range.last:
        try:
            for batch in client.read(
                f"{range.store}:{after}",
                f"{range.store}:{range.last + 1}",
                range.topic,
                range.measured_from,
                range.measured_to,
                dictionaries=False,
                columns=[name for name in range.columns if name != "store"],
            ):
                after = batch.column(0)[-1].as_py()
                began = time.monotonic()
                yield batch
            return
        except Unreachable as error:
            if time.monotonic() - began >= settings.patience:
                raise
            log.warning("the store %s does not answer; it is waited for (%s)", range.store, error)
            time.sleep(LOST_FOR)


def _shaped(batch: pa.RecordBatch, store: str, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.repeat(pa.scalar(store), batch.num_rows) if name == "store" else batch.column(name) for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
