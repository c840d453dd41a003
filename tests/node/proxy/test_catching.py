"""Covers of wanted filters: every topic that is wanted, none twice."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headwater.node.proxy.catching import Cover, catching
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter, matches

LEVELS = st.sampled_from(["a", "b", "", "$x"])


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=4))
    if draw(st.booleans()):
        levels.append("#")
    return "/".join(levels)


@st.composite
def topics(draw: st.DrawFn) -> str:
    return "/".join(draw(st.lists(LEVELS, min_size=1, max_size=5)))


def is_filter(filter: str) -> bool:
    try:
        check_filter(filter, ANY_LEVELS)
    except InvalidTopicFilter:
        return False
    return True


@given(st.lists(filters().filter(is_filter), max_size=8), st.lists(topics(), min_size=1, max_size=20))
@example(["a/+", "+/b"], ["a/b", "a/a", "b/b"])
@example(["#", "$x/#"], ["$x/a", "a"])
@example(["a/#", "a"], ["a"])
@example(["+/a", "$x/a"], ["$x/a"])
def test_a_cover_matches_what_is_wanted_and_nothing_twice(wanted: list[str], names: list[str]) -> None:
    cover = Cover(wanted)
    assert all(is_filter(each) for each in cover.filters)
    for topic in names:
        found = [each for each in cover.filters if matches(each, topic)]
        assert len(found) <= 1
        if any(matches(each, topic) for each in wanted):
            assert len(found) == 1
        assert cover.matching(topic) == (found[0] if found else None)


@given(st.lists(filters().filter(is_filter), max_size=8))
def test_a_cover_does_not_depend_on_the_order(wanted: list[str]) -> None:
    assert Cover(wanted).filters == Cover(reversed(wanted)).filters
    assert Cover(Cover(wanted).filters).filters == Cover(wanted).filters


def test_filters_that_do_not_overlap_stay_as_they_are() -> None:
    wanted = {"a/b", "a/+/c", "b/#", "$share-prices/#", "c"}
    assert Cover(wanted).filters == wanted


def test_more_than_the_bound_is_everything() -> None:
    wanted = [f"t/{number}" for number in range(11)]
    assert catching(wanted[:10], 10) == set(wanted[:10])
    assert catching(wanted, 10) == {"#"}
    assert catching([*wanted, "$own/x"], 10) == {"#", "$own/x"}
    assert catching(None, 10) == {"#"}


def test_a_thousand_filters_take_little_time() -> None:
    wanted = [f"site/{number % 7}/device/{number}/+" for number in range(5000)]
    assert len(Cover(wanted).filters) == 5000
    assert Cover([*wanted, "site/#"]).filters == {"site/#"}
