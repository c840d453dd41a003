"""How long messages are kept, and what a reader that lags behind may hold back.

Messages older than `age`, and the oldest ones while there are more than `size` bytes, are removed in whole blocks from
the front, except those that a named reader has not committed. A reader holds them back until `hard_age` or `hard_size`;
beyond that they are removed all the same, so that one forgotten reader does not fill the disk. What it lost is counted
for it, and it is told so when it asks. Age is the time since arrival: clocks of devices do not decide what is removed.

Where blocks go to object storage (history), they are removed from the disk when they are there, whoever has read them:
readers find them there. Nothing else is held back for but the history itself, up to the same hard limits, and readers
that are parts of the node, which read its disk only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.store.store import Reader

HISTORY: Final = "object storage"
"""Who holds back what is not there yet; no reader can have this name."""
INSIDE: Final = "forward:"
"""What names of readers begin with that are parts of the node."""


class Retention(NamedTuple):
    """Microseconds and bytes; None keeps messages for ever. A hard limit below the other one counts as that one."""

    age: int | None = None
    size: int | None = None
    hard_age: int | None = None
    hard_size: int | None = None
    seal_age: int | None = None
    """Messages that are older than this go into a block, however few they are."""


class Extent(NamedTuple):
    """Messages that are removed together, or not at all: from `first` up to but not including `end`."""

    first: int
    end: int
    size: int
    newest: int
    """The last arrival."""


def trimmed(
    extents: list[Extent], size: int, readers: list[Reader], retention: Retention, now: int
) -> tuple[int, str | None]:
    """How many extents go, oldest first; and who keeps the next one from going. `size` is that of all messages."""
    hard_age = None if retention.hard_age is None else max(retention.hard_age, retention.age or 0)
    hard_size = None if retention.hard_size is None else max(retention.hard_size, retention.size or 0)
    slowest = min(readers, key=lambda reader: reader.position, default=None)
    gone = 0
    for extent in extents:
        if not _over(extent, size, retention.age, retention.size, now):
            return gone, None
        if slowest and slowest.position < extent.end - 1 and not _over(extent, size, hard_age, hard_size, now):
            return gone, slowest.name
        size -= extent.size
        gone += 1
    return gone, None


def holding(readers: list[Reader], in_history: int) -> list[Reader]:
    """Who holds messages back where all positions before `in_history` are in object storage."""
    return [Reader(HISTORY, in_history - 1), *inside(readers)]


def inside(readers: list[Reader]) -> list[Reader]:
    return [reader for reader in readers if reader.name.startswith(INSIDE)]


def _over(extent: Extent, size: int, age: int | None, most: int | None, now: int) -> bool:
    return (age is not None and extent.newest < now - age) or (most is not None and size > most)


def without(readers: list[Reader], first: int) -> list[Reader]:
    """The readers that have lost something now that `first` is the first message left, as they are from now on."""
    return [
        reader._replace(lost=reader.lost + first - 1 - reader.position, position=first - 1)
        for reader in readers
        if reader.position < first - 1
    ]
