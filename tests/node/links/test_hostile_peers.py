"""A peer that is proven and breaks every rule: what it makes this node keep, send and do has bounds."""

from __future__ import annotations

import tracemalloc

import pytest

from headwater.node.links.links import UNREAD
from headwater.peering.exchange import MOST_CHANGED
from headwater.peering.frames import v1
from headwater.peering.frames.frame import (
    MAX_CHANGE,
    MAX_STATE,
    PART,
    Ack,
    Change,
    Frame,
    Have,
    Heartbeat,
    InterestAck,
    MalformedFrame,
    Refuse,
    Resume,
    Spool,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
    Synced,
)
from headwater.peering.methods import names
from headwater.peering.methods.subscribe import SubscribeHearing
from headwater.wire.packets import Suback, Subscribe, SubscribeRequest
from tests.node.links.memory import BOOT, FakePeer, Node, peer_of, publish

MIB = 1 << 20

FEW = 1 << 20


def why(peer: FakePeer) -> str:
    assert peer.is_closed
    assert peer.node.server.stats.failures == 0
    return peer.link.why


def state(data: bytes, origin: str = "x", number: int = 1) -> list[Frame]:
    parts = [StatePart(data[at : at + PART]) for at in range(0, len(data), PART)]
    return [StateBegin(origin, Stamp(BOOT, number), "subscribe", (), len(data)), *parts, StateEnd()]


def added(*filters: bytes) -> bytes:
    return b"".join(b"+" + len(each).to_bytes(2, "big") + each for each in filters)


# ---- interest --------------------------------------------------------------------------------------------------------


def test_empty_parts_of_a_state_are_refused() -> None:
    peer = peer_of(Node("b"))
    peer.send(StateBegin("x", Stamp(BOOT, 1), "subscribe", (), 100), StatePart(b""))
    assert why(peer) == "an empty part of a state"


def test_a_state_in_tiny_parts_takes_no_more_than_its_size() -> None:
    node = Node("b")
    peer = peer_of(node)
    peer.send(StateBegin("x", Stamp(BOOT, 1), "subscribe", (), MIB))
    parts = v1.encode(StatePart(b"xy")) * 20_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        peer.say(parts)
        assert tracemalloc.get_traced_memory()[0] - before < 300_000
    finally:
        tracemalloc.stop()


def test_states_are_bounded_before_they_come() -> None:
    peer = peer_of(Node("b"))
    peer.say(v1.encode(StateBegin("x", Stamp(BOOT, 1), "subscribe", (), MAX_STATE)))
    assert peer.is_up
    other = peer_of(peer.node, "y")
    other.say(v1.encode(StateBegin("y", Stamp(BOOT, 1), "subscribe", (), MAX_STATE + 1)))
    assert why(other) == f"a state of {MAX_STATE + 1} bytes"


def test_a_state_names_each_filter_once() -> None:
    peer = peer_of(Node("b"))
    peer.send(*state(b"\x00\x01a\x00\x01a"))
    assert why(peer) == "a filter that is told twice"


def test_a_node_that_wants_too_many_filters_is_taken_to_want_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(names.HEARINGS, "subscribe", lambda: SubscribeHearing(100 * 400))
    node = Node("b")
    peer = peer_of(node)
    peer.send(*state(b""), Synced())
    assert node.links.destinations("nobody") == []
    peer.send(Change("x", Stamp(BOOT, 2), added(*[b"f%d" % number for number in range(1000)])))
    assert peer.is_up
    assert node.links.coordination.method_of("x") == "flood"
    assert node.links.destinations("nobody") != []


def test_filters_that_changed_are_listed_up_to_a_bound() -> None:
    node = Node("b")
    peer = peer_of(node)
    peer.send(*state(b""), Synced())
    with node.broker.one_turn():
        for number in range(3):
            filters = [b"%d/%d" % (number, each) for each in range(MOST_CHANGED // 2)]
            peer.send(Change("x", Stamp(BOOT, number + 2), added(*filters)))
        changed = node.links.coordination._exchange.changed
        assert changed is None or len(changed) <= MOST_CHANGED
    assert len(added(*filters)) < MAX_CHANGE


def test_everything_is_asked_for_once() -> None:
    peer = peer_of(Node("b"))
    peer.send(Have(True, ()))
    assert Synced() in peer.heard()
    peer.send(Have(True, ()))
    assert why(peer) == "asked for everything twice"


def test_who_asks_again_and_again_gets_one_answer_a_turn() -> None:
    node = Node("b")
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest("f" * 1000, 0)]))
    peer = peer_of(node)
    peer.send(Have(True, ()))
    peer.heard()
    peer.say(v1.encode(Have(False, (("b", Stamp(0, 0)),))) * 1000)
    states = [frame for frame in peer.heard() if isinstance(frame, StateBegin)]
    assert len(states) == 1
    peer.send(Have(False, (("b", Stamp(0, 0)),)))
    assert any(isinstance(frame, StateBegin) for frame in peer.heard()), "in another turn it is answered again"


