"""The messages of an object of history: which of its row groups, and what of these, in the order of positions.

Theory. In an object messages lie in the order of topics, and those of one topic in the order of positions, as in a
block; its row groups carry the least and the largest topic, time, value and position. So a question about one topic
reads a small part of an object, and one about everything reads it whole and puts the rows back into the order of
positions. Needs nothing but pyarrow: executors import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.routing.topics import matches
from headwater.store.arrow_schema import SCHEMA
from headwater.store.history.manifest import Entry
from headwater.store.query import beginning, judged

__all__ = ["NAMES", "Topics", "Wanted", "beginning", "in_order", "rows_of"]

NAMES: Final = tuple(SCHEMA.names)
MICROSECOND: Final = pa.timestamp("us", "UTC")


class Topics:
    """Which topics match, and may be read."""

    def __init__(self, filter: str | None, may_read: Callable[[str], bool] | None = None) -> None:
        self._filter = filter
        self._may_read = may_read

    def __call__(self, names: Sequence[str]) -> list[bool]:
        meets = [self._filter is None or matches(self._filter, name) for name in names]
        if self._may_read is None:
            return meets
        allowed = iter(judged(self._may_read, list(compress(names, meets))))
        return [is_met and next(allowed) for is_met in meets]


class Wanted(NamedTuple):
    """As `Query`: after < position < before, start ≤ time < end in microseconds, low ≤ value ≤ high. `topics` says of
    each of some names whether it is wanted; all that are begin with `beginning`."""

    after: int | None = None
    before: int | None = None
    start: int | None = None
    end: int | None = None
    low: float | None = None
    high: float | None = None
    topics: Callable[[Sequence[str]], list[bool]] | None = None
    beginning: str = ""

    def may_be_in(self, entry: Entry) -> bool:
        """As far as the manifest knows."""
        return not (
            (self.after is not None and entry.end <= self.after + 1)
            or (self.before is not None and entry.first >= self.before)
            or (self.start is not None and entry.latest < self.start)
            or (self.end is not None and entry.earliest >= self.end)
        )

    def left_of(self, entry: Entry) -> Wanted:
        """Without the conditions that all messages of the object meet."""
        after, before, start, end = self.after, self.before, self.start, self.end
        return self._replace(
            after=None if after is not None and after < entry.first else after,
            before=None if before is not None and before >= entry.end else before,
            start=None if start is not None and start <= entry.earliest else start,
            end=None if end is not None and end > entry.latest else end,
        )


def rows_of(
    source: BinaryIO | pa.Buffer, entry: Entry, wanted: Wanted, columns: Sequence[str] = NAMES
) -> pa.RecordBatch:
    """What is wanted of an object, in the order of positions, with these columns."""
    opened = pa.BufferReader(source) if isinstance(source, pa.Buffer) else source
    file = pq.ParquetFile(opened, page_checksum_verification=True, pre_buffer=True)
    wanted = wanted.left_of(entry)
    groups = [at for at in range(file.num_row_groups) if _may_have(file.metadata.row_group(at), wanted)]
    needed = {"position", *columns, *_looked_at(wanted)}
    known = [name for name in NAMES if name in needed and name in file.schema_arrow.names]
    rows = _one(file.read_row_groups(groups, known, use_threads=False))
    for name in needed.difference(known):  # a column that came later
        rows = rows.append_column(SCHEMA.field(name), pa.nulls(rows.num_rows, SCHEMA.field(name).type))
    tests = _tests(rows, wanted)
    if tests:
        meets = tests[0]
        for test in tests[1:]:
            meets = pc.and_kleene(meets, test)
        rows = rows.filter(meets)
    return in_order(rows, entry).select(list(columns))


def _one(table: pa.Table) -> pa.RecordBatch:
    batches = table.unify_dictionaries().combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)
    return batches[0]


def in_order(rows: pa.RecordBatch, entry: Entry) -> pa.RecordBatch:
    """Rows of an object in the order of positions, with the schema that messages have."""
    position = rows.column("position")
    if len(position) == entry.end - entry.first:  # all positions occur, so each row knows its place
        places = pc.inverse_permutation(pc.subtract(position, entry.first))
    else:
        places = pc.sort_indices(position)
    ordered = rows.take(places)
    return ordered.cast(pa.schema([SCHEMA.field(name) for name in rows.schema.names]))


def _looked_at(wanted: Wanted) -> list[str]:
    conditions = {
        "time": wanted.start is not None or wanted.end is not None,
        "value": wanted.low is not None or wanted.high is not None,
        "topic": wanted.topics is not None,
    }
    return [name for name, is_needed in conditions.items() if is_needed]


def _tests(rows: pa.RecordBatch, wanted: Wanted) -> list[Any]:
    """For each condition, which rows meet it."""
    tests: list[Any] = []
    if wanted.topics is not None:
        topics = rows.column("topic")
        is_wanted = pa.array(wanted.topics(topics.dictionary.to_pylist()), pa.bool_())
        tests.append(is_wanted.take(topics.indices))
    for name, compare, bound in (
        ("position", pc.greater, wanted.after),
        ("position", pc.less, wanted.before),
        ("time", pc.greater_equal, _moment(wanted.start)),
        ("time", pc.less, _moment(wanted.end)),
        ("value", pc.greater_equal, wanted.low),
        ("value", pc.less_equal, wanted.high),
    ):
        if bound is not None:
            tests.append(compare(rows.column(name), bound))
    return tests


def _moment(time: int | None) -> Any:
    return None if time is None else pa.scalar(time, pa.int64()).cast(MICROSECOND)


# ---- what the statistics of a row group say ----------------------------------------------------------------------


def _may_have(group: Any, wanted: Wanted) -> bool:
    topics, times = _bounds(group, "topic"), _bounds(group, "time")
    positions, values = _bounds(group, "position"), _bounds(group, "value")
    if topics is not None and wanted.topics is not None:
        least, most = topics
        begin = wanted.beginning
        if most < begin or (least > begin and not least.startswith(begin)):
            return False
        if least == most and not wanted.topics([least])[0]:
            return False
    if times is not None and not _meet(times, _datetime(wanted.start), _datetime(wanted.end), False):
        return False
    after = None if wanted.after is None else wanted.after + 1
    if positions is not None and not _meet(positions, after, wanted.before, False):
        return False
    return values is None or _meet(values, wanted.low, wanted.high, True)


def _meet(bounds: tuple[Any, Any], low: Any, high: Any, includes: bool) -> bool:
    """Whether a range has something that is not below `low`, and below `high` or, if that `includes`, at it."""
    least, most = bounds
    if low is not None and most < low:
        return False
    return high is None or least < high or (includes and least <= high)


def _bounds(group: Any, name: str) -> tuple[Any, Any] | None:
    """None: they are not known."""
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == name:
            found = column.statistics
            return (found.min, found.max) if found is not None and found.has_min_max else None
    return None


def _datetime(time: int | None) -> Any:
    return None if time is None else _moment(time).as_py()
