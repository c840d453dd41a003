"""Cursors over several stores, and the order of their messages as one stream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.store.directory import Precedence
from headwater.store.vector import LONGEST, MOST_STORES, MalformedVector, Merge, is_vector, vector_of, written

ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
vectors = st.dictionaries(ids, st.integers(0, (1 << 63) - 1), min_size=1, max_size=MOST_STORES)


@given(vectors)
def test_a_cursor_is_read_as_it_was_written(vector: dict[str, int]) -> None:
    text = written(vector)
    assert is_vector(text)
    assert len(text) <= LONGEST
    assert vector_of(text) == vector


@given(st.text(max_size=60))
def test_anything_is_a_cursor_or_is_refused_in_words(text: str) -> None:
    try:
        vector = vector_of(text)
    except MalformedVector as error:
        assert str(error)
    else:
        assert vector_of(written(vector)) == vector


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:1,,b:2", "is written id:position"),
        ("a:1,a:2", "names the store a twice"),
        ("a:9999999999999999999,", "beyond any position"),
        (",".join(f"s{number}:1" for number in range(MOST_STORES + 1)), "at most 32 stores"),
        ("a:1," * 2000, "at most 32 stores"),
    ],
)
def test_a_malformed_cursor(text: str, words: str) -> None:
    with pytest.raises(MalformedVector, match=words):
        vector_of(text)


def test_a_position_is_no_cursor() -> None:
    assert not is_vector("a:17")
    assert written({"a": 17}) == "a:17,"


def row(position: int, arrival: int) -> dict[str, Any]:
    return {"position": position, "arrival": f"{arrival:05d}"}


def taken(merge: Merge) -> list[tuple[str, int]]:
    found = []
    while (each := merge.take()) is not None:
        found.append((each[0], each[1]["position"]))
    return found


def test_earlier_arrivals_come_first_and_ties_go_by_the_id() -> None:
    merge = Merge(["b", "a"])
    merge.give("a", [row(1, 10), row(2, 30)], 2)
    merge.give("b", [row(5, 10), row(6, 20)], 6)
    assert taken(merge) == [("a", 1), ("b", 5), ("b", 6), ("a", 2)]
    assert merge.vector == {"a": 2, "b": 6}
    assert merge.is_over


def test_nothing_is_taken_while_a_store_has_not_said_what_is_next() -> None:
    merge = Merge(["a", "b"])
    merge.give("a", [row(1, 10)])
    assert merge.lacking() == ["b"]
    assert merge.take() is None
    merge.give("b", [], 0)
    assert taken(merge) == [("a", 1)]
    assert merge.lacking() == ["a"]
    assert not merge.is_over


def test_what_the_old_store_had_comes_before_what_the_new_one_has_whatever_the_clocks_say() -> None:
    merge = Merge(["a", "b"], [Precedence("a", 3, "b", 5)])
    merge.give("a", [row(2, 50), row(3, 60), row(4, 70)], 4)
    merge.give("b", [row(4, 10), row(5, 20)], 5)
    assert taken(merge) == [("b", 4), ("a", 2), ("a", 3), ("b", 5), ("a", 4)]


def test_precedences_in_a_circle_do_not_hold_anything_for_ever() -> None:
    merge = Merge(["a", "b"], [Precedence("a", 9, "b", 1), Precedence("b", 9, "a", 1)])
    merge.give("a", [row(1, 2)], 1)
    merge.give("b", [row(1, 1)], 1)
    assert taken(merge) == [("b", 1), ("a", 1)]


def test_a_cursor_goes_to_the_end_that_was_looked_at() -> None:
    merge = Merge(["a", "b"], begin={"a": 7})
    merge.give("a", [], 100)
    merge.give("b", [row(40, 1)], 90)
    assert merge.vector == {"a": 100, "b": 39}
    assert taken(merge) == [("b", 40)]
    assert merge.vector == {"a": 100, "b": 90}


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.tuples(st.integers(1, 3), st.integers(-5, 20)), max_size=12),
        min_size=1,
    ),
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 20), st.sampled_from("abc"), st.integers(1, 20)), max_size=3
    ),
    st.randoms(use_true_random=False),
)
def test_however_it_is_given_each_message_comes_once_and_in_its_stores_order(
    steps: dict[str, list[tuple[int, int]]], moves: list[tuple[str, int, str, int]], random: Any
) -> None:
    stores = {}
    for id, each in steps.items():
        position, found = 0, []
        for step, arrival in each:
            position += step
            found.append(row(position, arrival + 10))
        stores[id] = found
    precedences = [Precedence(*each) for each in moves if each[0] < each[2]]  # in no circle
    merge, whole = Merge(stores, precedences), Merge(stores, precedences)
    got: list[tuple[str, int]] = []
    left = {id: list(rows) for id, rows in stores.items()}
    for id, rows in stores.items():
        whole.give(id, rows, 99)
    while not merge.is_over:
        for id in merge.lacking():
            count = random.randint(1, 3)
            part, left[id] = left[id][:count], left[id][count:]
            merge.give(id, part, None if left[id] else 99)
        got += taken(merge)
    assert got == taken(whole)
    assert sorted(got) == sorted((id, each["position"]) for id, rows in stores.items() for each in rows)
    for id in stores:
        own = [position for store, position in got if store == id]
        assert own == sorted(own)
    for earlier, last, later, first in precedences:
        if earlier in stores and later in stores:
            olds = [at for at, (store, position) in enumerate(got) if store == earlier and position <= last]
            news = [at for at, (store, position) in enumerate(got) if store == later and position >= first]
            assert not olds or not news or max(olds) < min(news)
    assert merge.vector == dict.fromkeys(sorted(stores), 99)
