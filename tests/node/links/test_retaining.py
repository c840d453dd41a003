"""Retained messages of linked nodes: all have the same, whatever was published where, and whatever a node missed."""

from __future__ import annotations

import pytest

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.links.retaining import STAMP
from headwater.node.persistence.memory import MemoryBackend
from headwater.peering.frames.frame import RetainedItem
from headwater.wire.encode import encode
from headwater.wire.packets import V5, Properties, Publish, Subscribe, SubscribeRequest
from tests.node.links.memory import ROOMY, FakePeer, Net, Node, pair, payloads, subscribe
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker


def retained(node: Node) -> dict[str, bytes]:
    kept = node.server.router.retained
    return {message.topic: message.payload for message in kept.some(0, len(kept))}


def retain(client: Client, topic: str, payload: bytes, qos: int = 1, properties: Properties | None = None) -> None:
    client.send(Publish(topic, payload, qos, True, False, 9 if qos else 0, properties))


def agree(net: Net) -> dict[str, bytes]:
    net.settle()
    for _ in range(6):
        net.later(1.0)
    first, *others = [retained(node) for node in net.nodes]
    assert all(other == first for other in others)
    branches = {node.links.retaining.replica.branches() for node in net.nodes}
    assert len(branches) == 1
    return first


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_subscribes_at_another_node_gets_it(qos: int) -> None:
    net = pair()
    retain(net.nodes[0].client("p"), "t", b"m", qos)
    net.settle()
    packets = subscribe(net, net.nodes[1].client("r"), "t")
    assert [(each.payload, each.retain) for each in packets if isinstance(each, Publish)] == [(b"m", True)]
    (kept,) = net.nodes[1].server.router.retained.some(0, 1)
    assert not kept.user_properties, "no client sees the stamp"


def test_subscribers_get_it_once_when_it_is_published() -> None:
    net = pair()
    readers = [node.client(f"r{number}") for number, node in enumerate(net.nodes)]
    for reader in readers:
        subscribe(net, reader, "t")
    retain(net.nodes[0].client("p"), "t", b"m")
    net.settle()
    assert [payloads(reader) for reader in readers] == [[b"m"], [b"m"]]
    assert agree(net) == {"t": b"m"}


def test_a_deletion_is_everywhere() -> None:
    net = pair()
    publishers = [node.client(f"p{number}") for number, node in enumerate(net.nodes)]
    retain(publishers[0], "t", b"m")
    net.settle()
    retain(publishers[1], "t", b"")
    assert agree(net) == {}


def test_the_last_writer_wins_after_a_cut() -> None:
    """Both sides write while they cannot hear each other; the spools hold what was of QoS 1, nothing what was not."""
    net = pair()
    one, other = (node.client("p") for node in net.nodes)
    retain(one, "old", b"before")
    net.settle()
    net.wires.pop().cut()
    retain(one, "t", b"first", 0)
    retain(one, "only here", b"1", 0)
    net.settle()
    net.nodes[1].links.retaining.clock.last = net.nodes[0].links.retaining.clock.last + 1
    retain(other, "t", b"second", 0)
    retain(other, "old", b"", 0)
    net.settle()
    net.link(*net.nodes)
    assert agree(net) == {"t": b"second", "only here": b"1"}
    assert sum(node.links.retaining.mended for node in net.nodes) == 3


def test_a_late_message_of_a_spool_does_not_replace_what_is_newer() -> None:
    net = pair()
    one, other = (node.client("p") for node in net.nodes)
    reader = net.nodes[1].client("r")
    subscribe(net, reader, "t")
    net.wires.pop().cut()
    retain(one, "t", b"first", 1)
    net.settle()
    net.nodes[1].links.retaining.clock.last = net.nodes[0].links.retaining.clock.last + 1
    retain(other, "t", b"second", 1)
    net.settle()
    net.link(*net.nodes)
    assert agree(net) == {"t": b"second"}
    assert payloads(reader) == [b"second", b"first"], "whoever has subscribed gets both, as they come"


def test_a_new_node_gets_what_there_is() -> None:
    net = pair()
    publisher = net.nodes[0].client("p")
    for number in range(300):
        retain(publisher, f"t/{number}", b"m", 0)
    net.settle()
    net.nodes.append(Node("c"))
    net.link(net.nodes[2], net.nodes[0])
    assert len(agree(net)) == 300


