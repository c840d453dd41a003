"""Which rows a range of commits has added and removed, cut into pieces of work for tasks.

Theory. A commit that names new files and removes none has added their rows. One that does both has put files in the
place of others, and most of its rows are as before: what it has changed is the difference of both, as multisets of
rows. That is found within each value of the table's partition, as rows do not move to another one. For a task not to
hold more than about `COMPARED` rows, a large difference is cut into ranges of a column of which files have bounds: a
row that is the same on both sides is in the same range on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from headwater.pipeline.lake.commits import Commit, DataFile

CHANGE: Final = "_change_type"
VERSION: Final = "_commit_version"
MOMENT: Final = "_commit_timestamp"
"""The columns of Delta's own change feed."""
FEED: Final = pa.schema(
    [pa.field(CHANGE, pa.string()), pa.field(VERSION, pa.int64()), pa.field(MOMENT, pa.timestamp("us", "UTC"))]
)
INSERT: Final = "insert"
DELETE: Final = "delete"
COMPARED: Final = 500_000
"""Rows that a task compares, of both sides together, about."""
CUT_BY: Final = ("position", "time", "arrival", "window_start", "minute")
Kind = Literal["insert", "delete", "both"]


@dataclass(frozen=True)
class Piece:
    """Of a commit: rows that came, rows that went, or `both`, which have to be compared. `cut` is a range of a column,
    closed below and open above, None where it has no end."""

    kind: Kind
    commit: Commit
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    cut: tuple[str, Any, Any] | None = None


def pieces(commit: Commit, with_removed: bool) -> Iterator[Piece]:
    """What has to be read to know what the commit has changed; without `with_removed`, what it has added."""
    bare = replace(commit, added=(), removed=())
    groups = {each.partition for each in (*commit.added, *commit.removed)}
    for partition in sorted(groups, key=repr):
        added = tuple(each for each in commit.added if each.partition == partition)
        removed = tuple(each for each in commit.removed if each.partition == partition)
        if added and removed:
            if with_removed or commit.only_removed is None:
                yield from _cut(Piece("both", bare, added, removed))
        elif added:
            yield from (Piece("insert", bare, added=(each,)) for each in added)
        elif with_removed:
            yield from (Piece("delete", bare, removed=(each,)) for each in removed)


def _cut(piece: Piece) -> Iterator[Piece]:
    rows = 2 * sum(each.rows or 0 for each in piece.added)
    parts = -(-rows // COMPARED)
    found = next((name for name in CUT_BY if all(name in dict(_lows(each)) for each in piece.added)), None)
    if parts <= 1 or found is None:
        yield piece
        return
    all_bounds = [bound for each in piece.added for bound in each.bounds if bound[0] == found]
    cuts = [None, *_evenly(min(low for _, low, _ in all_bounds), max(high for _, _, high in all_bounds), parts), None]
    for low, high in pairwise(cuts):
        yield replace(piece, cut=(found, low, high))


def _lows(file: DataFile) -> Iterator[tuple[str, Any]]:
    return ((name, low) for name, low, _ in file.bounds)


def _evenly(low: Any, high: Any, parts: int) -> list[Any]:
    """Values that cut what is between these into so many parts; times are text, as JSON has them."""
    if isinstance(low, str):
        start, end = datetime.fromisoformat(low), datetime.fromisoformat(high)
        return sorted({start + (end - start) * part / parts for part in range(1, parts)})
    return sorted({low + (high - low) * part // parts for part in range(1, parts)})


def difference(added: pa.Table, removed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that only the one side has, and those that only the other one has. A row that is there several times on
    one side more often is in it as many times."""
    both = pa.concat_tables([added, removed])
    if not both.num_columns:
        return added.slice(0, 0), removed.slice(0, 0)
    keys = pa.table({f"k{at}": _comparable(column) for at, column in enumerate(both.columns)})
    sides = np.where(np.arange(both.num_rows) < added.num_rows, 1, -1)
    marked = keys.append_column("side", pa.array(sides)).append_column("row", pa.array(np.arange(both.num_rows)))
    grouped = marked.group_by(keys.column_names, use_threads=False).aggregate([("side", "sum"), ("row", "min")])
    count, row = grouped.column("side_sum").to_numpy(), grouped.column("row_min").to_numpy()
    came, went = np.repeat(row, np.maximum(count, 0)), np.repeat(row, np.maximum(-count, 0))
    return both.take(pa.array(np.sort(came))), both.take(pa.array(np.sort(went)))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow groups by plain values only."""
    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.array([repr(each) for each in column.to_pylist()], pa.string())])
    return column


def feed_columns(rows: int, kind: str, commit: Commit) -> Iterable[pa.Array]:
    values = (kind, commit.version, commit.made)
    return [pa.repeat(pa.scalar(value, each.type), rows) for value, each in zip(values, FEED, strict=True)]
