"""All links of a node: which of two is kept, who waits for whom, what stays here, and what goes with a member."""

from __future__ import annotations

import pytest

from headwater.message import Message
from headwater.node.plane.channel import STORING
from headwater.peering.frames.frame import Leave, Publisher, Refuse, Resume, Run, Spool
from headwater.wire.packets import Puback, Suback, Subscribe, SubscribeRequest
from tests.node.links.memory import (
    BOOT,
    FakePeer,
    Net,
    Node,
    pair,
    payloads,
    peer_of,
    publish,
    subscribe,
)
from tests.node.persistence.durable import DurableBroker

MIB = 1 << 20


# ---- two links with one node -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 0, 1, 1), (0, 1, 0, 1), (1, 0, 0, 1), (1, 1, 0, 0), (0, 1, 1, 0), (1, 0, 1, 0)])
def test_of_two_links_both_sides_keep_the_one_that_the_smaller_id_dialed(order: tuple[int, ...]) -> None:
    net = Net(Node("a"), Node("b"))
    a, b = net.nodes
    wires = [net.link(a, b), net.link(b, a)]
    for number in order:
        for side in (0, 1):
            wires[number].move(side)
    net.settle()
    assert [wire.is_up for wire in wires] == [True, False]
    assert a.links.up["b"] is wires[0].links[0]
    assert b.links.up["a"] is wires[0].links[1]
    client = b.client("s")
    subscribe(net, client, "t")
    publish(a.client("p"), "t", b"once", 1)
    net.settle()
    assert payloads(client) == [b"once"]


def test_a_newer_life_of_a_node_wins() -> None:
    node = Node("b")
    old = peer_of(node, "a", boot=5)
    new = peer_of(node, "a", boot=6)
    assert old.is_closed
    late = FakePeer(node, "a", boot=5)
    late.greet()
    assert late.heard() == [Refuse("a newer life of this node is linked")]
    assert node.links.up["a"] is new.link


def test_who_dials_again_has_lost_its_link() -> None:
    node = Node("b")
    first = peer_of(node, "a")
    second = peer_of(node, "a")
    assert first.is_closed
    assert node.links.up["a"] is second.link


# ---- SUBACK ----------------------------------------------------------------------------------------------------------


def test_suback_waits_until_live_peers_know() -> None:
    net = pair()
    client = net.nodes[0].client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    assert client.packets() == []
    assert net.nodes[0].links.coordination.holding == 1
    net.settle()
    assert client.packets() == [Suback(1, [0])]


def test_suback_waits_no_longer_than_subscribe_wait() -> None:
    net = pair(subscribe_wait=0.5)
    node = net.nodes[0]
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    node.broker.later(0.49)
    assert client.packets() == []
    node.broker.later(0.02)
    assert client.packets() == [Suback(1, [0])]


def test_suback_does_not_wait_for_who_is_not_there() -> None:
    node = Node("a")
    node.links.join("b")
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    assert client.packets() == [Suback(1, [0])]


def test_suback_does_not_wait_for_a_link_that_broke() -> None:
    net = pair()
    client = net.nodes[0].client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    net.wires[0].cut()
    assert client.packets() == [Suback(1, [0])]


def test_who_waits_for_a_suback_may_go() -> None:
    net = pair()
    client = net.nodes[0].client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    client.lose()
    net.settle()
    net.later(1)
    assert net.nodes[0].links.coordination.holding == 0


# ---- what stays here -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["$SYS/x", "$headwater/x"])
def test_topics_about_one_broker_stay_there(topic: str) -> None:
    net = pair(method="flood")
    a, b = net.nodes
    assert a.links.destinations(topic) == []
    assert a.links.destinations("t") != []
    client = b.client("s")
    client.send(Subscribe(1, [SubscribeRequest(f"{topic}/#", 0)]))
    assert client.packets() == [Suback(1, [0])], "nobody else has to know"
    assert b.links.coordination.method == "flood"


def test_filters_about_one_broker_are_not_told() -> None:
    net = pair()
    a, b = net.nodes
    subscribe(net, b.client("s"), "$SYS/#")
    assert a.links.coordination.links("$SYS/x") == ()
    subscribe(net, b.client("t"), "t")
    assert a.links.coordination.links("t") == ("b",)


def test_news_of_others_leave_local_parts_alone() -> None:
    net = pair()
    a, b = net.nodes
    local = a.client("l")
    subscribe(net, local, "t")
    publish(a.client("p"), "t", b"1")
    before = a.server.hot.fanouts.of("t")
    assert before.local == 1
    subscribe(net, b.client("s"), "other")
    fanout = a.server.hot.fanouts.resolve(b"t")
    assert fanout is before
    subscribe(net, b.client("s2"), "t")
    fanout = a.server.hot.fanouts.resolve(b"t")
    assert fanout is not None
    assert fanout.destinations[0] is before.destinations[0]
    assert len(fanout.destinations) == 2


