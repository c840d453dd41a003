"""Retained messages of several nodes: the last writer wins, and whatever was missed is found."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.retained import reconciling
from headwater.peering.retained.clock import AHEAD, COUNTER_BITS, NEVER_WRITTEN, HybridClock, Stamp
from headwater.peering.retained.reconciling import Branches, Entries, Item, Leaves, Want, answer
from headwater.peering.retained.replica import (
    BRANCHES,
    IN_BRANCH,
    TOMBSTONE_LIFE,
    Entry,
    Replica,
    _mixed,
    leaf_of,
)

NOW = 1_000.0
TOPICS = [f"t/{number}" for number in range(12)]


def written(time: int, node: str = "a") -> Entry:
    return Entry(Stamp(time, node), False)


def deleted(time: int, node: str = "a") -> Entry:
    return Entry(Stamp(time, node), True)


def agree(one: Replica, other: Replica) -> int:
    """Have the one begin; how many messages were said. Items are applied as nodes do."""
    said = 0
    queue: list[tuple[Replica, Replica, reconciling.Said]] = [(one, other, Branches(one.branches()))]
    while queue:
        sender, receiver, message = queue.pop(0)
        said += 1
        if isinstance(message, Item):
            receiver.put(message.topic, sender.get(message.topic), NOW)
        else:
            queue += [(receiver, sender, each) for each in answer(receiver, message)]
    return said


def contents(replica: Replica) -> dict[str, Entry]:
    return dict(replica._entries)


# ---- the clock -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1000), min_size=2))
def test_stamps_of_one_node_grow_whatever_its_clock_does(walls: list[int]) -> None:
    clock = HybridClock("a")
    stamps = [clock.stamp(wall) for wall in walls]
    assert stamps == sorted(set(stamps))


def test_what_was_seen_is_earlier_than_what_is_written_then() -> None:
    slow, fast = HybridClock("slow"), HybridClock("fast")
    seen = fast.stamp(5_000)
    slow.see(seen, 1_000)
    assert slow.stamp(1_000) > seen


def test_a_clock_far_ahead_does_not_take_others_with_it() -> None:
    """But who replaces what it wrote is later."""
    clock, mad = HybridClock("a"), HybridClock("z").stamp(10_000_000)
    clock.see(mad, 1_000)
    assert clock.stamp(1_000).time >> COUNTER_BITS <= 1_000 + AHEAD
    assert clock.stamp(1_000, replaces=mad) > mad
    assert clock.stamp(1_000).time >> COUNTER_BITS <= 1_000 + AHEAD


def test_no_stamp_is_given_twice_though_all_replace_what_is_far_ahead() -> None:
    clock = HybridClock("a")
    far = Stamp(10_000_000 << 16, "b")
    given = [clock.stamp(1000, each) for each in (far, far, Stamp(far.time + 1, "b"), NEVER_WRITTEN, far)]
    assert len(set(given)) == len(given)
    assert clock.last < far.time


def test_two_that_write_at_once_are_told_apart() -> None:
    assert HybridClock("b").stamp(1) > HybridClock("a").stamp(1)


# ---- one replica ---------------------------------------------------------------------------------------------------


def test_only_what_is_later_is_taken() -> None:
    replica = Replica()
    assert replica.put("t", written(5), NOW)
    assert not replica.put("t", deleted(5), NOW) and not replica.put("t", written(4, "z"), NOW)
    assert replica.put("t", deleted(5, "b"), NOW)
    assert replica.get("t") == deleted(5, "b")


puts = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 9), st.sampled_from("abc")))


@settings(deadline=None)
@given(puts, st.randoms())
def test_fingerprints_depend_on_what_is_there_and_not_on_how_it_came(
    entries: list[tuple[str, int, str]], random: Random
) -> None:
    def made(order: list[tuple[str, int, str]]) -> Replica:
        replica = Replica()
        for topic, time, node in order:
            replica.put(topic, Entry(Stamp(time, node), time % 2 == 0), NOW)  # one stamp is one thing
        return replica

    one, other = made(entries), made(random.sample(entries, len(entries)))
    assert one.branches() == other.branches() and contents(one) == contents(other)
    for topic in TOPICS:
        one.drop(topic)
    assert one.branches() == Replica().branches() and len(one) == 0


def test_a_branch_tells_leaves_apart() -> None:
    """Two leaves of a branch with each other's fingerprints do not look the same."""
    assert _mixed(0, 7) ^ _mixed(1, 9) != _mixed(0, 9) ^ _mixed(1, 7)


