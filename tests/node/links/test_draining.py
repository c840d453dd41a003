"""A node that is drained hands over its clients and sessions, whatever happens meanwhile, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headwater.client import Client as Device
from headwater.client import ConnectError
from headwater.node.broker import Broker
from headwater.node.links.draining import AT_ONCE, LONGEST_WILL_WAIT, TAKE_ALONG, Draining
from headwater.node.links.entry import Entry
from headwater.node.links.view import DRAINED, DRAINING
from headwater.wire.packets import Connack, Connect, Disconnect, Properties, Will
from tests.node.links.memory import Net, Node, subscribe
from tests.node.links.nodes import run, until
from tests.node.links.test_cluster import cluster_of, linked, node, nodes, states
from tests.node.links.test_sessions import (
    acknowledge,
    arrive,
    away,
    begin,
    holders,
    is_connected,
    mesh,
    present,
    publish,
    quiet,
)
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker
from tests.node.transports.serving import HOST


class Drain:
    """Of the first node of a net."""

    def __init__(self, net: Net, address: str = "{}.example.org:1883") -> None:
        self.net = net
        self.left: list[str] = []
        self.changes = 0
        self.wills = 0
        self.address = address
        node = net.nodes[0]
        self.draining = Draining(
            node.links, Entry(node.server), self.others, self.leave, self.changed, lambda: self.wills
        )

    def others(self) -> dict[str, str]:
        return {node.name: self.address.format(node.name) for node in self.net.nodes[1:]}

    def leave(self) -> None:
        self.left.append(self.draining.state)

    def changed(self) -> None:
        self.changes += 1

    def begin(self, stays: bool = False) -> None:
        self.order(lambda: self.draining.begin(stays))
        self.net.settle()

    def order_only(self) -> None:
        """Nothing of it has come to the others."""
        self.order(lambda: self.draining.begin(False))

    def order(self, what: Callable[[], None]) -> None:
        what()
        self.net.nodes[0].settle()

    def go_on(self, seconds: float = TAKE_ALONG + 1) -> None:
        for _ in range(int(seconds / 0.1)):
            self.net.later(0.1)


def ended(client: Client) -> Disconnect:
    [bye] = [each for each in client.packets() if isinstance(each, Disconnect)]
    return bye


def reference(properties: Properties | None) -> str | None:
    return None if properties is None else properties.server_reference


@pytest.mark.parametrize("is_durable", [False, True])
def test_all_sessions_arrive_elsewhere_with_what_waits_in_them(is_durable: bool) -> None:
    net = mesh("a", "b", "c", is_durable=is_durable)
    a, b, c = net.nodes
    names = [f"x{number}" for number in range(30)]
    for name in names:
        away(net, a, name, f"t/{name}")
    publisher = present(net, c, "p")
    for name in names:
        for number in range(3):
            publish(publisher, f"t/{name}", b"%d" % number, 1 + number % 2)
    net.settle()
    drain = Drain(net)
    drain.begin()
    for name in names:  # while they move
        publish(publisher, f"t/{name}", b"3", 1)
    drain.go_on()
    assert drain.left == [DRAINED] and not a.server.sessions and drain.draining.state == DRAINED
    shares = [len(node.server.sessions) - (node is c) for node in (b, c)]
    assert sum(shares) == 30 and min(shares) > 5
    for name in names:
        client, connack = arrive(net, b, name)
        assert connack.session_present
        assert acknowledge(net, client, client.packets()) == [b"0", b"1", b"2", b"3"]
    quiet(net)


def test_clients_are_told_where_to_go_and_their_sessions_go_there() -> None:
    net = mesh("a", "b", "c")
    a = net.nodes[0]
    clients = {name: arrive(net, a, name)[0] for name in ("x", "y", "z", "u", "v", "w")}
    old = Client(a.broker)
    old.send(Connect("old", 4))
    net.settle()
    assert old.packets() == [Connack(False, 0)]
    drain = Drain(net)
    drain.begin()
    told = {}
    for name, client in clients.items():
        bye = ended(client)
        assert bye.reason == 0x9C and not is_connected(client)
        told[name] = reference(bye.properties)
    assert old.packets() == [] and old.socket.shut  # 3.1.1 knows no DISCONNECT of servers
    assert set(told.values()) == {"b.example.org:1883", "c.example.org:1883"}
    drain.go_on()
    for name, where in told.items():
        [holder] = holders(net, name)
        assert where == f"{holder}.example.org:1883"
    assert drain.left == [DRAINED]
    quiet(net)


def test_who_comes_is_sent_elsewhere() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    drain = Drain(net)
    drain.begin(stays=True)
    client = begin(a, "x")
    net.settle()
    [connack] = client.packets()
    assert isinstance(connack, Connack)
    assert (connack.reason, reference(connack.properties)) == (0x9C, "b.example.org:1883")
    old = Client(a.broker)
    assert old.connect(Connect("old", 4)).reason == 3
    nameless = Client(a.broker)
    assert nameless.connect(Connect("", 5)).reason == 0x9C
    assert not a.server.sessions
    assert arrive(net, b, "x")[1].reason == 0
    drain.go_on(1)
    assert drain.left == [] and drain.draining.state == DRAINED  # it stays
    drain.order(drain.draining.take_back)
    assert arrive(net, a, "x")[1].session_present and drain.changes == 2
    assert drain.draining.state == "" and drain.draining.view() is None


def test_without_an_address_clients_are_told_to_come_later() -> None:
    net = mesh("a", "b")
    client, _ = arrive(net, net.nodes[0], "x")
    drain = Drain(net, address="")
    drain.begin()
    bye = ended(client)
    assert (bye.reason, reference(bye.properties)) == (0x89, None)
    another = begin(net.nodes[0], "y")
    net.settle()
    [connack] = another.packets()
    assert isinstance(connack, Connack) and connack.reason == 0x89
    drain.go_on()
    assert holders(net, "x") == ["b"]


def test_connections_end_some_at_a_time() -> None:
    net = mesh("a", "b")
    a = net.nodes[0]
    for number in range(AT_ONCE + 20):
        present(net, a, f"x{number}")
    drain = Drain(net)
    drain.begin()
    view = drain.draining.view()
    assert view is not None and (view.state, view.clients) == (DRAINING, 20)
    drain.go_on(0.2)
    assert drain.left == [DRAINED] and not a.server.sessions


def test_a_client_may_take_its_session_along_itself() -> None:
    net = mesh("a", "b", "c")
    a, b, c = net.nodes
    arrive(net, a, "x")
    drain = Drain(net)
    drain.begin()
    drain.go_on(TAKE_ALONG / 2)
    assert holders(net, "x") == ["a"] and drain.left == []
    for each in (b, c):
        assert arrive(net, each, "x")[1].session_present
    drain.go_on(1)
    assert holders(net, "x") == ["c"] and drain.left == [DRAINED]
    quiet(net)


def test_a_client_that_comes_while_its_session_is_pushed_elsewhere_gets_it() -> None:
    for target in ("b", "c"):
        net = mesh("a", "b", "c", is_durable=True)
        away(net, net.nodes[0], "x")
        publish(present(net, net.nodes[1], "p"), "t/1", b"waits", 2)
        net.settle()
        drain = Drain(net)
        drain.order_only()
        [there] = [each for each in net.nodes if each.name == target]
        client = begin(there, "x")
        net.settle()
        connack, *rest = client.packets()
        assert isinstance(connack, Connack) and connack.reason == 0 and connack.session_present
        assert acknowledge(net, client, rest) == [b"waits"]
        drain.go_on(1)
        assert holders(net, "x") == [target] and drain.left == [DRAINED]
        quiet(net)


def test_a_drain_waits_for_a_link_that_is_down_and_goes_on() -> None:
    net = mesh("a", "b", is_durable=True)
    a, b = net.nodes
    for number in range(5):
        away(net, a, f"x{number}")
    publish(present(net, b, "p"), "t/1", b"waits", 1)
    net.settle()
    drain = Drain(net)
    drain.order_only()
    net.wires[0].cut()
    drain.go_on(2)
    view = drain.draining.view()
    assert drain.left == [] and view is not None and view.state == DRAINING and view.waits_for == ["b"]
    net.wires = []
    net.link(a, b)
    drain.go_on(2)
    assert drain.left == [DRAINED]
    for number in range(5):
        client, connack = arrive(net, b, f"x{number}")
        assert connack.session_present and acknowledge(net, client, client.packets()) == [b"waits"]
    quiet(net)


def test_a_node_that_is_killed_while_it_is_drained_serves_again_and_nothing_is_lost() -> None:
    for keep in (0, 1, None):
        net = mesh("a", "b", is_durable=True)
        a, b = net.nodes
        names = [f"x{number}" for number in range(AT_ONCE + 5)]
        for name in names:
            away(net, a, name, f"t/{name}")
        publisher = present(net, b, "p")
        for name in names:
            publish(publisher, f"t/{name}", b"waits", 1)
        net.settle()
        drain = Drain(net)
        drain.order_only()
        for _ in range(3):
            a.settle()
            net.wires[0].move(0, 2000)
        net.wires[0].cut()
        assert isinstance(a.broker, DurableBroker)
        net.nodes[0] = a = Node("a", a.broker.crash(keep), boot=8, sessions=True)
        net.wires = []
        net.link(a, b)
        net.later(2)
        net.later(2)
        where = {name: holders(net, name) for name in names}
        assert all(len(each) == 1 for each in where.values())
        assert {"b"} < {each[0] for each in where.values()} or keep == 0
        for name in names:
            client, connack = arrive(net, a, name)
            assert connack.session_present and acknowledge(net, client, client.packets()) == [b"waits"]
        quiet(net)


def test_a_drain_that_is_taken_back_keeps_what_is_still_here() -> None:
    net = mesh("a", "b")
    a, _ = net.nodes
    for number in range(AT_ONCE + 5):
        away(net, a, f"x{number}")
    drain = Drain(net)
    drain.begin()
    drain.order(drain.draining.take_back)
    drain.go_on(1)
    assert len(a.server.sessions) == 5 and drain.left == []
    for number in range(AT_ONCE + 5):
        assert arrive(net, a, f"x{number}")[1].session_present
    quiet(net)


def test_a_will_with_a_delay_is_not_published_early_and_not_lost() -> None:
    for delay in (2, 500):
        net = mesh("a", "b")
        a, b = net.nodes
        watcher = present(net, b, "watcher")
        subscribe(net, watcher, "gone/#", 1)
        will = Will("gone/x", b"", 1, False, Properties(will_delay_interval=delay))
        arrive(net, a, "x", will=will)
        drain = Drain(net)
        drain.begin()
        drain.go_on(1)
        assert not watcher.messages()
        net.later(min(delay, LONGEST_WILL_WAIT))
        drain.go_on()
        assert len(watcher.messages()) == 1 and holders(net, "x") == ["b"] and drain.left == [DRAINED]


@pytest.mark.parametrize("is_durable", [False, True])
def test_what_waits_for_a_shared_group_goes_along(is_durable: bool) -> None:
    net = mesh("a", "b", "c", is_durable=is_durable)
    a, b, c = net.nodes
    for name in ("x", "y"):
        away(net, a, name, "$share/g/t")
    publisher = present(net, c, "p")
    for number in range(6):
        publish(publisher, "t", b"%d" % number, 1)
    publish(present(net, a, "q"), "t", b"6", 1)
    net.settle()
    drain = Drain(net)
    drain.begin()
    drain.go_on()
    found: list[bytes] = []
    clients = [arrive(net, b, name)[0] for name in ("x", "y")]
    for _ in range(10):
        for client in clients:
            found += acknowledge(net, client, client.packets())
        drain.go_on(0.5)
    assert sorted(found) == [b"%d" % number for number in range(7)] and drain.left == [DRAINED]
    assert not a.server.sessions


def test_a_drain_waits_for_wills_that_are_due() -> None:
    net = mesh("a", "b")
    drain = Drain(net)
    drain.wills = 1
    drain.begin()
    view = drain.draining.view()
    assert view is not None and (view.state, view.wills) == (DRAINING, 1)
    drain.wills = 0
    drain.go_on(0.2)
    assert drain.left == [DRAINED]


def test_a_node_that_stays_does_not_wait_for_one_that_is_away_if_all_is_on_disk() -> None:
    for is_durable, state in ((True, DRAINED), (False, DRAINING)):
        net = mesh("a", "b", "c", is_durable=is_durable)
        a, _, c = net.nodes
        away(net, a, "x")
        subscribe(net, present(net, c, "r"), "r", 1)
        for wire in net.wires:
            if c in wire.nodes:
                wire.cut()
        publish(present(net, a, "p"), "r", b"for c", 1)
        net.settle()
        drain = Drain(net)
        drain.address = "b"
        net.nodes.remove(c)
        drain.begin(stays=True)
        drain.go_on()
        view = drain.draining.view()
        assert view is not None and view.state == state and view.waits_for == ["c"] and view.spooled > 0
        assert view.sessions == 0 and holders(net, "x") == ["b"]


def test_a_node_without_others_is_not_drained() -> None:
    net = mesh("a", "b")
    net.wires[0].cut()
    drain = Drain(net)
    with pytest.raises(ValueError, match="no other live node"):
        drain.begin()
    relaying = Node("r", neighbours=["a"])
    alone = Draining(relaying.links, Entry(relaying.server), dict, nothing, nothing, int)
    with pytest.raises(ValueError, match="neighbours"):
        alone.begin(False)
    assert arrive(net, net.nodes[0], "x")[1].reason == 0


def nothing(*_: Any) -> None:
    pass


# ---- brokers over loopback -------------------------------------------------------------------------------------------


def reader(broker: Broker) -> Device:
    return Device(HOST, broker.port, client_id="reader", clean_start=False, session_expiry=1000)


def test_a_node_says_where_clients_go_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.node.links.draining.TAKE_ALONG", 0.2)

    async def body() -> None:
        async with node("a") as a, node("b", a) as b:
            await linked(a, b)
            await until(lambda: nodes(b)["a"].mqtt != "")
            await until(b.is_ready)
            async with reader(b) as subscriber:
                await subscriber.subscribe("t", qos=1)
                will = Will("gone", b"", 1)
                async with Device(HOST, b.port, client_id="mortal", will=will):
                    cluster_of(b).drain("b", False)
                    assert b.why_not_ready() == "draining" and not b.is_ready()
                    with pytest.raises(ConnectError) as refused:
                        async with Device(HOST, b.port):
                            pass
                    assert refused.value.reason == 0x9C
                    await until(lambda: nodes(a)["b"].phase == "draining")
                    await until(lambda: b.why_not_ready() == "drained")
            await until(lambda: states(a)["b"] == "left")
            async with Device(HOST, a.port) as publisher, reader(a) as subscriber:
                await publisher.publish("t", b"later", qos=1)
                async with asyncio.timeout(10):
                    assert (await anext(aiter(subscriber.messages))).payload == b"later"
            with pytest.raises(ValueError, match="has left"):
                cluster_of(b).undrain("b")
            cluster_of(b).join([cluster_of(a).address])
            await linked(a, b)
            assert b.is_ready()

    run(body())


def test_orders_for_another_node_are_refused() -> None:
    async def body() -> None:
        async with node("a") as a, node("b", a) as b:
            await linked(a, b)
            with pytest.raises(ValueError, match="this is node a: ask the admin API of node b"):
                cluster_of(a).drain("b", False)
            with pytest.raises(ValueError, match="there is no node x"):
                cluster_of(a).undrain("x")
            cluster_of(a).undrain("a")  # it is not drained: nothing to do
            assert cluster_of(a).view().drain is None

    run(body())
