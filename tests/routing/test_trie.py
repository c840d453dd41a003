from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.message import Subscription
from headwater.routing.topics import matches
from headwater.routing.trie import Trie
from tests.routing.strategies import EXAMPLES, filters, topics

keys = st.sampled_from(["x", "y", "z"])


def trie_of(*filters: str) -> Trie:
    trie = Trie()
    for filter in filters:
        trie.add(filter, "key", Subscription(filter))
    return trie


def found(trie: Trie, topic: str) -> list[str]:
    return [subscription.filter for _, subscription in trie.pairs(topic)]


def filter_of(pairs: list[tuple[object, Subscription]]) -> str:
    return pairs[0][1].filter


@pytest.mark.parametrize(("filter", "topic", "expected"), EXAMPLES)
def test_matches_as_the_standard_says(filter: str, topic: str, expected: bool) -> None:
    assert found(trie_of(filter), topic) == ([filter] if expected else [])
    # With company at every level that the topic passes.
    assert (filter in found(trie_of(filter, f"{topic}/+", f"{topic}/b/#"), topic)) is expected


@settings(deadline=None)
@given(st.lists(filters, unique=True, max_size=40), st.lists(topics, min_size=1, max_size=10))
def test_finds_what_the_naive_matcher_finds(filters: list[str], topics: list[str]) -> None:
    trie = trie_of(*filters)
    for topic in topics:
        assert sorted(found(trie, topic)) == sorted(filter for filter in filters if matches(filter, topic))


class Histories(RuleBasedStateMachine):
    """Any history of adding and removing leaves what a plain dictionary holds, and an empty trie has no nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = Trie()
        self.model: dict[str, dict[object, Subscription]] = {}

    @rule(filter=filters, key=keys)
    def add(self, filter: str, key: str) -> None:
        subscription = Subscription(filter)
        replaced = self.trie.add(filter, key, subscription)
        assert replaced is self.model.get(filter, {}).get(key)
        self.model.setdefault(filter, {})[key] = subscription

    @rule(data=st.data(), key=keys)
    def remove(self, data: st.DataObject, key: str) -> None:
        stored = st.sampled_from(list(self.model)) if self.model else filters
        filter = data.draw(st.one_of(stored, filters))
        removed = self.trie.remove(filter, key)
        assert removed is self.model.get(filter, {}).pop(key, None)
        if filter in self.model and not self.model[filter]:
            del self.model[filter]

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        # As lists, because the order of subscribing holds within a filter.
        got = [list(subscribers.items()) for subscribers in self.trie.match(topic)]
        wanted = [list(subscribers.items()) for filter, subscribers in self.model.items() if matches(filter, topic)]
        assert sorted(got, key=filter_of) == sorted(wanted, key=filter_of)

    @invariant()
    def as_long_as_the_model(self) -> None:
        assert len(self.trie) == sum(len(subscribers) for subscribers in self.model.values())
        assert list(self.trie.filters()) == list(self.model)

    @invariant()
    def only_the_nodes_that_are_needed(self) -> None:
        paths: set[tuple[str, ...]] = set()
        for filter in self.model:
            if "+" in filter or "#" in filter:
                levels = [level for level in filter.split("/") if level != "#"]
                paths.update(tuple(levels[: depth + 1]) for depth in range(len(levels)))
        assert self.trie.count_nodes() == len(paths)

    def teardown(self) -> None:
        for filter, subscribers in self.model.items():
            for key in subscribers:
                assert self.trie.remove(filter, key) is not None
        assert len(self.trie) == 0
        assert list(self.trie.filters()) == []
        assert self.trie.count_nodes() == 0


TestHistories = Histories.TestCase


def test_the_order_of_what_is_found() -> None:
    filters = ["+/+", "a/+", "+/b", "a/b", "a/b/#", "a/#", "+/#", "#", "+/b/#"]
    assert found(trie_of(*filters), "a/b") == ["a/b", "#", "a/#", "+/#", "a/b/#", "a/+", "+/b/#", "+/b", "+/+"]
    assert found(trie_of(*reversed(filters)), "a/b") == found(trie_of(*filters), "a/b")


def test_a_replaced_subscription_keeps_its_place() -> None:
    trie = Trie()
    old, new, other = Subscription("a", 0), Subscription("a", 1), Subscription("a")
    assert trie.add("a", "x", old) is None
    assert trie.add("a", "y", other) is None
    assert trie.add("a", "x", new) is old
    assert list(trie.pairs("a")) == [("x", new), ("y", other)]
    assert len(trie) == 2


def test_get_returns_the_subscribers_of_one_filter() -> None:
    trie = trie_of("a/+", "a/b")
    assert list(trie.get("a/+") or {}) == ["key"]
    assert trie.get("a/c") is None
    assert trie.get("a") is None


def test_filters_without_wildcards_need_no_nodes() -> None:
    assert trie_of("a/b/c", "a/b", "$SYS/x").count_nodes() == 0


def test_removing_what_is_not_there_changes_nothing() -> None:
    trie = trie_of("a/+/c")
    for filter, key in [("a/+/c", "other"), ("a/+", "key"), ("a/+/c/#", "key"), ("a/b/c", "key"), ("#", "key")]:
        assert trie.remove(filter, key) is None
    assert found(trie, "a/b/c") == ["a/+/c"]
    assert trie.count_nodes() == 3


def test_the_deepest_filters_neither_crash_nor_stay() -> None:
    levels = 32_000
    # The longest that fit into 65,535 bytes, and past any limit of recursion: stored, matched, removed, dropped.
    named, plus, rest = "a/" * levels + "+", "+/" * levels + "+", "+/" * levels + "#"
    topic = "a/" * levels + "a"
    trie = trie_of(named, plus, rest)
    assert sorted(found(trie, topic)) == sorted([named, plus, rest])
    assert found(trie, topic[2:]) == [rest]
    assert found(trie, topic[4:]) == []
    for filter in (named, plus, rest):
        assert trie.remove(filter, "key") is not None
    assert trie.count_nodes() == 0
    trie_of(named, plus, rest, "a/" * levels + "#")  # freed all at once


def test_plus_at_every_level_costs_no_more_than_the_nodes_there_are() -> None:
    """Paths through `a` or `+` double with each level; a walk that tried paths instead of nodes would not come back."""
    many = ["/".join(levels) for levels in itertools.product("a+", repeat=10)]
    assert sorted(found(trie_of(*many), "/".join("a" * 10))) == sorted(many)
    lean = trie_of(*("/".join(["+"] * depth + ["a", "#"]) for depth in range(200)))
    assert len(lean.match("/".join(["a"] * 32_000))) == 200
