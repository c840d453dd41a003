"""Erasing from what of a store is in object storage, a few objects at a time; and which positions were."""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from headwater.store.erasing import Doomed, ranges_of
from headwater.store.history.manifest import Entry
from headwater.store.history.reading import History
from headwater.store.history.rewriting import rewrite_without
from headwater.store.history.rows import Topics, Wanted

OBJECTS: Final = 4
"""That are looked into by one call."""


def next_in_history(history: History, doomed: Doomed) -> int | None:
    """The last position of the first objects behind `doomed.after`; None: there are none. Raises PlaceError."""
    entries = list(islice(history.catalog.entries(history.refresh(), doomed.after), OBJECTS))
    return entries[-1].end - 1 if entries and entries[0].first <= doomed.last else None


def erase_in_history(history: History, doomed: Doomed) -> int:
    """How many messages have gone. Raises PlaceError, Conflict."""
    wanted = Wanted(after=doomed.after, before=doomed.last + 1)
    if not doomed.may_be_in(doomed.after + 1, doomed.last + 1):
        return 0
    gone = rewrite_without(history.catalog, lambda rows: _doomed(rows, doomed), wanted)
    messages = sum(len(each.removed) for each in gone)
    history.refresh()
    return messages


def _doomed(rows: pa.RecordBatch, doomed: Doomed) -> pa.Array:
    positions = rows.column("position")
    inside = pc.and_(pc.greater(positions, doomed.after), pc.less_equal(positions, doomed.last))
    if doomed.filter is not None:
        topics = rows.column("topic")
        meets = pa.array(Topics(doomed.filter)(topics.dictionary.to_pylist()), pa.bool_())
        return positions.filter(pc.and_(inside, meets.take(topics.indices)))
    numbers = positions.filter(inside).to_numpy()
    firsts = numpy.array([first for first, _ in doomed.positions], numpy.int64)
    lasts = numpy.array([last for _, last in doomed.positions], numpy.int64)
    at = numpy.searchsorted(firsts, numbers, "right") - 1
    return pa.array(numbers[(at >= 0) & (numbers <= lasts[numpy.maximum(at, 0)])])


def erased_in_history(history: History, after: int, most: int, damaged: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of positions that objects lack, ends included, but for those that damage has taken. Raises PlaceError."""
    found: list[tuple[int, int]] = []
    for entry in history.catalog.entries(history.refresh(), after):
        if entry.rows < entry.end - entry.first:
            found += [(max(low, after + 1), high) for low, high in _lacking(history, entry, damaged) if high > after]
        if len(found) >= most:
            break
    return found[:most]


def _lacking(history: History, entry: Entry, damaged: list[tuple[int, int]]) -> list[tuple[int, int]]:
    positions = numpy.arange(entry.first, entry.end)
    there = numpy.zeros(len(positions), numpy.bool_)
    wanted = Wanted(after=entry.first - 1, before=entry.end)
    for rows in history.parts(wanted, entry.end, ["position"]):
        there[rows.column("position").to_numpy() - entry.first] = True
    for first, end in damaged:
        there[(positions >= first) & (positions < end)] = True
    return ranges_of(positions[~there])
