"""What every dispatcher promises, whatever its policy. A new one is tested by being in the registry."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.shared import DISPATCHERS, Group, dispatcher

# Those that do not promise every member a share: topic, publisher or a favourite decide.
KEEPING = ["hash_client", "hash_topic", "least_connections", "sticky"]
SPREADING = sorted(set(DISPATCHERS) - set(KEEPING))

every_dispatcher = pytest.mark.parametrize("name", sorted(DISPATCHERS))
every_spreading_one = pytest.mark.parametrize("name", SPREADING)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def members_of(chooser: Dispatcher, count: int) -> list[Member]:
    members = [Member(key, Subscription("a", share="g"), True) for key in range(count)]
    for member in members:
        chooser.joined(member)
    return members


def group_of(name: str, *keys: object) -> Group:
    group = Group("g", "a", dispatcher(name))
    for key in keys:
        group.join(key, Subscription("a", share="g"))
    return group


def give(group: Group, now: float, topic: str = "t", publisher: str = "p", qos: int = 0) -> Member:
    """One message, as a broker does it."""
    member = group.choose_online(topic, publisher, now)
    assert member is not None
    group.sent(member, 100, qos, now)
    return member


def test_the_names_that_promise_nothing_exist() -> None:
    assert set(KEEPING) <= set(DISPATCHERS)


@every_dispatcher
def test_a_lone_member_gets_everything(name: str) -> None:
    chooser = dispatcher(name)
    members = members_of(chooser, 1)
    assert all(chooser.choose(members, f"t/{turn}", "", float(turn)) is members[0] for turn in range(200))


@every_dispatcher
def test_the_list_and_its_members_are_left_as_they_were(name: str) -> None:
    chooser = dispatcher(name)
    members = members_of(chooser, 4)
    before = list(members)
    for turn in range(20):
        chooser.choose(members, f"t/{turn}", "p", float(turn))
    assert members == before
    assert all(member.online for member in members)


@every_dispatcher
@settings(deadline=None)
@given(data=st.data())
def test_the_chosen_is_always_one_of_the_list(name: str, data: st.DataObject) -> None:
    """Lists that grow, shrink and leave members out for a while, as members come, go and lose their connection."""
    chooser = dispatcher(name)
    clock = Clock()
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
            assert chooser.choose(offered, data.draw(st.sampled_from(["t", "u/v", ""])), "p", clock()) in offered


seconds = st.none() | st.floats(0.0, 3600.0, exclude_min=True)


@every_dispatcher
@settings(deadline=None)
@given(data=st.data())
def test_whatever_members_tell_somebody_is_chosen(name: str, data: st.DataObject) -> None:
    """All events in any order and with any values a broker lets through, also of members that have left."""
    group = group_of(name, *range(3))
    ever = group.members()
    now = 5.0
    for step in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.0, 1e-9, 0.001, 0.02, 1.0, 1e6]))
        member = data.draw(st.sampled_from(ever))
        match data.draw(st.integers(0, 9)):
            case 0 | 1:
                there = [each for each in group.members() if each.online]
                able = there if group.dispatcher.waits else [each for each in there if each.ready]
                if able:
                    assert give(group, now, f"t/{step % 3}", qos=data.draw(st.integers(0, 2))) in able
                else:
                    assert group.choose_online("t", "p", now) is None
            case 2:
                group.acknowledged(member, now)
            case 3:
                group.reported(member, data.draw(st.integers(0, 10_000_000)), data.draw(seconds), now)
            case 4:
                group.sampled(member, data.draw(st.integers(0, 10**9)), now)
            case 5:
                group.given_back(member, data.draw(st.integers(0, 5)), data.draw(st.integers(0, 1)), now)
            case 6:
                group.set_online(member.key, data.draw(st.booleans()))
            case 7:
                if group.leave(member.key) is None or len(group) == 0:
                    ever.append(group.join(f"late {step}", Subscription("a", share="g")))
            case 8:
                if member in group.members() and member.online:
                    group.block(member)
            case 9:
                if member in group.members() and not member.ready:
                    group.dispatcher.taken(member, now)
                    group.readied(member, now)
    group.join("last", Subscription("a", share="g"))
    assert give(group, now) in group.members()


@every_spreading_one
@pytest.mark.parametrize("count", [2, 3, 10])
def test_nobody_starves(name: str, count: int) -> None:
    clock = Clock()
    group = group_of(name, *range(count))
    shares = Counter(give(group, clock()).key for _ in range(1_000 * count))
    # Random: with 1,000 expected, less than 700 has a probability below one in 10^20.
    assert min(shares[member.key] for member in group.members()) > 700


@every_spreading_one
def test_nobody_starves_while_others_come_and_go(name: str) -> None:
    """One stays, and always two others are with it, each only for a few messages."""
    clock = Clock()
    group = group_of(name, "stays", "visitor 0")
    shares: Counter[object] = Counter()
    for turn in range(1, 1_001):
        group.join(f"visitor {turn}", Subscription("a", share="g"))
        for _ in range(3):
            shares[give(group, clock()).key] += 1
        group.leave(f"visitor {turn - 1}")
    assert shares["stays"] > 700
    assert all(key == "stays" or share <= 6 for key, share in shares.items())


@every_dispatcher
def test_a_member_that_left_is_not_chosen_again(name: str) -> None:
    clock = Clock()
    group = group_of(name, "x", "y", "z")
    for _ in range(5):
        give(group, clock())
    group.leave("y")
    assert {give(group, clock()).key for _ in range(60)} <= {"x", "z"}


@every_dispatcher
def test_members_that_are_offline_are_not_chosen(name: str) -> None:
    clock = Clock()
    group = group_of(name, "x", "y")
    group.set_online("x", False)
    assert {give(group, clock()).key for _ in range(60)} == {"y"}
    group.set_online("y", False)
    assert group.choose_online("t", "p", clock()) is None
    group.set_online("x", True)
    assert {give(group, clock()).key for _ in range(60)} == {"x"}


@every_dispatcher
def test_who_has_no_room_is_passed_over_or_waited_for(name: str) -> None:
    """By those that keep an order the message waits for its member; by all others somebody else gets it."""
    clock = Clock()
    group = group_of(name, *range(4))
    full = [member for member in group.members() if member.key in (0, 2)]
    expected = {give(group, clock(), f"t/{number}", f"p{number}").key for number in range(100)}
    for member in full:
        group.block(member)
    got = {give(group, clock(), f"t/{number}", f"p{number}").key for number in range(100)}
    assert got == expected if group.dispatcher.waits else got == {1, 3}
    for member in full:
        group.readied(member, clock())
    if name in SPREADING:
        assert {give(group, clock(), f"t/{number}", f"p{number}").key for number in range(400)} == {0, 1, 2, 3}


@every_dispatcher
def test_a_clock_that_stands_still_stops_nobody(name: str) -> None:
    """A broker reads its clock once in a turn of its loop, in which there may be many messages."""
    group = group_of(name, *range(3))
    assert len([give(group, 7.0, qos=1) for _ in range(500)]) == 500


@every_dispatcher
@given(st.integers(1, 500), st.lists(st.sampled_from([None, 1e-5, 0.001, 0.025]), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_who_gets_several_at_once_gets_no_more_than_there_are(
    name: str, count: int, services: list[float | None]
) -> None:
    """And no more than half of an equal share, nor more than half a millisecond of work."""
    group = group_of(name, *range(len(services)))
    now = 1.0
    for member, seconds in zip(group.members(), services, strict=True):
        group.reported(member, 0, seconds, now)
    left = count
    while left > 0:
        member = give(group, now)
        left -= 1
        also = group.also(member, left, 100, now)
        assert 0 <= also <= left / (2 * len(services))
        assert also * member.reported_seconds <= 0.0005
        left -= also
    assert sum(member.sent_messages for member in group.members()) == group.sent_messages == count


@every_dispatcher
def test_acknowledgements_that_come_together_are_as_many_single_ones(name: str) -> None:
    """Of two groups with the same past, one is told of each acknowledgement and one of all in a turn at once."""
    single, together = group_of(name, *range(3)), group_of(name, *range(3))
    clock = Clock()
    for turn in range(200):
        now = clock()
        for group in (single, together):
            for _ in range(4):
                give(group, now, qos=1)
        done = clock() + (0.02 if turn % 3 else 0.0)
        for member in single.members():
            for _ in range(member.in_flight):
                single.acknowledged(member, done)
        for member in together.members():
            together.acknowledged(member, done, member.in_flight)
        assert all(member.in_flight == 0 for group in (single, together) for member in group.members())
    if name not in ("random", "sticky", "capacity"):
        shares = [[member.sent_messages for member in group.members()] for group in (single, together)]
        assert shares[0] == pytest.approx(shares[1], abs=12)
