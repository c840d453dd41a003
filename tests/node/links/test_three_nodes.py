"""Three nodes are one broker: whatever way packets take, clients get what one broker would have given them.

Random traffic goes to three linked nodes, each with or without the hot path and with any method, and to one broker that
has all the clients. Bytes on wires move in any pieces. Subscriptions change only while nothing is under way, as nothing
is promised about a message that is published at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.wire.packets import (
    Connect,
    Packet,
    Properties,
    Publish,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from tests.node.links.memory import ROOMY, Net, Node
from tests.node.memory import Client, MemoryBroker

CLIENTS = 6
"""Two at each node."""
TOPICS = ["a", "a/b", "b/c/d", "$x/a"]
FILTERS = ["a", "a/+", "a/#", "#", "+", "b/#", "$x/#"]
METHODS = ["flood", "subscribe", "bloom"]
MESH = [(0, 1), (0, 2), (1, 2)]
LINE = [(0, 1), (1, 2)]
GRAPHS = {"mesh": MESH, "line": LINE, "ring": MESH}
"""Of neighbours, but for the mesh."""

Got = tuple[str, bytes, int, bool, str]
Step = Callable[["Run"], None]


class Way(NamedTuple):
    """How a cluster is made."""

    graph: str
    methods: tuple[str, str, str]
    hot: tuple[bool, bool, bool]


class Run:
    """Three nodes, and the one broker that they are to be like."""

    def __init__(self, way: Way) -> None:
        edges = GRAPHS[way.graph]
        self.nodes: list[Node] = []
        for number, name in enumerate("abc"):
            neighbours = [] if way.graph == "mesh" else ["abc"[sum(e) - number] for e in edges if number in e]
            broker = MemoryBroker(Config(**ROOMY), hot=way.hot[number])
            self.nodes.append(Node(name, broker, method=way.methods[number], neighbours=neighbours))
        self.net = Net(*self.nodes)
        for one, other in edges:
            self.net.link(self.nodes[one], self.nodes[other])
        self.one = MemoryBroker(Config(**ROOMY))
        self.settle()
        self.clients: list[tuple[Client, Client] | None] = [None] * CLIENTS
        self.got: list[tuple[list[Got], list[Got]]] = [([], []) for _ in range(CLIENTS)]
        self.published = 0
        self.spans = way.graph == "mesh"
        """Groups have members at all nodes; else each node has groups of its own."""
        self.sharing: set[str] = set()
        """Nodes at which there were groups: which member is next depends on the order of different publishers."""

    def settle(self) -> None:
        self.net.settle()
        self.one.turn()

    def node(self, client: int) -> Node:
        return self.nodes[client % 3]

    def share(self, client: int, filter: str) -> str:
        return f"$share/{'all' if self.spans else self.node(client).name}/{filter}"

    def both(self, number: int) -> tuple[Client, Client] | None:
        return self.clients[number]

    def read(self, number: int) -> None:
        clients = self.clients[number]
        if clients is not None:
            for client, got in zip(clients, self.got[number], strict=True):
                got += [shown(packet) for packet in client.messages() if client.version == 5 or not packet.retain]


def shown(packet: Publish) -> Got:
    return packet.topic, packet.payload, packet.qos, packet.retain, repr(packet.properties)


def connecting(number: int, version: int) -> Step:
    def step(run: Run) -> None:
        leaving(number)(run)
        clients = run.clients[number] = (Client(run.node(number).broker), Client(run.one))
        for client in clients:
            client.connect(Connect(f"c{number}", version))
        run.settle()

    return step


def leaving(number: int) -> Step:
    def step(run: Run) -> None:
        clients = run.clients[number]
        if clients is not None:
            run.settle()
            run.read(number)
            for client in clients:
                client.lose()
            run.clients[number] = None
            run.settle()

    return step


def subscribing(number: int, filter: str, share: bool, qos: int, published: bool, no_local: bool) -> Step:
    def step(run: Run) -> None:
        clients = run.both(number)
        if clients is None:
            return
        name = run.share(number, filter) if share else filter
        if share:
            run.sharing.update("abc" if run.spans else run.node(number).name)
        run.settle()
        for client in clients:
            if client.version == 5:  # what was retained is at one node alone
                request = SubscribeRequest(name, qos, no_local and not share, published, 2)
            else:
                request = SubscribeRequest(name, qos)
            client.send(Subscribe(9, [request]))
        run.settle()

    return step


def unsubscribing(number: int, filter: str) -> Step:
    def step(run: Run) -> None:
        clients = run.both(number)
        if clients is not None:
            run.settle()
            for client in clients:
                client.send(Unsubscribe(9, [filter, run.share(number, filter)]))
            run.settle()

    return step


class Form(NamedTuple):
    """Of packets that are published one behind another."""

    topic: str
    qos: int
    retain: bool
    size: int
    properties: Properties | None
    alias: bool
    repeats: int


def publishing(number: int, forms: list[Form]) -> Step:
    def step(run: Run) -> None:
        clients = run.both(number)
        if clients is None:
            return
        packets: list[Packet] = []
        for form in forms:
            packets += packets_of(run, number, form, clients[0].version)
        for client in clients:
            client.send(*packets)

    return step


def packets_of(run: Run, number: int, form: Form, version: int) -> list[Packet]:
    found: list[Packet] = []
    for repeat in range(form.repeats):
        run.published += 1
        payload = b"%d:%d:%05d:" % (number, form.qos, run.published) + b"x" * form.size
        topic, properties = form.topic, form.properties if version == 5 else None
        if form.alias and version == 5:
            properties = Properties(topic_alias=1)
            topic = "" if repeat else topic
        found.append(
            Publish(topic, payload, form.qos, form.retain, False, run.published if form.qos else 0, properties)
        )
    return found


def moving(wire: int, side: int, size: int) -> Step:
    def step(run: Run) -> None:
        run.net.wires[wire % len(run.net.wires)].move(side, size)

    return step


def telling_otherwise(node: int, method: str) -> Step:
    """Another method, while messages are under way."""

    def step(run: Run) -> None:
        run.nodes[node].links.use_method(method)
        run.nodes[node].broker.turn()

    return step


numbers = st.integers(0, CLIENTS - 1)
forms = st.builds(
    Form,
    st.sampled_from(TOPICS),
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([0, 0, 0, 1, 200, 300_000]),
    st.sampled_from(
        [
            None,
            None,
            Properties(user_properties=[("k", "v"), ("a", "b")]),
            Properties(content_type="t", payload_format_indicator=1),
            Properties(message_expiry_interval=50),
            Properties(response_topic="r", correlation_data=b"c"),
        ]
    ),
    st.sampled_from([False, False, False, True]),
    st.integers(1, 4),
)
subscriptions = st.builds(
    subscribing,
    numbers,
    st.sampled_from(FILTERS),
    st.sampled_from([False, False, True]),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
publications = st.builds(publishing, numbers, st.lists(forms, min_size=1, max_size=4))
steps = st.one_of(
    subscriptions,
    st.builds(unsubscribing, numbers, st.sampled_from(FILTERS)),
    st.builds(connecting, numbers, st.sampled_from([4, 5])),
    publications,
    publications,
    publications,
    st.builds(moving, st.integers(0, 2), st.integers(0, 1), st.sampled_from([1, 7, 100, 5000, 1 << 60])),
    st.builds(telling_otherwise, st.integers(0, 2), st.sampled_from(METHODS)),
)
ways = st.builds(
    Way,
    st.sampled_from(sorted(GRAPHS)),
    st.tuples(*[st.sampled_from(METHODS)] * 3),
    st.tuples(*[st.booleans()] * 3),
)
beginnings = st.tuples(*(st.builds(connecting, st.just(number), st.sampled_from([4, 5])) for number in range(CLIENTS)))


@settings(max_examples=400, deadline=None)
@given(ways, beginnings, st.lists(subscriptions, min_size=2, max_size=6), st.lists(steps, min_size=5, max_size=40))
def test_three_nodes_are_one_broker(
    way: Way, beginning: tuple[Step, ...], wanted: list[Step], rest: list[Step]
) -> None:
    run = Run(way)
    for step in [*beginning, *wanted, *rest]:
        step(run)
    run.settle()
    same_deliveries(run)


def same_deliveries(run: Run) -> None:
    for number in range(CLIENTS):
        run.read(number)
    if run.spans and run.sharing:
        in_cluster, at_one = (sorted(each[1] for got in run.got for each in got[side]) for side in (0, 1))
        assert in_cluster == at_one
        run.sharing.clear()
        run.got.clear()
    for node in run.nodes:
        of_node = [got for number, got in enumerate(run.got) if run.node(number) is node]
        if node.name in run.sharing:
            in_cluster, at_one = (sorted(each[1] for got in of_node for each in got[side]) for side in (0, 1))
            assert in_cluster == at_one
        else:
            for cluster, one in of_node:
                assert by_publisher(cluster) == by_publisher(one)
    assert all(wire.is_up for wire in run.net.wires)
    assert sum(node.links.forwarding.stopped for node in run.nodes) == 0


def by_publisher(got: list[Got]) -> dict[tuple[bytes, str], list[Got]]:
    """In order for each publisher, QoS and topic: more is not promised."""
    found: dict[tuple[bytes, str], list[Got]] = {}
    for each in got:
        found.setdefault((each[1][:3], each[0]), []).append(each)
    return found


# ---- links that break ------------------------------------------------------------------------------------------------


def cutting(wire: int, side: int) -> Step:
    """What is under way is lost, and a new connection is there at once."""

    def step(run: Run) -> None:
        before = run.net.wires[wire % len(run.net.wires)]
        before.cut(side)
        run.net.wires.remove(before)
        run.net.link(*before.nodes)

    return step


owed = forms.map(lambda form: form._replace(qos=form.qos or 1))
breaking = st.one_of(
    st.builds(publishing, numbers, st.lists(owed, min_size=1, max_size=4)),
    st.builds(moving, st.integers(0, 2), st.integers(0, 1), st.sampled_from([1, 7, 100, 5000, 1 << 60])),
    st.builds(cutting, st.integers(0, 2), st.integers(0, 1)),
)


@settings(max_examples=400, deadline=None)
@given(ways, beginnings, st.lists(subscriptions, min_size=2, max_size=6), st.lists(breaking, min_size=5, max_size=40))
def test_links_that_break_cost_no_message_of_qos_1_or_2(
    way: Way, beginning: tuple[Step, ...], wanted: list[Step], rest: list[Step]
) -> None:
    run = Run(way)
    for step in [*beginning, *wanted, *rest]:
        step(run)
    run.settle()
    same_deliveries(run)
