"""How much a batch takes, and from which stores: no more than is allowed, and of each store its fair part.

Theory. Stores share a batch in proportion to what waits in each, so that all come to their ends at about the same time,
and a store with little is not starved by one with much: each with anything waiting gets one message at least, for which
those with the most give theirs. What rounding leaves goes to those with the largest remainders that have more: with an
end behind a store's last message a whole range fails (`DataMissing`), and a range with conditions, which cannot be
counted, passes over the next message. It is a function of its arguments alone, to the order of its result: Spark
compares offsets as text.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.pipeline.source.stores import Offsets, StoreNow


def admit(start: Offsets, found: Mapping[str, StoreNow], most: int | None) -> Offsets:
    """The end of a batch that begins behind `start`, with at most so many messages. Stores that do not answer stay
    where they are. Those that are new get an offset before their first message, and no more: where they begin has to be
    written down before anything of them is read, or a batch that is read again could begin elsewhere. Positions that
    retention has removed are passed at once, and count for nothing."""
    behind = _behind(start, found)
    waiting = _waiting(behind, found)
    taken = waiting if most is None or sum(waiting.values()) <= most else _shares(waiting, most)
    begin = {**{id: now.first - 1 for id, now in found.items()}, **start, **behind}
    return {id: begin[id] + taken.get(id, 0) for id in sorted(begin)}


def count_waiting(start: Offsets, found: Mapping[str, StoreNow]) -> int:
    """Messages that a batch could have, of the stores that have begun."""
    return sum(_waiting(_behind(start, found), found).values())


def rows_for_bytes(most: int, start: Offsets, found: Mapping[str, StoreNow]) -> int:
    """So many messages have about so many bytes."""
    waiting = _waiting(_behind(start, found), found)
    rows = sum(waiting.values())
    if not rows:
        return 1
    mean = sum(found[id].mean_size * count for id, count in waiting.items()) / rows
    return max(1, int(most / mean))


def _behind(start: Offsets, found: Mapping[str, StoreNow]) -> Offsets:
    """Behind which position there is something left to read, of the stores that have begun."""
    return {id: max(start[id], min(now.first - 1, now.last)) for id, now in found.items() if id in start}


def _waiting(behind: Offsets, found: Mapping[str, StoreNow]) -> dict[str, int]:
    return {id: max(0, found[id].last - after) for id, after in behind.items()}


def _shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    total = sum(waiting.values())
    taken = {id: max(1, most * count // total) for id, count in waiting.items() if count}
    left = most - sum(taken.values())
    by_remainder = sorted(taken, key=lambda id: (-(most * waiting[id] % total), id))
    while left > 0:  # more waits than is allowed, so there is somebody who can take it
        for id in by_remainder:
            if left > 0 and taken[id] < waiting[id]:
                taken[id] += 1
                left -= 1
    for _ in range(-left):
        id = max((id for id in taken if taken[id]), key=lambda each: (taken[each], -waiting[each], each))
        taken[id] -= 1
    return taken
