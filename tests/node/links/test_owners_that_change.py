"""A filter goes to another node while messages flow: each is stored once, in order, whatever breaks meanwhile."""

from __future__ import annotations

import pytest

from headwater.edge.status import stretches_of
from headwater.node.advice.document import Advice
from headwater.node.config import ConfigError, load_config
from headwater.node.plane.channel import STORING
from headwater.wire.packets import Disconnect, Properties, Subscribe, SubscribeRequest
from tests.node.delivery.storing import connected, subscriber
from tests.node.links.edges import EdgeNet, EdgeNode, client_of
from tests.node.links.memory import publish

FILTER = "plant/2/#"


def three() -> EdgeNet:
    return EdgeNet(EdgeNode("r", roles=["receiving"]), EdgeNode("a", owns=["plant/#"]), EdgeNode("b"))


def rows_of(node: EdgeNode, filter: str) -> list[tuple[int, int, int | None]]:
    """But for those of topics that nobody owned."""
    rows = [row for row in node.owning.owners.rows if row.filter == filter and row.epoch]
    return [(row.epoch, row.first, row.last) for row in rows]


def test_a_split_and_a_join() -> None:
    net = three()
    device = client_of(net.node("r"), "device")
    publish(device, "plant/2", b"1", 1)
    net.settle()
    assert net.order("r", FILTER, "b") == [(True, f"{FILTER} goes from node a to node b")]
    for node in net.nodes:
        assert node.owning.owners.owner("plant/2") == "b"
        assert node.owning.owners.owner("plant/1") == "a"
    publish(device, "plant/2", b"2", 1)
    publish(device, "plant/1", b"3", 1)
    net.settle()
    assert net.node("a").stored() == [("plant/2", b"1"), ("plant/1", b"3")]
    assert net.node("b").stored() == [("plant/2", b"2")]
    assert rows_of(net.node("a"), FILTER) == [(1, 1, 1)]
    assert rows_of(net.node("b"), FILTER) == [(2, 1, None)]
    assert net.node("b").owning.owners.claims[FILTER].is_settled

    assert net.order("b", FILTER, "a", joins=True) == [(True, f"{FILTER} goes from node b to node a")]
    assert all(node.owning.owners.owner("plant/2") == "a" for node in net.nodes)
    assert FILTER not in net.node("a").owning.owners.view.table.claims
    publish(device, "plant/2", b"4", 1)
    net.settle()
    assert net.node("a").stored()[-1] == ("plant/2", b"4")
    assert rows_of(net.node("b"), FILTER) == [(2, 1, 1)]
    assert rows_of(net.node("a"), FILTER) == [(1, 1, 1), (3, 3, None)]


def test_a_filter_that_is_joined_leaves_topics_to_a_third_one_that_overlaps_it() -> None:
    """plant/2/x is of plant/2/#, then of plant/+/x and not of plant/#, though all are one node's."""
    net = EdgeNet(EdgeNode("r", roles=["receiving"]), EdgeNode("a", owns=["plant/#"]), EdgeNode("b"), EdgeNode("c"))
    device = client_of(net.node("r"), "device")
    for filter, to, joins in (
        ("plant/+/x", "b", False),
        ("plant/+/x", "a", False),
        ("plant/2/#", "b", False),
        ("plant/2/#", "a", True),
        ("plant/#", "b", False),
        ("plant/+/x", "c", False),
    ):
        publish(device, "plant/2/x", f"before {filter} to {to}".encode(), 1)
        net.settle()
        [(is_done, text)] = net.order("r", filter, to, joins)
        assert is_done, text
    publish(device, "plant/2/x", b"last", 1)
    net.settle()
    nodes = {node.name: node for node in net.nodes}
    status = net.node("r").owning.status([])
    found = [
        row.payload
        for stretch in stretches_of(status, "plant/2/x")
        for row in nodes[stretch.node].rows
        if stretch.first <= row.position and (stretch.last is None or row.position <= stretch.last)
    ]
    assert found == [
        *(b"before plant/+/x to b", b"before plant/+/x to a", b"before plant/2/# to b", b"before plant/2/# to a"),
        *(b"before plant/# to b", b"before plant/+/x to c", b"last"),
    ]


def test_a_dry_run_changes_nothing() -> None:
    net = three()
    assert net.order("r", FILTER, "b", is_dry=True) == [(True, f"{FILTER} would go from node a to node b")]
    assert net.node("b").owning.owners.claims == {}


