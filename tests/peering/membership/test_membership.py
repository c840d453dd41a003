"""What a node makes of single messages: states, leaving, forgetting, ids, and what a hostile member can do."""

from __future__ import annotations

from random import Random

import pytest

from headwater.peering.membership import bounds
from headwater.peering.membership.membership import MAX_FORGETS, Membership, Outgoing
from headwater.peering.membership.messages import (
    Entry,
    GossipMessage,
    Kind,
    MalformedGossip,
    NodeDelta,
    NodeDigest,
    encode,
    parse,
)
from headwater.peering.membership.phi import LONGEST_SILENCE
from headwater.peering.membership.roster import Change, State, Timing

TIMING = Timing(forget_after=100.0, tombstone_life=20.0)


def node(name: str = "me", generation: int = 1) -> Membership:
    return Membership("lab", name, generation, f"{name}:1", Random(1), TIMING)


def about(name: str, heartbeat: int = 1, progress: int | None = None, generation: int = 1) -> NodeDigest:
    return NodeDigest(name, generation, heartbeat, heartbeat if progress is None else progress, 0, 0)


def say(to: Membership, now: float, *news: NodeDigest, sender: str = "s", generation: int = 1) -> GossipMessage:
    answer = to.receive(encode(GossipMessage(Kind.SYN, "lab", sender, generation, tuple(sorted(news)))), now)
    assert answer is not None
    return parse(answer)


def tell(to: Membership, now: float, *deltas: NodeDelta, sender: str = "s") -> None:
    assert to.receive(encode(GossipMessage(Kind.ACK, "lab", sender, 1, (), deltas)), now) is None


def run(to: Membership, start: float, ticks: int) -> list[Outgoing]:
    """So many seconds, in each of which a tick comes, and nothing else; what was sent last."""
    sends: list[Outgoing] = []
    for number in range(ticks):
        sends = to.tick(start + number, int(start) + number)
    return sends


def talk(one: Membership, other: Membership, now: float) -> None:
    """One full round."""
    data: bytes | None = encode(one._message(Kind.SYN, one._digest(now), ()))
    to, sender = other, one
    while data is not None:
        data = to.receive(data, now)
        to, sender = sender, to


def meet(*nodes: Membership, now: float = 0.0) -> None:
    for one in nodes:
        one.tick(now, 1)
    for one in nodes:
        for other in nodes:
            if one is not other:
                talk(one, other, now)


def test_two_nodes_exchange_their_maps() -> None:
    one, other = node("one"), node("other")
    one.set("rack", b"7")
    meet(one, other)
    assert one.live() == ["other"]
    view = other.view(0.0)
    assert [(each.node, each.state, each.address) for each in view] == [
        ("one", State.LIVE, "one:1"),
        ("other", State.LIVE, "other:1"),
    ]
    assert view[0].values == {"address": b"one:1", "rack": b"7"}
    assert one.take_changes() == [Change("other", None, State.LIVE, "joined")]
    assert one.take_changes() == []
    one.delete("rack", 1.0)
    one.move("elsewhere:1")
    talk(one, other, 1.0)
    assert other.view(1.0)[0].values == {"address": b"elsewhere:1"}
    for key in ("left", "address", "forget.x"):
        with pytest.raises(ValueError, match="reserved"):
            one.set(key, b"")


def test_what_others_say_makes_suspected_until_there_is_progress() -> None:
    me = node()
    say(me, 0.0, about("s"), about("x", 5))
    assert me.live() == ["s"]
    assert me.state_of("x") == State.SUSPECTED
    say(me, 1.0, about("x", 5))
    assert me.state_of("x") == State.SUSPECTED
    say(me, 2.0, about("x", 6))
    assert me.state_of("x") == State.LIVE


def test_silence_is_suspected_then_dead_then_forgotten() -> None:
    me = node()
    say(me, 0.0, about("s"))
    me.take_changes()
    run(me, 0.0, 140)
    assert me.take_changes() == [
        Change("s", State.LIVE, State.SUSPECTED, "silent"),
        Change("s", State.SUSPECTED, State.DEAD, "silent"),
        Change("s", State.DEAD, None, "forgotten"),
    ]
    assert me.state_of("s") is None


