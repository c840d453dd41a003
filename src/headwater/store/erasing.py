"""Messages erased from a block for good, and a block that is laid out again without them.

Theory. Positions have no gaps and are never given twice, so a message that is erased leaves a hole: the block goes from
the same position to the same position, has as many pages, and fewer rows. Only pages that had one of these messages are
written again; one without any row left is an empty record. So whoever reads a page with an index of before, or the
other way around, finds another number of rows in it, and reads the index again (block_reader.py).

That positions were erased is a record of its own beside the block's, which goes when retention removes the block: who
counts messages by position can tell a hole that was meant from one that was not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy
import zstandard
from numpy.typing import NDArray

from headwater.disk.errors import StorageError
from headwater.store.block import Index, Summary, TopicExtent, extent_of, page_chunk
from headwater.store.chunk import Chunk, Indices, Integers
from headwater.store.page import decompressed, encode

CHANGED_BLOCKS: Final = 4
"""So many blocks are laid out again by one call."""
LOOKED_AT_BLOCKS: Final = 64
"""So many are looked at."""
MOST_RANGES: Final = 1000
"""Of positions that are named in one call."""
LEVEL: Final = 3
Ranges = list[tuple[int, int]]
"""First and last positions, ends included, in order."""


class Doomed(NamedTuple):
    """Which messages are to go: those of topics that match, or those at these positions; in both cases only
    `after` < position ≤ `last`."""

    filter: str | None = None
    positions: Sequence[tuple[int, int]] = ()
    after: int = 0
    last: int = (1 << 63) - 1

    def among(self, chunk: Chunk, wanted: Indices | None) -> NDArray[Any]:
        """Which of a chunk's messages; `wanted` are the topics that match."""
        inside = (chunk.position > self.after) & (chunk.position <= self.last)
        if wanted is not None:
            return inside & numpy.isin(chunk.topic, wanted)
        firsts = numpy.array([first for first, _ in self.positions], numpy.int64)
        lasts = numpy.array([last for _, last in self.positions], numpy.int64)
        at = numpy.searchsorted(firsts, chunk.position, "right") - 1
        return inside & (at >= 0) & (chunk.position <= lasts[numpy.maximum(at, 0)])

    def may_be_in(self, first: int, end: int) -> bool:
        """Whether some of these positions can be in [first, end)."""
        if end <= self.after + 1 or first > self.last:
            return False
        return self.filter is not None or any(low < end and high >= first for low, high in self.positions)


class Erased(NamedTuple):
    """What one call did: `messages` have gone; all up to `position` was looked at; `more` says that there is more to be
    looked at behind it."""

    messages: int
    position: int
    more: bool


class Rewritten(NamedTuple):
    """A block without some messages, as it goes to disk; `gone` are these messages."""

    summary: Summary
    places: bytes
    """The index."""
    extent: TopicExtent
    pages: dict[int, bytes]
    """Those that are written again."""
    gone: Chunk


def rewritten(
    summary: Summary,
    index: Index,
    records: Sequence[bytes],
    names: Sequence[str],
    which: Callable[[Chunk], NDArray[Any]],
) -> Rewritten | None:
    """The block of these pages without the messages that `which` says; None: it has none of them."""
    if not index.pages[-1]:
        return None
    filled = numpy.flatnonzero(numpy.diff(index.pages)).tolist()
    whole = Chunk.joined([page_chunk(records[page], names, index, page) for page in filled])
    doomed = which(whole)
    if not doomed.any():
        return None
    left = whole.take(numpy.flatnonzero(~doomed))
    gone = whole.take(numpy.flatnonzero(doomed))
    before = numpy.append(0, numpy.cumsum(~doomed))
    bounds = before[index.pages]
    changed = [page for page in filled if doomed[index.pages[page] : index.pages[page + 1]].any()]
    pages = {page: _page(left, int(bounds[page]), int(bounds[page + 1]), summary.first) for page in changed}
    extent, starts = extent_of(left)
    new = _index(index, left, extent, starts, bounds.astype(numpy.int32), changed).pack()
    size = sum(len(pages.get(at, record)) for at, record in enumerate(records)) + len(new) + len(extent.pack())
    return Rewritten(_summary(summary, left, size), new, extent, pages, gone)


def _page(left: Chunk, start: int, end: int, first: int) -> bytes:
    return encode(left.slice(start, end), first, topics=False, compress=True) if end > start else b""


def _index(
    old: Index, left: Chunk, extent: TopicExtent, starts: Integers, bounds: Indices, changed: Sequence[int]
) -> Index:
    earliest, latest, low, high = old.earliest.copy(), old.latest.copy(), old.low.copy(), old.high.copy()
    for page in changed:
        rows = slice(int(bounds[page]), int(bounds[page + 1]))
        time, value = left.time[rows], left.value[rows]
        earliest[page], latest[page] = (time.min(), time.max()) if len(time) else (0, 0)
        low[page], high[page] = _least_and_most(value)
    return Index(
        extent.topic.astype(numpy.int32),
        numpy.append(starts, len(left)).astype(numpy.int32),
        bounds,
        (earliest, latest),
        (low, high),
    )


def _summary(old: Summary, left: Chunk, size: int) -> Summary:
    low, high = _least_and_most(left.value)
    times = (int(left.time.min()), int(left.time.max())) if len(left) else (0, 0)
    return old._replace(
        earliest=times[0], latest=times[1], low=low, high=high, size=size, payload_size=len(left.payload.data)
    )


def _least_and_most(values: NDArray[Any]) -> tuple[float, float]:
    if not len(values):
        return float("nan"), float("nan")
    return float(numpy.fmin.reduce(values)), float(numpy.fmax.reduce(values))


# ---- positions that were erased ----------------------------------------------------------------------------------


def ranges_of(positions: Integers) -> Ranges:
    """Of positions in any order, each once."""
    if not len(positions):
        return []
    ordered = numpy.sort(positions)
    cuts = numpy.flatnonzero(numpy.diff(ordered) > 1)
    firsts = ordered[numpy.append(0, cuts + 1)]
    lasts = ordered[numpy.append(cuts, len(ordered) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def pack_ranges(ranges: Ranges) -> bytes:
    numbers = [number for each in ranges for number in each]
    return zstandard.compress(struct.pack(f"<{len(numbers)}q", *numbers), LEVEL)


def unpack_ranges(record: bytes) -> Ranges:
    try:
        numbers = numpy.frombuffer(decompressed(record), numpy.int64).reshape(-1, 2).tolist()
    except (ValueError, zstandard.ZstdError) as error:
        raise StorageError(f"a record of what was erased is damaged ({error}); restore a backup") from None
    return [(first, last) for first, last in numbers]


def joined(ranges: Ranges, more: Ranges) -> Ranges:
    """All of them; those that touch or overlap are one."""
    found: Ranges = []
    for first, last in sorted([*ranges, *more]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found