def test_publishers_learn_that_nobody_is_there_at_any_node() -> None:
    net = pair()
    a, b = net.nodes
    publisher = a.client("p")
    publish(publisher, "t", b"1", 1)
    assert [each.reason for each in publisher.packets() if isinstance(each, Puback)] == [0x10]
    subscribe(net, b.client("s"), "t")
    publish(publisher, "t", b"1", 1)
    assert [each.reason for each in publisher.packets() if isinstance(each, Puback)] == [0]


# ---- members that go -------------------------------------------------------------------------------------------------


def test_a_member_that_is_away_is_owed_what_it_wanted() -> None:
    net = pair()
    a, b = net.nodes
    client = b.client("s")
    subscribe(net, client, "t")
    net.wires[0].cut()
    publisher = a.client("p")
    for number in range(3):
        publish(publisher, "t", b"%d" % number, 1)
    publish(publisher, "other", b"x", 1)
    assert a.links.spooling.ends["b"].spool.waiting == 3
    net.link(a, b)
    net.settle()
    assert payloads(client) == [b"0", b"1", b"2"]
    assert a.links.spooling.ends["b"].spool.waiting == 0


def test_what_a_forgotten_member_was_owed_is_void_and_publishers_go_on() -> None:
    node = Node("a", max_spool=MIB)
    node.links.join("b", is_known=True)
    client = node.client("p")
    for _ in range(5):
        publish(client, "t", bytes(1 << 18), 1)
    assert client.channel.paused & STORING
    node.links.forget("b")
    node.broker.turn()
    assert not client.channel.paused
    assert "b" not in node.links.spooling.ends
    assert node.server.budget.full_queues == 0
    client.packets()
    publish(client, "t", b"x", 1)
    assert [each.reason for each in client.packets() if isinstance(each, Puback)] == [0x10]


def test_a_full_spool_refuses_those_who_cannot_be_paused() -> None:
    node = Node("a", max_spool=MIB)
    node.links.join("b", is_known=True)
    clients = [node.client(f"p{number}") for number in range(8)]
    for client in clients:  # each is paused behind its first
        publish(client, "t", bytes(1 << 18), 1)
    assert node.links.spooling.ends["b"].is_full
    reasons = [each.reason for client in clients for each in client.packets() if isinstance(each, Puback)]
    assert reasons[:5] == [0] * 5
    assert reasons[5:] == [0x97] * 3


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_node_that_was_forgotten_and_comes_back_is_owed_anew(is_durable: bool) -> None:
    """It was cut off, not dead: it knows how far it had come in the spool that is void now."""
    net = Net(Node("a", DurableBroker() if is_durable else None), Node("b"))
    a, b = net.nodes
    wire = net.link(a, b)
    net.settle()
    client = b.client("s")
    subscribe(net, client, "t")
    publisher = a.client("p")
    for number in range(3):
        publish(publisher, "t", b"%d" % number, 1)
    net.settle()
    wire.cut()
    a.links.forget("b")
    again = net.link(a, b)
    net.settle()
    assert again.is_up
    publish(publisher, "t", b"3", 1)
    net.settle()
    assert payloads(client) == [b"0", b"1", b"2", b"3"]
    again.cut()
    for number in range(4, 6):
        publish(publisher, "t", b"%d" % number, 1)
    net.settle()
    net.link(a, b)
    net.settle()
    assert payloads(client) == [b"4", b"5"]


def test_a_node_that_left_and_comes_back_is_owed_anew() -> None:
    net = pair()
    a, b = net.nodes
    client = b.client("s")
    subscribe(net, client, "t")
    publisher = a.client("p")
    publish(publisher, "t", b"0", 1)
    net.settle()
    b.links.leave()
    net.settle()
    assert a.left == ["b"]
    a.links.forget("b")
    publish(publisher, "t", b"lost", 1)
    b.links.has_left = False  # it joins
    again = net.link(b, a)
    net.settle()
    publish(publisher, "t", b"1", 1)
    net.settle()
    assert again.is_up
    assert payloads(client) == [b"0", b"1"]


def test_a_node_that_stops_is_not_forgotten() -> None:
    net = pair()
    a, b = net.nodes
    b.links.stop()
    b.broker.turn()
    net.settle()
    assert a.left == []
    assert a.links.up == {}
    assert "b" in a.links.spooling.ends


# ---- methods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["flood", "subscribe", "bloom"])
def test_a_method_is_changed_while_messages_are_under_way(method: str) -> None:
    net = pair()
    a, b = net.nodes
    client, publisher = b.client("s"), a.client("p")
    subscribe(net, client, "t/+")
    b.links.use_method(method)
    for number in range(20):
        publish(publisher, f"t/{number}", b"%d" % number, number % 2)
        b.broker.turn()
        net.wires[0].move(number % 2, 5)
    net.settle()
    assert payloads(client) == [b"%d" % number for number in range(20)]
    assert a.links.coordination.method_of("b") == method
    other = b.client("s2")
    subscribe(net, other, "u")
    publish(publisher, "u", b"new")
    net.settle()
    assert payloads(other) == [b"new"]


# ---- what a peer has not read ----------------------------------------------------------------------------------------


