from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.store.retention import Extent, Retention, trimmed, without
from headwater.store.store import Reader

FIVE = [Extent(1 + 10 * number, 11 + 10 * number, 100, 1000 + number) for number in range(5)]
"""Of ten messages and 100 bytes each; the first one's last arrival is 1000, the next one's 1001 …"""


def of_five(retention: Retention, now: int = 0, **readers: int) -> tuple[int, str | None]:
    return trimmed(FIVE, 500, [Reader(name, position) for name, position in readers.items()], retention, now)


def test_without_limits_nothing_goes() -> None:
    assert of_five(Retention(), 10**18) == (0, None)
    assert of_five(Retention(hard_age=1, hard_size=1), 10**18) == (0, None)
    assert trimmed([], 0, [], Retention(age=0, size=0), 10**18) == (0, None)


@pytest.mark.parametrize(("now", "gone"), [(0, 0), (1050, 0), (1051, 1), (1053, 3), (1054, 4), (1055, 5), (10**18, 5)])
def test_by_age(now: int, gone: int) -> None:
    assert of_five(Retention(age=50), now) == (gone, None)


@pytest.mark.parametrize(("size", "gone"), [(501, 0), (500, 0), (499, 1), (400, 1), (399, 2), (100, 4), (99, 5)])
def test_by_size(size: int, gone: int) -> None:
    assert of_five(Retention(size=size)) == (gone, None)


def test_by_either() -> None:
    assert of_five(Retention(age=50, size=250), 1052) == (3, None)
    assert of_five(Retention(age=50, size=250), 1054) == (4, None)


def test_what_is_in_no_extent_counts_but_does_not_go() -> None:
    assert trimmed(FIVE, 700, [], Retention(size=450), 0) == (3, None)
    assert trimmed(FIVE, 10_000, [], Retention(size=450), 0) == (5, None)


def test_an_extent_with_a_late_arrival_keeps_those_behind_it() -> None:
    extents = [FIVE[0], FIVE[1]._replace(newest=5000), FIVE[2]]
    assert trimmed(extents, 300, [], Retention(age=50), 2000) == (1, None)


@pytest.mark.parametrize(
    ("position", "gone", "held_by"),
    [(0, 0, "r"), (9, 0, "r"), (10, 1, "r"), (19, 1, "r"), (20, 2, "r"), (40, 4, "r"), (49, 4, "r"), (50, 5, None)],
)
def test_a_reader_holds_back_what_it_has_not_committed(position: int, gone: int, held_by: str | None) -> None:
    for retention in (Retention(age=1), Retention(size=0)):
        assert of_five(retention, 10**6, r=position) == (gone, held_by)
        assert of_five(retention, 10**6, fast=50, r=position) == (gone, held_by)


def test_a_reader_that_is_not_in_the_way_is_not_named() -> None:
    assert of_five(Retention(size=300), r=25) == (2, None)
    assert of_five(Retention(size=299), r=25) == (2, "r")


def test_up_to_the_hard_limit() -> None:
    assert of_five(Retention(age=50, hard_age=100), 1100, r=0) == (0, "r")
    assert of_five(Retention(age=50, hard_age=100), 1103, r=0) == (3, "r")
    assert of_five(Retention(age=50, hard_age=100), 1103, r=45) == (4, "r")
    assert of_five(Retention(size=100, hard_size=300), r=0) == (2, "r")
    assert of_five(Retention(size=100, hard_age=100), 1102, r=0) == (2, "r")
    assert of_five(Retention(age=50, hard_size=400), 10**6, r=0) == (1, "r")


def test_a_hard_limit_below_the_other_one_counts_as_that_one() -> None:
    assert of_five(Retention(age=50, hard_age=10), 1052, r=0) == (2, None)
    assert of_five(Retention(size=300, hard_size=10), r=0) == (2, None)
    # Also where it is the other limit that has been passed.
    assert of_five(Retention(age=50, size=100, hard_age=10), 1050, r=0) == (0, "r")
    assert trimmed(FIVE, 500, [Reader("r", 0)], Retention(age=1, size=600, hard_size=10), 10**6) == (0, "r")


amounts = st.none() | st.integers(0, 60)


@settings(deadline=None)
@given(
    extents=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(0, 50)), max_size=8),
    rest=st.integers(0, 20),
    positions=st.lists(st.integers(0, 20), max_size=3),
    retention=st.builds(Retention, age=amounts, size=amounts, hard_age=amounts, hard_size=amounts),
    now=st.integers(0, 100),
)
def test_exactly_what_has_to_go_goes(
    extents: list[tuple[int, int, int]], rest: int, positions: list[int], retention: Retention, now: int
) -> None:
    """A second opinion: whether an extent may go depends on those behind it by their size alone."""
    laid: list[Extent] = []
    for messages, bytes, newest in extents:
        first = laid[-1].end if laid else 1
        laid.append(Extent(first, first + messages, bytes, newest))
    readers = [Reader(f"r{index}", position) for index, position in enumerate(positions)]
    total = rest + sum(extent.size for extent in laid)
    gone, held_by = trimmed(laid, total, readers, retention, now)

    def too_much(index: int, age: int | None, size: int | None) -> bool:
        behind = rest + sum(extent.size for extent in laid[index:])
        return (age is not None and now - laid[index].newest > age) or (size is not None and behind > size)

    age, size, hard_age, hard_size, _ = retention
    hard_age = None if hard_age is None else max(hard_age, age or 0)
    hard_size = None if hard_size is None else max(hard_size, size or 0)

    def goes(index: int) -> bool:
        read = all(reader.position >= laid[index].end - 1 for reader in readers)
        return too_much(index, age, size) and (read or too_much(index, hard_age, hard_size))

    assert all(goes(index) for index in range(gone))
    assert gone == len(laid) or not goes(gone)
    if held_by is None:
        assert gone == len(laid) or not too_much(gone, age, size)
    else:
        assert too_much(gone, age, size)
        [holder] = [reader for reader in readers if reader.name == held_by]
        assert holder.position == min(positions)
        assert holder.position < laid[gone].end - 1


def test_who_has_lost_what() -> None:
    readers = [Reader("a", 0, 0, 1, 2), Reader("b", 10, 5, 3, 4), Reader("c", 19), Reader("d", 20), Reader("e", 30)]
    assert without(readers, 21) == [
        Reader("a", 20, 20, 1, 2),
        Reader("b", 20, 15, 3, 4),
        Reader("c", 20, 1),
    ]
    assert without(readers, 1) == []
    assert without([], 100) == []
