"""Overlap and cover of filters, against all topics of a small world."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.access.filters import covers, overlap
from headwater.routing.topics import matches

NAMES = ["a", "b", "$x", ""]
TOPICS = ["/".join(levels) for depth in range(1, 5) for levels in itertools.product(NAMES, repeat=depth)]
"""All topics of up to four levels, which filters of three cannot tell more apart; the empty one, which is none, too."""

levels = st.lists(st.sampled_from(["a", "b", "$x", "", "+"]), min_size=1, max_size=3)
filters = st.builds(lambda parts, ending: "/".join([*parts[: 3 - ending], *["#"] * ending]), levels, st.integers(0, 1))
filters = st.one_of(filters, st.just("#")).filter(bool)


@settings(max_examples=1000, deadline=None)
@given(filters, filters)
def test_overlap_and_cover_are_what_the_topics_say(one: str, other: str) -> None:
    of_one = {topic for topic in TOPICS if matches(one, topic)}
    of_other = {topic for topic in TOPICS if matches(other, topic)}
    assert overlap(one, other) == bool(of_one & of_other)
    assert covers(one, other) == (of_other <= of_one)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("a/#", "a", True),
        ("a/#", "a/+/b/#", True),
        ("a/+", "a/#", False),
        ("+/#", "#", True),
        ("#", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_cover_in_words(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected
