"""Sets of positions as ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.jobs.positions import Members, Ranges, count, flat, union, without

ranges = st.lists(
    st.builds(
        lambda store, first, size: (store, first, first + size),
        st.sampled_from("ab"),
        st.integers(1, 40),
        st.integers(0, 8),
    )
)


def members(found: Ranges) -> set[tuple[str, int]]:
    return {(store, position) for store, first, last in flat(found) for position in range(first, last + 1)}


@given(ranges, ranges)
def test_they_are_sets(some: list[tuple[str, int, int]], others: list[tuple[str, int, int]]) -> None:
    one, other = union(some), union(others)
    true = {(store, position) for store, first, last in some for position in range(first, last + 1)}
    assert members(one) == true and count(one) == len(true)
    assert members(without(one, other)) == true - members(other)
    assert all(Members(one).has(store, at) == ((store, at) in true) for store in "abc" for at in range(60))


@given(ranges, st.integers(0, 5))
def test_near_ranges_are_one(some: list[tuple[str, int, int]], within: int) -> None:
    near = union(some, within)
    assert members(near) >= members(union(some))
    pairs = [pair for theirs in near.values() for pair in pairwise(theirs)]
    assert all(right[0] - left[1] - 1 > within for left, right in pairs)
