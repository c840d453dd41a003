"""Topic filters that split a load into parts of about equal size.

Theory. Filters overlap, so a rule says whose a topic is: that of the most specific filter which matches it. Two filters
that match the same topic are compared level by level, a name before `+` before `#`; unless they are the same one, they
differ at some level. With that rule a filter can be split by adding to it: `a/#` stays, and `a/b/#` takes a piece out
of it. So together they hold exactly what `a/#` held alone, topics that nobody has seen yet included.

    refine   take the heaviest filter and, at its first wildcard, its heaviest branches out of it, until what is left
             is light enough. A filter that was added and has nothing left goes again: the one above it holds its place
    deal     give the filters, the heaviest first, to the part that has least

A filter is light enough at GRAIN of a part's fair share: then no part gets more than its fair share and GRAIN of it,
unless a single topic is heavier or there may be no more filters.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.routing.topics import matches

GRAIN: Final = 0.25


@dataclass(frozen=True)
class Parts:
    filters: tuple[tuple[str, ...], ...]
    loads: tuple[float, ...]

    @property
    def unevenness(self) -> float:
        """How many times the mean the heaviest part has."""
        return max(self.loads) * len(self.loads) / sum(self.loads) if sum(self.loads) else 1.0


def specificity(filter: str) -> tuple[int, ...]:
    """Greater is more specific, of filters that match the same topic."""
    return tuple(0 if level == "#" else 1 if level == "+" else 2 for level in filter.split("/"))


def most_specific(filters: Iterable[str], topic: str) -> str | None:
    """Whose a topic is; None if none of them matches."""
    return max((each for each in filters if matches(each, topic)), key=specificity, default=None)


def loads_of(filters: Iterable[str], loads: Mapping[str, float]) -> dict[str, float]:
    """The load of each filter, by the topics that are its own."""
    found = dict.fromkeys(sorted(filters, key=specificity, reverse=True), 0.0)
    for topic, load in loads.items():
        owner = most_specific(found, topic)
        if owner is not None:
            found[owner] += load
    return found


def loads_of_parts(parts: Iterable[Iterable[str]], loads: Mapping[str, float]) -> Parts:
    kept = tuple(tuple(part) for part in parts)
    of_filters = loads_of([each for part in kept for each in part], loads)
    return Parts(kept, tuple(sum(of_filters[each] for each in part) for part in kept))


def split(loads: Mapping[str, float], filters: Sequence[str], parts: int, most_filters: int) -> Parts:
    """Split the topics that `filters` match, with these loads, into as many parts, or fewer if there is too little to
    split. Parts and filters come in the same order whenever it is done."""
    light = GRAIN * sum(loads_of(filters, loads).values()) / parts
    refined = _refine(loads, list(dict.fromkeys(filters)), light, max(most_filters, len(filters)))
    return _deal(loads_of(refined, loads), parts)


def _refine(loads: Mapping[str, float], filters: list[str], light: float, most: int) -> list[str]:
    owned: dict[str, dict[str, float]] = {each: {} for each in filters}
    for topic, load in loads.items():
        owner = most_specific(filters, topic)
        if owner is not None:
            owned[owner][topic] = load
    heap = [(-sum(topics.values()), each) for each, topics in owned.items()]
    heapq.heapify(heap)
    while heap and -heap[0][0] > light and len(owned) < most:
        _, filter = heapq.heappop(heap)
        topics = owned[filter]
        if len(topics) < 2:
            continue  # there is nothing to take out of it
        left = sum(topics.values())
        for branch in _branches(filter, topics):
            if left <= light or len(owned) >= most:
                break
            if branch in owned:
                continue
            inside = owned[branch] = {topic: load for topic, load in topics.items() if matches(branch, topic)}
            for topic in inside:
                del topics[topic]
            weight = sum(inside.values())
            left -= weight
            heapq.heappush(heap, (-weight, branch))
        if not topics and filter not in filters:
            del owned[filter]
    return list(owned)


def _branches(filter: str, topics: Mapping[str, float]) -> list[str]:
    """The filters below this one at its first wildcard, the heaviest first."""
    levels = filter.split("/")
    place = next((index for index, level in enumerate(levels) if level in ("+", "#")), None)
    if place is None:
        return []
    weights: dict[str, float] = {}
    for topic, load in topics.items():
        names = topic.split("/")
        if len(names) > place:
            rest = ["#"] if levels[place] == "#" else levels[place + 1 :]
            branch = "/".join([*levels[:place], names[place], *rest])
            weights[branch] = weights.get(branch, 0.0) + load
    return sorted(weights, key=lambda branch: (-weights[branch], branch))


def _deal(loads: Mapping[str, float], parts: int) -> Parts:
    count = min(parts, len(loads))
    heap: list[tuple[float, int, int, list[str]]] = [(0.0, 0, number, []) for number in range(count)]
    for filter in sorted(loads, key=lambda each: (-loads[each], each)):
        load, held, number, given = heapq.heappop(heap)
        # Of equal ones the part that has fewer filters: every part is to have one, also of those that weigh nothing.
        heapq.heappush(heap, (load + loads[filter], held + 1, number, [*given, filter]))
    ordered = sorted(heap, key=lambda part: part[2])
    return Parts(tuple(tuple(sorted(part[3])) for part in ordered), tuple(part[0] for part in ordered))
