"""Conditions that are told to other nodes: what nobody there lets through is not sent, and nothing is lost by it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given

from headwater.node.config import Config
from headwater.node.links.pushing import (
    DEEPEST,
    LONGEST,
    MOST_CLAIMS,
    MOST_CONDITIONS,
    MOST_FILTERS,
    MOST_SUBSCRIBERS,
    Pushing,
    overlap,
)
from headwater.peering.frames.frame import MalformedFrame
from headwater.routing.topics import matches
from headwater.wire.packets import Packet, Puback, Publish, Suback, Subscribe, SubscribeRequest, Unsubscribe
from tests.node.links.memory import ROOMY, FakePeer, Net, Node, subscribe
from tests.node.links.test_sessions import arrive, begin, present
from tests.node.memory import Client, MemoryBroker
from tests.routing.strategies import filters, topics

ENABLED: dict[str, Any] = {**ROOMY, "conditions": {"enabled": True}}


def node(name: str, **settings: Any) -> Node:
    return Node(name, MemoryBroker(Config(**ENABLED)), **settings)


def mesh(*names: str, **settings: Any) -> Net:
    net = Net(*(node(name, **settings) for name in names))
    for at, one in enumerate(net.nodes):
        for other in net.nodes[at + 1 :]:
            net.link(one, other)
    net.settle()
    return net


def publish(client: Client, topic: str, value: int, qos: int = 1, retain: bool = False) -> None:
    client.send(Publish(topic, b'{"value": %d}' % value, qos, retain, False, 1 + value if qos else 0))


def got(client: Client) -> list[int]:
    found = client.messages()
    client.send(*(Puback(each.packet_id) for each in found if each.qos))
    return [json.loads(each.payload)["value"] for each in found]


def pushing(node: Node) -> Pushing:
    assert node.links.pushing is not None
    return node.links.pushing


def not_sent(node: Node) -> int:
    return node.server.conditions.tally.not_sent


@pytest.mark.parametrize("method", ["subscribe", "bloom", "flood"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_nobody_lets_through_is_not_sent(method: str, qos: int) -> None:
    net = mesh("a", "b", "c", method=method)
    a, b, c = net.nodes
    reader, other, writer = a.client("reader"), b.client("other"), c.client("writer")
    subscribe(net, reader, "t/+?value > 30", qos)
    subscribe(net, other, "t/#?value > 20 and unit != 'x' or value = 3", qos)
    subscribe(net, other, "t/#?value > 20", qos)
    before = {each.name: each.server.stats.messages_received for each in net.nodes}
    for value in (10, 25, 35):
        publish(writer, "t/1", value, qos)
    net.settle()
    assert got(reader) == [35]
    assert got(other) == [25, 35]
    assert not_sent(c) == 3
    came = {each.name: each.server.stats.messages_received - before[each.name] for each in net.nodes}
    assert (came["a"], came["b"]) == (1, 2)


def test_a_subscription_without_a_condition_is_answered_when_others_know() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    reader, plain, writer = a.client("reader"), a.client("plain"), b.client("writer")
    subscribe(net, reader, "t?value > 30")
    assert pushing(a).claims == {"t": ["value > 30"]}
    plain.send(Subscribe(1, [SubscribeRequest("t", 1)]))
    assert plain.packets() == [], "the other node would still leave out what it is to get"
    net.settle()
    assert isinstance(plain.packets()[0], Suback)
    assert pushing(a).claims == {}
    publish(writer, "t", 1)
    net.settle()
    assert (got(plain), got(reader)) == ([1], [])
    plain.send(Unsubscribe(2, ["t"]))
    net.settle()
    publish(writer, "t", 2)
    net.settle()
    assert not_sent(b) == 1


@pytest.mark.parametrize("other", ["#", "t/#", "+/a", "t/a"])
def test_a_filter_that_overlaps_makes_the_claim_void(other: str) -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    reader, plain, writer = a.client("reader"), a.client("plain"), b.client("writer")
    subscribe(net, reader, "t/+?value > 30")
    subscribe(net, plain, other)
    assert pushing(a).claims == {}
    publish(writer, "t/a", 1)
    net.settle()
    assert got(plain) == [1]
    plain.lose()
    net.settle()
    assert pushing(a).claims == {"t/+": ["value > 30"]}


def test_what_overlaps_with_what_is_not_claimed_is_not_claimed() -> None:
    net = mesh("a", "b")
    a = net.nodes[0]
    one, two, three = a.client("1"), a.client("2"), a.client("3")
    subscribe(net, one, "t/+/x?value > 30")
    subscribe(net, two, "t/1/+?value > 30")
    assert len(pushing(a).claims) == 2
    subscribe(net, three, "t/1/y")  # overlaps with the second only, which overlaps with the first
    assert pushing(a).claims == {}


def test_conditions_that_remember_are_told_by_what_they_do_not() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    reader, writer = a.client("reader"), b.client("writer")
    subscribe(net, reader, "t?value > 30 and changed(value) limit 5 per 1s")
    assert pushing(a).claims == {"t": ["value > 30"]}
    for value in (31, 31, 1, 32):
        publish(writer, "t", value)
    net.settle()
    assert got(reader) == [31, 32]
    assert not_sent(b) == 1
    subscribe(net, reader, "t?changed(value)")
    assert pushing(a).claims == {}


def test_retained_messages_and_long_payloads_are_not_left_out() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    reader, writer = a.client("reader"), b.client("writer")
    subscribe(net, reader, "t?value > 30")
    publish(writer, "t", 1, retain=True)
    b.server.conditions.most = 20
    writer.send(Publish("t", json.dumps({"value": 31, "more": "x" * 100}).encode(), 1, False, False, 9))
    net.settle()
    assert a.server.router.retained.get("t") is not None
    assert got(reader) == [31]
    late = a.client("late")
    found = subscribe(net, late, "t?value < 30")
    assert [each.payload for each in found if isinstance(each, Publish)] == [b'{"value": 1}']


def test_a_link_that_ends_takes_the_claims_along() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    reader, writer = a.client("reader"), b.client("writer")
    subscribe(net, reader, "t?value > 30")
    assert pushing(b).told
    net.wires[0].cut()
    assert not pushing(b).told
    subscribe(net, reader, "t?value < 30")
    publish(writer, "t", 1)
    publish(writer, "t", 31)
    net.wires.clear()
    net.link(a, b)
    net.settle()
    assert pushing(b).told
    assert got(reader) == [1]
    assert not b.server.conditions.by_text.get("value > 30")


def test_claims_are_few() -> None:
    net = mesh("a", "b")
    a = net.nodes[0]
    clients = [a.client(f"c{number}") for number in range(MOST_CONDITIONS + 1)]
    for number, client in enumerate(clients[:-1]):
        subscribe(net, client, f"t?value > {number}")
    assert len(pushing(a).claims["t"]) == MOST_CONDITIONS
    subscribe(net, clients[-1], "t?value > 100")
    assert pushing(a).claims == {}
    many = a.client("many")
    many.send(Subscribe(1, [SubscribeRequest(f"u/{number}?value > 1") for number in range(MOST_CLAIMS + 5)]))
    net.settle()
    assert len(pushing(a).claims) == MOST_CLAIMS
    many.send(Subscribe(2, [SubscribeRequest(f"v/{number}") for number in range(MOST_FILTERS + 1)]))
    net.settle()
    assert pushing(a).claims == {}
    crowd = node("crowd")
    for number in range(MOST_SUBSCRIBERS + 1):
        crowd.client(f"c{number}").send(Subscribe(1, [SubscribeRequest("t?value > 1")]))
        pushing(crowd).flush()
        assert bool(pushing(crowd).claims) == (number < MOST_SUBSCRIBERS)


def test_what_is_compared_is_short() -> None:
    """Filters that are deep or long are not claimed; and one that is long is taken to overlap with all."""
    net = mesh("a", "b")
    a = net.nodes[0]
    client = a.client("c")
    deepest = "/".join(["t"] * DEEPEST)
    for filter in (deepest, f"{deepest}/t", "l" * LONGEST):
        subscribe(net, client, f"{filter}?value > 1")
    assert set(pushing(a).claims) == {deepest, "l" * LONGEST}
    subscribe(net, client, "m" * (LONGEST + 1))
    assert pushing(a).claims == {}


def test_a_condition_that_this_node_cannot_read_is_sent_everything() -> None:
    net = Net(node("a"))
    peer = FakePeer(net.nodes[0])
    peer.greet()
    found = pushing(net.nodes[0])
    found.received("x", b'{"number": 1, "claims": {"t": ["value ~ 3"], "u": ["value > 3"]}}', False)
    end = net.nodes[0].links.spooling.end_of("x")
    assert found.link("t", [end]) is None
    assert found.link("u", [end]) is not None
    assert found.link("v", [end]) is None


def test_where_conditions_are_off_nothing_is_told() -> None:
    assert Node("a").links.pushing is None
    assert node("a", neighbours=["b"]).links.pushing is None
    stores = {"enabled": True}
    storing = Node("s", MemoryBroker(Config(**ENABLED, store=stores, data_dir="unused")))
    assert not pushing(storing).may_claim


@given(filters, filters, topics)
def test_filters_that_match_one_topic_overlap(one: str, other: str, topic: str) -> None:
    assert overlap(one, other) == overlap(other, one)
    if matches(one, topic) and matches(other, topic):
        assert overlap(one, other)


# ---- whatever happens ----------------------------------------------------------------------------------------------

NAMES = ["t/a", "t/+", "t/#", "+/b", "#"]
CONDITIONS = [None, None, "value > 50", "value < 20", "value between 30 and 60", "changed(value) and value > 10"]
TOPICS = ["t/a", "t/b", "u/b"]


def some_steps(seed: int, count: int) -> list[tuple[Any, ...]]:
    """Bytes move slowly, so that much is under way."""
    chance = random.Random(seed)
    found: list[tuple[Any, ...]] = []
    for _ in range(count):
        kind = chance.choices(["subscribe", "unsubscribe", "publish", "move", "cut"], [4, 2, 6, 12, 0.2])[0]
        if kind == "subscribe":
            found.append((kind, chance.choice("123"), chance.choice(NAMES), chance.choice(CONDITIONS)))
        elif kind == "unsubscribe":
            found.append((kind, chance.choice("123"), chance.choice(NAMES)))
        elif kind == "publish":
            found.append((kind, chance.choice(TOPICS), chance.randrange(100)))
        elif kind == "move":
            found.append((kind, chance.randrange(2), chance.choice([1, 30, 100, 300, 1 << 20])))
        else:
            found.append((kind,))
    return found


def holds(condition: str | None, value: int) -> bool:
    """Without what remembers, of which nothing can be demanded."""
    if condition is None:
        return True
    return {"value > 50": value > 50, "value < 20": value < 20, "value between 30 and 60": 30 <= value <= 60}.get(
        condition, False
    )


class World:
    """Subscribers at one node and a publisher at the other, over a wire that takes its time."""

    def __init__(self, method: str) -> None:
        self.net = mesh("a", "b", method=method)
        a, b = self.net.nodes
        self.readers = {name: a.client(name) for name in "123"}
        self.writer = b.client("writer")
        self.granted: dict[tuple[str, str], str | None] = {}
        """What a client may rely on: its SUBACK has come, and it has asked for nothing else since."""
        self.asked: dict[str, tuple[str, str | None]] = {}
        self.owed: dict[str, dict[int, set[str]]] = {name: {} for name in "123"}
        """By client and message, the topic filters by which it is to come."""
        self.came: dict[str, set[int]] = {name: set() for name in "123"}
        self.number = 0

    def hear(self, name: str) -> None:
        reader = self.readers[name]
        acknowledgements: list[Packet] = []
        for packet in reader.packets():
            if isinstance(packet, Suback) and name in self.asked:
                filter, condition = self.asked.pop(name)
                self.granted[name, filter] = condition
            elif isinstance(packet, Publish):
                self.came[name].add(json.loads(packet.payload)["number"])
                acknowledgements.append(Puback(packet.packet_id))
        if acknowledgements:
            reader.send(*acknowledgements)

    def withdrawn(self, name: str, filter: str) -> None:
        """What is still on its way need not come any more by this topic filter."""
        self.granted.pop((name, filter), None)
        self.hear(name)
        for number, ways in list(self.owed[name].items()):
            if number not in self.came[name]:
                ways.discard(filter)
                if not ways:
                    del self.owed[name][number]

    def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("subscribe", name, filter, condition) if name not in self.asked:
                self.withdrawn(name, filter)
                self.asked[name] = filter, condition
                text = filter if condition is None else f"{filter}?{condition}"
                self.readers[name].send(Subscribe(1, [SubscribeRequest(text, 1)]))
            case ("unsubscribe", name, filter) if name not in self.asked:
                self.withdrawn(name, filter)
                self.readers[name].send(Unsubscribe(1, [filter]))
            case ("publish", topic, value):
                self.number += 1
                for (name, filter), condition in self.granted.items():
                    if matches(filter, topic) and holds(condition, value):
                        self.owed[name].setdefault(self.number, set()).add(filter)
                payload = json.dumps({"value": value, "number": self.number}).encode()
                self.writer.send(Publish(topic, payload, 1, False, False, self.number))
            case ("move", side, size):
                self.net.wires[-1].move(side, size)
            case ("cut",):
                self.net.wires[-1].cut()
                self.net.wires.clear()
                self.net.link(*self.net.nodes)
                self.net.settle()  # who subscribes while there is no link may have to wait for it to be there
        for name in self.readers:
            self.hear(name)


@pytest.mark.parametrize("method", ["subscribe", "bloom", "flood"])
def test_whoever_has_its_suback_gets_what_is_published_from_then_on(method: str) -> None:
    left_out = owed = 0
    for seed in range(60):
        world = World(method)
        for step in some_steps(seed, 150):
            world.step(step)
        for _ in range(2):
            world.net.settle()
            for name in world.readers:
                world.hear(name)
        for name in world.readers:
            assert world.owed[name].keys() <= world.came[name], f"seed {seed}"
            owed += len(world.owed[name])
        left_out += not_sent(world.net.nodes[1])
    assert owed > 1000
    assert left_out > 20


@pytest.mark.parametrize("size", [25, 80, 400])
def test_a_session_that_moves_takes_its_condition_along_and_loses_nothing(size: int) -> None:
    """To a node that has claimed something else of the topic, while messages come."""
    net = mesh("a", "b", "p", sessions=True)
    a, b, p = net.nodes
    reader, _ = arrive(net, a, "reader")
    subscribe(net, reader, "t?value > 30", 1)
    other = present(net, b, "other")
    subscribe(net, other, "t?value < 10", 1)
    writer = present(net, p, "writer")
    assert {node: list(gates) for node, gates in pushing(p).told.items()} == {"a": ["t"], "b": ["t"]}
    reader.lose()
    net.settle()
    came = begin(b, "reader")
    number = 100
    while net.wires and (sum(wire.waiting for wire in net.wires) or number < 110):
        if number < 160:
            publish(writer, "t", number)
            publish(writer, "t", 20)  # for nobody
            number += 1
        for wire in net.wires:
            for side in (0, 1):
                wire.move(side, size)
        for each in net.nodes:
            each.settle()
    net.settle()
    found: list[int] = []
    while more := got(came):
        found += more
        net.settle()
    assert sorted(set(found)) == [*range(100, number)]
    publish(writer, "t", 5)
    publish(writer, "t", 35)
    net.settle()
    assert (got(other)[-1], got(came)) == (5, [35])
    assert pushing(b).claims == {"t": ["value < 10", "value > 30"]}
    assert not pushing(a).claims


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 5000,
        b"[]",
        b'{"number": "1", "claims": {}}',
        b'{"number": 1, "claims": {"a/#/b": ["a = 1"]}}',
        b'{"number": 1, "claims": {"a": []}}',
        b'{"number": 1, "claims": {"a": "a = 1"}}',
        json.dumps({"number": 1, "claims": {"a": ["a = 1"] * (MOST_CONDITIONS + 1)}}).encode(),
        json.dumps({"number": 1, "claims": {f"a/{at}": ["a = 1"] for at in range(MOST_CLAIMS + 1)}}).encode(),
        json.dumps({"number": 1, "claims": {f"a/{at}": [" or ".join(["a = 1"] * 60)] for at in range(9)}}).encode(),
        b'{"number": 1, "claims": {}, "x": "' + b"x" * (1 << 16) + b'"}',
    ],
)
def test_claims_beyond_the_bounds_end_the_link(body: bytes) -> None:
    found = pushing(node("a"))
    with pytest.raises(MalformedFrame):
        found.received("x", body, False)
    assert not found.told
    assert not found.server.conditions.by_text


def test_a_node_that_says_nothing_is_not_waited_for_for_ever() -> None:
    net = mesh("a", "b", subscribe_wait=2.0)
    a = net.nodes[0]
    reader = a.client("reader")
    reader.send(Subscribe(1, [SubscribeRequest("t?value > 3")]))
    assert reader.packets() == []
    a.broker.later(1.9)
    assert reader.packets() == []
    a.broker.later(0.2)
    a.broker.later(2.0)  # by then, its interest has waited as long
    assert isinstance(reader.packets()[0], Suback)