def test_whatever_the_rhythm_was_silence_has_a_bound() -> None:
    me = node()
    for number in range(100):
        run(me, 14.0 * number, 14)
        say(me, 14.0 * number, about("s", number + 1))
    assert me.live() == ["s"]
    last = 14 * 99
    run(me, last + 14, round(LONGEST_SILENCE + TIMING.dead_after) - 13 + 1)
    assert me.state_of("s") == State.DEAD


def test_a_node_whose_data_plane_stands_still_is_suspected_though_it_answers() -> None:
    me = node()
    for now in range(30):
        me.tick(now, now)
        say(me, now, about("s", 10 + now, progress=10))
    assert me.state_of("s") == State.DEAD
    assert Change("s", State.LIVE, State.SUSPECTED, "stalled") in me.take_changes()
    for now in range(30, 200):
        me.tick(now, now)
        say(me, now, about("s", 10 + now, progress=10))
    assert me.state_of("s") == State.DEAD
    assert me.take_changes() == [], "one that still speaks is not forgotten"
    say(me, 201.0, about("s", 300, progress=299))
    assert me.state_of("s") == State.LIVE
    say(me, 201.0, about("t", 300, progress=200), sender="t")
    assert me.state_of("t") == State.SUSPECTED, "its data plane has stood still for long"


def test_our_own_progress_is_told() -> None:
    me = node()
    for now, data_plane in ((0, 5), (1, 6), (2, 6), (3, 6)):
        me.tick(now, data_plane)
    [own] = say(me, 4.0).digest
    assert (own.heartbeat, own.progress) == (4, 2)


def test_time_in_which_we_did_not_run_counts_against_nobody() -> None:
    me = node()
    me.tick(0.0, 1)
    say(me, 0.0, about("s"))
    me.tick(1.0, 2)
    me.tick(301.0, 3)
    assert me.live() == ["s"]
    assert me.patience == 2


def test_an_excuse_does_not_reach_beyond_now() -> None:
    """Ticks were late, but messages were read."""
    me = node()
    me.tick(0.0, 1)
    say(me, 0.0, about("s"))
    say(me, 50.0, about("s", 2))
    me.tick(51.0, 2)
    assert me._roster.members["s"].last_progress == 51.0
    run(me, 52.0, 40)
    assert me.state_of("s") == State.DEAD


def test_a_restarted_node_replaces_its_former_self() -> None:
    one, me = node("one"), node()
    one.set("old", b"1")
    meet(one, me)
    again = Membership("lab", "one", 2, "moved:1", Random(1), TIMING)
    again.tick(5.0, 1)
    talk(again, me, 5.0)
    [view, _] = sorted(me.view(5.0), key=lambda each: each.node != "one")
    assert (view.state, view.generation, view.values) == (State.LIVE, 2, {"address": b"moved:1"})
    say(me, 6.0, about("one", 900))
    assert next(each.generation for each in me.view(6.0) if each.node == "one") == 2


def test_a_dead_node_that_others_speak_of_is_not_live() -> None:
    me = node()
    say(me, 0.0, about("s"), about("x", 5))
    say(me, 1.0, about("x", 6))
    run(me, 0.0, 30)
    assert me.state_of("x") == State.DEAD
    say(me, 31.0, about("x", 50))
    assert me.state_of("x") == State.SUSPECTED
    run(me, 31.0, 20)
    assert me.state_of("x") == State.DEAD


def test_a_node_that_leaves_is_left_everywhere_and_not_suspected() -> None:
    one, two, three = node("one"), node("two"), node("three")
    meet(one, two, three)
    meet(one, two, three, now=1.0)
    farewell = one.leave()
    assert sorted((each.node, each.address) for each in farewell) == [("three", "three:1"), ("two", "two:1")]
    assert one.tick(2.0, 9) == []
    two.receive(farewell[0].data, 2.0)
    assert two.state_of("one") == State.LEFT
    talk(two, three, 2.0)
    assert three.state_of("one") == State.LEFT
    say(two, 2.5, about("one", 8), sender="one")
    assert two.state_of("one") == State.LEFT, "its gossip may go on for a moment"
    sends = [each for now in range(3, 33) for each in two.tick(now, now)]
    assert {each.node for each in sends} == {"three"}, "nobody calls one that left"
    assert two.state_of("one") == State.LEFT
    run(two, 33.0, 80)
    assert two.state_of("one") is None
    say(one, 20.0, about("one", 1, generation=2))
    assert one.generation == 1, "it does not outrank its successor"
    back = node("one", generation=2)
    meet(back, three, now=20.0)
    assert three.state_of("one") == State.LIVE