@pytest.mark.parametrize(
    ("filter", "to", "why"),
    [
        ("plant/#", "a", "has plant/# already"),
        ("plant/1", "a", "has all topics of plant/1 already, by a wider filter"),
        ("plant/1", "r", "is no delivery node"),
        ("plant/1", "x", "is not linked"),
        ("plant/#/1", "b", "'#' must be the last level"),
        ("$SYS/#", "b", "belongs to each node alone"),
        ("p" * 300, "b", "more than 256 bytes"),
    ],
)
def test_what_cannot_be(filter: str, to: str, why: str) -> None:
    [(is_done, text)] = three().order("r", filter, to)
    assert not is_done and why in text


def test_a_filter_that_moves_does_not_move_again() -> None:
    net = three()
    net.cut("r", "b")
    net.order("a", FILTER, "b")
    [(is_done, text)] = net.order("b", FILTER, "b")
    assert not is_done
    [(is_done, text)] = net.order("a", FILTER, "a")
    assert not is_done and text == f"{FILTER} is on its way to node b, and waits for r"


def test_a_node_whose_disk_has_no_room_hears_what_others_say_of_owners() -> None:
    """Messages that are stored make it wait, and then the link; who owns what is no such message."""
    net = three()
    a = net.node("a")
    a.server.hot.no_room = True
    net.order("r", FILTER, "b")
    links = [link.channel for link in a.links.up.values()]
    assert a.owning.owners.owner("plant/2") == "b"
    assert not any(channel.paused & STORING for channel in links)
    publish(client_of(net.node("r"), "device"), "plant/1", b"1", 1)
    net.settle()
    assert any(channel.paused & STORING for channel in links)


def test_nothing_is_taken_from_a_node_that_is_away() -> None:
    net = three()
    net.cut("a", "b")
    [(is_done, text)] = net.order("r", FILTER, "b")
    assert not is_done and "node a, which has topics of plant/2/#, is not linked with node b" in text


def test_what_a_node_that_is_away_has_is_the_former_owners_until_it_is_back() -> None:
    net = three()
    net.cut("r", "a")
    device = client_of(net.node("r"), "device")
    publish(device, "plant/2", b"before", 1)
    net.order("b", FILTER, "b")
    publish(device, "plant/2", b"after", 1)
    net.later(1)
    assert net.node("b").stored() == []  # order: what was before is not at a yet
    assert net.node("b").owning.held >= 1
    assert rows_of(net.node("a"), FILTER) == []
    net.connect(net.node("r"), net.node("a"))
    net.later(1)
    assert net.node("a").stored() == [("plant/2", b"before")]
    assert net.node("b").stored() == [("plant/2", b"after")]
    assert rows_of(net.node("a"), FILTER) == [(1, 1, 1)]


def test_what_is_held_is_not_held_for_ever() -> None:
    net = three()
    net.cut("r", "a")
    device = client_of(net.node("r"), "device")
    net.order("b", FILTER, "b")
    publish(device, "plant/2", b"after", 1)
    net.later(owning_hold(net) + 1)
    assert net.node("b").stored() == [("plant/2", b"after")]
    assert net.node("b").owning.held_out == 1


def owning_hold(net: EdgeNet) -> float:
    return net.node("b").owning.settings.hold


def test_the_filter_of_an_owner_that_is_forgotten_is_the_former_ones_again() -> None:
    net = three()
    net.cut("r", "b")
    net.order("a", FILTER, "b")
    net.cut("a", "b")
    gone = net.node("b")
    net.nodes.remove(gone)
    for node in net.nodes:
        node.links.forget("b")
        node.broker.turn()
    net.settle()
    assert all(node.owning.owners.owner("plant/2") == "a" for node in net.nodes)
    publish(client_of(net.node("r"), "device"), "plant/2", b"x", 1)
    net.settle()
    assert net.node("a").stored() == [("plant/2", b"x")]


def test_two_nodes_that_claim_one_filter_at_once_agree() -> None:
    net = EdgeNet(EdgeNode("r", roles=["receiving"]), EdgeNode("a", owns=["#"]), EdgeNode("b"), EdgeNode("c"))
    for name in ("b", "c"):
        node = net.node(name)
        node.owning.order(name, FILTER, False, False, lambda is_done, text: None)
        node.broker.turn()
    device = client_of(net.node("r"), "device")
    for number in range(20):
        publish(device, "plant/2", b"%d" % number, 1)
        net.settle()
    assert all(node.owning.owners.owner("plant/2") == "c" for node in net.nodes)
    stored = [payload for name in "abc" for _, payload in net.node(name).stored()]
    assert sorted(stored, key=int) == [b"%d" % number for number in range(20)]
    assert list(net.node("b").owning.owners.claims) == []


