from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.message import Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.turns import Random, RoundRobin
from headwater.routing.shared import DISPATCHERS, Group, Groups, dispatcher
from headwater.routing.topics import matches
from tests.routing.strategies import filters, topics

KEYS = ["v", "w", "x", "y", "z"]
keys = st.sampled_from(KEYS)


def shared(filter: str, share: str = "g") -> Subscription:
    return Subscription(filter, share=share)


def group_of(*keys: str, by: Dispatcher | None = None) -> Group:
    group = Group("g", "a", by or RoundRobin())
    for key in keys:
        group.join(key, shared("a"))
    return group


def chosen(group: Group, times: int) -> list[object]:
    members = [group.choose_online("a", "publisher", 0.0) for _ in range(times)]
    return [member.key if member else None for member in members]


class Notes(Dispatcher):
    """Takes the first and notes what it was told; interpreted, also where the base class is compiled."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.offered: list[list[Member]] = []

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        self.offered.append(members)
        self.events.append((topic, publisher))
        return members[0]

    def joined(self, member: Member) -> None:
        self.events.append(("joined", member.key))

    def left(self, member: Member) -> None:
        self.events.append(("left", member.key))


def test_round_robin_goes_round() -> None:
    assert chosen(group_of("x", "y", "z"), 7) == ["x", "y", "z", "x", "y", "z", "x"]


def test_whoever_joins_waits_behind_all_others() -> None:
    group = group_of("x", "y")
    assert chosen(group, 1) == ["x"]
    group.join("z", shared("a"))
    assert chosen(group, 4) == ["y", "x", "z", "y"]


def test_leaving_skips_nobody() -> None:
    group = group_of("x", "y", "z")
    assert chosen(group, 1) == ["x"]
    assert group.leave("x") is not None
    assert chosen(group, 3) == ["y", "z", "y"]


def test_whoever_comes_back_has_waited() -> None:
    group = group_of("x", "y", "z")
    assert chosen(group, 1) == ["x"]
    group.set_online("x", False)
    assert chosen(group, 3) == ["y", "z", "y"]
    group.set_online("x", True)
    assert chosen(group, 4) == ["x", "z", "y", "x"]


def test_only_members_that_are_online_are_chosen() -> None:
    group = group_of("x", "y", "z")
    group.set_online("y", False)
    assert chosen(group, 4) == ["x", "z", "x", "z"]
    group.set_online("x", False)
    group.set_online("z", False)
    assert chosen(group, 3) == [None, None, None]
    group.set_online("y", True)
    assert chosen(group, 2) == ["y", "y"]


class Blind(Dispatcher):
    """Always the same one, ready or not."""

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        return members[0]


@pytest.mark.parametrize("by", [RoundRobin, Blind])
def test_who_has_no_room_is_passed_over_until_it_has(by: type[Dispatcher]) -> None:
    group = group_of("x", "y", "z", by=by())
    x, y, z = group.members()
    group.block(x)
    group.block(x)  # twice is as once
    assert set(chosen(group, 6)) <= {"y", "z"}
    group.block(y)
    assert chosen(group, 3) == ["z", "z", "z"]
    group.block(z)
    assert chosen(group, 3) == [None, None, None]
    group.readied(y, 0.0)
    group.readied(y, 0.0)
    assert chosen(group, 3) == ["y", "y", "y"]
    group.block(y)
    assert chosen(group, 1) == [None]
    group.set_online("x", False)
    group.set_online("x", True)  # a new connection has room
    assert chosen(group, 2) == ["x", "x"]
    group.leave("x")
    assert chosen(group, 1) == [None]
    group.join("late", shared("a"))
    assert chosen(group, 1) == ["late"]


def test_who_is_away_or_has_left_does_not_count_as_ready_or_not() -> None:
    group = group_of("x", "y", "z")
    x, y, z = group.members()
    assert chosen(group, 1) == ["x"]
    group.set_online("y", False)
    group.leave("z")
    assert chosen(group, 1) == ["x"]
    for member in (y, z):
        group.block(member)
    assert chosen(group, 1) == ["x"]
    group.block(x)
    for member in (y, z):
        group.readied(member, 0.0)
    assert chosen(group, 1) == [None]


def test_another_dispatcher_at_run_time_takes_over_the_members() -> None:
    notes = Notes()
    group = group_of("x", "y", by=notes)
    chosen(group, 1)
    group.use(RoundRobin())
    assert chosen(group, 4) == ["x", "y", "x", "y"]
    assert [what for what, *_ in notes.events][-2:] == ["left", "left"]
    group.use(dispatcher("adaptive"))
    group.sent(group.members()[0], 100, 1, 0.0)
    assert set(chosen(group, 20)) == {"x", "y"}


def test_an_empty_group_chooses_nobody() -> None:
    group = group_of("x")
    group.leave("x")
    assert chosen(group, 1) == [None]
    assert len(group) == 0


def test_joining_again_renews_the_subscription_and_keeps_the_place() -> None:
    notes = Notes()
    group = group_of("x", "y", by=notes)
    renewed = shared("a")
    member = group.join("x", renewed, online=False)
    assert [each.key for each in group.members()] == ["x", "y"]
    assert member.subscription is renewed
    assert group.member("x") is member
    assert chosen(group, 1) == ["y"]
    assert notes.events[:2] == [("joined", "x"), ("joined", "y")]


def test_the_dispatcher_is_told_and_gets_a_new_list_only_when_something_changed() -> None:
    notes = Notes()
    group = group_of("x", "y", by=notes)
    group.choose_online("t", "p", 0.0)
    group.choose_online("t", "p", 0.0)
    group.set_online("x", True)
    group.set_online("stranger", False)
    group.choose_online("t", "p", 0.0)
    assert notes.offered[0] is notes.offered[1] is notes.offered[2]
    group.leave("x")
    assert group.leave("x") is None
    group.choose_online("u", "q", 0.0)
    assert notes.events == [
        ("joined", "x"),
        ("joined", "y"),
        *[("t", "p")] * 3,
        ("left", "x"),
        ("u", "q"),
    ]
    assert [[member.key for member in members] for members in notes.offered] == [["x", "y"]] * 3 + [["y"]]


def test_random_is_repeatable_by_its_seed() -> None:
    first, second, other = (chosen(group_of(*KEYS, by=Random(seed)), 50) for seed in (7, 7, 8))
    assert first == second
    assert first != other


def test_an_unknown_dispatcher_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"no dispatcher 'rondo'; choose one of: adaptive, .*random, round_robin"):
        dispatcher("rondo")


def test_each_call_makes_a_new_dispatcher() -> None:
    for name in DISPATCHERS:
        assert dispatcher(name) is not dispatcher(name)


class FairShares(RuleBasedStateMachine):
    """While members come and go, any two of them that are both there since some moment got as many, within one."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group("g", "a", RoundRobin())
        # For each unordered pair that has been eligible together: what each got since then.
        self.together: dict[tuple[str, str], Counter[object]] = {}

    def eligible(self) -> set[object]:
        members = self.group.members()
        return {member.key for member in members if member.online}

    def note_pairs(self) -> None:
        there = self.eligible()
        pairs = {(one, other) for one in KEYS for other in KEYS if one < other and {one, other} <= there}
        self.together = {pair: self.together.get(pair, Counter()) for pair in pairs}

    @rule(key=keys, online=st.booleans())
    def join(self, key: str, online: bool) -> None:
        self.group.join(key, shared("a"), online)
        self.note_pairs()

    @rule(key=keys)
    def leave(self, key: str) -> None:
        self.group.leave(key)
        self.note_pairs()

    @rule(key=keys, online=st.booleans())
    def set_online(self, key: str, online: bool) -> None:
        self.group.set_online(key, online)
        self.note_pairs()

    @rule(times=st.integers(1, 7))
    def dispatch(self, times: int) -> None:
        there = self.eligible()
        for key in chosen(self.group, times):
            assert key in there if there else key is None
            for counts in self.together.values():
                counts[key] += 1

    @invariant()
    def within_one(self) -> None:
        for (one, other), counts in self.together.items():
            assert abs(counts[one] - counts[other]) <= 1


