"""A node that starts takes clients when it has what the others have."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client import Client as Device
from headwater.node.links.catching_up import MUCH, CatchingUp
from headwater.node.links.entry import Entry
from headwater.wire.packets import Connack, Connect, Publish
from tests.node.links.memory import Net, Node, payloads
from tests.node.links.nodes import run, until
from tests.node.links.test_cluster import cluster_of, linked, links, node, nodes
from tests.node.links.test_sessions import arrive, away, begin, present
from tests.node.memory import Client
from tests.node.transports.serving import HOST

WAIT = 10.0


class Starting:
    """A node that has just started."""

    def __init__(self, name: str = "b", is_alone: bool = False, wait: float = WAIT) -> None:
        self.node = Node(name, sessions=True)
        self.is_alone = is_alone
        self.changes = 0
        self.up = CatchingUp(self.node.links, Entry(self.node.server), lambda: self.is_alone, self.changed, wait)
        self.up.start()
        self.node.broker.turn()

    def changed(self) -> None:
        self.changes += 1


def retain(net: Net, client: Client, topic: str, payload: bytes) -> None:
    client.send(Publish(topic, payload, 0, True, False, 0))
    net.settle()


def with_retained(count: int, size: int = 10) -> tuple[Net, Client]:
    """A node alone that has so many retained messages."""
    net = Net(Node("a", sessions=True))
    publisher = present(net, net.nodes[0], "p")
    for number in range(count):
        retain(net, publisher, f"t/{number}", b"x" * size)
    return net, publisher


def connacks(client: Client) -> list[int]:
    return [each.reason for each in client.packets() if isinstance(each, Connack)]


@pytest.mark.parametrize("dials", [True, False])
@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 10), (500, 10), (40, MUCH // 10)])
def test_a_node_is_ready_when_all_retained_messages_are_here(dials: bool, count: int, size: int) -> None:
    net, _ = with_retained(count, size)
    b = Starting()
    net.nodes.append(b.node)
    client = begin(b.node, "x")
    net.settle()
    assert connacks(client) == [] and b.up.why == "catching up: no other node is linked yet"
    net.link(*(net.nodes[::-1] if dials else net.nodes))
    net.settle()
    answers: list[int] = []
    while b.up.is_on:
        assert "of a" in b.up.why and b.changes == 1 and 0 not in answers
        assert b.node.server.hot.now < 1000.0 + 2 * WAIT
        net.later(0.06)
        answers += connacks(client)
    assert b.up.why == "" and b.changes == 2 and b.node.links.retaining.comparisons == {}
    assert len(b.node.server.router.retained) == count
    net.settle()
    if dials:  # each step of a comparison is answered at once, so it did not take long
        assert answers + connacks(client) == [0]
    assert arrive(net, b.node, "y")[1].reason == 0


def test_a_node_becomes_ready_while_others_retain_all_the_time() -> None:
    net, publisher = with_retained(300)
    b = Starting()
    net.nodes.append(b.node)
    net.link(*net.nodes[::-1])
    number = 0
    while b.up.is_on:
        number += 1
        assert number < 300
        publisher.send(Publish(f"t/{number % 300}", b"%d" % number, 0, True, False, 0))
        net.wires[0].move(1, 3000)
        net.wires[0].move(0)
        for each in net.nodes:
            each.broker.later(0.01)
    net.settle()
    assert len(b.node.server.router.retained) == 300


def test_who_waits_for_long_is_refused_and_a_node_that_nobody_answers_serves_in_the_end() -> None:
    b = Starting()
    client = begin(b.node, "x")
    old = Client(b.node.broker)
    old.send(Connect("old", 4))
    b.node.broker.later(1.9)
    assert connacks(client) == connacks(old) == []
    b.node.broker.later(0.2)
    assert (connacks(client), connacks(old)) == ([0x88], [3])
    while b.up.is_on:
        b.node.broker.later(0.5)
    assert 10.0 <= b.node.server.hot.now - 1000.0 < 11.0
    last = begin(b.node, "x")
    assert connacks(last) == [0]


@pytest.mark.parametrize(("is_alone", "wait"), [(True, WAIT), (False, 0.0)])
def test_a_node_that_waits_for_nobody_is_ready_at_once(is_alone: bool, wait: float) -> None:
    b = Starting(is_alone=is_alone, wait=wait)
    assert not b.up.is_on and b.changes == 0
    assert connacks(begin(b.node, "x")) == [0]


def test_a_node_that_finds_out_that_it_is_alone_is_ready_then() -> None:
    b = Starting()
    client = begin(b.node, "x")
    b.is_alone = True
    b.node.broker.later(0.1)
    assert not b.up.is_on and connacks(client) == [0]


def test_a_client_gets_its_session_of_another_node_as_soon_as_there_is_a_link() -> None:
    net, publisher = with_retained(10)
    a = net.nodes[0]
    away(net, a, "x", "w/#")
    publisher.send(Publish("w/1", b"waits", 1, False, False, 1))
    b = Starting()
    net.nodes.append(b.node)
    client = begin(b.node, "x")
    net.link(*net.nodes)
    net.settle()
    for _ in range(40):
        net.later(0.06)
    connack, *_ = packets = client.packets()
    assert isinstance(connack, Connack) and connack.session_present
    assert [each.payload for each in packets if isinstance(each, Publish)] == [b"waits"]
    assert payloads(client) == []


def test_sessions_of_a_member_that_is_away_are_not_waited_for_without_end() -> None:
    a, b = Starting("a"), Starting("b")
    for each in (a, b):  # both have just started, and know a third one
        each.node.links.join("c", is_known=True)
    net = Net(a.node, b.node)
    net.link(*net.nodes)
    for _ in range(100):
        net.later(0.09)
    assert b.up.why == "catching up: sessions of a" and a.up.why == "catching up: sessions of b"
    net.later(1)
    net.later(0.1)
    assert not a.up.is_on and not b.up.is_on


def test_a_joining_node_says_that_it_is_not_ready_and_then_has_all() -> None:
    async def body() -> None:
        async with node("a") as a:
            assert a.why_not_ready() == ""  # nobody is to be joined
            async with Device(HOST, a.port) as device:
                for number in range(200):
                    await device.publish(f"t/{number}", b"x", qos=1, retain=True)
            async with node("b", a) as b:
                assert b.why_not_ready().startswith("catching up") and not b.is_ready()
                assert cluster_of(b).view().not_ready == b.why_not_ready()
                async with Device(HOST, b.port):  # waits for it
                    assert b.is_ready() and len(b.server.router.retained) == 200
                await linked(a, b)
                await until(lambda: nodes(a)["b"].phase == nodes(b)["b"].phase == "serving")

    run(body())


def test_a_node_is_ready_soon_although_another_one_is_away() -> None:
    """The first one knows that nobody else has sessions, and tells so."""

    async def body() -> None:
        async with node("a") as a:
            async with node("b", a) as b:
                await linked(a, b)
            async with node("c", a, catch_up_wait=600) as c:
                await until(c.is_ready)
                assert "b" in links(c)

    run(body())


def test_a_node_whose_only_address_to_join_is_its_own_is_ready_soon() -> None:
    async def body() -> None:
        async with node("a") as other:
            address = cluster_of(other).address
        port = int(address.rpartition(":")[2])
        async with node("b", address, port=port) as b:
            async with asyncio.timeout(5):
                await until(b.is_ready)

    run(body())
