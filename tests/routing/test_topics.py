from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.routing.topics import (
    InvalidTopicFilter,
    InvalidTopicName,
    check_filter,
    check_name,
    has_wildcard,
    levels_of,
    matches,
    split_shared,
)
from tests.routing.strategies import EXAMPLES, filters, topics


def as_regular_expression(filter: str) -> str:
    """A second opinion on what a filter means, which shares nothing with the first."""
    text = re.escape(filter).replace(r"\+", "[^/]*").replace(r"\#", "#")
    if text == "#":
        return r"(?s)(?!\$).*"
    start = r"(?s)(?!\$)" if filter.startswith("+") else "(?s)"
    return start + (text.removesuffix("/#") + "(/.*)?" if text.endswith("/#") else text)


@pytest.mark.parametrize(("filter", "topic", "expected"), EXAMPLES)
def test_matches_as_the_standard_says(filter: str, topic: str, expected: bool) -> None:
    assert matches(filter, topic) is expected


@settings(deadline=None)
@given(filters, topics)
@example("#", "\n")
def test_matches_as_a_regular_expression_does(filter: str, topic: str) -> None:
    assert matches(filter, topic) == (re.fullmatch(as_regular_expression(filter), topic) is not None)


def test_the_deepest_topics_match() -> None:
    assert matches("+/" * 32_000 + "#", "a/" * 40_000)
    assert not matches("+/" * 32_000 + "b", "a/" * 32_000)


@pytest.mark.parametrize(
    "filter", ["a", "/", "//", "+", "#", "a/+", "+/a/+/#", "/#", "$SYS/#", " ", "é/日本", "a/$b", "$share"]
)
def test_good_filters(filter: str) -> None:
    check_filter(filter, 4)


@pytest.mark.parametrize(
    ("filter", "complaint"),
    [
        ("", "empty"),
        ("a\0b", "null"),
        ("a#", "alone"),
        ("#a", "alone"),
        ("a/b#", "alone"),
        ("##", "alone"),
        ("+#", "alone"),
        ("#+", "alone"),
        ("#/", "last"),
        ("a/#/b", "last"),
        ("#/#", "last"),
        ("a+", "alone"),
        ("+a/b", "alone"),
        ("a/++", "alone"),
        ("a/+b/c", "alone"),
        ("a/b/c/d/e", "more than 4 levels"),
        ("////", "more than 4 levels"),
        ("+/+/+/+/#", "more than 4 levels"),
    ],
)
def test_bad_filters(filter: str, complaint: str) -> None:
    with pytest.raises(InvalidTopicFilter, match=complaint):
        check_filter(filter, 4)


@pytest.mark.parametrize("topic", ["a", "/", "///", "$SYS/x", " ", "é/日本", "a/b/c/d"])
def test_good_names(topic: str) -> None:
    check_name(topic, 4)


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        ("", "empty"),
        ("a\0", "null"),
        ("+", "wildcard"),
        ("a/#", "wildcard"),
        ("a+b", "wildcard"),
        ("a/b/c/d/e", "more than 4 levels"),
    ],
)
def test_bad_names(topic: str, complaint: str) -> None:
    with pytest.raises(InvalidTopicName, match=complaint):
        check_name(topic, 4)


def test_both_errors_are_value_errors() -> None:
    assert issubclass(InvalidTopicFilter, ValueError)
    assert issubclass(InvalidTopicName, ValueError)


@pytest.mark.parametrize(("filter", "expected"), [("a/b", False), ("a/+", True), ("#", True), ("$SYS", False)])
def test_has_wildcard(filter: str, expected: bool) -> None:
    assert has_wildcard(filter) is expected


@pytest.mark.parametrize(
    ("filter", "parts"),
    [
        ("a/b", (None, "a/b")),
        ("$share", (None, "$share")),
        ("$shared/a/b", (None, "$shared/a/b")),
        ("$Share/a/b", (None, "$Share/a/b")),
        ("a/$share/g/b", (None, "a/$share/g/b")),
        ("$share/g/a", ("g", "a")),
        ("$share/g/a/+/#", ("g", "a/+/#")),
        ("$share/g//", ("g", "/")),
        ("$share/日 本/#", ("日 本", "#")),
        ("$share/g/$SYS/#", ("g", "$SYS/#")),
    ],
)
def test_split_shared(filter: str, parts: tuple[str | None, str]) -> None:
    assert split_shared(filter) == parts


@pytest.mark.parametrize(
    ("filter", "complaint"),
    [
        ("$share/", "needs a filter"),
        ("$share/g", "needs a filter"),
        ("$share//", "name is empty"),
        ("$share//a", "name is empty"),
        ("$share/g/", "filter behind the share name is empty"),
        ("$share/+/a", "wildcard"),
        ("$share/#/a", "wildcard"),
        ("$share/g+/a", "wildcard"),
        ("$share/g#h/a", "wildcard"),
    ],
)
def test_split_shared_refuses(filter: str, complaint: str) -> None:
    with pytest.raises(InvalidTopicFilter, match=complaint):
        split_shared(filter)


@settings(deadline=None)
@given(filters)
def test_the_strategy_makes_good_filters(filter: str) -> None:
    check_filter(filter, 6)


@settings(deadline=None)
@given(topics)
def test_the_strategy_makes_good_names(topic: str) -> None:
    check_name(topic, 5)


@given(st.lists(st.sampled_from(["", "a", "+", "é", "x" * 700]), min_size=1, max_size=200), st.integers(1, 200))
def test_levels_are_found_in_the_same_way_however_long_a_name_is(levels: list[str], most: int) -> None:
    name = "/".join(levels)
    assert levels_of(name) == levels
    name = name.replace("+", "p")
    if len(levels) > most:
        with pytest.raises(InvalidTopicName, match=f"more than {most} levels"):
            check_name(name or "/", most)
    elif name:
        check_name(name, most)