def test_forgotten_nodes_do_not_come_back_by_old_news() -> None:
    me = node()
    say(me, 0.0, about("s", 50))
    run(me, 0.0, 140)
    assert me.state_of("s") is None
    say(me, 141.0, about("s", 50), sender="t")
    assert me.state_of("s") is None
    assert "s" not in {each.node for each in say(me, 141.0, sender="t").digest}
    say(me, 142.0, about("s", 51))
    assert me.state_of("s") == State.LIVE, "it lives: its heartbeat is later than that of its grave"


def test_a_dead_node_is_not_gossiped_of_for_long() -> None:
    me = node()
    say(me, 0.0, about("s", 50))
    run(me, 0.0, 30)
    assert {each.node for each in say(me, 30.0).digest} == {"me", "s"}
    run(me, 30.0, 60)
    assert me.state_of("s") == State.DEAD
    assert {each.node for each in say(me, 90.0).digest} == {"me"}


def test_forget_is_followed_by_all_that_hold_it_for_dead() -> None:
    one, two = node("one"), node("two")
    meet(one, two)
    say(one, 0.0, about("x", 7), sender="x")
    with pytest.raises(ValueError, match="x is live"):
        one.forget("x", 0.0)
    with pytest.raises(ValueError, match="not known"):
        one.forget("y", 0.0)
    say(two, 0.0, about("x", 9), sender="x")
    for now in range(1, 30):
        one.tick(now, now)
        two.tick(now, now)
        talk(one, two, now)
    one.forget("x", 30.0)
    assert one.state_of("x") is None
    talk(one, two, 30.0)
    one.tick(31.0, 31)
    two.tick(31.0, 31)
    assert two.state_of("x") is None
    say(two, 32.0, about("x", 900), sender="t")
    assert two.state_of("x") is None
    say(two, 33.0, about("x", 1, generation=2), sender="x", generation=2)
    assert two.state_of("x") == State.LIVE
    for now in range(34, 140):
        one.tick(now, now)
    assert "forget.x" not in one.view(140.0)[0].values


def test_forget_does_not_harm_a_live_node_and_one_that_hears_of_it_is_back() -> None:
    one, x = node("one"), node("x")
    meet(one, x)
    wanted = NodeDelta("s", 1, 0, 1, 0, (Entry(1, "forget.x", b"1"),))
    say(one, 0.0, about("s"))
    tell(one, 0.0, wanted)
    one.tick(1.0, 2)
    assert one.state_of("x") == State.LIVE
    say(x, 0.0, about("s"))
    tell(x, 0.0, wanted)
    assert x.generation == 2


def test_requests_to_forget_are_bounded() -> None:
    me = node()
    for number in range(MAX_FORGETS + 5):
        say(me, 0.0, about(f"x{number}"))
    run(me, 0.0, 40)
    for number in range(MAX_FORGETS + 5):
        me.forget(f"x{number}", 40.0)
    asked = [key for key in me.view(40.0)[0].values if key.startswith("forget.")]
    assert len(asked) == MAX_FORGETS
    assert f"forget.x{MAX_FORGETS + 4}" in asked


def test_a_node_that_is_outranked_takes_a_higher_generation() -> None:
    me = node()
    me.set("k", b"1")
    say(me, 0.0, about("me", 3, generation=8))
    assert me.generation == 9
    assert me.view(0.0)[0].values == {"address": b"me:1", "k": b"1"}
    say(me, 0.0, about("me", 30, generation=9))
    assert me.generation == 10
    assert not me.id_taken
    for _ in range(bounds.MAX_REFUTATIONS):
        say(me, 0.0, about("me", 3, generation=me.generation + 1))
    assert me.id_taken
    assert me.generation == 10 + 2 * (bounds.MAX_REFUTATIONS - 2)


