"""The policies of the dispatchers that need no model: turns, hashes, least something, capacity, score."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.message import Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers import least
from headwater.routing.dispatchers.capacity import Capacity
from headwater.routing.dispatchers.hashes import HashClient, HashTopic
from headwater.routing.dispatchers.least import (
    LeastBytes,
    LeastConnections,
    LeastLoad,
    LeastPending,
    LeastResponseTime,
)
from headwater.routing.dispatchers.score import MendedScore, Score
from headwater.routing.dispatchers.turns import Sticky, WeightedRoundRobin
from headwater.routing.shared import Group


def group_of(by: Dispatcher, *keys: str) -> Group:
    group = Group("g", "a", by)
    for key in keys:
        group.join(key, Subscription("a", share="g"))
    return group


def the(group: Group, key: str) -> Member:
    member = group.member(key)
    assert member is not None
    return member


def give(group: Group, now: float = 1.0, topic: str = "t", publisher: str = "p", size: int = 10, qos: int = 0) -> str:
    member = group.choose_online(topic, publisher, now)
    assert member is not None
    group.sent(member, size, qos, now)
    return str(member.key)


def test_weights_are_shares_without_bursts() -> None:
    group = group_of(WeightedRoundRobin(), "x", "y", "z")
    the(group, "x").weight = 4
    the(group, "y").weight = 2
    order = "".join(give(group) for _ in range(14))
    assert Counter(order) == {"x": 8, "y": 4, "z": 2}
    assert "xxx" not in order


def test_sticky_changes_only_when_the_favourite_is_gone() -> None:
    group = group_of(Sticky(3), "x", "y", "z")
    [favourite] = {give(group) for _ in range(20)}
    group.join("late", Subscription("a", share="g"))
    assert give(group) == favourite
    group.set_online(favourite, False)
    [second] = {give(group) for _ in range(20)}
    assert second != favourite
    group.set_online(favourite, True)
    assert give(group) == second
    group.leave(second)
    assert give(group) != second


@pytest.mark.parametrize("by", [HashTopic, HashClient])
def test_what_belongs_together_stays_together_and_little_moves(by: type[HashTopic] | type[HashClient]) -> None:
    group = group_of(by(), *"uvwxyz")
    texts = [f"t/{number}" for number in range(3_000)]

    def places() -> dict[str, str]:
        if by is HashTopic:
            return {text: give(group, topic=text, publisher=str(len(text))) for text in texts}
        return {text: give(group, publisher=text, topic=str(len(text))) for text in texts}

    before = places()
    assert places() == before
    shares = Counter(before.values())
    assert max(shares.values()) < 2 * min(shares.values())
    group.leave("w")
    after = places()
    assert {text for text in texts if before[text] != after[text]} == {text for text in texts if before[text] == "w"}
    assert len({after[text] for text in texts if before[text] == "w"}) == 5
    group.join("late", Subscription("a", share="g"))
    assert {place for text, place in places().items() if place != after[text]} == {"late"}


def test_least_pending_by_acknowledgements() -> None:
    group = group_of(LeastPending(), "x", "y", "z")
    assert [give(group, qos=1) for _ in range(3)] == ["x", "y", "z"]
    group.acknowledged(the(group, "y"), 2.0)
    assert [give(group, qos=1) for _ in range(2)] == ["y", "x"]


def test_least_pending_by_reports() -> None:
    group = group_of(LeastPending(), "x", "y")
    group.reported(the(group, "x"), 3, None, 1.0)
    assert [give(group) for _ in range(3)] == ["y"] * 3
    group.reported(the(group, "y"), 1, 0.1, 1.0)
    assert [give(group) for _ in range(3)] == ["y", "y", "x"]


def test_least_bytes_gives_who_joins_no_burst() -> None:
    group = group_of(LeastBytes(), "x", "y")
    assert give(group, size=1000) == "x"
    assert [give(group, size=100) for _ in range(3)] == ["y"] * 3
    group.join("z", Subscription("a", share="g"))
    assert [give(group, size=400) for _ in range(3)] == ["y", "z", "y"]


def test_least_load_is_blind_between_reports() -> None:
    group = group_of(LeastLoad(), "x", "y")
    group.reported(the(group, "x"), 2, 0.1, 1.0)
    group.reported(the(group, "y"), 3, 0.1, 1.0)
    assert {give(group) for _ in range(9)} == {"x"}
    group.reported(the(group, "y"), 3, 0.05, 1.0)
    assert {give(group) for _ in range(9)} == {"y"}


def test_least_response_time() -> None:
    group = group_of(LeastResponseTime(), "x", "y")
    assert [give(group, 1.0, qos=1) for _ in range(2)] == ["x", "y"]
    group.acknowledged(the(group, "x"), 1.1)
    group.acknowledged(the(group, "y"), 1.25)
    assert [give(group, 2.0, qos=1) for _ in range(4)] == ["x", "x", "y", "x"]


def test_least_connections_binds_publishers() -> None:
    group = group_of(LeastConnections(), "x", "y")
    assert [give(group, publisher=each) for each in "abcab"] == ["x", "y", "x", "x", "y"]
    group.leave("x")
    assert [give(group, publisher=each) for each in "abc"] == ["y"] * 3
    group.join("z", Subscription("a", share="g"))
    assert [give(group, publisher=each) for each in "abcdefg"] == ["y"] * 3 + ["z"] * 3 + ["y"]
    group.set_online("z", False)
    assert give(group, publisher="d") == "y"
    group.set_online("z", True)
    assert [give(group, publisher=each) for each in "hijkl"] == ["z", "z", "z", "y", "z"]


def test_least_connections_forgets_who_is_silent_for_longest() -> None:
    group = group_of(LeastConnections(), "x", "y")
    for number in range(least.REMEMBERED_PUBLISHERS + 10):
        give(group, publisher=str(number))
    chooser = group.dispatcher
    assert isinstance(chooser, LeastConnections)
    assert sum(chooser.cost(member) for member in group.members()) == least.REMEMBERED_PUBLISHERS


def test_capacity_shrinks_with_messages_and_recovers_with_time() -> None:
    group = group_of(Capacity(5), "x", "y")
    the(group, "x").reported_seconds = 0.01
    the(group, "y").reported_seconds = 0.03
    shares = Counter(give(group, 0.01 * turn) for turn in range(4_000))
    assert 1.7 < shares["x"] / shares["y"] < 3.5
    rested = Counter(give(group, 1_000.0 + 100.0 * turn) for turn in range(1_000))
    assert 0.8 < rested["x"] / rested["y"] < 1.25


def told(chooser: Score, *reports: tuple[int, float | None]) -> Group:
    """A group of two, of which y has reported at 1, 2, 3 …"""
    group = group_of(chooser, "x", "y")
    assert give(group, 0.0) == "x"
    for second, (waiting, seconds) in enumerate(reports, 1):
        group.reported(the(group, "y"), waiting, seconds, float(second))
    return group


def test_score_without_reports_is_round_robin() -> None:
    group = group_of(Score(), "x", "y", "z")
    assert "".join(give(group, 0.01 * turn) for turn in range(1, 8)) == "xyzxyzx"


def test_score_weighs_waiting_work_against_time_since_the_last_message() -> None:
    # y at 2.0: (2.0 - 0.0) - max(4 · t - 1.0, 0); x: 2.0 - 0.0 - max(1 · t - 2.0, 0), with the group's mean t for x.
    assert give(told(Score(), (4, 0.2)), 2.0) == "y"  # nothing waits any more; x got its last one a moment later
    group = told(Score(), (4, 0.5))
    assert give(group, 2.0) == "x"  # 2.0 to 1.0
    assert give(group, 2.1) == "y"  # 0.1 - max(2 · 0.5 - 2.1, 0) to 2.1 - (2.0 - 1.1)
    assert give(group, 2.2) == "x"  # y: 0.1 - (2.5 - 1.2)


@pytest.mark.parametrize(("chooser", "chosen"), [(Score(), "y"), (MendedScore(), "x")])
def test_the_start_fault_of_score(chooser: Score, chosen: str) -> None:
    """An empty report halves the mean: 20 · 0.5 instead of 20 · 1.0 seconds waiting."""
    group = told(chooser, (0, None), (20, 1.0))
    assert give(group, 2.5) == "x"
    assert give(group, 15.0) == chosen  # x: 12.5; y: 15.0 - max(20 · mean - 13.0, 0), 15.0 or 8.0
