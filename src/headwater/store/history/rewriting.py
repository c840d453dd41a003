"""Removing single messages from history: their objects are written again without them.

What is left keeps its positions, and the manifest still says that all positions of the object are in history; there are
fewer rows. The old object is deleted at once, so a reader that is about to read it reads the manifest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.disk.crash_points import crash_point
from headwater.store.history.manifest import Catalog, Conflict, Entry, Manifest
from headwater.store.history.rows import Wanted, rows_of
from headwater.store.history.writing import packed, stored

TRIES: Final = 10
"""With a manifest that somebody else changes meanwhile."""


class Rewritten(NamedTuple):
    """`removed` are the positions that were in the object and are not any more."""

    old: Entry
    new: Entry
    removed: list[int]


def rewrite_without(
    catalog: Catalog, positions: Callable[[pa.RecordBatch], pa.Array], wanted: Wanted | None = None
) -> Iterator[Rewritten]:
    """Remove messages from all objects that may have some that are `wanted` (None: from any). `positions` says of an
    object's messages, all columns of them, which are to go: their positions. What was removed is gone when it is told;
    who is cut off begins again, and finds less to do. Raises PlaceError; Conflict if others write all the time."""
    wanted = wanted or Wanted()
    done = -1
    for _ in range(TRIES):
        manifest = catalog.load()
        try:
            for entry in list(catalog.entries(manifest, done)):
                if wanted.may_be_in(entry):
                    found = _rewritten(catalog, manifest, entry, positions)
                    if found is not None:
                        manifest, rewritten = found
                        yield rewritten
                done = entry.end - 1
            return
        except Conflict:
            continue
    raise Conflict(f"the history of {catalog.store} changes all the time; try again")


def _rewritten(
    catalog: Catalog, manifest: Manifest, entry: Entry, positions: Callable[[pa.RecordBatch], pa.Array]
) -> tuple[Manifest, Rewritten] | None:
    rows = rows_of(pa.py_buffer(catalog.place.get(entry.name).data), entry, Wanted())
    gone = pc.is_in(rows.column("position"), value_set=pa.array(positions(rows), pa.int64()))
    removed = rows.column("position").filter(gone).to_pylist()
    if not removed:
        return None
    left = rows.filter(pc.invert(gone))
    order = pc.sort_indices(left.column("topic").dictionary_decode())
    crash_point("history-before-put")
    new = stored(catalog, entry._replace(rows=left.num_rows), packed(left.take(order)))
    crash_point("history-after-put")
    return catalog.replace(manifest, entry, new), Rewritten(entry, new, removed)
