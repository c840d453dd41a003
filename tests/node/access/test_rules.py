"""Rules: how a file of them is read, and what they allow, against a plain model."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.access.errors import AccessError
from headwater.node.access.rules import ALL, ALWAYS, COVER, Rule, RuleRights, deny, filled_in, parse_rules
from headwater.routing.topics import matches
from headwater.session.rights import MAX_REMEMBERED, PUBLISH, RECEIVE, SUBSCRIBE, Remembered

FILE = """
# for clients without a user name
topic read news/#

user alice
topic readwrite home/alice/#
topic deny home/alice/private/#
topic plain
topic write with space/x

pattern write devices/%c/state
pattern read users/%u/#
pattern deny users/%u/secret
"""


def rights(user: str | None, client: str = "c1", subscribing: str = "overlap") -> RuleRights:
    return RuleRights(parse_rules(FILE, "acl").of(user, client), subscribing)


@pytest.mark.parametrize(
    ("user", "action", "topic", "allowed"),
    [
        (None, RECEIVE, "news/today", True),
        (None, PUBLISH, "news/today", False),
        ("alice", RECEIVE, "news/today", False),
        ("alice", PUBLISH, "home/alice/door", True),
        ("alice", RECEIVE, "home/alice", True),
        ("alice", PUBLISH, "home/alice/private/x", False),
        ("alice", RECEIVE, "plain", True),
        ("alice", PUBLISH, "plain", True),
        ("alice", PUBLISH, "with space/x", True),
        ("alice", PUBLISH, "devices/c1/state", True),
        ("bob", PUBLISH, "devices/c1/state", True),
        ("bob", PUBLISH, "devices/c2/state", False),
        ("bob", RECEIVE, "users/bob/x", True),
        ("bob", RECEIVE, "users/bob/secret", False),
        ("bob", RECEIVE, "users/alice/x", False),
        (None, RECEIVE, "users//x", False),
        ("stranger", RECEIVE, "plain", False),
    ],
)
def test_a_file_says_who_may_what(user: str | None, action: int, topic: str, allowed: bool) -> None:
    assert rights(user).decide(topic, action) is allowed


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("topic", "nothing behind 'topic'"),
        ("user", "nothing behind 'user'"),
        ("topics read a", "'topics' is none of"),
        ("topic reed a/b", "'reed' is none of"),
        ("topic read a/#/b", "'#' must be the last"),
        ("pattern write a+/%c", "'+' must stand alone"),
    ],
)
def test_a_wrong_line_is_named(line: str, part: str) -> None:
    with pytest.raises(AccessError, match=r"rules\.acl, line 3") as caught:
        parse_rules(f"topic read a\n\n{line}\n", "rules.acl")
    assert part in str(caught.value)


@pytest.mark.parametrize("name", ["+", "#", "a/b", "x+", ""])
def test_a_name_cannot_be_a_wildcard_or_several_levels(name: str) -> None:
    given = [Rule("d/%c", ALL, False, True)]
    assert filled_in(given, "u", name) == []
    denied = filled_in([deny("d/%c/x", True), deny("d/pre%c/x", True)], "u", name)
    assert [rule.filter for rule in denied] == ["d/+/x", "d/+/x"], "what is denied stays denied, for any name"


def test_only_patterns_are_filled_in() -> None:
    rules = parse_rules("user u\ntopic write a/%c\n", "acl").of("u", "c")
    assert [rule.filter for rule in rules] == ["a/%c"]


@pytest.mark.parametrize(
    ("filter", "overlapping", "covered", "shared"),
    [
        ("home/alice/#", True, False, False),
        ("home/alice/door", True, True, True),
        ("#", True, False, False),
        ("home/alice/private/x", False, False, False),
        ("home/alice/private/#", False, False, False),
        ("other", False, False, False),
        ("plain", True, True, True),
        ("with space/x", False, False, False),
        ("users/alice/#", True, False, False),
        ("users/alice/ok", True, True, True),
    ],
)
def test_which_filters_may_be_subscribed_to(filter: str, overlapping: bool, covered: bool, shared: bool) -> None:
    assert rights("alice").may_subscribe(filter, False) is overlapping
    assert rights("alice", subscribing=COVER).may_subscribe(filter, False) is covered
    assert rights("alice", subscribing=ALWAYS).may_subscribe(filter, False)
    for subscribing in ("overlap", COVER, ALWAYS):
        assert rights("alice", subscribing=subscribing).may_subscribe(filter, True) is shared


def test_subscribing_and_receiving_can_be_given_apart() -> None:
    found = RuleRights(parse_rules("topic subscribe a/#\ntopic receive a/b\n", "acl").of(None, "c"))
    assert found.may_subscribe("a/c", False) and not found.decide("a/c", RECEIVE)
    assert found.decide("a/b", RECEIVE) and not found.decide("a/b", PUBLISH)
    assert not found.may_subscribe("a/#", True), "a shared group's member must be able to receive all of it"


filters = st.sampled_from(["a", "b", "a/b", "a/+", "a/#", "+/b", "#", "+", "$x/a", "$x/#", "+/+/#", "a//b", "%c"])
rules = st.builds(Rule, filters, st.integers(1, ALL), st.booleans())
topics = st.sampled_from(["a", "b", "a/b", "a/c", "b/b", "a/b/c", "$x", "$x/a", "a//b", "/", "%c"])


@settings(max_examples=1000, deadline=None)
@given(st.lists(rules, max_size=8), topics, st.sampled_from([PUBLISH, SUBSCRIBE, RECEIVE]))
def test_rules_mean_what_the_plain_model_says(found: list[Rule], topic: str, action: int) -> None:
    fitting = [rule for rule in found if rule.actions & action and matches(rule.filter, topic)]
    expected = any(not rule.denies for rule in fitting) and not any(rule.denies for rule in fitting)
    judged = RuleRights(found)
    assert judged.decide(topic, action) is expected
    if action == PUBLISH:
        assert [judged.publishes(topic.encode()) for _ in range(2)] == [expected] * 2
    if action == RECEIVE:
        assert [judged.receives(topic) for _ in range(2)] == [expected] * 2


def test_what_is_remembered_is_bounded() -> None:
    judged = RuleRights([Rule("a/#", ALL)])
    for number in range(MAX_REMEMBERED + 10):
        assert judged.publishes(b"a/%d" % number) and judged.receives(f"a/{number}")
    assert judged.publishes(b"a/" + b"x" * 1000)
    assert 0 < len(judged._published) <= MAX_REMEMBERED and 0 < len(judged._received) <= MAX_REMEMBERED


def test_what_all_rights_remember_together_is_bounded() -> None:
    remembered = Remembered(100_000)
    everybody = [RuleRights([Rule("a/#", ALL)], remembered=remembered) for _ in range(50)]
    for number, judged in enumerate(everybody):
        for topic in range(100):
            assert judged.publishes(b"a/%d" % topic) and judged.receives(f"a/{topic}")
            assert remembered.used == sum(each.remembers for each in everybody) <= remembered.limit
        assert len(judged._published) == len(judged._received) == 100, f"the newest, {number}, is not forgotten"
    assert not everybody[0]._published and not everybody[0]._received, "the oldest is"
    assert everybody[0].publishes(b"a/1") and list(everybody[0]._published) == [b"a/1"], "and begins anew"
    assert len(remembered.order) < 10


@pytest.mark.parametrize("number", [1, 5, 6, 85, 86, 683, 684, MAX_REMEMBERED])
def test_what_is_remembered_counts_at_least_what_it_takes(number: int) -> None:
    judged = RuleRights([Rule("#", ALL)])
    for each in range(number):
        assert judged.publishes(b"%d" % each) and judged.receives(f"é{each}")
    taken = sum(
        sys.getsizeof(answers) + sum(sys.getsizeof(topic) for topic in answers)
        for answers in (judged._published, judged._received)
    )
    assert taken <= judged.remembers
