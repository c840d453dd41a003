"""Runs that another node sent: what is applied, what waits, and what ends the link."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.node.config import Config
from headwater.node.links.end import MAX_PUBLISHER_BYTES, MAX_PUBLISHERS
from headwater.peering.frames.frame import Ack, Publisher, Refuse, Resume, Run, Spool
from headwater.wire import encode
from headwater.wire.packets import (
    Packet,
    Pingreq,
    Properties,
    Puback,
    Publish,
    Pubrel,
    Subscribe,
    SubscribeRequest,
)
from tests.node.links.memory import BOOT, ROOMY, FakePeer, Node, pair, payloads, peer_of, publish, subscribe
from tests.node.memory import Client, MemoryBroker


def message(payload: bytes, qos: int = 0, topic: str = "t", version: int = 4) -> bytes:
    return encode(Publish(topic, payload, qos, False, False, 1 if qos else 0), version)


def run_of(*packets: bytes, position: int = 0, counter: int = 0, **more: Any) -> Run:
    values: dict[str, Any] = {"protocol": 4, "hops": 0, "publisher": 0, "origin": "", "boot": BOOT, **more}
    return Run(
        messages=values.pop("messages", len(packets)),
        counter=counter,
        position=position,
        packets=b"".join(packets),
        **values,
    )


def spooling_peer(node: Node, name: str = "x") -> FakePeer:
    """A peer with a publisher and an empty spool."""
    peer = peer_of(node, name)
    peer.send(Publisher(0, 4, "far"), Spool(1, 1))
    assert Resume(1, 0) in peer.heard()
    return peer


def refusing(**more: Any) -> Node:
    """A node whose queues hold one message of each session, and refuse more."""
    config = {**ROOMY, "max_inflight": 1, "max_queued_messages": 1, "queue_full": "refuse", **more}
    return Node("b", MemoryBroker(Config(**config)))


def subscriber(node: Node, filter: str = "#", qos: int = 2) -> Client:
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest(filter, qos)]))
    node.broker.later(1)
    client.packets()
    return client


def acknowledge_all(node: Node, client: Client) -> list[bytes]:
    """What comes when the client takes one message after another."""
    found: list[bytes] = []
    while messages := client.messages():
        for each in messages:
            found.append(each.payload)
            client.send(Puback(each.packet_id))
    return found


# ---- what is applied -------------------------------------------------------------------------------------------------


def test_messages_of_a_run_reach_clients_in_order() -> None:
    node = Node("b")
    client = subscriber(node)
    peer = spooling_peer(node)
    peer.send(run_of(message(b"1"), message(b"2"), message(b"longer")))
    peer.send(run_of(message(b"3", 1), message(b"4", 2), position=1))
    assert payloads(client) == [b"1", b"2", b"longer", b"3", b"4"]
    assert peer.heard()[-1] == Ack(2)


def test_what_was_applied_is_not_applied_again() -> None:
    node = Node("b")
    client = subscriber(node)
    peer = spooling_peer(node)
    peer.send(run_of(message(b"1", 1), message(b"2", 1), position=1))
    peer.send(run_of(message(b"1", 1), message(b"2", 1), message(b"3", 1), position=1))
    assert payloads(client) == [b"1", b"2", b"3"]


def test_counters_that_come_again_are_dropped() -> None:
    node = Node("b")
    client = subscriber(node)
    peer = spooling_peer(node)
    peer.send(run_of(message(b"1"), message(b"2"), counter=5))
    peer.send(run_of(message(b"1"), message(b"2"), message(b"3"), counter=5))
    peer.send(run_of(message(b"0"), counter=2))
    assert payloads(client) == [b"1", b"2", b"3"]
    assert node.links.forwarding.repeated == 3


# ---- what ends the link ----------------------------------------------------------------------------------------------


def ended(peer: FakePeer) -> str:
    """Why, as the peer was told; the node itself has not failed."""
    assert peer.is_closed
    assert peer.node.server.stats.failures == 0
    refusal = peer.heard()[-1]
    assert isinstance(refusal, Refuse)
    return refusal.reason


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize(
    "packet",
    [
        Puback(1),
        Pubrel(1),
        Pingreq(),
        Subscribe(1, [SubscribeRequest("#", 0)]),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_only_publish_may_be_in_a_run(packet: Packet, position: int) -> None:
    peer = spooling_peer(Node("b"))
    peer.send(run_of(message(b"1", 1), encode(packet, 4), position=position))
    assert ended(peer) == "something else than PUBLISH in a run"


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("messages", [1, 3])
def test_a_run_has_as_many_packets_as_it_says(messages: int, position: int) -> None:
    peer = spooling_peer(Node("b"))
    peer.send(run_of(message(b"1", 1), message(b"2", 1), position=position, messages=messages))
    assert ended(peer) == "a run has other packets than its head says"


@pytest.mark.parametrize("position", [0, 1])
def test_a_run_ends_with_a_whole_packet(position: int) -> None:
    peer = spooling_peer(Node("b"))
    peer.send(run_of(message(b"1", 1), message(b"22", 1)[:-1], position=position))
    assert ended(peer) == "a run has other packets than its head says"


@pytest.mark.parametrize("more", [{"publisher": 1}, {"protocol": 5}])
def test_runs_are_of_publishers_that_were_told(more: dict[str, int]) -> None:
    peer = spooling_peer(Node("b"))
    peer.send(run_of(message(b"1"), **more))
    assert "who is not known" in ended(peer)


def test_positions_have_no_gaps() -> None:
    peer = spooling_peer(Node("b"))
    peer.send(run_of(message(b"1", 1), position=2))
    assert ended(peer) == "position 2 behind 0"


@pytest.mark.parametrize("more", [{"hops": 1}, {"origin": "z"}, {"origin": "z", "hops": 1}])
def test_in_a_mesh_a_node_speaks_for_itself_alone(more: dict[str, Any]) -> None:
    node = Node("b")
    client = subscriber(node)
    peer = spooling_peer(node)
    peer.send(run_of(message(b"1"), **more))
    assert payloads(client) == []


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("topic", ["", "a/+", "#", "$SYS/uptime", "$share/g/t"])
def test_topics_that_nobody_may_publish_to(topic: str, qos: int) -> None:
    node = Node("b")
    client = subscriber(node)
    system = node.client("system")
    system.send(Subscribe(1, [SubscribeRequest("$SYS/#", 0), SubscribeRequest("$headwater/#", 0)]))
    node.broker.later(1)
    system.packets()
    peer = spooling_peer(node)
    body = len(topic).to_bytes(2, "big") + topic.encode() + (b"\x00\x01" if qos else b"") + b"x"
    peer.send(run_of(bytes((0x30 | qos << 1, len(body))) + body, position=qos))
    assert "topic" in ended(peer)
    assert payloads(client) == payloads(system) == []


def test_aliases_mean_nothing_in_a_run() -> None:
    node = Node("b")
    client = subscriber(node)
    peer = peer_of(node)
    packet = encode(Publish("", b"x", 0, False, False, 0, Properties(topic_alias=1)), 5)
    peer.send(Publisher(0, 5, "far"), run_of(packet, protocol=5))
    assert "topic" in ended(peer)
    assert payloads(client) == []


def test_a_spool_begins_with_its_first_position() -> None:
    peer = spooling_peer(Node("b"))
    peer.send(run_of(message(b"1", 1), position=1), Spool(2, 0))
    assert ended(peer) == "a spool that begins at 0"


# ---- publishers ------------------------------------------------------------------------------------------------------


def test_publishers_have_numbers_below_a_bound() -> None:
    peer = peer_of(Node("b"))
    peer.send(Publisher(MAX_PUBLISHERS, 4, "one too many"))
    assert "where there may be" in ended(peer)


def test_names_of_publishers_are_bounded_in_bytes() -> None:
    peer = peer_of(Node("b"))
    for number in range(MAX_PUBLISHER_BYTES // 65535 + 2):
        peer.send(Publisher(number, 4, "x" * 65535))
    assert ended(peer) == "too many bytes of client ids"


def test_a_number_that_is_given_again_counts_once() -> None:
    node = Node("b")
    peer = peer_of(node)
    for _ in range(200):
        peer.send(Publisher(0, 4, "x" * 65535))
    assert peer.is_up


def test_clients_with_long_ids_do_not_break_a_link() -> None:
    """The sender frees many short names for one long one: the receiver has to hear of that."""
    net = pair()
    a, b = net.nodes
    subscribed = b.client("s")
    subscribe(net, subscribed, "t")
    end = a.links.spooling.ends["b"]
    for number in range(4090):
        end.number_of(f"{number:04}" + "x" * 1000, 4)
    for number in range(30):
        end.number_of(f"{number:02}" + "y" * 60000, 4)
    net.settle()
    assert net.wires[0].is_up
    publish(a.client("p"), "t", b"still there")
    net.settle()
    assert payloads(subscribed) == [b"still there"]


# ---- what finds no room ----------------------------------------------------------------------------------------------


def test_what_finds_no_room_waits_and_is_applied_in_order() -> None:
    node = refusing()
    client = subscriber(node)
    peer = spooling_peer(node)
    peer.send(run_of(*[message(b"%d" % each, 1) for each in range(4)], position=1))
    peer.send(run_of(message(b"4", 1), position=5, counter=4))
    assert [frame for frame in peer.heard() if isinstance(frame, Ack)][-1] == Ack(2)
    got: list[bytes] = []
    for _ in range(6):
        got += acknowledge_all(node, client)
        node.broker.later(0.05)
    assert got == [b"0", b"1", b"2", b"3", b"4"]
    assert peer.heard()[-1] == Ack(5)


def test_what_waits_when_the_link_breaks_is_not_lost() -> None:
    node = refusing()
    client = subscriber(node)
    peer = spooling_peer(node)
    runs = [run_of(message(b"%d" % each, 1), position=each + 1, counter=each) for each in range(4)]
    peer.send(*runs)
    node.server.lost(peer.link.channel)
    got = acknowledge_all(node, client)
    again = peer_of(node)
    again.send(Publisher(0, 4, "far"), Spool(1, 1))
    assert Resume(1, 2) in again.heard()
    again.send(*runs[2:])
    for _ in range(6):
        got += acknowledge_all(node, client)
        node.broker.later(0.05)
    assert got == [b"0", b"1", b"2", b"3"]


def test_what_waits_of_a_run_when_the_link_breaks_is_not_lost() -> None:
    node = refusing()
    client = subscriber(node)
    peer = spooling_peer(node)
    peer.send(run_of(*[message(b"%d" % each, 1) for each in range(4)], position=1))
    node.server.lost(peer.link.channel)
    got = acknowledge_all(node, client)
    again = peer_of(node)
    again.send(Publisher(0, 4, "far"), Spool(1, 1))
    again.send(run_of(*[message(b"%d" % each, 1) for each in range(4)], position=1))
    for _ in range(6):
        got += acknowledge_all(node, client)
        node.broker.later(0.05)
    assert got == [b"0", b"1", b"2", b"3"]


def test_what_waits_at_a_relay_may_come_by_another_way_meanwhile() -> None:
    node = Node("b", refusing().broker, neighbours=["x", "y"])
    client = subscriber(node)
    x, y = (FakePeer(node, name) for name in "xy")
    for peer in (x, y):
        peer.hello = peer.hello._replace(relays=True)
        peer.greet()
        peer.send(Publisher(0, 4, "far"), Spool(1, 1))
    packets = [message(b"%d" % each, 1) for each in range(4)]
    x.send(run_of(*packets, position=1, origin="z", hops=1))
    y.send(run_of(*packets, position=1, origin="z", hops=1))
    got: list[bytes] = []
    for _ in range(8):
        got += acknowledge_all(node, client)
        node.broker.later(0.05)
    assert got == [b"0", b"1", b"2", b"3"]


def test_what_waits_is_bounded_in_bytes() -> None:
    node = refusing()
    subscriber(node)
    peer = spooling_peer(node)
    for each in range(40):
        peer.send(run_of(message(bytes(1 << 18), 1), position=each + 1, counter=each))
    assert ended(peer) == "more is in flight than may be"


# ---- no time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_runs_for_which_there_is_no_time_are_gone_on_with(qos: int) -> None:
    node = Node("b", MemoryBroker(Config(**ROOMY), hot=False))
    client = subscriber(node)
    peer = spooling_peer(node)
    packets = [message(b"%d" % each, qos) for each in range(5)]
    node.server.hot.until = 0.0
    peer.send(run_of(*packets, position=int(qos > 0)), run_of(message(b"5"), counter=50))
    assert payloads(client) == [b"%d" % each for each in range(6)]
    assert not peer.link.channel.paused


def test_a_run_that_is_gone_on_with_and_finds_no_room_is_tried_again() -> None:
    node = refusing()
    node.broker.hot_wanted = False
    node.broker.hooks_changed()
    client = subscriber(node)
    peer = spooling_peer(node)
    node.server.hot.until = 0.0
    peer.send(run_of(*[message(b"%d" % each, 1) for each in range(4)], position=1))
    got: list[bytes] = []
    for _ in range(6):
        got += acknowledge_all(node, client)
        node.broker.later(0.05)
    assert got == [b"0", b"1", b"2", b"3"]


def test_a_link_that_breaks_while_a_run_is_gone_on_with() -> None:
    node = Node("b", MemoryBroker(Config(**ROOMY), hot=False))
    subscriber(node)
    peer = spooling_peer(node)
    node.server.hot.until = 0.0
    with node.broker.one_turn():
        peer.send(run_of(*[message(b"%d" % each) for each in range(5)]))
        node.server.lost(peer.link.channel)
    assert node.server.background.failures == 0
    assert peer.is_closed


@pytest.mark.parametrize("neighbours", [[], ["x"]])
def test_what_came_before_something_malformed_is_not_delivered_again(neighbours: list[str]) -> None:
    """A peer that sends the same again after each reconnect."""
    node = Node("b", neighbours=neighbours)
    client = subscriber(node)
    for _ in range(3):
        peer = FakePeer(node)
        peer.hello = peer.hello._replace(relays=bool(neighbours))
        peer.greet()
        peer.send(Publisher(0, 4, "far"), Spool(1, 1))
        peer.send(run_of(message(b"1", 1), message(b"2", 1), encode(Puback(1), 4), position=1))
        assert peer.is_closed
    assert payloads(client) == [b"1", b"2"]
