"""Filters that split a load: equal parts, and together exactly what there was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.operations.splitting import loads_of_parts, most_specific, specificity, split
from headwater.routing.topics import matches

LEVELS = st.sampled_from(["a", "b", "c", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(st.sampled_from(["a", "b", "+", "c"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
) | st.just("#")


def owner(parts: tuple[tuple[str, ...], ...], topic: str) -> int | None:
    found = most_specific([each for part in parts for each in part], topic)
    return next((number for number, part in enumerate(parts) if found in part), None)


@given(
    st.dictionaries(TOPICS, st.integers(1, 1000).map(float), max_size=30),
    st.lists(FILTERS, min_size=1, max_size=4, unique=True),
    st.integers(2, 5),
    st.integers(5, 40),
    st.lists(TOPICS, max_size=20),
)
def test_nothing_is_won_or_lost(
    loads: dict[str, float], filters: list[str], parts: int, most: int, unseen: list[str]
) -> None:
    made = split(loads, filters, parts, most)
    all = [each for part in made.filters for each in part]
    assert len(all) == len(set(all)) <= max(most, len(filters))
    assert set(filters) <= set(all)
    assert 1 <= len(made.filters) <= parts and all_have_some(made.filters)
    for topic in [*loads, *unseen]:
        assert any(matches(each, topic) for each in filters) == (owner(made.filters, topic) is not None), topic
    expected = [0.0] * len(made.filters)
    for topic, load in loads.items():
        number = owner(made.filters, topic)
        if number is not None:
            expected[number] += load
    assert list(made.loads) == pytest.approx(expected)
    assert loads_of_parts(made.filters, loads).loads == pytest.approx(made.loads)
    assert split(dict(reversed(loads.items())), filters, parts, most) == made


def all_have_some(parts: tuple[tuple[str, ...], ...]) -> bool:
    return all(part for part in parts)


@given(st.sets(FILTERS, min_size=2, max_size=6), TOPICS)
def test_one_of_several_filters_is_the_most_specific(filters: set[str], topic: str) -> None:
    matching = [specificity(each) for each in filters if matches(each, topic)]
    assert len(matching) == len(set(matching))


@pytest.mark.parametrize(
    ("filters", "topic", "expected"),
    [
        (["#", "a/#", "a/b/#"], "a/b/c", "a/b/#"),
        (["#", "a/#", "a/b/#"], "a/b", "a/b/#"),
        (["#", "a/#", "a/b/#"], "a/c", "a/#"),
        (["a/+/c", "+/b/c", "a/#"], "a/b/c", "a/+/c"),
        (["a/b", "a/b/#"], "a/b", "a/b/#"),
        (["a/#"], "b", None),
        (["#"], "$SYS/x", None),
    ],
)
def test_whose_a_topic_is(filters: list[str], topic: str, expected: str | None) -> None:
    assert most_specific(filters, topic) == expected


def test_many_equal_topics_are_split_evenly() -> None:
    loads = {f"plant/site{site}/device{device}/heat": 1.0 for site in range(5) for device in range(40)}
    made = split(loads, ["plant/#"], 4, 64)
    assert len(made.filters) == 4
    assert made.unevenness < 1.25
    assert "plant/#" in [each for part in made.filters for each in part]


def test_a_common_beginning_costs_no_filters() -> None:
    loads = {f"org/plant/hall/line{line}/x": 1.0 for line in range(4)}
    made = split(loads, ["#"], 2, 64)
    assert sorted(each for part in made.filters for each in part) == ["#"] + [
        f"org/plant/hall/line{line}/#" for line in range(4)
    ]
    assert made.unevenness == 1.0


def test_one_topic_cannot_be_split() -> None:
    assert split({"a/b": 100.0, "a/c": 1.0}, ["a/#"], 2, 64).unevenness == pytest.approx(2 * 100 / 101)


def test_filters_are_bounded() -> None:
    loads = {f"d{number}": 1.0 for number in range(1000)}
    made = split(loads, ["#"], 4, 10)
    assert sum(len(part) for part in made.filters) == 10


def test_nothing_to_split() -> None:
    assert split({}, ["a/b"], 3, 64).filters == (("a/b",),)


def test_plus_is_split_as_well() -> None:
    loads = {f"site/{number}/temperature": float(number) for number in range(1, 9)}
    made = split(loads, ["site/+/temperature"], 2, 64)
    assert made.unevenness < 1.1
    assert {"site/+/temperature", "site/8/temperature"} <= {each for part in made.filters for each in part}