TestFairShares = FairShares.TestCase


@settings(deadline=None)
@given(
    st.lists(st.tuples(keys, filters, st.sampled_from(["g", "h"])), max_size=20),
    st.lists(st.tuples(keys, filters, st.sampled_from(["g", "h"])), max_size=10),
    st.lists(topics, max_size=5),
)
def test_groups_are_found_by_topic(
    joining: list[tuple[str, str, str]], leaving: list[tuple[str, str, str]], topics: list[str]
) -> None:
    groups = Groups(lambda name: RoundRobin())
    model: dict[tuple[str, str], dict[object, Subscription]] = {}
    for key, filter, share in joining:
        subscription = shared(filter, share)
        members = model.setdefault((share, filter), {})
        assert groups.join(key, subscription) is (key not in members)
        members[key] = subscription
    for key, filter, share in leaving + joining[::2]:
        members = model.get((share, filter), {})
        assert groups.leave(key, share, filter) is members.pop(key, None)
        if not members:
            model.pop((share, filter), None)
            assert groups.get(share, filter) is None
    assert len(groups) == len(model)
    for topic in topics:
        found = [(group.share, group.filter) for group in groups.match(topic)]
        assert sorted(found) == sorted(name for name in model if matches(name[1], topic))
        for group in groups.match(topic):
            assert {m.key: m.subscription for m in group.members()} == model[(group.share, group.filter)]


def test_a_session_goes_offline_and_away_in_all_its_groups() -> None:
    groups = Groups(lambda name: RoundRobin())
    mine = [shared("a"), shared("+"), shared("a", "h")]
    for subscription in mine:
        groups.join("x", subscription)
        groups.join("y", shared(subscription.filter, str(subscription.share)))
    groups.join("x", shared("only/mine"))
    groups.set_online("x", False)
    groups.set_online("stranger", False)
    assert len(groups.match("a")) == 3
    for group in groups.match("a"):
        assert chosen(group, 2) == ["y", "y"]
    groups.set_online("x", True)
    for group in groups.match("a"):
        assert set(chosen(group, 2)) == {"x", "y"}
    left = [groups.leave("x", group.share, group.filter) for group in groups.of("x")]
    assert [each.name for each in left if each is not None] == [*(each.name for each in mine), "$share/g/only/mine"]
    assert groups.of("x") == []
    assert [[member.key for member in group.members()] for group in groups.match("a")] == [["y"]] * 3
    assert groups.match("only/mine") == []


def test_a_subscription_that_is_not_shared_joins_no_group() -> None:
    with pytest.raises(ValueError, match="not shared"):
        Groups(lambda name: RoundRobin()).join("x", Subscription("a"))


def test_every_group_has_a_dispatcher_of_its_own() -> None:
    groups = Groups(lambda name: Random(1))
    groups.join("x", shared("a"))
    groups.join("x", shared("a", "h"))
    one, other = groups.match("a")
    assert isinstance(one.dispatcher, Random)
    assert one.dispatcher is not other.dispatcher
