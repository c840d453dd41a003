"""What links owe and have applied, in the commits of a journal: a crash at any moment costs nothing of it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.node.links.spooling import APPLIED, MEMBERS, SPOOL, WINDOW, JournalStorage
from headwater.node.persistence.memory import MemoryBackend
from headwater.peering.frames.frame import Ack, Publisher, Resume, Run, Spool
from headwater.peering.spool import Block
from headwater.wire.packets import Puback
from tests.node.links.memory import BOOT, ROOMY, FakePeer, Net, Node, peer_of, publish
from tests.node.persistence.durable import Device, DurableBroker

PACKET = b"\x32\x06\x00\x01t\x00\x01x"


def journaling(backend: MemoryBackend | None = None) -> DurableBroker:
    return DurableBroker(backend, Config(**ROOMY))


def disk(node: Node) -> MemoryBackend:
    assert isinstance(node.broker, DurableBroker)
    return node.broker.backend


def step(node: Node) -> bool:
    assert isinstance(node.broker, DurableBroker)
    return node.broker.step()


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_and_nobody_acknowledged_before_it_is_on_disk() -> None:
    node = Node("a", journaling(), method="flood")
    peer = peer_of(node, "b")
    peer.send(Spool(1, 1))
    node.settle()
    client = node.client("p")
    peer.heard()
    spool = node.links.spooling.ends["b"].spool
    peer.send(Resume(spool.spool, 0))
    publish(client, "t", b"x", 1)
    assert client.packets() == []
    assert not any(isinstance(frame, Run) for frame in peer.heard())
    node.settle()
    assert any(isinstance(packet, Puback) for packet in client.packets())
    assert any(isinstance(frame, Run) for frame in peer.heard())
    assert len(list(disk(node).scan(SPOOL))) == 1
    peer.send(Ack(1))
    node.settle()
    assert list(disk(node).scan(SPOOL)) == []


def test_what_was_applied_is_acknowledged_when_it_is_on_disk() -> None:
    node = Node("b", journaling())
    peer = peer_of(node, "a")
    peer.send(Publisher(0, 4, "p"), Spool(9, 1))
    node.settle()
    peer.heard()
    peer.send(Run(4, 0, 1, 0, 0, "", BOOT, 1, PACKET))
    assert not any(isinstance(frame, Ack) for frame in peer.heard())
    node.settle()
    assert Ack(1) in peer.heard()
    assert [key for key, _ in disk(node).scan(APPLIED)] == [b"aa"]


def test_blocks_are_found_again_in_order() -> None:
    backend = MemoryBackend()
    storage = JournalStorage(backend.get, backend.scan)
    for first in (1, 300, 70_000):
        storage.put("b", Block(5, first, 2, 3), b"abc")
        storage.put("c", Block(6, first, 1, 3), b"def")
    backend.write(list(storage.puts.items()), storage.deletes)
    again = JournalStorage(backend.get, backend.scan)
    assert sorted(again.peers) == ["b", "c"]
    assert again.blocks("b") == [Block(5, first, 2, 3) for first in (1, 300, 70_000)]
    assert again.get("c", 300) == b"def"
    again.drop("b", 300)
    backend.write(list(again.puts.items()), again.deletes)
    assert [block.first for block in JournalStorage(backend.get, backend.scan).blocks("b")] == [1, 70_000]


def test_a_block_that_is_dropped_before_its_commit_leaves_no_trace() -> None:
    backend = MemoryBackend()
    storage = JournalStorage(backend.get, backend.scan)
    storage.put("b", Block(5, 1, 1, 1), b"x")
    storage.drop("b", 1)
    assert storage.puts == {}
    assert storage.deletes == []


def test_members_are_remembered() -> None:
    node = Node("a", journaling())
    node.links.spooling.keep_members({"b": "somewhere:1"})
    node.settle()
    assert len(list(disk(node).scan(MEMBERS))) == 1
    again = Node("a", journaling(disk(node).crashed(0)), boot=BOOT + 1)
    assert again.links.spooling.members == {"b": "somewhere:1"}


def test_a_forgotten_peer_leaves_nothing_on_disk_but_how_far_it_was() -> None:
    """It may come back with what it owed, which is not to be applied twice."""
    net = Net(Node("a", journaling(), method="flood"), Node("b", journaling(), method="flood"))
    a, b = net.nodes
    wire = net.link(a, b)
    net.settle()
    for one in net.nodes:
        publish(one.client(f"p{one.name}"), "t", b"x", 1)
    net.settle()
    wire.cut()
    publish(a.client("p"), "t", b"y", 1)
    net.settle()
    assert list(disk(a).scan(SPOOL))
    assert list(disk(a).scan(APPLIED))
    a.links.forget("b")
    net.settle()
    assert list(disk(a).scan(SPOOL)) == []
    assert [key for key, _ in disk(a).scan(APPLIED)] == [APPLIED + b"b"]


def test_windows_of_relayed_messages_are_on_disk_and_bounded() -> None:
    """However often an origin starts anew, and however far its counters jump."""
    node = Node("b", journaling(), neighbours=["x"])
    relaying(node, [(boot, counter) for boot in range(1, 31) for counter in range(0, 4_000_000, 200_000)])
    for boot in range(BOOT + 1, BOOT + 3):
        node = Node("b", journaling(disk(node).crashed(0)), boot=boot, neighbours=["x"])
        node.settle()
    assert len(list(disk(node).scan(WINDOW))) <= 4 * 130


def relaying(node: Node, messages: list[tuple[int, int]]) -> None:
    peer = FakePeer(node, "x")
    peer.hello = peer.hello._replace(relays=True)
    peer.greet()
    peer.send(Publisher(0, 4, "p"), Spool(9, 1))
    for number, (boot, counter) in enumerate(messages):
        peer.send(Run(4, 1, 1, 0, counter, "z", boot, number + 1, PACKET))
        node.settle()
    assert peer.is_up


# ---- crashes ---------------------------------------------------------------------------------------------------------


class Pair:
    """A publisher at `a`, a subscriber at `b`, both with sessions that are kept, and disks that move step by step."""

    def __init__(self) -> None:
        self.boot = BOOT
        self.nodes = [Node("a", journaling()), Node("b", journaling())]
        self.net = Net(*self.nodes)
        self.devices = [Device("p"), Device("s")]
        self.link()
        for device, node in zip(self.devices, self.nodes, strict=True):
            device.connect(node.broker)
        self.settle()
        self.devices[1].subscribe("t", 2)
        self.settle()
        self.published = 0

    def link(self) -> None:
        for wire in self.net.wires:
            wire.cut()
        self.net.wires.clear()
        self.net.link(*self.nodes)

    def publish(self, qos: int) -> None:
        if self.devices[0].welcome and len(self.devices[0].publishing) < 20:
            self.published += 1
            self.devices[0].publish("t", b"%d:%d" % (qos, self.published), qos)

    def crash(self, number: int, keep: int) -> None:
        self.boot += 1
        name = self.nodes[number].name
        backend = disk(self.nodes[number]).crashed(keep)
        for wire in self.net.wires:
            wire.cut(1 - number)
        node = Node(name, journaling(backend), boot=self.boot)
        node.links.join("ab"[1 - number], is_known=True)
        self.nodes[number] = self.net.nodes[number] = node
        self.devices[number].connect(node.broker)
        self.link()

    def talk(self) -> None:
        for device in self.devices:
            device.read()
            device.answer()

    def settle(self) -> None:
        self.net.settle()
        while any(device.unread or device.to_answer for device in self.devices):
            self.talk()
            self.net.settle()


Act = Callable[[Pair], object]
acts = st.one_of(
    st.builds(lambda qos: lambda pair: pair.publish(qos), st.sampled_from([1, 1, 2])),
    st.builds(lambda number: lambda pair: step(pair.nodes[number]), st.integers(0, 1)),
    st.builds(
        lambda side, size: lambda pair: pair.net.wires[0].move(side, size),
        st.integers(0, 1),
        st.sampled_from([1, 30, 1 << 60]),
    ),
    st.just(lambda pair: pair.talk()),
    st.builds(
        lambda number, keep: lambda pair: pair.crash(number, keep),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(acts, min_size=5, max_size=60))
def test_power_cuts_cost_no_message_that_was_acknowledged(taken: list[Act]) -> None:
    pair = Pair()
    for act in taken:
        act(pair)
    pair.settle()
    publisher, subscriber = pair.devices
    assert publisher.lost_sessions == subscriber.lost_sessions == 0
    assert publisher.acknowledged <= set(subscriber.delivered)
    assert publisher.publishing == {}, "all that was published is acknowledged in the end"
    assert {int(each[2:]) for each in subscriber.delivered} == set(range(1, pair.published + 1))
    of_qos_2 = [each for each in subscriber.delivered if each.startswith(b"2")]
    assert len(of_qos_2) == len(set(of_qos_2)), "once and no more"


def test_a_crash_between_two_writes_doubles_nothing() -> None:
    """`b` has applied a message and dies before, while and after that is written."""
    for keep in (0, 1):
        pair = Pair()
        pair.publish(2)
        pair.net.nodes[0].settle()
        pair.net.wires[0].move(0)
        step(pair.nodes[1])
        pair.crash(1, keep)
        pair.settle()
        assert pair.devices[1].delivered == [b"2:1"]
