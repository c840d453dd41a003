"""What came by MQTT against what the store has, by position.

Theory. Positions have no gaps, but a filter leaves some out, and nobody but the store knows which. So what lies between
two positions that came is either nothing of ours or something that was missed; asking the store for exactly these
ranges, with the same filter, says which. If everything is ours and nothing was missed there is no range to ask for, and
comparing costs nothing. If there are many ranges (a filter that leaves out much) one question for all of them costs
less than one for each; what came already is then sent once more, and recognised by its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headwater.edge.copies import Copy

MOST_QUESTIONS: Final = 8
"""Ranges that are asked for one by one."""


class Range(NamedTuple):
    """Positions `after` < p < `before`."""

    after: int
    before: int


class Found(NamedTuple):
    """A message in its turn, and whether it had been missed."""

    copy: Copy
    recovered: bool


def ranges(came: Sequence[int], after: int, before: int) -> list[Range]:
    """What to ask for if of `after` < p < `before` the positions in `came` came, which are in order."""
    gaps: list[Range] = []
    last = after
    for position in [*came, before]:
        if position > last + 1:
            gaps.append(Range(last, position))
        last = position
    return gaps if len(gaps) <= MOST_QUESTIONS else [Range(gaps[0].after, gaps[-1].before)]


def compared(
    came: Mapping[int, Copy], after: int, before: int, ask: Callable[[Range], Iterable[Copy]]
) -> Iterator[Found]:
    """Everything of `after` < p < `before` that came or that the store has, each once and in order."""
    order = sorted(came)
    at = 0
    for asked in ranges(order, after, before):
        while at < len(order) and order[at] <= asked.after:
            yield Found(came[order[at]], False)
            at += 1
        last = asked.after
        for copy in ask(asked):
            while at < len(order) and order[at] < copy.position:
                yield Found(came[order[at]], False)
                at += 1
            if copy.position not in came and copy.position > last:  # filters that overlap have it twice
                yield Found(copy, True)
            last = copy.position
    for position in order[at:]:
        yield Found(came[position], False)


def in_groups(found: Iterable[Found], most: int, size: int) -> Iterator[list[Found]]:
    """Some at a time: so many, or fewer if they have so many bytes."""
    group: list[Found] = []
    held = 0
    for each in found:
        group.append(each)
        held += each.copy.size
        if len(group) == most or held >= size:
            yield group
            group, held = [], 0
    if group:
        yield group
