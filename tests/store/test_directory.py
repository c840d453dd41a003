"""Where the stores of an edge are: what overlaps, what comes before what, and what a node may be told."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.routing.topics import levels_match
from headwater.store.directory import Directory, Holding, Precedence, directory_of, filter_covers, filters_overlap

A, B = "http://a:8080", "http://b:8080"
levels = st.lists(st.sampled_from(["a", "b", "+", ""]), min_size=1, max_size=4)
filters = st.builds(lambda some, rest: "/".join([*some, *rest]), levels, st.sampled_from([[], ["#"]]))
topics = ["/".join(each) for size in range(1, 6) for each in product(["a", "b", ""], repeat=size)]


def entry(id: str, url: str, filters: list[str], first: int, last: int | None, **more: Any) -> dict[str, Any]:
    return {"id": id, "node": f"node-{id}", "url": url, "filters": filters, "from": first, "to": last, **more}


SPLIT = {
    "stores": [
        entry("a", A, ["#"], 1, None),
        entry("a", A, ["plant/#"], 1, 100),
        entry("b", B, ["plant/#"], 7, None),
    ]
}


@given(filters, filters)
def test_filters_overlap_if_a_topic_matches_both(one: str, other: str) -> None:
    found = any(
        levels_match(one.split("/"), topic.split("/")) and levels_match(other.split("/"), topic.split("/"))
        for topic in topics
    )
    assert filters_overlap(one, other) is found
    assert filters_overlap(other, one) is found


def test_a_split() -> None:
    found = directory_of(SPLIT)
    assert [each.id for each in found.holders("plant/1/x")] == ["a", "b"]
    assert [each.id for each in found.holders("office/+")] == ["a"]
    assert [each.id for each in found.holders(None)] == ["a", "b"]
    assert found.precedences() == [Precedence("a", 100, "b", 7)]
    assert found.places["a"].ended is None
    assert found.places["b"].url == B


def test_a_split_and_a_join_are_in_the_order_of_their_epochs() -> None:
    found = directory_of(
        {
            "stores": [
                entry("b", B, ["x"], 1, 20, epoch=2),
                entry("a", A, ["x"], 51, None, epoch=3),
                entry("a", A, ["x"], 1, 40, epoch=1),
            ]
        }
    )
    assert found.precedences() == [Precedence("a", 40, "b", 1), Precedence("b", 20, "a", 51)]
    assert found.places["b"].ended == 20
    assert found.places["a"].ended is None


def test_a_store_ends_where_its_last_holding_does() -> None:
    holdings = [Holding("a", "n", A, ("x",), 1, 40), Holding("a", "n", "", ("y",), 1, 60)]
    assert Directory(holdings).places["a"].ended == 60
    assert Directory(holdings).places["a"].url == A


def test_what_two_nodes_know_together() -> None:
    old = Directory([Holding("a", "n", A, ("x",), 1, None)])
    new = Directory([Holding("a", "n", A, ("x",), 1, 40), Holding("b", "m", B, ("x",), 1, None, 1)])
    for joined in (old.joined(new), new.joined(old)):
        assert joined.places["a"].ended == 40
        assert list(joined.places) == ["a", "b"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "a list of `stores`"),
        ({}, "a list of `stores`"),
        ({"stores": [7]}, "is an object"),
        ({"stores": [entry("a", A, ["x"], -1, None)]}, "`from` of a store is a position"),
        ({"stores": [entry("a", A, ["x"], 1, True)]}, "`to` of a store is a position"),  # type: ignore[arg-type]
        ({"stores": [entry("", A, ["x"], 1, None)]}, "`id` of a store is a text"),
        ({"stores": [entry("a", A, [""], 1, None)]}, "`filters` is a list"),
        ({"stores": [entry("a", "file:///etc", ["x"], 1, None)]}, "is no address"),
        ({"stores": [{}] * 10_001}, "at most 10000"),
    ],
)
def test_what_is_no_directory_is_said(found: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        directory_of(found)


def test_while_a_move_goes_on_the_new_stores_part_is_withheld() -> None:
    moving = {
        "stores": [entry("a", A, ["x"], 1, None, epoch=1), entry("b", B, ["x"], 9, None, epoch=2)],
        "moves": [{"filter": "x", "epoch": 2, "from": ["node-a"], "to": "node-b", "since": 100.0}],
    }
    found = directory_of(moving)
    assert found.withheld(110.0) == {"b": 9}
    assert found.withheld(160.0) == {}, "a node that is away holds nobody back for ever"
    assert found.withheld(99.0) == {}
    assert found.precedences() == []
    ended = {**moving, "stores": [entry("a", A, ["x"], 1, 4, epoch=1), moving["stores"][1]]}
    assert directory_of(ended).withheld(110.0) == {}
    assert Directory().joined(found).withheld(110.0) == {"b": 9}


@pytest.mark.parametrize("moves", [7, [7], [{"since": "x"}], [{"since": 1, "from": "a"}], [{"since": 1, "from": []}]])
def test_what_is_no_move_is_said(moves: Any) -> None:
    with pytest.raises(ValueError, match=r"move|`filter`"):
        directory_of({"stores": [], "moves": moves})


def test_of_a_store_the_most_specific_holding_counts() -> None:
    """As nodes of an edge tell it: each has everything that nobody owns, and a filter that goes ends for itself."""
    found = directory_of(
        {
            "stores": [
                entry("a", A, ["#"], 1, None, epoch=0),
                entry("a", A, ["plant/#"], 1, 90, epoch=1),
                entry("a", A, ["plant/x"], 1, 40, epoch=1),
                entry("a", A, ["plant/x"], 60, None, epoch=3),
                entry("b", B, ["#"], 1, None, epoch=0),
                entry("b", B, ["barn/#"], 1, 30, epoch=0),
                entry("b", B, ["plant/x"], 1, 20, epoch=2),
                entry("b", B, ["plant/#"], 50, None, epoch=4),
            ]
        }
    )
    assert set(found.precedences()) == {
        Precedence("a", 40, "b", 1),  # x went to b
        Precedence("b", 20, "a", 60),  # and came back
        Precedence("a", 90, "b", 50),  # and the rest went
    }
    assert sorted(each.last for each in found.waiting({"a": 39, "b": 0})) == [20, 40, 90]
    assert sorted(each.last for each in found.waiting({"a": 40, "b": 20})) == [90]
    assert found.waiting({"a": 90, "b": 20}) == []
    assert found.places["a"].ended is None


@given(filters, filters)
def test_a_filter_covers_another_if_it_matches_all_its_topics(one: str, other: str) -> None:
    ours = {topic for topic in topics if levels_match(one.split("/"), topic.split("/"))}
    theirs = {topic for topic in topics if levels_match(other.split("/"), topic.split("/"))}
    if filter_covers(one, other):
        assert theirs <= ours
    elif theirs <= ours and theirs:  # `+` of all levels that a test knows covers each of these
        assert "+" in other.split("/") or "#" in other


def test_who_had_nothing_of_a_filter_need_not_be_asked() -> None:
    found = directory_of(
        {
            "stores": [
                entry("a", A, ["#"], 1, None, epoch=0),
                entry("a", A, ["plant/#"], 1, 0, epoch=0),
                entry("b", B, ["#"], 1, None, epoch=0),
                entry("b", B, ["plant/#"], 1, None, epoch=2),
            ]
        }
    )
    assert [each.id for each in found.holders("plant/1")] == ["b"]
    assert [each.id for each in found.holders("plant/#")] == ["b"]
    assert [each.id for each in found.holders("+/1")] == ["a", "b"]
    assert [each.id for each in found.holders("barn/1")] == ["a", "b"]