def test_what_was_there_before_the_cluster_is_older_than_what_is_written_in_it() -> None:
    net = Net(Node("a"), Node("b"))
    for node, payload in zip(net.nodes, (b"a", b"b"), strict=True):
        node.links.retaining.replica.drop("t")
        kept = node.client("p")
        node.server.interest = None
        retain(kept, "t", payload, 0)
        node.settle()
        node.links.retaining.start()
    assert retained(net.nodes[0]) == {"t": b"a"}
    net.link(*net.nodes)
    assert agree(net) == {"t": b"b"}, "of two such the one of the greater id"


def test_nothing_of_one_broker_alone_is_told() -> None:
    net = pair()
    net.nodes[0].server.publishing.announce(Message("$SYS/broker/uptime", b"1", 0, True))
    net.settle()
    net.later(1.0)
    assert retained(net.nodes[0]) and not retained(net.nodes[1])


def test_a_stamp_that_a_client_invents_is_not_ours() -> None:
    net = pair()
    client = net.nodes[0].client("p")
    forged = Properties(user_properties=[(STAMP, f"{2**63} z"), ("mine", "1")])
    retain(client, "t", b"m", 1, forged)
    net.settle()
    assert net.nodes[1].links.retaining.replica.get("t").stamp.node == "a"
    (kept,) = net.nodes[1].server.router.retained.some(0, 1)
    assert kept.user_properties == [("mine", "1")]


def test_what_finds_no_room_is_delivered_and_not_retained() -> None:
    small = Config(**{**ROOMY, "max_retained": 1})
    net = Net(Node("a"), Node("b"))
    net.nodes[1].server.router.retained.max_messages = small.max_retained
    net.link(*net.nodes)
    net.settle()
    publisher = net.nodes[0].client("p")
    retain(publisher, "t/1", b"1")
    retain(publisher, "t/2", b"2")
    net.settle()
    for _ in range(4):
        net.later(1.0)
    assert retained(net.nodes[0]) == {"t/1": b"1", "t/2": b"2"} and retained(net.nodes[1]) == {"t/1": b"1"}
    assert len(net.nodes[1].links.retaining.replica) == 1


def test_expired_messages_leave_nothing_behind() -> None:
    net = pair()
    retain(net.nodes[0].client("p"), "t", b"m", 1, Properties(message_expiry_interval=5))
    net.settle()
    assert len(net.nodes[1].links.retaining.replica) == 1
    for node in net.nodes:
        node.broker.later(10.0)
        node.server.router.retained.expire(node.server.hot.now)
    net.settle()
    assert [len(node.links.retaining.replica) for node in net.nodes] == [0, 0]


def test_stamps_outlive_a_restart() -> None:
    backend = MemoryBackend()
    node = Node("a", DurableBroker(backend, Config(**ROOMY)))
    client = node.client("p")
    for topic, payload in (("t", b"m"), ("gone", b"m"), ("gone", b"")):
        retain(client, topic, payload)
        node.settle()
    before = {topic: node.links.retaining.replica.get(topic) for topic in ("t", "gone")}
    assert before["gone"].is_deleted
    again = Node("a", DurableBroker(backend, Config(**ROOMY)))
    assert {topic: again.links.retaining.replica.get(topic) for topic in ("t", "gone")} == before
    assert again.links.retaining.clock.last >= before["gone"].stamp.time


@pytest.mark.parametrize(
    "packet",
    [b"", b"\x31", b"\xc0\x00", encode(Publish("t", b"m"), V5), encode(Publish("$SYS/x", b"m", 0, True), V5)],
)
def test_an_item_that_is_none_ends_the_link(packet: bytes) -> None:
    node = Node("a")
    peer = FakePeer(node)
    peer.greet()
    assert peer.is_up
    peer.send(RetainedItem(5, "x", packet))
    assert not peer.is_up and not retained(node)


def test_a_line_has_all_everywhere() -> None:
    """Relayed, whatever those at the end want."""
    names = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    net = Net(*(Node(name, neighbours=near) for name, near in names.items()))
    net.link(net.nodes[0], net.nodes[1])
    net.link(net.nodes[1], net.nodes[2])
    net.settle()
    reader = net.nodes[2].client("r")
    retain(net.nodes[0].client("p"), "t", b"m")
    net.settle()
    assert all(retained(node) == {"t": b"m"} for node in net.nodes), "at once"
    assert len({node.links.retaining.replica.get("t") for node in net.nodes}) == 1
    reader.send(Subscribe(1, [SubscribeRequest("#", 1)]))
    net.settle()
    assert payloads(reader) == [b"m"]