def test_settings_are_taken_once() -> None:
    net = EdgeNet(EdgeNode("a", owns=["plant/#", "x"]), EdgeNode("b"))
    net.order("a", "x", "b")
    node = net.crash("a")
    net.settle()
    assert sorted(node.owning.owners.claims) == ["plant/#"]
    assert node.owning.owners.owner("x") == "b"


def test_an_order_without_an_answer() -> None:
    net = three()
    answers: list[tuple[bool, str]] = []
    node = net.node("r")
    node.owning.order("b", FILTER, False, False, lambda *answer: answers.append(answer))
    node.broker.turn()
    node.broker.later(5.1)
    [(is_done, text)] = answers
    assert not is_done and "has not answered for 5 s" in text
    net.settle()
    assert node.owning.owners.owner("plant/2") == "b"  # it was carried out all the same
    assert len(answers) == 1


def advice(*parts: tuple[str, ...]) -> Advice:
    return Advice("split", "s-a", 1, 0.0, 1e12, parts=parts)


def test_a_load_is_split_as_advised() -> None:
    net = EdgeNet(EdgeNode("r", roles=["receiving"]), EdgeNode("a", owns=["plant/#"]), EdgeNode("b"), EdgeNode("c"))
    node = net.node("a")
    node.owning.splits.advised("another", advice(("plant/9/#",), ("plant/#",)))
    node.owning.splits.advised("s-a", advice(("plant/2/#", "plant/3/#"), ("plant/#",), ("plant/4/#",), ("x",)))
    for _ in range(6):
        node.broker.turn()
        net.later(0.1)
        node.owning.splits.go_on()
    table = {each.filter: each.node for each in net.node("r").owning.owners.view.table}
    assert table == {"plant/#": "a", "plant/2/#": "b", "plant/3/#": "b", "plant/4/#": "c", "x": "b"} or table == {
        "plant/#": "a", "plant/2/#": "b", "plant/3/#": "b", "plant/4/#": "c"
    }  # fmt: skip
    node.owning.splits.advised("s-a", None)
    node.broker.turn()
    net.later(1.0)
    assert {each.filter: each.node for each in net.node("r").owning.owners.view.table} == table


def test_advice_is_followed_if_that_was_set() -> None:
    settings = {"cluster.name": "c", "edge.name": "n", "edge.roles": ["receiving"], "edge.follow_advice": True}
    with pytest.raises(ConfigError, match=r"advice\.enabled"):
        load_config(None, settings, {})
    assert load_config(None, {**settings, "advice.enabled": True}, {}).edge.follow_advice


def test_who_asks_for_positions_is_sent_where_they_are_if_that_was_set() -> None:
    net = EdgeNet(EdgeNode("a", owns=["plant/#"], elsewhere="refer"), EdgeNode("b", owns=["x/#"]))
    node = net.node("a")
    stays = [
        subscriber(node.broker, "all", "#", asks=True),
        subscriber(node.broker, "own", "plant/1", asks=True),
        subscriber(node.broker, "wide", "plant/#", asks=True),
        subscriber(node.broker, "plain", "plant/2/x"),
        subscriber(node.broker, "old", "plant/2/x", version=4),
    ]
    goes = subscriber(node.broker, "goes", "plant/2/+", asks=True)
    net.order("a", FILTER, "b")
    for _ in range(5):
        node.broker.turn()
    net.later(0.1)
    [word] = [packet for packet in goes.packets() if isinstance(packet, Disconnect)]
    assert word.reason == 0x9D and word.properties is not None and word.properties.server_reference == "b:1883"
    assert all(client.channel.fd >= 0 for client in stays)
    late = connected(node.broker, "late")
    properties = Properties(user_properties=[("headwater-position", "yes")])
    late.send(Subscribe(9, [SubscribeRequest("x/1", 0)], properties))
    net.later(0.1)
    assert isinstance(late.packets()[-1], Disconnect)
    assert node.owning.referring is not None and node.owning.referring.referred == 2
