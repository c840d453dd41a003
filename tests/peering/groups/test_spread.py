"""Which node is chosen, by what nodes have told and by what was sent since."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.peering.groups.notes import GroupState, Slot
from headwater.peering.groups.spread import Spread


def state(
    *starts: float, service: float = 0.025, credit: int = 1000, online: int | None = None, capacity: float = 1.0
) -> GroupState:
    slots = [Slot(start, service, 1) for start in starts]
    members = len(slots) if online is None else online
    return GroupState(members, members, credit, float(members), capacity, slots)


def spread(dispatcher: str = "adaptive", **nodes: GroupState) -> Spread:
    found = Spread("$share/g/t", dispatcher, "own", seed=1)
    for node, each in nodes.items():
        if node == "own":
            found.own_told(each, 0.0)
        else:
            found.told(node, each, 0, 0.0)
    return found


def chosen(of: Spread, now: float = 0.0, topic: str = "t", publisher: str = "p", own: bool = True) -> str:
    node = of.choose(topic, publisher, now, own)
    return "" if node is None else node.node


def test_who_can_start_first_is_chosen_and_is_later_from_then_on() -> None:
    found = spread(own=state(0.01), b=state(0.005, service=0.002), c=state(0.02))
    assert [chosen(found) for _ in range(5)] == ["b", "b", "b", "own", "b"]


def test_of_free_ones_who_has_been_free_for_longest() -> None:
    found = spread(own=state(-1.0), b=state(-3.0), c=state(-2.0))
    assert [chosen(found) for _ in range(3)] == ["b", "c", "own"]


def test_a_node_with_two_members_gets_two() -> None:
    found = spread(own=state(), b=state(0.0, 0.0), c=state(0.0))
    assert Counter(chosen(found) for _ in range(3)) == {"b": 2, "c": 1}


def test_what_is_on_its_way_is_added_to_what_was_told() -> None:
    found = spread(own=state(), b=state(0.0), c=state(0.04))
    assert chosen(found, own=False) == "b"
    found.told("b", state(0.0), 0, 0.0)  # which it had not got when it told
    assert [chosen(found, own=False) for _ in range(2)] == ["b", "c"]
    found.told("b", state(0.0), 2, 0.01)
    assert chosen(found, 0.01, own=False) == "b"


def test_very_many_on_their_way() -> None:
    found = spread(own=state(), b=state(0.0, credit=10_000, service=0.001))
    for _ in range(1000):
        chosen(found)
    found.told("b", state(0.0, credit=10_000, service=0.001), 0, 0.0)
    assert found.nodes["b"].starts == [pytest.approx(1.0)]


def test_what_came_from_an_earlier_link_is_not_on_its_way() -> None:
    found = spread(own=state(), b=state(0.0, credit=2))
    found.told("b", state(0.0, credit=2), 7, 0.0)
    assert [chosen(found, own=False) for _ in range(3)] == ["b", "b", ""]


def test_numbers_that_wrap_around() -> None:
    found = spread(own=state(), b=state(0.0, credit=2))
    node = found.nodes["b"]
    node.sent = node.taken = (1 << 32) - 1
    assert chosen(found) == "b"
    found.told("b", state(0.0, credit=2), 0, 0.0)
    assert node.sent == node.taken == 1 << 32


@pytest.mark.parametrize("dispatcher", ["adaptive", "round_robin", "random", "capacity", "least_pending"])
def test_without_credit_nobody_is_chosen(dispatcher: str) -> None:
    found = spread(dispatcher, own=state(0.0), b=state(0.0, credit=1), c=state(0.0, credit=0))
    assert chosen(found, own=False) == "b"
    assert chosen(found, own=False) == ""
    assert chosen(found) == "own"


def test_the_same_model_as_time_goes() -> None:
    """What this node tells itself again without anything having happened changes nothing."""
    found = spread(own=state(0.05), b=state(0.06))
    found.own_told(state(0.03), 0.02)
    assert found.own.starts == [pytest.approx(0.05)]


def test_turns_by_members_and_weights() -> None:
    found = spread("round_robin", own=state(0.0), b=state(0.0, 0.0, 0.0))
    assert Counter(chosen(found) for _ in range(40)) == {"b": 30, "own": 10}
    heavy = state(0.0)._replace(weight=3.0)
    found = spread("weighted_round_robin", own=state(0.0), b=heavy)
    assert Counter(chosen(found) for _ in range(40)) == {"b": 30, "own": 10}


def test_who_had_no_room_is_not_owed_what_it_missed() -> None:
    found = spread("round_robin", own=state(0.0), b=state(0.0, credit=0))
    for _ in range(100):
        assert chosen(found) == "own"
    found.told("b", state(0.0), 0, 0.0)
    assert Counter(chosen(found) for _ in range(10)) == {"b": 5, "own": 5}


def test_capacity_is_a_probability_and_shrinks() -> None:
    """Broker k gets BR_k / Σ t_i, as in TELFOR 2020."""
    counts: Counter[str] = Counter()
    found = spread("capacity", own=state(0.0), b=state(0.0), c=state(0.0))
    for _ in range(3000):
        for node, capacity in (("b", 60.0), ("c", 30.0)):
            found.told(node, state(0.0, capacity=capacity, credit=1 << 20), found.nodes[node].sent, 0.0)
        found.own_told(state(0.0, capacity=10.0), 0.0)
        counts[chosen(found)] += 1
    assert abs(counts["b"] - 1800) < 150 and abs(counts["c"] - 900) < 150 and abs(counts["own"] - 300) < 100
    found.told("b", state(0.0, capacity=2.0), 0, 0.0)
    before = found.nodes["b"].capacity
    while chosen(found) != "b":
        pass
    assert found.nodes["b"].capacity == before - 1.0


def test_every_origin_finds_the_same_node_for_a_key() -> None:
    nodes = {"a": state(0.0), "b": state(0.0, 0.0), "c": state(0.0)}
    origins = []
    for own in nodes:
        origin = Spread("$share/g/t", "hash_topic", own)
        for node, each in nodes.items():
            if node == own:
                origin.own_told(each, 0.0)
            else:
                origin.told(node, each, 0, 0.0)
        origins.append(origin)
    counts: Counter[str] = Counter()
    for topic in map(str, range(400)):
        [node] = {chosen(origin, topic=topic) for origin in origins}
        counts[node] += 1
    assert abs(counts["b"] - 200) < 50 and abs(counts["a"] - 100) < 40
    before = {topic: chosen(origins[0], topic=topic) for topic in map(str, range(400))}
    origins[0].cut("c")
    after = {topic: chosen(origins[0], topic=topic) for topic in before}
    assert all(after[topic] == node for topic, node in before.items() if node != "c")
    assert "c" not in after.values()


def test_by_key_a_message_does_not_look_for_room() -> None:
    found = spread("sticky", own=state(), b=state(0.0, credit=0))
    assert [chosen(found, own=False) for _ in range(3)] == ["b"] * 3
    found.cut("b")
    assert chosen(found, own=False) == ""
    assert found.any_elsewhere and not found.any_online_elsewhere
    found.gone("b")
    assert not found.any_elsewhere


def test_several_at_once_are_few_enough_and_count() -> None:
    found = spread(own=state(0.0, service=0.0), b=state(0.0, service=0.0, credit=30))
    node = found.nodes["b"]
    node.sent = 1
    assert found.also(node, 1000, 0.0) == 29
    assert found.also(node, 1000, 0.0) == 0
    slow = spread(own=state(0.0), b=state(0.0))
    assert slow.also(slow.nodes["b"], 1000, 0.0) == 0