def test_nothing_is_above_the_highest_generation() -> None:
    me = node()
    say(me, 0.0, about("me", 3, generation=bounds.MAX_NUMBER))
    assert me.id_taken


def test_a_node_may_find_itself_among_the_seeds() -> None:
    me = node()
    me.seek(["me:1", "alias:1"])
    [send] = me.tick(0.0, 1)
    assert (send.node, send.address) == (None, "alias:1")
    assert me.receive(send.data, 0.0) is None
    assert me.live() == []


def test_messages_of_others_are_refused() -> None:
    me = node()
    with pytest.raises(MalformedGossip, match="cluster other"):
        me.receive(encode(GossipMessage(Kind.SYN, "other", "s", 1)), 0.0)
    with pytest.raises(MalformedGossip, match="sender"):
        me.receive(encode(GossipMessage(Kind.SYN, "lab", "s", 1)), 0.0, sender="t")
    with pytest.raises(ValueError, match="malformed"):
        node("a b")


def test_nodes_are_bounded_and_the_longest_dead_gives_way() -> None:
    me = node()
    say(me, 0.0, about("first"), about("second"))
    run(me, 0.0, 30)
    assert me.state_of("first") == State.DEAD
    for number in range(400):
        say(me, 30.0, about(f"x{number:03}"))
    assert len(me.view(30.0)) == bounds.MAX_NODES
    assert me.state_of("first") is None
    assert me.state_of("second") is None
    assert me.refused == 400 - (bounds.MAX_NODES - 1)
    assert me.state_of("x000") == State.SUSPECTED


def test_what_a_hostile_member_makes_us_keep_is_bounded() -> None:
    """It invents nodes and fills their maps, for days."""
    me, rng = node(), Random(7)
    me.tick(0.0, 0)
    for day in range(3):
        now = 300.0 * day
        names = [f"{day}-{number:03}" for number in range(256)]
        say(me, now, *map(about, names))
        for name in names:
            entries = [Entry(n + 1, f"k{n}", rng.randbytes(1000)) for n in range(20)]
            tell(me, now, NodeDelta(name, 1, 0, 15, 0, tuple(entries[:15])))
            tell(me, now, NodeDelta(name, 1, 15, 20, 0, tuple(entries[15:])))
        run(me, now, 150)
        members = me._roster.members.values()
        assert sum(each.replica.size() for each in members) <= bounds.MAX_TOTAL_BYTES
        assert len(members) < bounds.MAX_NODES
        assert len(me._roster.graves) <= bounds.MAX_GRAVES
        assert len(me._health._answered) + len(me._health._asked) <= bounds.MAX_NODES
    assert bounds.MAX_TOTAL_BYTES == 4 * 1024 * 1024


def test_graves_are_bounded_in_number_and_time() -> None:
    me = node()
    for start in range(0, 2000, 200):
        for number in range(200):
            say(me, 0.0, about(f"{start + number}"))
        for each in list(me._roster.members):
            me._roster.bury(each, 1, 5.0)
    assert len(me._roster.graves) == bounds.MAX_GRAVES
    assert "1999" in me._roster.graves
    me.tick(5.0 + TIMING.forget_after, 1)
    assert me._roster.graves == {}


def test_a_delta_is_bounded_and_the_rest_follows() -> None:
    me, others = node(), [node(f"n{number}") for number in range(5)]
    for other in others:
        for number in range(6):
            other.set(f"k{number}", b"x" * 1000)
    meet(me, *others)
    late = node("late")
    late.tick(0.0, 1)
    rounds = 0
    while sum(len(each.values) == 7 for each in late.view(0.0)) < len(others):
        data = encode(say(me, 0.0, *late._digest(0.0), sender="late"))
        assert len(data) <= bounds.DELTA_BYTES + 300
        late.receive(data, 0.0)
        rounds += 1
    # 30 values of 1000 bytes, four to a message.
    assert rounds == 8
