"""A question to a store in stages, so that one that finds little in much does not keep a thread for itself.

A stage looks at a bounded range of positions. Between two stages others have their turn, and whoever asked may have
gone. Together they find what one `select` would have found when the first began; if retention overtakes them, they
raise PositionGone as it would.

A turn is a few milliseconds of such stages, because handing over to another thread and back costs as much as dozens of
messages do: what is found in a turn, a few messages in each block if the question is about one topic, comes as one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from time import monotonic
from typing import Final

from headwater.store.chunk import Chunk
from headwater.store.query import Query
from headwater.store.store import Store
from headwater.store.where import Where

STAGE: Final = 1 << 20
"""Positions."""
TURN: Final = 0.01
"""Seconds."""
ENOUGH: Final = 500
"""Messages with which a turn ends before its time."""


def scanned(store: Store, query: Query) -> Generator[Chunk | None, None, None]:
    """What the query asks for; None: nothing was found in a turn."""
    waiting: list[Chunk] = []
    count = 0
    began = monotonic()
    try:
        for chunk in _stages(store, query):
            if chunk is not None:
                waiting.append(chunk)
                count += len(chunk)
            if count >= ENOUGH or monotonic() - began >= TURN:
                found, waiting, count = waiting, [], 0
                if found or chunk is None:
                    yield Chunk.gathered(found) if found else None
                    began = monotonic()
    except Exception:
        if waiting:
            yield Chunk.gathered(waiting)
        raise
    if waiting:
        yield Chunk.gathered(waiting)


def _stages(store: Store, query: Query) -> Iterator[Chunk | None]:
    """None is the end of a stage, unless it is the last, or of a part of it in which nothing was found."""
    where = query.where
    if where is not None:
        yield from _where(store, query, where)
        return
    end = store.next if query.before is None else min(query.before, store.next)
    left = query.limit
    after = query.after
    while True:
        begin = (store.first if after is None else after + 1) + STAGE
        stage = query._replace(after=after, before=min(begin, end), limit=left)
        for chunk in store.select(stage):
            yield chunk if len(chunk) else None  # object storage is waited for
            if left is not None:
                left -= len(chunk)
                if left <= 0:
                    return
        if begin >= end:
            return
        after = begin - 1
        yield None


def _where(store: Store, query: Query, where: Where) -> Iterator[Chunk | None]:
    """The same with a condition on the content, by which the messages count that `limit` is about."""
    left = query.limit
    for chunk in _stages(store, query._replace(where=None, limit=None)):
        if chunk is None:
            yield None
            continue
        for part in where.parts(chunk):
            found = where.of(part)
            if left is not None:
                found = found.slice(0, left)
                left -= len(found)
            yield found if len(found) else None
            if left == 0:
                return
