"""Whatever happens to members and links, a message of a shared group is with one member at a time, and none of QoS 1 is
lost while a member is left.

Members join, leave, move, go away and acknowledge; links break and come back; bytes on wires move in any pieces.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.wire.packets import Connect, Properties, Puback, Publish, Subscribe, SubscribeRequest, Unsubscribe
from tests.node.links.memory import ROOMY, Net, Node
from tests.node.memory import Client, MemoryBroker

MEMBERS = 6
TOPICS = ["t/a", "t/b"]
GROUPS = ["$share/g/t/#", "$share/h/t/a"]
DISPATCHERS = ["round_robin", "adaptive", "capacity", "random", "hash_topic", "sticky", "least_pending"]
EDGES = [(0, 1), (0, 2), (1, 2)]

Step = tuple[Any, ...]
"""What is done, and with what."""


class Share:
    """A client that is a member of one group: what it got, and what it has not acknowledged."""

    def __init__(self, client: Client, node: int, group: str) -> None:
        self.client = client
        self.node = node
        self.group = group
        self.open: dict[int, bytes] = {}


class World:
    def __init__(self, dispatcher: str, hot: tuple[bool, ...]) -> None:
        config = Config(**(ROOMY | {"shared_dispatcher": dispatcher}))
        self.nodes = [Node(name, MemoryBroker(config, hot=hot[at])) for at, name in enumerate("abc")]
        self.net = Net(*self.nodes)
        for one, other in EDGES:
            self.net.link(self.nodes[one], self.nodes[other])
        self.net.settle()
        self.publishers = [node.client(f"p{node.name}") for node in self.nodes]
        self.members: list[Share | None] = [None] * MEMBERS
        self.made = 0
        self.sent: dict[str, list[bytes]] = {group: [] for group in GROUPS}
        self.got: dict[str, Counter[bytes]] = {group: Counter() for group in GROUPS}
        self.redelivered: dict[str, Counter[bytes]] = {group: Counter() for group in GROUPS}
        """What was with a member that went before it acknowledged."""

    def read(self, share: Share) -> None:
        for packet in share.client.messages():
            self.got[share.group][packet.payload] += 1
            if packet.qos:
                share.open[packet.packet_id] = packet.payload

    def acknowledge(self, share: Share) -> None:
        self.read(share)
        share.client.send(*[Puback(number) for number in share.open])
        share.open.clear()

    def part(self, share: Share) -> None:
        self.read(share)
        self.redelivered[share.group].update(share.open.values())

    def settle(self) -> None:
        self.net.later(0.05)


def join(world: World, at: int, node: int, group: str, window: int, version: int) -> None:
    leave(world, at, False)
    client = Client(world.nodes[node].broker)
    world.made += 1
    properties = Properties(receive_maximum=window) if version == 5 else None
    client.connect(Connect(f"m{world.made}", version, properties=properties))
    client.send(Subscribe(1, [SubscribeRequest(group, 1)]))
    world.members[at] = Share(client, node, group)
    world.settle()


def leave(world: World, at: int, is_told: bool) -> None:
    share = world.members[at]
    if share is not None:
        if is_told:
            world.acknowledge(share)
            world.read(share)
            share.client.send(Unsubscribe(2, [share.group]))
        world.part(share)
        share.client.lose()
        world.members[at] = None


def acknowledge(world: World, at: int) -> None:
    share = world.members[at]
    if share is not None:
        world.acknowledge(share)


def publish(world: World, node: int, topic: str, count: int) -> None:
    packets = []
    for _ in range(count):
        world.made += 1
        payload = b"%d" % world.made
        packets.append(Publish(topic, payload, 1, False, False, 1 + world.made % 60000))
        for group in GROUPS:
            if group == GROUPS[0] or topic == "t/a":
                world.sent[group].append(payload)
    world.publishers[node].send(*packets)


def move(world: World, wire: int, side: int, size: int) -> None:
    world.net.wires[wire].move(side, size)


def cut(world: World, wire: int, side: int) -> None:
    before = world.net.wires[wire]
    before.cut(side)
    world.net.wires.remove(before)
    world.net.link(*before.nodes)


def let_pass(world: World, seconds: float) -> None:
    for node in world.nodes:
        node.broker.later(seconds)


ats = st.integers(0, MEMBERS - 1)
nodes = st.integers(0, 2)
joins = st.tuples(
    st.just(join), ats, nodes, st.sampled_from(GROUPS), st.sampled_from([1, 2, 10, 65535]), st.sampled_from([4, 5])
)
publications = st.tuples(st.just(publish), nodes, st.sampled_from(TOPICS), st.sampled_from([1, 3, 40]))
steps = st.one_of(
    joins,
    st.tuples(st.just(leave), ats, st.booleans()),
    st.tuples(st.just(acknowledge), ats),
    st.tuples(st.just(acknowledge), ats),
    publications,
    publications,
    publications,
    st.tuples(st.just(move), nodes, st.integers(0, 1), st.sampled_from([1, 30, 500, 1 << 60])),
    st.tuples(st.just(cut), nodes, st.integers(0, 1)),
    st.tuples(st.just(let_pass), st.sampled_from([0.0, 0.005, 0.02, 0.5])),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(DISPATCHERS),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.lists(joins, min_size=1, max_size=4),
    st.lists(steps, min_size=5, max_size=40),
)
def test_each_message_is_with_one_member_and_none_is_lost(
    dispatcher: str, hot: tuple[bool, ...], beginning: list[Step], rest: list[Step]
) -> None:
    world = World(dispatcher, hot)
    for at, group in enumerate(GROUPS):  # who stays: while nobody is there, nothing is promised
        join(world, MEMBERS - 2 + at, at, group, 10, 5)
    keepers = world.members[MEMBERS - 2 :]
    world.members[MEMBERS - 2 :] = [None, None]
    for step in [*beginning, *rest]:
        step[0](world, *step[1:])
    world.settle()
    everybody = [share for share in [*world.members, *keepers] if share is not None]
    for _ in range(400):
        for share in everybody:
            world.acknowledge(share)
        world.settle()
        if not any(share.client.socket.sent[share.client._read :] for share in everybody):
            break
    for group in GROUPS:
        missing = set(world.sent[group]) - set(world.got[group])
        assert not missing
        for payload, count in world.got[group].items():
            assert count <= 1 + world.redelivered[group][payload], payload