def test_deletions_are_bounded_and_end() -> None:
    replica = Replica(max_tombstones=3)
    for number in range(5):
        replica.put(f"t/{number}", deleted(number + 1), NOW + number)
    assert len(replica) == 3 and not replica.get("t/0").stamp.time
    replica.put("t/2", written(9), NOW)
    replica.collect(NOW + 4 + TOMBSTONE_LIFE)
    assert list(contents(replica)) == ["t/2"], "a topic that is written again is none"


# ---- two replicas --------------------------------------------------------------------------------------------------

changes = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(TOPICS), st.integers(0, 5), st.booleans()), max_size=30)


@settings(deadline=None, max_examples=60)
@given(changes, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5))
def test_nodes_agree_whatever_they_missed(
    written_at: list[tuple[int, str, int, bool]], meanwhile: list[tuple[int, int]]
) -> None:
    """Writes at three nodes with clocks that differ, some of them seen by others; then each pair talks once round."""
    nodes = [(HybridClock(name), Replica()) for name in "abc"]
    last: dict[str, Entry] = {}
    for index, topic, wall, is_deleted in written_at:
        clock, replica = nodes[index]
        entry = Entry(clock.stamp(wall * (index + 1), replica.get(topic).stamp), is_deleted)
        replica.put(topic, entry, NOW)
        if topic not in last or entry.stamp > last[topic].stamp:
            last[topic] = entry
    for one, other in [*meanwhile, (0, 1), (1, 2), (0, 1), (0, 2)]:
        if one != other:
            agree(nodes[one][1], nodes[other][1])
    for _, replica in nodes:
        assert contents(replica) == last
        assert replica.branches() == nodes[0][1].branches()


def test_few_messages_find_few_differences_among_many_topics() -> None:
    one, other = Replica(), Replica()
    for number in range(20_000):
        for replica in (one, other):
            replica.put(f"plant/{number}", written(number + 1), NOW)
    assert agree(one, other) == 1, "nothing differs, and one message tells"
    other.put("plant/7", written(50_000, "b"), NOW)
    one.put("plant/8", deleted(60_000, "a"), NOW)
    assert agree(one, other) <= 9
    assert one.branches() == other.branches() and one.get("plant/7") == written(50_000, "b")


def test_a_new_node_gets_everything_round_by_round() -> None:
    full, new = Replica(), Replica()
    for number in range(5_000):
        full.put(f"t/{number}", written(number + 1), NOW)
    rounds = 0
    while full.branches() != new.branches():
        agree(new, full)
        rounds += 1
    assert 1 < rounds <= BRANCHES // reconciling.MOST + 1 and len(new) == 5_000


def test_a_leaf_with_very_many_topics_is_told_of_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "MOST_ENTRIES", 4)
    leaf = leaf_of("t/0")
    topics = [topic for topic in (f"t/{number}" for number in range(1_000_000)) if leaf_of(topic) == leaf][:11]
    topics.sort()
    one, other = Replica(), Replica()
    for time, topic in enumerate(topics):
        one.put(topic, written(time + 1), NOW)
    for topic in topics[3::4]:
        other.put(topic, written(100, "b"), NOW)
    other.put(topics[5], deleted(200, "b"), NOW)
    agree(one, other)
    assert one.branches() == other.branches() and len(one) == len(topics) == 11


@pytest.mark.parametrize(
    "said",
    [
        Branches((1,)),
        Leaves(BRANCHES, (0,) * IN_BRANCH),
        Leaves(0, (0,)),
        Entries(65536, "", "", ()),
        Entries((leaf_of("t") + 1) % 65536, "", "", (("t", written(1)),)),
    ],
)
def test_what_makes_no_sense_is_refused(said: Branches | Leaves | Entries) -> None:
    with pytest.raises(ValueError):
        answer(Replica(), said)


def test_nobody_is_sent_what_is_not_there() -> None:
    assert answer(Replica(), Want(("nothing",))) == []
