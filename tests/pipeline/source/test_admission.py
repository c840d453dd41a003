"""How much a batch takes: never too much, never nothing, and of every store something."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.source.admission import admit, rows_for_bytes
from headwater.pipeline.source.stores import Offsets, StoreNow

IDS = [f"s{number}" for number in range(6)]
LARGE = 1 << 60


class Case(NamedTuple):
    """`start` is at or behind the first message of each store, as retention waits."""

    start: Offsets
    found: dict[str, StoreNow]


def now(id: str, first: int, next: int, mean_size: float = 100.0) -> StoreNow:
    return StoreNow(id, f"http://{id}", first, next, mean_size)


def waiting(case: Case) -> dict[str, int]:
    return {id: max(0, case.found[id].last - case.start[id]) for id in case.start if id in case.found}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    found, start = {}, {}
    for id in draw(st.permutations(IDS)):
        first = draw(st.integers(1, 100) | st.integers(1, LARGE))
        next = first + draw(st.integers(0, 2) | st.integers(0, 200) | st.integers(0, LARGE))
        if draw(st.booleans()):
            start[id] = draw(st.integers(first - 1, next - 1) | st.just(next + 5))
        if draw(st.booleans()):
            found[id] = now(id, first, next)
    return Case(start, found)


limits = st.none() | st.integers(1, 12) | st.integers(1, LARGE)


@given(cases(), limits)
def test_a_batch_is_never_larger_than_allowed_and_takes_what_it_may(case: Case, most: int | None) -> None:
    end = admit(case.start, case.found, most)
    taken = {id: end[id] - case.start[id] for id in case.start}
    there = sum(waiting(case).values())
    assert sum(taken.values()) == (there if most is None else min(most, there))
    assert all(0 <= count <= waiting(case).get(id, 0) for id, count in taken.items())


def test_rounding_takes_no_more_than_a_store_has() -> None:
    """Behind the last message, a whole range fails, and one with conditions passes over what comes next."""
    found = {id: now(id, 1, 1 + count) for id, count in {"a": 1, "b": 10, "c": 10}.items()}
    end = admit(dict.fromkeys(found, 0), found, 20)
    assert end["a"] == 1 and sum(end.values()) == 20


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 60))
def test_small_stores_are_never_overdrawn(counts: list[int], most: int) -> None:
    found = {IDS[number]: now(IDS[number], 1, 1 + count) for number, count in enumerate(counts)}
    end = admit(dict.fromkeys(found, 0), found, most)
    assert all(end[id] <= found[id].last for id in found)
    assert sum(end.values()) == min(most, sum(counts))


@given(cases(), limits)
def test_every_store_gets_something_if_there_is_room_for_all(case: Case, most: int | None) -> None:
    end = admit(case.start, case.found, most)
    hungry = [id for id, count in waiting(case).items() if count]
    if most is None or most >= len(hungry):
        assert all(end[id] > case.start[id] for id in hungry)


@given(cases(), limits)
def test_those_that_do_not_answer_stay_and_new_ones_get_their_beginning(case: Case, most: int | None) -> None:
    end = admit(case.start, case.found, most)
    assert end.keys() == case.start.keys() | case.found.keys()
    for id in end:
        if id not in case.found:
            assert end[id] == case.start[id]
        elif id not in case.start:
            assert end[id] == case.found[id].first - 1


@given(cases(), limits, st.randoms(use_true_random=False))
def test_it_is_a_function_of_its_arguments_to_the_order_of_the_text(
    case: Case, most: int | None, random: object
) -> None:
    def shuffled(ids: dict[str, int] | dict[str, StoreNow]) -> list[str]:
        names = list(ids)
        random.shuffle(names)  # type: ignore[attr-defined] # a Random of hypothesis
        return names

    again = admit(
        {id: case.start[id] for id in shuffled(case.start)}, {id: case.found[id] for id in shuffled(case.found)}, most
    )
    assert list(again.items()) == list(admit(case.start, case.found, most).items())


@given(cases(), st.integers(1, 12))
def test_batch_after_batch_comes_to_every_end(case: Case, most: int) -> None:
    """With stores small enough to wait for it."""
    found = {id: now(id, each.first, each.first + (each.next - each.first) % 50) for id, each in case.found.items()}
    start = {id: min(position, found[id].last) for id, position in case.start.items() if id in found}
    for _ in range(50 * len(IDS) + 2):
        end = admit(start, found, most)
        if end == start:
            break
        start = end
    assert start == {id: each.last for id, each in found.items()}


def test_parts_are_in_proportion() -> None:
    found = {"a": now("a", 1, 1001), "b": now("b", 1, 3001), "c": now("c", 1, 2)}
    assert admit({"a": 0, "b": 0, "c": 0}, found, 401) == {"a": 100, "b": 300, "c": 1}


def test_the_one_with_most_gives_what_the_others_need() -> None:
    found = {"a": now("a", 1, 101), "b": now("b", 1, 2), "c": now("c", 1, 2)}
    assert admit({"a": 0, "b": 0, "c": 0}, found, 3) == {"a": 1, "b": 1, "c": 1}


def test_positions_that_retention_removed_are_passed_and_not_counted() -> None:
    found = {"a": now("a", 1_000_001, 1_000_101)}
    assert admit({"a": 5}, found, 10) == {"a": 1_000_010}
    assert admit({"a": 5}, {"a": now("a", 1_000_001, 1_000_001)}, 10) == {"a": 1_000_000}


def test_removed_ones_beyond_the_end_of_this_run_are_left_for_the_next() -> None:
    beyond = StoreNow("a", "http://a", 51, 31, 100.0)
    assert admit({"a": 5}, {"a": beyond}, 10) == {"a": 30}
    assert admit({"a": 40}, {"a": beyond}, 10) == {"a": 40}


@pytest.mark.parametrize(("most", "rows"), [(1, 1), (100, 1), (1000, 10), (10_000, 100)])
def test_bytes_are_rows_by_the_mean_of_what_waits(most: int, rows: int) -> None:
    found = {"a": now("a", 1, 11, 50.0), "b": now("b", 1, 11, 150.0), "new": now("new", 1, 1000, 9e9)}
    assert rows_for_bytes(most, {"a": 0, "b": 0}, found) == rows
    assert rows_for_bytes(most, {"a": 10}, found) == 1
