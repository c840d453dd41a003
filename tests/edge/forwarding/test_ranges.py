"""Ranges of positions against sets of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.forwarding.ranges import Ranges, union

END = 40
spans = st.tuples(st.integers(0, END), st.integers(0, END)).map(lambda pair: (min(pair), max(pair)))
changes = st.lists(st.tuples(st.booleans(), spans), max_size=30)


def made(done: list[tuple[bool, tuple[int, int]]]) -> tuple[Ranges, set[int]]:
    ranges, positions = Ranges(), set[int]()
    for adds, (start, stop) in done:
        if adds:
            ranges.add(start, stop)
            positions |= set(range(start, stop))
        else:
            ranges.remove(start, stop)
            positions -= set(range(start, stop))
    return ranges, positions


def in_it(ranges: Ranges) -> set[int]:
    return {position for start, stop in ranges for position in range(start, stop)}


@given(changes)
def test_they_are_the_positions_that_were_added_and_not_removed(done: list[tuple[bool, tuple[int, int]]]) -> None:
    ranges, positions = made(done)
    assert in_it(ranges) == positions == {each for each in range(END) if each in ranges}
    assert ranges.count() == len(positions)
    assert ranges.first == min(positions, default=None)


@given(changes)
def test_they_lie_in_order_and_do_not_touch(done: list[tuple[bool, tuple[int, int]]]) -> None:
    ranges, positions = made(done)
    edges = [edge for each in ranges for edge in each]
    assert edges == sorted(set(edges))
    assert len(ranges) == len([each for each in positions if each - 1 not in positions])


@given(changes, changes, spans)
def test_questions_about_two_of_them(
    mine: list[tuple[bool, tuple[int, int]]], others: list[tuple[bool, tuple[int, int]]], span: tuple[int, int]
) -> None:
    ranges, positions = made(mine)
    other, taken = made(others)
    assert in_it(ranges.without(other)) == positions - taken
    assert in_it(union([ranges, other])) == positions | taken
    assert in_it(Ranges(ranges.within(*span))) == positions & set(range(*span))
    found = ranges.first_outside(other)
    left = positions - taken
    if found is None:
        assert not left
    else:
        assert found[0] == min(left)
        assert set(range(*found)) <= left and found[1] not in left
