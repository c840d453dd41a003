"""What one node knows of the others: whom to send to, whom to wait for, and what a broken peer cannot do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.coordination import Coordination
from headwater.peering.frames.frame import (
    MAX_STREAMS,
    Change,
    Have,
    InterestAck,
    InterestFrame,
    MalformedFrame,
    Neighbours,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
    Synced,
)
from headwater.peering.graph import behind
from headwater.peering.methods.names import HEARINGS, NAMES
from headwater.peering.methods.subscribe import SubscribeHearing
from headwater.routing.feed import FILTER_ADDED, FILTER_REMOVED, RouteChange

every_method = pytest.mark.parametrize("method", NAMES)


class Cluster:
    """Nodes whose frames arrive at once, in order, unless they are held back."""

    def __init__(self, method: str, edges: list[tuple[str, str]], *, relays: bool = False) -> None:
        names = sorted({node for edge in edges for node in edge})
        self.nodes = {name: Coordination(name, 1, method, relays=relays) for name in names}
        self.released: list[object] = []
        self.frames: list[tuple[str, str, InterestFrame]] = []
        self.held: list[tuple[str, str, InterestFrame]] = []
        self.holds: set[str] = set()
        """Nodes that nothing reaches."""
        self.changed: dict[str, list[str] | None] = {}
        for one, two in edges:
            self.link(one, two, True)

    def link(self, one: str, two: str, is_up: bool) -> None:
        self.nodes[one].link(two, is_up, 0.0)
        self.nodes[two].link(one, is_up, 0.0)
        self.run()

    def want(self, node: str, filter: str, kind: str = FILTER_ADDED) -> None:
        self.nodes[node].route_changed(RouteChange(kind, filter, None, 0), 0.0)
        self.run()

    def run(self, now: float = 0.0) -> None:
        while True:
            sends = []
            for name, node in self.nodes.items():
                work = node.tick(now)
                sends += [(name, peer, frame) for peer, frame in work.sends]
                self.released += work.released
                self.changed[name] = work.changed
            if not sends:
                return
            self.frames += sends
            for name, peer, frame in sends:
                if peer in self.holds:
                    self.held.append((name, peer, frame))
                else:
                    self.nodes[peer].received(name, frame, now)

    def let_go(self) -> None:
        self.holds.clear()
        held, self.held = self.held, []
        for name, peer, frame in held:
            self.nodes[peer].received(name, frame, 0.0)
        self.run()

    def links(self, topic: str) -> dict[str, tuple[str, ...]]:
        return {name: node.links(topic) for name, node in self.nodes.items()}


MESH = [("a", "b"), ("a", "c"), ("b", "c")]
LINE = [("a", "b"), ("b", "c"), ("c", "d")]
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]


def test_in_a_full_mesh_a_message_goes_to_the_node_that_wants_it() -> None:
    for method in ("subscribe", "bloom"):
        cluster = Cluster(method, MESH)
        assert cluster.links("x/y") == {"a": (), "b": (), "c": ()}
        cluster.want("c", "x/+")
        assert cluster.links("x/y") == {"a": ("c",), "b": ("c",), "c": ()}
        assert cluster.links("z") == {"a": (), "b": (), "c": ()}


def test_flood_sends_everything_to_all() -> None:
    assert Cluster("flood", MESH).links("x") == {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")}


def test_in_a_line_a_message_goes_only_where_it_is_wanted() -> None:
    for method in ("subscribe", "bloom"):
        cluster = Cluster(method, LINE, relays=True)
        cluster.want("d", "x/+")
        assert cluster.links("x/y") == {"a": ("b",), "b": ("c",), "c": ("d",), "d": ()}
        cluster.want("a", "x/y")
        assert cluster.links("x/y") == {"a": ("b",), "b": ("a", "c"), "c": ("b", "d"), "d": ("c",)}


def test_in_a_ring_it_goes_both_ways_round() -> None:
    cluster = Cluster("subscribe", RING, relays=True)
    cluster.want("c", "x")
    assert cluster.links("x")["a"] == ("b", "d")


@every_method
@pytest.mark.parametrize(("edges", "relays"), [(MESH, False), (LINE, True), (RING, True)])
def test_a_cluster_with_nothing_to_do_is_quiet(method: str, edges: list[tuple[str, str]], relays: bool) -> None:
    cluster = Cluster(method, edges, relays=relays)
    cluster.want("a", "x")
    before = len(cluster.frames)
    for second in range(20):
        cluster.run(float(second))
    assert len(cluster.frames) == before


@every_method
def test_a_suback_waits_for_all_who_are_linked(method: str) -> None:
    cluster = Cluster(method, MESH)
    cluster.holds = {"c"}
    cluster.nodes["a"].route_changed(RouteChange(FILTER_ADDED, "x", None, 0), 0.0)
    cluster.nodes["a"].hold("suback")
    cluster.run()
    assert cluster.released == (["suback"] if method == "flood" else [])
    cluster.let_go()
    assert cluster.released == ["suback"]
    assert "a" in cluster.nodes["c"].links("x")


def test_a_suback_waits_for_nodes_behind_relays() -> None:
    cluster = Cluster("subscribe", LINE, relays=True)
    cluster.holds = {"d"}
    cluster.nodes["a"].route_changed(RouteChange(FILTER_ADDED, "x", None, 0), 0.0)
    cluster.nodes["a"].hold("suback")
    cluster.run()
    assert cluster.released == []
    cluster.let_go()
    assert cluster.released == ["suback"]


def test_a_second_subscriber_of_the_same_filter_waits_as_well() -> None:
    cluster = Cluster("subscribe", MESH)
    cluster.holds = {"c"}
    cluster.want("a", "x")
    cluster.nodes["a"].hold("second")
    cluster.run()
    assert cluster.released == []
    cluster.let_go()
    assert cluster.released == ["second"]


def test_a_suback_waits_no_longer_than_is_said() -> None:
    cluster = Cluster("subscribe", MESH)
    cluster.holds = {"c"}
    cluster.want("a", "x")
    cluster.nodes["a"].hold("suback")
    cluster.run(1.0)
    assert cluster.nodes["a"].next_tick == pytest.approx(1.2)
    cluster.run(1.19)
    assert cluster.released == []
    cluster.run(1.2)
    assert cluster.released == ["suback"]


def test_a_link_that_goes_down_is_not_waited_for() -> None:
    cluster = Cluster("subscribe", MESH)
    cluster.holds = {"c"}
    cluster.want("a", "x")
    cluster.nodes["a"].hold("suback")
    cluster.run()
    cluster.nodes["a"].link("c", False, 0.0)
    cluster.run()
    assert cluster.released == ["suback"]


def test_until_it_is_synced_a_link_may_want_everything() -> None:
    cluster = Cluster("subscribe", MESH)
    cluster.link("a", "c", False)
    assert cluster.links("x")["a"] == (), "what was known is believed while the link is down"
    cluster.holds = {"a"}
    cluster.link("a", "c", True)
    assert cluster.links("x")["a"] == ("c",)
    cluster.let_go()
    assert cluster.links("x")["a"] == ()


def test_members_that_were_never_heard_of_may_want_everything() -> None:
    node = Coordination("a", 2)
    node.join("b")
    assert node.links("x") == ("b",)
    assert not node.is_exact
    node.forget("b")
    assert node.links("x") == ()
    graph = Coordination("a", 2, relays=True)
    graph.join("b")
    graph.join("z", is_neighbour=False)
    assert graph.links("x") == ("b",)


def test_what_was_missed_is_sent_as_changes_and_only_once() -> None:
    for method in ("subscribe", "bloom"):
        cluster = Cluster(method, [("a", "b")])
        cluster.want("a", "x")
        cluster.link("a", "b", False)
        cluster.want("a", "y/#")
        before = len(cluster.frames)
        cluster.link("a", "b", True)
        told = [frame for _, _, frame in cluster.frames[before:] if isinstance(frame, StateBegin | Change)]
        assert len(told) == 1
        assert isinstance(told[0], Change) or method == "bloom", "a small summary grows, and is sent anew"
        assert cluster.links("y/1") == {"a": (), "b": ("a",)}


def test_states_and_changes_are_counted_apart() -> None:
    cluster = Cluster("subscribe", [("a", "b")])
    traffic = cluster.nodes["a"].traffic("b")
    assert traffic is not None
    cluster.want("a", "abc")
    assert (traffic.states, traffic.state_bytes, traffic.changes, traffic.change_bytes) == (1, 0, 1, 6)
    cluster.nodes["a"].use_method("subscribe", ["abc", "d"], 0.0)
    cluster.run()
    assert (traffic.states, traffic.state_bytes, traffic.changes, traffic.change_bytes) == (2, 8, 1, 6)


@given(methods=st.lists(st.sampled_from(NAMES), max_size=4), wanted=st.sampled_from(("x/+", "x/y", "#")))
def test_the_method_can_be_changed_at_any_time(methods: list[str], wanted: str) -> None:
    cluster = Cluster("subscribe", LINE, relays=True)
    cluster.want("d", wanted)
    for method in methods:
        cluster.nodes["d"].use_method(method, [wanted], 0.0)
        cluster.run()
        assert cluster.nodes["d"].method == method
        assert cluster.links("x/y")["a"] == ("b",)
    cluster.want("d", "z")
    assert cluster.links("z")["a"] == ("b",)


def test_news_tell_which_topics_may_go_elsewhere() -> None:
    node = Coordination("a", 1)
    node.link("b", True, 0.0)
    for frame in (StateBegin("b", Stamp(1, 1), "subscribe", (), 0), StateEnd(), Synced()):
        node.received("b", frame, 0.0)
    assert node.tick(0.0).changed is None
    epoch = node.epoch
    node.received("b", Change("b", Stamp(1, 2), b"+\0\1x"), 0.0)
    assert node.has_work
    assert node.tick(0.0).changed == ["x"]
    assert node.epoch == epoch + 1
    assert node.tick(0.0).changed == []
    assert node.epoch == epoch + 1
    assert node.links("x") is node.links("x"), "fan-outs are told apart by identity"
    assert node.is_exact


def test_removed_interest_is_gone() -> None:
    cluster = Cluster("subscribe", RING, relays=True)
    cluster.want("c", "x")
    cluster.want("c", "x", FILTER_REMOVED)
    assert cluster.links("x") == {"a": (), "b": (), "c": (), "d": ()}


def test_a_node_that_started_anew_replaces_what_it_wanted() -> None:
    cluster = Cluster("subscribe", MESH)
    cluster.want("c", "old")
    for peer in ("a", "b"):
        cluster.nodes[peer].link("c", False, 0.0)
    cluster.nodes["c"] = Coordination("c", 2)
    assert cluster.links("old")["a"] == ("c",), "kept while it is away"
    cluster.nodes["c"].route_changed(RouteChange(FILTER_ADDED, "new", None, 0), 0.0)
    cluster.link("a", "c", True)
    cluster.link("b", "c", True)
    assert cluster.links("old") == {"a": (), "b": (), "c": ()}
    assert cluster.links("new") == {"a": ("c",), "b": ("c",), "c": ()}


# ---- broken and hostile peers ------------------------------------------------------------------------------------


def heard(*frames: InterestFrame) -> Coordination:
    """A node with one peer, b, that wants nothing and then sends these."""
    node = Coordination("a", 1)
    node.link("b", True, 0.0)
    for frame in (StateBegin("b", Stamp(1, 1), "subscribe", (), 0), StateEnd(), Synced(), *frames):
        node.received("b", frame, 0.0)
    return node


def test_while_a_state_arrives_its_node_may_want_anything() -> None:
    begin = StateBegin("b", Stamp(1, 2), "subscribe", (), 3)
    assert heard().links("x") == ()
    assert heard(begin).links("x") == ("b",)
    assert heard(begin, StatePart(b"\0\1y"), StateEnd()).links("x") == ()
    assert heard(begin, StatePart(b"\0\1y"), StateEnd()).links("y") == ("b",)


def test_a_gap_is_asked_for_and_means_yes() -> None:
    node = heard(Change("b", Stamp(1, 3), b"+\0\1x"))
    assert node.links("anything") == ("b",)
    assert node.tick(0.0).sends[-1] == ("b", Have(False, (("b", Stamp(1, 1)),)))
    for number in (2, 3):
        node.received("b", Change("b", Stamp(1, number), b"+\0\1x"), 0.0)
    assert node.links("anything") == ()


def test_in_a_full_mesh_nobody_speaks_for_others() -> None:
    node = heard(
        StateBegin("c", Stamp(9, 9), "flood", (), 0),
        StateEnd(),
        Change("a", Stamp(1, 9), b""),
        Change("c", Stamp(9, 10), b""),
    )
    assert node.links("x") == ()
    assert len(node._exchange.streams) == 2


def test_too_many_filters_of_a_peer_mean_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEARINGS, "subscribe", lambda: SubscribeHearing(max_kept=700))
    first = heard(Change("b", Stamp(1, 2), b"+\0\1x"))
    assert first.links("y") == ()
    node = heard(Change("b", Stamp(1, 2), b"+\0\1x+\0\1y+\0\1z"), Change("b", Stamp(1, 3), b"-\0\1x"))
    assert node.links("anything") == ("b",)
    assert not node.is_exact


@pytest.mark.parametrize(
    "frames",
    [
        (StatePart(b"x"),),
        (StateEnd(),),
        (StateBegin("b", Stamp(1, 2), "subscribe", (), 1), StateEnd()),
        (StateBegin("b", Stamp(1, 2), "subscribe", (), 1), StatePart(b"xx")),
        (StateBegin("b", Stamp(1, 2), "subscribe", (), 1), StateBegin("b", Stamp(1, 3), "subscribe", (), 1)),
        (StateBegin("b", Stamp(1, 2), "subscribe", (), 1), StatePart(b"x"), StateEnd()),
        (StateBegin("b", Stamp(1, 2), "guess", (), 1),),
        (Change("b", Stamp(1, 2), b"+"),),
        (InterestAck("a", Stamp(1, 99)),),
    ],
)
def test_frames_that_have_no_place_are_malformed(frames: tuple[InterestFrame, ...]) -> None:
    with pytest.raises(MalformedFrame):
        heard(*frames)


def test_nodes_that_a_peer_can_tell_of_are_bounded() -> None:
    node = Coordination("a", 1, relays=True)
    node.link("b", True, 0.0)
    with pytest.raises(MalformedFrame):
        for number in range(MAX_STREAMS + 1):
            node.received("b", Neighbours(f"n{number}", Stamp(1, 1), ()), 0.0)
    assert len(node._exchange.streams) == MAX_STREAMS


def test_who_is_behind_which_link() -> None:
    edges = {"a": ("b", "d"), "b": ("c",), "d": ("c",), "e": ("d",)}
    assert behind("a", ("b", "d"), edges) == {"b": {"b", "c", "d", "e"}, "d": {"b", "c", "d", "e"}}
    assert behind("b", ("a", "c"), {"a": ("b",), "b": ("c",), "c": ("d",)}) == {"a": {"a"}, "c": {"c", "d"}}
    assert behind("a", ("b",), {}) == {"b": {"b"}}
