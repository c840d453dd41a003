"""Messages go to the node that owns their topic, wherever they are published, and are stored there alone."""

from __future__ import annotations

import pytest

from headwater.wire.packets import Connect, Puback, Publish, Pubrec, Will
from tests.node.delivery.storing import positions, subscriber
from tests.node.links.edges import EdgeNet, EdgeNode, client_of
from tests.node.links.memory import payloads, publish, subscribe
from tests.node.memory import Client


def three(**more: object) -> EdgeNet:
    """A receiving node, and two delivery nodes; one owns everything below plant, the other one half of it."""
    return EdgeNet(
        EdgeNode("r", roles=["receiving"]),
        EdgeNode("a", owns=["plant/#"], **more),
        EdgeNode("b", owns=["plant/2/#"], **more),
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("at", ["r", "a", "b"])
def test_each_message_is_stored_by_the_owner_of_its_topic(at: str, qos: int) -> None:
    net = three()
    device = client_of(net.node(at), "device")
    for number in range(4):
        publish(device, f"plant/{number}/x", b"%d" % number, qos)
        net.settle()
    assert net.node("a").stored() == [(f"plant/{number}/x", b"%d" % number) for number in (0, 1, 3)]
    assert net.node("b").stored() == [("plant/2/x", b"2")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribers_anywhere_get_each_message_once(qos: int) -> None:
    net = three()
    clients = [client_of(node, f"c-{node.name}") for node in net.nodes]
    for client in clients:
        subscribe(net, client, "plant/#")
    for node in net.nodes:
        device = client_of(node, f"d-{node.name}")
        for number in (1, 2):
            publish(device, f"plant/{number}", f"{node.name}{number}".encode(), qos)
            net.settle()
    for client in clients:
        assert sorted(payloads(client)) == [b"a1", b"a2", b"b1", b"b2", b"r1", b"r2"]
    assert len(net.node("a").stored()) == len(net.node("b").stored()) == 3


def test_who_stores_is_no_subscriber() -> None:
    net = three()
    device = client_of(net.node("r"), "device")
    publish(device, "plant/1", b"x", 1)
    net.settle()
    [answer] = device.packets()
    assert isinstance(answer, Puback) and answer.reason == 0x10
    subscribe(net, client_of(net.node("b"), "cloud"), "plant/#")
    publish(device, "plant/1", b"x", 2)
    net.settle()
    [received] = device.packets()
    assert isinstance(received, Pubrec) and received.reason == 0


def test_a_topic_without_an_owner_goes_to_the_delivery_node_of_the_edge() -> None:
    net = EdgeNet(
        EdgeNode("r", roles=["receiving"]),
        EdgeNode("b"),
        EdgeNode("a", edge="south"),
        EdgeNode("c"),
        EdgeNode("s", edge="south", roles=["receiving"]),
        EdgeNode("t", edge="south", roles=["receiving"], unowned="none"),
    )
    for name in "rabcst":
        publish(client_of(net.node(name), "d"), "lost", name.encode(), 1)
        net.settle()
    assert net.node("a").stored() == [("lost", b"a"), ("lost", b"s")]
    assert net.node("b").stored() == [("lost", b"r"), ("lost", b"b")]
    assert net.node("c").stored() == [("lost", b"c")]
    assert net.node("r").owning.unowned == 1
    assert list(net.node("r").owning.unowned_last) == ["lost"]


def test_a_device_that_moved_to_another_area_reaches_the_edge_that_owns_its_topic() -> None:
    net = EdgeNet(
        EdgeNode("n", owns=["north/#"]), EdgeNode("s", edge="south", owns=["south/#"]),
        EdgeNode("t", edge="south", roles=["receiving"]),
    )  # fmt: skip
    device = client_of(net.node("t"), "device")
    for number in range(3):
        publish(device, "north/1", b"%d" % number, number)
    net.settle()
    assert sorted(net.node("n").stored()) == [("north/1", b"0"), ("north/1", b"1"), ("north/1", b"2")]
    assert net.node("s").stored() == []


def test_what_waits_for_an_owner_that_is_away_is_stored_when_it_is_back() -> None:
    net = three()
    net.cut("r", "a")
    device = client_of(net.node("r"), "device")
    publish(device, "plant/1", b"x", 1)
    net.settle()
    assert net.node("a").stored() == []
    net.connect(net.node("r"), net.node("a"))
    net.settle()
    assert net.node("a").stored() == [("plant/1", b"x")]


def test_owners_and_views_outlive_a_crash() -> None:
    net = three()
    for name in ("r", "a", "b"):
        net.crash(name)
        for node in net.nodes:
            publish(client_of(node, f"d-{name}"), "plant/2", name.encode(), 1)
        net.settle()
    assert net.node("a").stored() == []
    assert [payload for _, payload in net.node("b").stored()] == [b"r"] * 3 + [b"a"] * 3 + [b"b"] * 3


def test_nodes_with_the_same_view_share_what_they_remember() -> None:
    """What comes from r without an owner is a's, and what comes from b is b's."""
    net = three()
    assert [len(net.node(name).owning.everywhere()) for name in "rab"] == [1, 2, 1]


def test_a_node_that_has_forgotten_a_view_is_told_again() -> None:
    """Its disk is an older copy."""
    net = three()
    net.cut("r", "b")
    del net.node("b").owning.owners.heard["r"]
    net.connect(net.node("r"), net.node("b"))
    net.settle()
    publish(client_of(net.node("r"), "device"), "plant/2", b"x", 1)
    net.settle()
    assert net.node("b").stored() == [("plant/2", b"x")]


def test_a_group_of_subscribers_at_the_owner_gets_a_message_once_and_it_is_stored_once() -> None:
    net = three()
    members = [client_of(net.node(name), f"m{number}") for number, name in enumerate("bba")]
    for member in members:
        subscribe(net, member, "$share/g/plant/#")
    device = client_of(net.node("r"), "device")
    for number in range(6):
        publish(device, "plant/2", b"%d" % number, number % 3)
        net.settle()
    assert sorted(payload for member in members for payload in payloads(member)) == [b"%d" % n for n in range(6)]
    assert sorted(payload for _, payload in net.node("b").stored()) == [b"%d" % n for n in range(6)]
    assert net.node("a").stored() == []


def test_retained_messages_and_wills_are_stored_by_the_owner_alone() -> None:
    net = three()
    device = client_of(net.node("r"), "device")
    device.send(Publish("plant/2", b"kept", 1, True, False, 7))
    net.settle()
    ghost = Client(net.node("r").broker)
    ghost.send(Connect("ghost", 5, will=Will("plant/2", b"gone", 1, False)))
    net.settle()
    ghost.lose()
    net.later(1.0)
    assert net.node("b").stored() == [("plant/2", b"kept"), ("plant/2", b"gone")]
    assert net.node("a").stored() == []


def test_a_publisher_at_the_owner_is_read_with_positions_there_and_without_elsewhere() -> None:
    net = three()
    readers = [subscriber(net.node(name).broker, f"c-{name}", "plant/#", asks=True) for name in ("a", "b", "r")]
    net.settle()
    publish(client_of(net.node("r"), "device"), "plant/2", b"x", 1)
    net.settle()
    found = [positions(reader.messages()) for reader in readers]
    assert found == [[None], ["s-b:1"], [None]]
