"""How much a batch takes, and from which stores: no more than is allowed, and of each store its fair part.

Theory. Stores share a batch in proportion to what waits in each, so that all come to their ends at about the same time,
and a store with little is not starved by one with much: each with anything waiting gets one message at least. What
rounding leaves goes to those with the largest remainders. It is a function of its arguments alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.pipeline.source.stores import Offsets, StoreNow


def admit(start: Offsets, found: Mapping[str, StoreNow], most: int | None) -> Offsets:
    """The end of a batch that begins behind `start`, with at most so many messages. Stores that do not answer stay
    where they are. Those that are new get an offset before their first message, and no more: where they begin has to be
    written down before anything of them is read, or a batch that is read again could begin elsewhere."""
    begin = {**{id: now.first - 1 for id, now in found.items()}, **start}
    waiting = {id: max(0, now.last - start[id]) for id, now in found.items() if id in start}
    taken = waiting if most is None or sum(waiting.values()) <= most else _shares(waiting, most)
    return {id: position + taken.get(id, 0) for id, position in begin.items()}


def rows_for_bytes(most: int, start: Offsets, found: Mapping[str, StoreNow]) -> int:
    """So many messages have about so many bytes."""
    waiting = {id: max(0, now.last - start[id]) for id, now in found.items() if id in start}
    rows = sum(waiting.values())
    if not rows:
        return 1
    mean = sum(found[id].mean_size * count for id, count in waiting.items()) / rows
    return max(1, int(most / mean))


def _shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    total = sum(waiting.values())
    exact = {id: most * count / total for id, count in waiting.items()}
    taken = {id: min(waiting[id], max(int(share), 1 if waiting[id] else 0)) for id, share in exact.items()}
    left = most - sum(taken.values())
    for id in sorted(exact, key=lambda each: (int(exact[each]) - exact[each], each)):
        if left <= 0:
            break
        more = min(left, waiting[id] - taken[id])
        taken[id] += more
        left -= more
    while left < 0:  # more stores than messages allowed: those with the least give theirs back
        id = min((each for each in taken if taken[each]), key=lambda each: (waiting[each], each))
        taken[id] -= 1
        left += 1
    return taken
