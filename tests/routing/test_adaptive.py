"""What `adaptive` makes of what it is told, one thing at a time. How good it is overall, tests/lab shows."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.message import Subscription
from headwater.routing.dispatcher import Member
from headwater.routing.dispatchers.adaptive import PROBE, Adaptive
from headwater.routing.dispatchers.heap import LineHeap
from headwater.routing.dispatchers.member_queue import FACTOR, LONGEST, MemberQueue
from headwater.routing.shared import Group


def group_of(*keys: object) -> Group:
    group = Group("g", "a", Adaptive())
    for key in keys:
        group.join(key, Subscription("a", share="g"))
    return group


def the(group: Group, key: object) -> Member:
    member = group.member(key)
    assert member is not None
    return member


def queue(group: Group, key: object) -> MemberQueue:
    model = the(group, key).model
    assert isinstance(model, MemberQueue)
    return model


def give(group: Group, now: float, qos: int = 0, size: int = 100) -> Member:
    member = group.choose_online("t", "p", now)
    assert member is not None
    group.sent(member, size, qos, now)
    return member


def shares(group: Group, start: float, period: float, count: int) -> Counter[object]:
    return Counter(give(group, start + turn * period).key for turn in range(count))


def test_who_tells_nothing_is_served_round_robin() -> None:
    group = group_of("x", "y", "z")
    first, second, third = ([give(group, 0.1 * turn).key for _ in "xyz"] for turn in range(3))
    assert first == second == third
    assert set(first) == {*"xyz"}
    assert Counter(give(group, 5.0).key for _ in range(30)) == dict.fromkeys("xyz", 10)


def test_shares_follow_the_reported_times() -> None:
    group = group_of("x", "y")
    group.reported(the(group, "x"), 0, 0.020, 1.0)
    group.reported(the(group, "y"), 0, 0.060, 1.0)
    got = shares(group, 1.0, 0.015, 400)
    assert 2.9 < got["x"] / got["y"] < 3.1


def test_who_is_new_is_taken_for_average_and_gets_no_burst() -> None:
    group = group_of("x", "y")
    for key in "xy":
        group.reported(the(group, key), 0, 0.030, 1.0)
    shares(group, 1.0, 0.015, 1_000)
    group.join("z", Subscription("a", share="g"))
    got = shares(group, 16.0, 0.010, 300)
    assert all(95 <= got[key] <= 105 for key in "xyz"), got


def test_a_report_corrects_the_model_only_where_it_contradicts() -> None:
    group = group_of("x")
    group.reported(the(group, "x"), 0, 0.1, 1.0)
    for _ in range(4):
        give(group, 1.0)
    free_at = queue(group, "x").free_at
    assert free_at == pytest.approx(1.4)
    group.reported(the(group, "x"), 2, 0.1, 1.15)  # one done, one half done, two waiting: just so
    assert queue(group, "x").free_at == free_at
    group.reported(the(group, "x"), 3, 0.1, 1.15)
    assert queue(group, "x").free_at == pytest.approx(1.45)
    group.reported(the(group, "x"), 0, 0.1, 1.15)
    assert queue(group, "x").free_at == pytest.approx(1.25)


def test_a_report_without_a_time_leaves_the_time() -> None:
    group = group_of("x")
    group.reported(the(group, "x"), 0, 0.1, 1.0)
    group.reported(the(group, "x"), 0, None, 2.0)
    assert queue(group, "x").service == 0.1


def test_who_works_on_several_at_once_is_known_by_the_rate() -> None:
    group = group_of("x")
    group.reported(the(group, "x"), 0, 0.4, 1.0)
    for turn in range(100):
        give(group, 1.0 + 0.01 * turn)
    group.reported(the(group, "x"), 0, 0.4, 2.0)
    assert queue(group, "x").service == pytest.approx(0.01, rel=0.05)


def test_way_and_processing_are_told_apart_by_acknowledgements() -> None:
    """25 ms of processing, 40 ms away: now alone, now three in a row."""
    group = group_of("x")
    member = the(group, "x")
    now = 0.0
    for _ in range(40):
        for count in (1, 3):
            now += 1.0
            for _ in range(count):
                give(group, now, qos=1)
            for done in range(1, count + 1):
                group.acknowledged(member, now + 0.080 + done * 0.025)
    assert queue(group, "x").service == pytest.approx(0.025, abs=0.001)
    assert queue(group, "x").delay == pytest.approx(0.040, abs=0.001)


def test_who_does_not_acknowledge_gets_no_second_one_while_others_are_free() -> None:
    group = group_of("x", "y", "z")
    got: Counter[object] = Counter()
    for turn in range(300):
        now = 0.1 * turn
        member = give(group, now, qos=1)
        got[member.key] += 1
        if member.key != "x":
            group.acknowledged(member, now + 0.05)
    assert got["x"] == 1


def test_the_first_sign_of_life_brings_it_back() -> None:
    group = group_of("x", "y")
    now = 0.0
    got: Counter[object] = Counter()
    for turn in range(400):
        now = 0.1 * turn
        member = give(group, now, qos=1)
        frozen = 100 <= turn < 200
        if turn == 200:
            while the(group, "x").in_flight:
                group.acknowledged(the(group, "x"), now + 0.01)
        if member.key == "y" or not frozen:
            group.acknowledged(member, now + 0.05)
        if frozen or turn >= 300:
            got[str(member.key), frozen] += 1
    assert got["x", True] == 1
    assert got["x", False] >= 30


def test_acknowledgements_before_processing_are_found_out_by_reports() -> None:
    group = group_of("x", "y")
    x = the(group, "x")
    for turn in range(10):
        member = give(group, 0.01 * turn, qos=1)
        if turn < 8:
            group.acknowledged(member, 0.01 * turn + 0.001)
    assert queue(group, "x").acks_tell
    group.reported(x, 5, 0.1, 0.2)
    assert not queue(group, "x").acks_tell
    group.acknowledged(x, 0.21)
    assert queue(group, "x").free_at >= 0.7
    assert queue(group, "x").service == pytest.approx(0.1)


def test_what_is_on_the_way_is_added_to_what_a_far_member_reports() -> None:
    group = group_of("x")
    member = the(group, "x")
    member.way = 0.05
    group.reported(member, 0, 0.1, 1.0)
    for turn in range(20):
        give(group, 1.0 + 0.05 * turn)
    group.reported(member, 10, 0.1, 2.0)  # made at 1.95, when it had not seen what was sent after 1.9
    assert queue(group, "x").free_at == pytest.approx(1.95 + 1.25, abs=0.06)


def test_who_reports_that_nothing_moves_is_expected_to_stay_so_for_as_long_again() -> None:
    group = group_of("x")
    group.reported(the(group, "x"), 0, 0.1, 1.0)
    give(group, 1.0)
    give(group, 1.0)
    group.reported(the(group, "x"), 1, None, 1.05)
    group.reported(the(group, "x"), 1, None, 3.0)
    assert queue(group, "x").free_at >= 4.9
    group.reported(the(group, "x"), 0, 2.0, 3.1)
    assert queue(group, "x").free_at <= 5.1


def test_a_missing_report_means_little_and_many_of_them_a_lot() -> None:
    group = group_of("x")
    member = the(group, "x")
    member.report_interval = 1.0
    group.reported(member, 0, 0.1, 1.0)
    assert queue(group, "x").can_start_at(2.1) <= 2.1, "not late yet"
    assert 3.0 < queue(group, "x").can_start_at(3.0) <= 3.05 + 1e-9
    assert queue(group, "x").can_start_at(11.0) >= 11.0 + 8.0
    group.reported(member, 0, 0.1, 11.1)
    assert queue(group, "x").can_start_at(11.2) <= 11.2


def test_who_takes_no_bytes_is_expected_to_stay_so_for_as_long_again() -> None:
    group = group_of("x")
    give(group, 0.0)
    for tick in range(1, 31):
        group.sampled(the(group, "x"), 100, 0.1 * tick)
    assert queue(group, "x").free_at == pytest.approx(3.0 + 2.9, abs=0.11)


def test_a_way_is_never_longer_than_an_answer_allows() -> None:
    group = group_of("x")
    each = queue(group, "x")
    each.delay = 0.5
    each.busy_gap = 0.025
    each.acknowledged_at = 0.5
    give(group, 1.0, qos=1)
    group.acknowledged(the(group, "x"), 1.03)
    assert each.delay <= 0.015


def test_what_was_sent_just_now_is_not_done_before_it_is_there() -> None:
    group = group_of("x")
    each = queue(group, "x")
    give(group, 1.0, qos=1)
    give(group, 1.5, qos=1)
    give(group, 2.0, qos=1)
    each.delay = the(group, "x").way = 0.5
    each.service = 0.1
    group.acknowledged(the(group, "x"), 2.1)
    assert each.free_at >= 2.5 + each.service


def test_waiting_a_moment_nearby_is_better_than_a_long_way() -> None:
    group = group_of("near", "far")
    the(group, "far").way = 0.1
    for key in ("near", "far"):
        group.reported(the(group, key), 0, 0.02, 0.0)
    assert give(group, 1.0).key == "near"
    assert give(group, 1.018).key == "near"
    assert give(group, 1.019).key == "far"


def test_nobodys_line_is_believed_to_be_longer_than_a_minute() -> None:
    group = group_of("x")
    group.reported(the(group, "x"), 0, 50.0, 1.0)
    for _ in range(5):
        give(group, 1.0)
    assert queue(group, "x").free_at == 1.0 + LONGEST


def test_nobody_is_late_with_what_was_given_back() -> None:
    group = group_of("x")
    give(group, 1.0, qos=1)
    group.given_back(the(group, "x"), 1, 1, 1.5)
    assert queue(group, "x").can_start_at(100.0) < 100.0


def test_unsent_bytes_are_work_that_waits() -> None:
    group = group_of("x", "y")
    now = 0.0
    taken: Counter[object] = Counter()
    for tick in range(200):
        for step in range(10):
            now = 0.1 * tick + 0.01 * step
            taken[give(group, now).key] += 1
        sent = the(group, "x").sent_bytes
        drained = int(min(sent, 2_000 * now))  # it takes 20 messages in a second
        group.sampled(the(group, "x"), sent - drained, now)
        group.sampled(the(group, "y"), 0, now)
    assert the(group, "x").unsent_bytes < 3_000
    assert taken["x"] < 0.3 * taken["y"]
    for tick in range(200):
        for step in range(10):
            now = 20.0 + 0.1 * tick + 0.01 * step
            taken[give(group, now).key, "later"] += 1
        group.sampled(the(group, "x"), 0, now)
        group.sampled(the(group, "y"), 0, now)
    assert taken["x", "later"] > 0.6 * taken["y", "later"], "it takes everything now"


def test_what_is_given_back_is_no_work_any_more() -> None:
    group = group_of("x", "y")
    for key in "xy":
        group.reported(the(group, key), 0, 0.1, 1.0)
    for _ in range(10):
        give(group, 1.0, qos=1)
    group.given_back(the(group, "x"), 5, 1, 1.01)
    assert the(group, "x").in_flight == 0
    assert [give(group, 1.01).key for _ in range(3)] == ["x"] * 3


def test_who_is_far_away_is_tried_from_time_to_time() -> None:
    group = group_of(*range(4))
    the(group, 3).way = 0.050
    for key in range(4):
        group.reported(the(group, key), 0, 0.001, 0.0)
    got = shares(group, 0.0, 0.1, 40 * 4 * PROBE)
    assert 35 <= got[3] <= 45


def test_what_left_leaves_nothing_behind() -> None:
    group = group_of("x", "y")
    group.reported(the(group, "x"), 0, 0.010, 1.0)
    leaver = the(group, "y")
    group.reported(leaver, 0, 10.0, 1.0)
    group.leave("y")
    group.reported(leaver, 0, 20.0, 1.1)
    group.join("z", Subscription("a", share="g"))
    got = shares(group, 1.2, 0.005, 100)
    assert got["x"] == got["z"], "z was taken for as slow as the one that left"


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("count", [3, 10, 40])
def test_a_liar_gets_at_most_an_average_share_times_the_stated_factor(count: int, qos: int) -> None:
    """Bursts that the honest ones are just able to do. The liar says all the time that it has done all in no time."""
    group = group_of(*range(count))
    liar = the(group, 0)
    for key in range(1, count):
        group.reported(the(group, key), 0, 0.025, 0.0)
    got: Counter[object] = Counter()
    for burst in range(50):
        now = 0.15 * burst
        for _ in range(5 * count):
            group.reported(liar, 0, 1e-9, now)
            group.acknowledged(liar, now)
            got[give(group, now, qos).key] += 1
        for key in range(1, count):
            while the(group, key).in_flight:
                group.acknowledged(the(group, key), now + 0.14)
    average = (got.total() - got[0]) / (count - 1)
    assert average < got[0] <= 1.1 * FACTOR * average, got


def test_when_the_others_cannot_keep_up_who_says_that_it_can_gets_the_rest() -> None:
    """Were it not so, a bound against liars would be one on those that really are fast."""
    group = group_of("slow", "fast")
    group.reported(the(group, "slow"), 0, 1.0, 0.0)
    group.reported(the(group, "fast"), 0, 0.001, 0.0)
    got = shares(group, 0.0, 0.002, 10_000)
    assert got["slow"] <= 20 + FACTOR + 1


def test_who_claims_to_be_slow_blocks_nobody_and_is_tried_again() -> None:
    group = group_of("x", "y", "z")
    for key in "yz":
        group.reported(the(group, key), 0, 0.010, 0.0)
    group.reported(the(group, "x"), 10_000_000, 3600.0, 0.0)
    early = shares(group, 0.0, 0.010, 1_000)
    assert early["x"] == 0
    assert early["y"] == pytest.approx(early["z"], abs=2)
    assert shares(group, 70.0, 0.010, 10)["x"] >= 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.floats(0.0, 1.0)), max_size=60))
def test_the_heap_has_the_first_in_front(changes: list[tuple[int, int, float]]) -> None:
    queues = [MemberQueue(Member(number, Subscription("a", share="g"), True)) for number in range(10)]
    heap = LineHeap()
    for number, level, key in changes:
        each = queues[number]
        if each.place >= 0 and level == 2:
            heap.remove(each)
        else:
            each.level = level
            each.key = key
            if each.place < 0:
                heap.add(each)
            else:
                heap.moved(each)
        assert [other.place for other in heap.queues] == list(range(len(heap.queues)))
        if heap.queues:
            first = min((other.level, other.key) for other in heap.queues)
            assert (heap.queues[0].level, heap.queues[0].key) == first