@pytest.mark.parametrize(
    "frame",
    [
        InterestAck("b", Stamp(BOOT, 1 << 60)),
        StateEnd(),
        StatePart(b"x"),
        StateBegin("x", Stamp(BOOT, 1), "telepathy", (), 0),
    ],
)
def test_interest_that_makes_no_sense(frame: InterestAck | StateEnd | StatePart | StateBegin) -> None:
    peer = peer_of(Node("b"))
    peer.send(frame)
    why(peer)


def test_a_node_cannot_tell_what_we_want_ourselves() -> None:
    node = Node("b")
    peer = peer_of(node)
    before = node.links.coordination._exchange.own.stamp
    peer.send(*state(b"\x00\x01a", origin="b", number=99))
    assert node.links.coordination._exchange.own.stamp == before


def test_in_a_mesh_nobody_tells_what_others_want() -> None:
    node = Node("b")
    peer = peer_of(node)
    for number in range(3000):
        peer.send(Change(f"n{number}", Stamp(BOOT, 1), added(b"a")))
    assert set(node.links.coordination._exchange.streams) <= {"b", "x"}


def test_another_life_with_the_same_boot_is_told_anew() -> None:
    """A node without a data folder that starts twice in a second: others have later steps of the former life."""
    node = Node("b")
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    peer = peer_of(node)
    peer.send(Have(True, (("b", Stamp(BOOT, 50)),)))
    told = [frame for frame in peer.heard() if isinstance(frame, StateBegin)]
    assert [frame.stamp > Stamp(BOOT, 50) for frame in told] == [True]


# ---- spools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [Ack(1), Ack(1 << 60), Resume(0, 0), Resume(1 << 63, 5)])
def test_acknowledgements_of_what_was_never_sent(frame: Ack | Resume) -> None:
    peer = peer_of(Node("b"))
    peer.send(frame)
    why(peer)


def test_a_peer_that_never_acknowledges_pauses_publishers_at_the_bound() -> None:
    node = Node("b", max_spool=MIB, method="flood")
    peer = peer_of(node)
    client = node.client("p")
    for _ in range(8):
        publish(client, "t", bytes(1 << 18), 1)
        peer.heard()
    assert client.channel.paused
    assert node.links.spooling.ends["x"].spool.bytes <= 1.25 * MIB + (1 << 18)


# ---- not reading -----------------------------------------------------------------------------------------------------


def test_a_peer_that_asks_and_never_reads_is_cut_off() -> None:
    node = Node("b")
    peer = peer_of(node)
    assert node.links.max_unread == UNREAD
    node.links.max_unread = FEW
    peer.send(Spool(1, 1))
    peer.end.room = 0
    asked = v1.encode(Spool(1, 1)) * 3000
    for _ in range(FEW // (21 * 3000) + 10):
        peer.say(asked)
        if peer.is_closed:
            break
    assert why(peer) == f"more than {FEW} bytes of answers are not read"
    assert node.server.budget.used == 0


def test_a_peer_that_reads_may_ask_as_much_as_it_likes() -> None:
    node = Node("b")
    peer = peer_of(node)
    node.links.max_unread = FEW
    asked = v1.encode(Spool(1, 1)) * 3000
    for _ in range(FEW // (21 * 3000) + 10):
        peer.say(asked)
    assert peer.is_up


def test_subscribers_wait_no_longer_than_they_may_for_a_peer_that_says_nothing() -> None:
    node = Node("b")
    peer = peer_of(node)
    peer.send(Have(True, ()))
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    assert client.packets() == []
    node.broker.later(0.21)
    assert client.packets() == [Suback(1, [0])]
    assert not isinstance(peer.heard()[-1], Refuse)


def test_half_a_frame_is_kept_and_no_more_than_came() -> None:
    node = Node("b")
    peer = peer_of(node)
    peer.say(b"\x01" + (200 << 20).to_bytes(4, "big") + bytes(1000))
    assert peer.link.reader.kept == 1005
    with pytest.raises(MalformedFrame):
        v1.largest_body(99, 0)
    peer.send(Heartbeat(1, 0, 0))  # bytes of the same frame
    assert peer.link.reader.kept > 1005
