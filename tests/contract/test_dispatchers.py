"""What every dispatcher promises, whatever its policy. A new one is tested by being in the registry."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Subscription
from headwater.routing.shared import DISPATCHERS, Dispatcher, Group, Member, dispatcher

# Those that promise every member a share whatever the topic and publisher are.
SPREADING = ["random", "round_robin"]

every_dispatcher = pytest.mark.parametrize("name", sorted(DISPATCHERS))


def members_of(chooser: Dispatcher, count: int) -> list[Member]:
    members = [Member(key, Subscription("a", share="g"), True) for key in range(count)]
    for member in members:
        chooser.joined(member)
    return members


def test_the_names_that_promise_to_spread_exist() -> None:
    assert set(SPREADING) <= set(DISPATCHERS)


@every_dispatcher
def test_a_lone_member_gets_everything(name: str) -> None:
    chooser = dispatcher(name)
    members = members_of(chooser, 1)
    assert all(chooser.choose(members, f"t/{turn}", "") is members[0] for turn in range(20))


@every_dispatcher
def test_the_list_and_its_members_are_left_as_they_were(name: str) -> None:
    chooser = dispatcher(name)
    members = members_of(chooser, 4)
    before = list(members)
    for turn in range(20):
        chooser.choose(members, f"t/{turn}", "p")
    assert members == before
    assert all(member.online for member in members)


@every_dispatcher
@settings(deadline=None)
@given(data=st.data())
def test_the_chosen_is_always_one_of_the_list(name: str, data: st.DataObject) -> None:
    """Lists that grow, shrink and leave members out for a while, as members come, go and lose their connection."""
    chooser = dispatcher(name)
    there = members_of(chooser, 1)
    for step in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            newcomer = Member(f"late {step}", Subscription("a", share="g"), True)
            chooser.joined(newcomer)
            there.append(newcomer)
        elif len(there) > 1 and data.draw(st.booleans()):
            chooser.left(there.pop(data.draw(st.integers(0, len(there) - 1))))
        offered = data.draw(st.lists(st.sampled_from(there), min_size=1, unique_by=id))
        for _ in range(data.draw(st.integers(1, 4))):
            assert chooser.choose(offered, data.draw(st.sampled_from(["t", "u/v", ""])), "p") in offered


@pytest.mark.parametrize("name", SPREADING)
@pytest.mark.parametrize("count", [2, 3, 10])
def test_nobody_starves(name: str, count: int) -> None:
    chooser = dispatcher(name)
    members = members_of(chooser, count)
    shares = Counter(chooser.choose(members, "t", "p").key for _ in range(1_000 * count))
    # Random: with 1,000 expected, less than 700 has a probability below one in 10^20.
    assert min(shares[member.key] for member in members) > 700


@pytest.mark.parametrize("name", SPREADING)
def test_nobody_starves_while_others_come_and_go(name: str) -> None:
    """One stays, and always two others are with it, each only for a few messages."""
    group = Group("g", "a", dispatcher(name))
    group.join("stays", Subscription("a", share="g"))
    group.join("visitor 0", Subscription("a", share="g"))
    shares: Counter[object] = Counter()
    for turn in range(1, 1_001):
        group.join(f"visitor {turn}", Subscription("a", share="g"))
        for _ in range(3):
            chosen = group.choose_online("t", "p")
            assert chosen is not None
            shares[chosen.key] += 1
        group.leave(f"visitor {turn - 1}")
    assert shares["stays"] > 700
    assert all(key == "stays" or share <= 6 for key, share in shares.items())


@every_dispatcher
def test_a_member_that_left_is_not_chosen_again(name: str) -> None:
    group = Group("g", "a", dispatcher(name))
    for key in ("x", "y", "z"):
        group.join(key, Subscription("a", share="g"))
    for _ in range(5):
        group.choose_online("t", "p")
    group.leave("y")
    chosen = [group.choose_online("t", "p") for _ in range(60)]
    assert {member.key for member in chosen if member} <= {"x", "z"}
    assert None not in chosen


@every_dispatcher
def test_members_that_are_offline_are_chosen_only_when_all_are(name: str) -> None:
    group = Group("g", "a", dispatcher(name))
    for key in ("x", "y"):
        group.join(key, Subscription("a", share="g"))
    group.set_online("x", False)
    assert {member.key for _ in range(60) if (member := group.choose_online("t", "p"))} == {"y"}
    group.set_online("y", False)
    assert {member.key for _ in range(60) if (member := group.choose_online("t", "p"))} <= {"x", "y"}
    group.set_online("x", True)
    assert {member.key for _ in range(60) if (member := group.choose_online("t", "p"))} == {"x"}
