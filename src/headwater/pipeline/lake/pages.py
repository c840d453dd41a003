"""A table with one row for each key, of which a commit rewrites what changed and little more.

Theory. A reader of plain Delta has to see one row for each key, so a row that changes takes its file with it. Hence
files are small, pages of about a hundredth of the table, and rows lie together by when they changed last:

    changed rows    into pages of their own
    their old rows  the pages that have them are replaced; what else those had goes into other pages

Keys that change together, once a minute or all the time, come to lie in the same pages, which the next change replaces
whole: so many rows are written as have changed. Keys that change at random cost at most a page each. Pages that shrank
are merged when there are too many, which is once in a hundred commits or less.

Which pages have a key is known from hashes of the keys in each, 8 bytes a row. They are computed once, when a page is
new to this process: files do not change. A collision costs a page more that is read, no row: rows are compared by
their keys.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.objects import Place
from headwater.objects.arrow import source

PAGES: Final = 100
"""Into which a table is cut."""
MOST_PAGES: Final = 256
"""Above this, those that are half empty or more are merged."""
SMALLEST: Final = 64
"""Rows of a page, whose file has 1.5 kB beside them: smaller ones would save nothing."""
MOMENT: Final = " moment"
FRESH: Final = " fresh"
ROW: Final = " row"
"""Columns beside those of a table, which has no such names."""
Hashes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Change:
    """What a commit is to do: the rows of each new page, and the files whose place they take."""

    pages: list[pa.Table]
    replaced: list[str]
    changed: int
    """Keys with another row than before."""


class PagedRows:
    """Of a table of this schema, whose rows are named by `keys`. Of two rows of a key the one counts that is later by
    `moment`, and then by the columns `order`; rows that are equal by these are the same."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        moment: Callable[[pa.Table], pa.ChunkedArray],
        order: Sequence[str],
    ) -> None:
        self._schema = schema
        self._keys = list(keys)
        self._moment = moment
        self._order = [(name, "ascending") for name in (MOMENT, *order)]
        self._hashes: dict[str, Hashes] = {}
        """Of the keys in each file, in order."""

    def change(self, place: Place, files: Sequence[str], fresh: pa.Table) -> Change:
        """Of the table with these files, by rows that came: any number of a key."""
        self._learn(place, files)
        changed, _ = self._merged(fresh, self._read(place, self._with(fresh)))
        replaced = self._with(changed)
        counts = {path: len(hashes) for path, hashes in self._hashes.items()}
        size = max(SMALLEST, math.ceil((sum(counts.values()) + changed.num_rows) / PAGES))
        written = math.ceil(changed.num_rows / size) + math.ceil(sum(counts[path] for path in replaced) / size)
        if len(counts) - len(replaced) + written > MOST_PAGES:
            replaced = sorted({*replaced, *(path for path, rows in counts.items() if rows <= size // 2)})
        _, rest = self._merged(changed, self._read(place, replaced))
        return Change(list(_cut(changed, rest, size)), replaced, changed.num_rows)

    def _merged(self, fresh: pa.Table, old: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Of each key the row that counts: those that are among the fresh ones, and those that are old."""
        both = pa.concat_tables([fresh.select(self._schema.names).cast(self._schema), old])
        marks = np.arange(both.num_rows) < fresh.num_rows
        rows = both.append_column(MOMENT, self._moment(both)).append_column(FRESH, pa.array(marks))
        rows = rows.sort_by([*self._order, (FRESH, "descending")])
        rows = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
        last = rows.group_by(self._keys, use_threads=False).aggregate([(ROW, "max")])
        found = rows.take(last.column(f"{ROW}_max"))
        is_fresh, found = found.column(FRESH), found.select(self._schema.names)
        return found.filter(is_fresh), found.filter(pc.invert(is_fresh))

    # ---- which files -------------------------------------------------------------------------------------------

    def _with(self, rows: pa.Table) -> list[str]:
        """The files that may have a row of the same key as one of these."""
        wanted = self._hashed(rows)
        return [path for path, hashes in self._hashes.items() if _have_any(hashes, wanted)]

    def _learn(self, place: Place, files: Sequence[str]) -> None:
        for path in self._hashes.keys() - set(files):
            del self._hashes[path]
        for path in set(files) - self._hashes.keys():
            with pq.ParquetFile(source(place, path)) as page:
                self._hashes[path] = self._hashed(page.read(columns=self._keys))

    def _hashed(self, rows: pa.Table) -> Hashes:
        names = zip(*(rows.column(name).to_pylist() for name in self._keys), strict=True)
        return np.sort(np.fromiter((hash(each) for each in names), np.int64, rows.num_rows))

    def _read(self, place: Place, files: Sequence[str]) -> pa.Table:
        tables = [self._schema.empty_table()]
        for path in files:
            with pq.ParquetFile(source(place, path)) as page:
                tables.append(page.read().select(self._schema.names).cast(self._schema))
        return pa.concat_tables(tables)


def _have_any(hashes: Hashes, wanted: Hashes) -> bool:
    """Both are in order."""
    if not len(hashes) or not len(wanted):
        return False
    at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    return bool((hashes[at] == wanted).any())


def _cut(changed: pa.Table, rest: pa.Table, size: int) -> Iterator[pa.Table]:
    """Into pages of about as many rows; one has all, if it can."""
    parts = [changed, rest]
    if changed.num_rows + rest.num_rows <= size:
        parts = [pa.concat_tables(parts)]
    for rows in parts:
        count = math.ceil(rows.num_rows / size)
        ends = [rows.num_rows * number // max(1, count) for number in range(count + 1)]
        for begin, end in itertools.pairwise(ends):
            yield rows.slice(begin, end - begin).combine_chunks()
