"""Which ranges a mirror asks for, and that it has each message once and in order whatever came by which way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.comparing import MOST_QUESTIONS, Found, Range, compared, in_groups, ranges
from headwater.edge.copies import Copy


def copy(position: int) -> Copy:
    return Copy(position, f"t/{position % 3}", str(position).encode())


@pytest.mark.parametrize(
    ("came", "asked"),
    [
        ([1, 2, 3, 4], []),
        ([], [Range(0, 5)]),
        ([2, 3], [Range(0, 2), Range(3, 5)]),
        ([1, 3], [Range(1, 3), Range(3, 5)]),
    ],
)
def test_only_what_did_not_come_is_asked_for(came: list[int], asked: list[Range]) -> None:
    assert ranges(came, 0, 5) == asked


def test_many_ranges_become_one_question() -> None:
    came = list(range(2, 2 * MOST_QUESTIONS, 2))
    assert len(ranges(came, 0, came[-1] + 2)) == MOST_QUESTIONS
    assert ranges([*came, came[-1] + 2], 0, came[-1] + 4) == [Range(0, came[-1] + 4)]


@given(
    stored=st.sets(st.integers(1, 60)),
    received=st.sets(st.integers(1, 60)),
    after=st.integers(0, 20),
    before=st.integers(20, 61),
    twice=st.booleans(),
)
def test_each_message_once_and_in_order(
    stored: set[int], received: set[int], after: int, before: int, twice: bool
) -> None:
    """`twice`: two filters of the mirror overlap, so the store answers with the same message twice."""
    came = {position: copy(position) for position in received & stored if after < position < before}
    asked_for: list[Range] = []

    def ask(asked: Range) -> Iterator[Copy]:
        asked_for.append(asked)
        for position in sorted(stored):
            if asked.after < position < asked.before:
                yield from [copy(position)] * (2 if twice else 1)

    found = list(compared(came, after, before, ask))
    inside = [position for position in sorted(stored) if after < position < before]
    assert found == [Found(copy(position), position not in came) for position in inside]
    assert len(asked_for) <= MOST_QUESTIONS


def test_what_came_and_is_not_in_the_store_any_more_is_kept() -> None:
    """Retention may be faster than the comparison."""
    came = {2: copy(2), 4: copy(4)}
    found = list(compared(came, 0, 6, lambda asked: iter([copy(5)] if asked.before == 6 else [])))
    assert [each.copy.position for each in found] == [2, 4, 5]
    assert [each.recovered for each in found] == [False, False, True]


def test_groups_are_bounded_by_number_and_by_bytes() -> None:
    found = [Found(copy(position), False) for position in range(1, 8)]
    assert [len(group) for group in in_groups(found, 3, 1 << 20)] == [3, 3, 1]
    large = found[0].copy.size + 1
    assert [len(group) for group in in_groups(found, 100, large)] == [2, 2, 2, 1]
    assert [len(group) for group in in_groups(found, 100, 1)] == [1] * 7
    assert list(in_groups([], 3, 1)) == []
