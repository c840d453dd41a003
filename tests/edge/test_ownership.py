"""The ownership table against brute force: every topic of a small world, every pair of filters."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.ownership import Claim, Table, check_owned, covers, intersection, overlap, specificity
from headwater.routing.topics import InvalidTopicFilter, check_filter, matches

NAMES = ["a", "b", "", "$s"]
TOPICS = ["/".join(each) for size in (1, 2, 3, 4) for each in product(NAMES, repeat=size) if "/".join(each)]
FILTERS = [
    "/".join(each)
    for size in (1, 2, 3)
    for each in product(["a", "b", "", "+", "#", "$s"], repeat=size)
    if "#" not in each[:-1] and "/".join(each)
]
FILTER = st.sampled_from(FILTERS)
CLAIMS = st.lists(st.builds(Claim, FILTER, st.integers(1, 3), st.sampled_from("xyz")), max_size=8)


def more_specific(one: str, other: str, topic: str) -> bool:
    """By the words of the rule, for filters that both match."""
    for here, there in zip([*one.split("/"), None], [*other.split("/"), None], strict=False):
        if here != there:
            order = [here not in ("+", "#"), here == "+", here == "#"].index(True)
            return order < [there not in ("+", "#"), there == "+", there == "#"].index(True)
    raise AssertionError("the same filter twice")


@given(CLAIMS, st.sampled_from(TOPICS))
def test_the_most_specific_filter_counts(claims: list[Claim], topic: str) -> None:
    best: Claim | None = None
    for claim in claims:
        if not matches(claim.filter, topic):
            continue
        if best is None:
            best = claim
        elif claim.filter == best.filter:
            best = max(best, claim, key=lambda each: each.rank)
        elif more_specific(claim.filter, best.filter, topic):
            best = claim
    table = Table(claims, "r")
    assert table.claim_of(topic) == best
    assert table.owner(topic) == ("r" if best is None else best.node)


def test_no_two_filters_of_a_topic_are_equally_specific() -> None:
    for topic in TOPICS:
        found = [specificity(each) for each in FILTERS if matches(each, topic)]
        assert len(found) == len(set(found))


@given(FILTER, FILTER)
def test_overlapping_and_covering(one: str, other: str) -> None:
    ones = {topic for topic in TOPICS if matches(one, topic)}
    others = {topic for topic in TOPICS if matches(other, topic)}
    assert overlap(one, other) is overlap(other, one) is bool(ones & others)
    if covers(one, other):
        assert others <= ones
    elif others <= ones:  # names that are not in this world tell them apart
        assert "+" in other or "#" in other


@given(FILTER, FILTER)
def test_the_intersection_of_two_filters(one: str, other: str) -> None:
    if overlap(one, other):
        both = intersection(one, other)
        check_filter(both, 9)
        assert [each for each in TOPICS if matches(both, each)] == [
            each for each in TOPICS if matches(one, each) and matches(other, each)
        ]
        assert covers(one, both) and covers(other, both)


def test_a_filter_that_covers_all_of_a_world_with_another_name_covers() -> None:
    for one, other in product(FILTERS, FILTERS):
        if other == "/#":
            continue  # its parent level is the empty topic, which there is none of
        fresh = other.replace("+", "new")
        wide = {fresh, fresh.replace("/#", ""), fresh.replace("#", "new/new"), fresh.replace("#", "new")} - {""}
        topics = [each for each in wide if "#" not in each and matches(other, each)]
        assert covers(one, other) is all(matches(one, each) for each in topics)


@given(CLAIMS, st.builds(Claim, FILTER, st.just(9), st.just("new")))
def test_losers_are_those_whose_topics_change(claims: list[Claim], claim: Claim) -> None:
    before = Table(claims, "r")
    after = before.with_claim(claim)
    changed = {before.owner(topic) for topic in TOPICS if before.owner(topic) != after.owner(topic)}
    assert changed <= before.losers(claim.filter)
    assert all(after.owner(topic) == "new" for topic in TOPICS if before.owner(topic) != after.owner(topic))


@given(CLAIMS)
def test_what_is_spare_changes_nothing(claims: list[Claim]) -> None:
    table = Table(claims, "r")
    for claim in table:
        if table.is_spare(claim):
            without = table.without(claim.filter)
            assert all(table.owner(topic) == without.owner(topic) for topic in TOPICS)


def test_the_wider_owner() -> None:
    table = Table([Claim("#", 1, "x"), Claim("a/#", 1, "y"), Claim("a/+/c", 1, "z")])
    wider = table.wider("a/b/c")
    assert wider is not None and wider.node == "z"
    wider = table.wider("a/+/c")
    assert wider is not None and wider.node == "y"
    assert table.wider("#") is None
    assert table.wider("$a/b") is None


def test_tables_are_equal_by_what_they_say() -> None:
    one = Table([Claim("a", 1, "x"), Claim("b", 2, "y"), Claim("a", 2, "z")], "r")
    assert one == Table([Claim("b", 2, "y"), Claim("a", 2, "z")], "r")
    assert hash(one) == hash(Table([Claim("b", 2, "y"), Claim("a", 2, "z")], "r"))
    assert one != one.with_rest("") and one != one.without("a")


@pytest.mark.parametrize("filter", ["", "a/#/b", "$share/g/a", "$SYS/#", "$headwater/x", "a" * 257, "a\0"])
def test_what_no_node_may_own(filter: str) -> None:
    with pytest.raises(InvalidTopicFilter):
        check_owned(filter)


@pytest.mark.parametrize("filter", ["#", "+/a", "a/b/#", "$other/#", "a" * 256])
def test_what_a_node_may_own(filter: str) -> None:
    check_owned(filter)