def test_qos_0_beyond_the_buffer_of_a_link_is_dropped_and_counted() -> None:
    net = pair(link_buffer=64 * 1024, method="flood")
    a, _ = net.nodes
    publisher = a.client("p")
    net.wires[0].ends[0].room = 0
    for _ in range(10):
        publish(publisher, "t", bytes(30_000))
    end = a.links.spooling.ends["b"]
    assert end.dropped == 7
    assert net.wires[0].links[0].channel.backlog_size < 128 * 1024


def test_what_is_in_flight_is_bounded() -> None:
    net = pair(method="flood")
    a, _ = net.nodes
    publisher = a.client("p")
    for _ in range(30):
        publish(publisher, "t", bytes(1 << 18), 1)
    sent = len(net.wires[0].ends[0].sent)
    assert MIB <= sent < 1.5 * MIB
    net.settle()
    assert a.links.spooling.ends["b"].spool.waiting == 0


def test_a_link_that_comes_up_twice_resumes_where_it_was() -> None:
    node = Node("b", method="flood")
    peer = peer_of(node, "a")
    peer.send(Publisher(0, 4, "p"), Spool(9, 1))
    assert Resume(9, 0) in peer.heard()
    packet = b"\x32\x06\x00\x01t\x00\x01x"
    peer.send(Run(4, 0, 1, 0, 0, "", BOOT, 1, packet))
    again = peer_of(node, "a")
    again.send(Spool(9, 1))
    assert Resume(9, 1) in again.heard()


def test_leave_of_a_peer_ends_its_link() -> None:
    node = Node("b")
    peer = peer_of(node, "a")
    peer.send(Leave(False))
    assert peer.is_closed
    assert node.left == []
    again = peer_of(node, "a")
    again.send(Leave(True))
    assert node.left == ["a"]


@pytest.mark.parametrize("sender", [0, 1])
def test_a_slow_way_does_not_end_a_link_on_which_something_moves(sender: int) -> None:
    """A frame may take longer than `patience`."""
    net = pair(method="flood", heartbeat=1.0, patience=5.0)
    client, publisher = net.nodes[1 - sender].client("s"), net.nodes[sender].client("p")
    subscribe(net, client, "t")
    wire = net.wires[0]
    publish(publisher, "t", bytes(4 << 20), 1)
    for _ in range(20):
        wire.move(sender, 1 << 18)
        wire.move(1 - sender)
        for node in net.nodes:
            node.broker.later(1.0)
    net.settle()
    assert wire.is_up
    assert [len(each) for each in payloads(client)] == [4 << 20]


def test_no_hello_in_time() -> None:
    node = Node("a")
    link, _ = node.open("somewhere")
    node.broker.later(4)
    assert link in node.links.greeting
    for _ in range(3):
        node.broker.later(1)
    assert link not in node.links.greeting
    assert link.why == "no Hello in time"


def test_a_broker_may_be_asked_to_publish_by_nobody() -> None:
    net = pair(method="flood")
    a, b = net.nodes
    client = b.client("s")
    subscribe(net, client, "t")
    a.server.publishing.route(Message("t", b"by the program", 1), None)
    net.settle()
    assert payloads(client) == [b"by the program"]


def test_nodes_that_others_made_up_pause_nobody() -> None:
    node = Node("a", DurableBroker())
    for number in range(20):
        node.links.join(f"made-up-{number}")
    client = node.client("p")
    for _ in range(8):
        publish(client, "t", bytes(1 << 18), 1)
        node.settle()
    assert not client.channel.paused
    assert node.links.spooling.ends == {}
    assert node.links.destinations("t") == []
    assert isinstance(node.broker, DurableBroker)
    assert list(node.broker.backend.scan(b"p")) == []


def test_a_node_that_others_told_of_gets_what_waits_when_it_is_linked() -> None:
    net = Net(Node("a"), Node("b"))
    a, b = net.nodes
    client = b.client("s")
    subscribe(net, client, "t")
    a.links.join("b")
    publish(a.client("p"), "t", b"before the link", 1)
    net.link(a, b)
    net.settle()
    assert payloads(client) == [b"before the link"]
    assert a.links.spooling.ends["b"].spool.max_bytes == a.settings.max_spool


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("relays", [False, True])
def test_what_a_hook_publishes_because_of_a_message_of_another_node_goes_to_all(relays: bool, qos: int) -> None:
    """Also if that message is being relayed: it has another id."""
    graph = {"a": ["b"], "b": ["a", "c"], "c": ["b"]} if relays else {"a": [], "b": [], "c": []}
    net = Net(*(Node(name, neighbours=neighbours) for name, neighbours in graph.items()))
    a, b, c = net.nodes
    for one, other in [(a, b), (b, c)] if relays else [(a, b), (b, c), (a, c)]:
        net.link(one, other)
    net.settle()
    clients = [node.client("s") for node in net.nodes]
    for client in clients:
        subscribe(net, client, "#")

    def follow(message: Message) -> None:
        if message.topic == "t":
            b.server.publishing.route(Message("derived", b"derived", qos), None)

    b.broker.hooks.add("published", follow)
    publish(a.client("p"), "t", b"first", qos)
    net.settle()
    assert [sorted(payloads(client)) for client in clients] == [[b"derived", b"first"]] * 3
