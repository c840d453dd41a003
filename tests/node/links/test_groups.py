"""Shared groups with members at several nodes: each message is with one of them, and none of QoS 1 is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headwater.node.config import Config
from headwater.node.links.groups import SpanningGroups
from headwater.peering.frames.frame import MalformedFrame, Publisher
from headwater.peering.groups.notes import Entry, GroupState, Slot, decode_note, encode_note
from headwater.wire.packets import (
    Connect,
    Properties,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from tests.node.links.memory import ROOMY, Net, Node, peer_of, publish, subscribe
from tests.node.links.test_receiving import message, run_of
from tests.node.memory import Client, MemoryBroker
from tests.node.persistence.durable import DurableBroker

GROUP = "$share/g/t/#"


def trio(config: dict[str, Any] | None = None, hot: bool = True, **settings: Any) -> Net:
    """Three nodes, each linked with each."""
    nodes = [Node(name, MemoryBroker(Config(**(ROOMY | (config or {}))), hot=hot), **settings) for name in "abc"]
    net = Net(*nodes)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        net.link(nodes[one], nodes[other])
    net.settle()
    return net


def member(net: Net, node: int, name: str, qos: int = 1, **connect: object) -> Client:
    client = net.nodes[node].client(name, **connect)
    subscribe(net, client, GROUP, qos)
    client.messages()
    return client


def work(net: Net, client: Client) -> list[bytes]:
    """It acknowledges what it gets, until nothing comes any more."""
    found = []
    while packets := client.messages():
        found += [packet.payload for packet in packets]
        client.send(*[Puback(packet.packet_id) for packet in packets if packet.qos])
        net.later(0.1)
    return found


def got(*clients: Client) -> list[bytes]:
    return [each.payload for client in clients for each in client.messages()]


def groups(node: Node) -> SpanningGroups:
    assert node.links.groups is not None
    return node.links.groups


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("method", ["flood", "subscribe", "bloom"])
def test_each_message_is_with_one_member(qos: int, hot: bool, method: str) -> None:
    net = trio(hot=hot, method=method)
    members = [member(net, node, f"m{node}", 2) for node in range(3)]
    sent = []
    for node in range(3):
        publisher = net.nodes[node].client(f"p{node}")
        for number in range(30):
            sent.append(b"%d %d" % (node, number))
            publish(publisher, "t/x", sent[-1], qos)
        net.settle()
    each = [got(client) for client in members]
    assert sorted(payload for one in each for payload in one) == sorted(sent)
    assert all(20 <= len(one) <= 40 for one in each)


def test_a_group_with_members_elsewhere_only() -> None:
    net = trio()
    there = member(net, 1, "there")
    publisher = net.nodes[0].client("p")
    publish(publisher, "t/x", b"1", 1)
    publish(publisher, "other", b"2", 1)
    net.settle()
    assert got(there) == [b"1"]
    reasons = [getattr(packet, "reason", 0) for packet in publisher.packets()]
    assert reasons[-2:] == [0, 0x10]
    assert net.nodes[0].links.spooling.ends["c"].spool.appended == 0


def test_members_that_move_are_followed() -> None:
    net = trio()
    publisher = net.nodes[0].client("p")
    for node in (1, 2, 0, 1):
        client = member(net, node, f"m{node}")
        publish(publisher, "t/x", b"%d" % node, 1)
        net.settle()
        assert got(client) == [b"%d" % node]
        client.send(Unsubscribe(7, [GROUP]))
        net.settle()
    assert all(not groups(node)._spans for node in net.nodes)
    assert all(len(node.server.router.groups) == 0 for node in net.nodes)


def test_what_a_member_had_not_acknowledged_goes_to_another_node() -> None:
    net = trio()
    gone = member(net, 1, "gone")
    publish(net.nodes[0].client("p"), "t/x", b"1", 1)
    net.settle()
    assert got(gone) == [b"1"]
    other = member(net, 2, "other")
    gone.lose()
    net.settle()
    assert got(other) == [b"1"]


def test_what_waited_at_a_node_without_members_any_more_goes_to_another() -> None:
    """Its only member is full, and ends while messages wait for it there; others come later."""
    net = trio()
    full = member(net, 1, "full", properties=Properties(receive_maximum=1))
    publisher = net.nodes[1].client("p")
    for number in range(5):
        publish(publisher, "t/x", b"%d" % number, 1)
    net.settle()
    assert got(full) == [b"0"]
    other = net.nodes[2].client("other", properties=Properties(receive_maximum=3))
    other.send(Subscribe(1, [SubscribeRequest(GROUP, 1)]))
    net.settle()
    full.send(Unsubscribe(7, [GROUP]))
    net.later(0.1)
    assert sorted(work(net, other)) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("qos", [0, 1])
def test_without_room_anywhere_messages_wait_where_they_were_published(qos: int) -> None:
    net = trio()
    members = [member(net, node, f"m{node}", 1, properties=Properties(receive_maximum=2)) for node in (1, 2)]
    publisher = net.nodes[0].client("p")
    for number in range(4):
        publish(publisher, "t/x", b"%d" % number, 1)
    net.later(0.1)
    for number in range(4, 10):
        publish(publisher, "t/x", b"%d" % number, qos)
    net.later(0.1)
    first = got(*members)
    assert sorted(first) == [b"%d" % number for number in range(4)]
    group = net.nodes[0].server.router.groups.get("g", "t/#")
    assert group is not None and net.nodes[0].server.sharing.waiting(group) == 6
    members[0].send(Puback(1), Puback(2))
    net.later(0.1)
    assert sorted(work(net, members[0])) == [b"%d" % number for number in range(4, 10)]


def test_what_waits_at_the_origin_is_bounded_as_for_any_group() -> None:
    net = trio({"max_queued_messages": 3, "queue_full": "drop_newest"})
    full = member(net, 1, "full", properties=Properties(receive_maximum=1))
    publisher = net.nodes[0].client("p")
    publish(publisher, "t/x", b"first", 1)
    net.later(0.1)
    for number in range(9):
        publish(publisher, "t/x", b"%d" % number, 1)
    net.later(0.1)
    assert work(net, full) == [b"first", b"0", b"1", b"2"]


def test_while_a_node_is_away_others_get_its_share_and_without_others_qos_1_waits() -> None:
    net = trio()
    members = [member(net, node, f"m{node}") for node in (1, 2)]
    publisher = net.nodes[0].client("p")
    net.wires[0].cut()  # a, b
    for number in range(4):
        publish(publisher, "t/x", b"%d" % number, 1)
    net.settle()
    assert got(members[0]) == [] and len(got(members[1])) == 4
    members[1].send(Unsubscribe(7, [GROUP]))
    net.settle()
    publish(publisher, "t/x", b"kept", 1)
    publish(publisher, "t/x", b"not kept", 0)
    net.settle()
    net.wires.pop(0)
    net.link(net.nodes[0], net.nodes[1])
    net.settle()
    assert b"kept" in got(members[0])


def test_what_a_forgotten_node_was_owed_for_a_group_goes_to_others() -> None:
    net = trio()
    member(net, 1, "m1")
    publisher = net.nodes[0].client("p")
    publish(publisher, "t/x", b"1", 1)  # chosen, and in the spool
    net.wires[0].cut()
    other = member(net, 2, "m2")
    assert net.nodes[0].links.spooling.ends["b"].spool.waiting == 1
    net.nodes[0].links.forget("b")
    net.settle()
    assert got(other) == [b"1"]


@pytest.mark.parametrize(("dispatcher", "by"), [("hash_topic", "topic"), ("hash_client", "client"), ("sticky", "")])
def test_what_belongs_together_stays_with_one_member_whoever_publishes(dispatcher: str, by: str) -> None:
    net = trio({"shared_dispatcher": dispatcher})
    members = [member(net, node, f"m{node}") for node in range(3)]
    publishers = [net.nodes[node].client(f"p{node}") for node in range(3)]
    for number in range(10):
        for publisher in publishers:
            for topic in range(12):
                publish(publisher, f"t/{topic}", b"%d %d" % (topic, number), 1)
    net.settle()
    owners: dict[str, set[int]] = {}
    total = 0
    for at, client in enumerate(members):
        for packet in client.messages():
            total += 1
            owners.setdefault(packet.topic, set()).add(at)
    assert total == 360
    if by == "topic":
        assert all(len(found) == 1 for found in owners.values())
        assert len(set.union(*owners.values())) > 1
    elif by == "":
        assert len(set.union(*owners.values())) == 1


@pytest.mark.parametrize("dispatcher", ["round_robin", "random", "capacity", "weighted_round_robin", "adaptive"])
def test_nodes_get_what_their_members_can_take(dispatcher: str) -> None:
    """One member at a node, three at another: a quarter and three quarters."""
    net = trio({"shared_dispatcher": dispatcher})
    members = [member(net, node, f"m{number}") for number, node in enumerate((1, 2, 2, 2))]
    publisher = net.nodes[0].client("p")
    for number in range(400):
        publish(publisher, "t/x", b"%d" % number, 0)
        if number % 4 == 0:
            net.later(0.02)
    net.settle()
    shares = [len(client.messages()) for client in members]
    assert sum(shares) == 400
    assert 60 <= shares[0] <= 140, shares


def test_another_dispatcher_at_run_time_counts_for_nodes_too() -> None:
    net = trio()
    members = [member(net, node, f"m{node}") for node in (1, 2)]
    publisher = net.nodes[0].client("p")
    for node in net.nodes:
        node.server.sharing.use_dispatcher("$share/#", "sticky")
    for number in range(10):
        publish(publisher, "t/x", b"%d" % number, 1)
    net.settle()
    assert sorted(len(got(client)) for client in members) == [0, 10]


def test_a_slow_member_at_another_node_is_spared() -> None:
    net = trio({"shared_dispatcher": "adaptive"})
    members = [member(net, node, f"m{node}") for node in (1, 2)]
    publisher = net.nodes[0].client("p")
    seconds = (0.01, 0.09)
    due: list[list[tuple[float, int]]] = [[], []]
    free = [0.0, 0.0]
    counts: Counter[int] = Counter()
    now = 0.0
    for _ in range(300):
        publish(publisher, "t/x", b"x", 1)
        net.later(0.01)
        now += 0.01
        for at, client in enumerate(members):
            for packet in client.messages():
                free[at] = max(free[at], now) + seconds[at]
                due[at].append((free[at], packet.packet_id))
                counts[at] += 1
            done = [packet_id for when, packet_id in due[at] if when <= now]
            due[at] = [each for each in due[at] if each[0] > now]
            if done:
                client.send(*[Puback(packet_id) for packet_id in done])
        net.settle()
    assert sum(counts.values()) == 300
    assert counts[1] < 60, counts


def test_a_suback_waits_until_others_know_of_the_group() -> None:
    net = trio()
    client = net.nodes[1].client("m")
    client.send(Subscribe(1, [SubscribeRequest(GROUP, 1)]))
    wire = net.wires[0]
    assert client.packets() == []
    wire.move(1)  # what b says comes to a, and the answer is under way
    assert GROUP in groups(net.nodes[0])._spans


def test_plain_subscribers_and_groups_get_a_message_once_each() -> None:
    net = trio()
    members = [member(net, node, f"m{node}") for node in range(3)]
    plain = [net.nodes[node].client(f"s{node}") for node in range(3)]
    for client in plain:
        subscribe(net, client, "t/x")
    publisher = net.nodes[0].client("p")
    publish(publisher, "t/x", b"1", 1)
    publish(publisher, "t/x", b"0", 0)
    net.settle()
    assert sorted(got(*members)) == [b"0", b"1"]
    assert all(sorted(got(client)) == [b"0", b"1"] for client in plain)


def test_a_retained_message_keeps_its_flag_for_members_elsewhere() -> None:
    net = trio()
    client = net.nodes[1].client("m")
    client.send(Subscribe(1, [SubscribeRequest(GROUP, 1, False, True)]))
    net.settle()
    publisher = net.nodes[0].client("p")
    publisher.send(Publish("t/x", b"1", 1, True, False, 1))
    net.settle()
    [found] = client.messages()
    assert found.retain and found.properties is None
    assert all(node.server.router.retained.get("t/x") is not None for node in net.nodes)


def test_what_waits_at_the_origin_survives_its_restart() -> None:
    broker = DurableBroker(config=Config(**ROOMY, cluster={"name": "test"}))
    nodes = [Node("a", broker), Node("b")]
    net = Net(*nodes)
    net.link(*nodes)
    net.settle()
    full = member(net, 1, "full", properties=Properties(receive_maximum=1))
    publisher = nodes[0].client("p")
    for number in range(3):
        publish(publisher, "t/x", b"%d" % number, 1)
        net.later(0.1)
    assert len(publisher.packets()) == 3
    net.wires[0].cut()
    again = Node("a", DurableBroker(broker.backend, Config(**ROOMY, cluster={"name": "test"})), boot=8)
    net = Net(again, nodes[1])
    net.link(again, nodes[1])
    net.settle()
    assert work(net, full) == [b"0", b"1", b"2"]


def test_groups_below_sys_and_with_neighbours_are_each_nodes_own() -> None:
    net = trio()
    client = net.nodes[1].client("m")
    subscribe(net, client, "$share/g/$SYS/#")
    assert not groups(net.nodes[0])._spans
    line = Net(Node("a", neighbours=["b"]), Node("b", neighbours=["a"]))
    line.link(*line.nodes)
    line.settle()
    members = [member(line, node, f"m{node}") for node in (0, 1)]
    publish(line.nodes[0].client("p"), "t/x", b"1", 1)
    line.settle()
    assert line.nodes[0].links.groups is None
    assert [got(each) for each in members] == [[b"1"], [b"1"]]


# ---- bounds and strangers --------------------------------------------------------------------------------------------


def state(credit: int = 5) -> GroupState:
    return GroupState(1, 1, credit, 1.0, 1.0, [Slot(0.0, 0.0, 1)])


def note(*entries: Entry, part: int = 0) -> bytes:
    return encode_note(list(entries), part)


def test_groups_of_a_node_are_bounded_at_another_and_at_itself() -> None:
    net = trio()
    found = groups(net.nodes[0])
    found.max_bytes = 10_000
    found.received("b", note(Entry(0, "$share/g/a", 0, state())), False)
    found.received("b", note(Entry(1, "$share/g/b", 0, state())), False)
    with pytest.raises(MalformedFrame, match="too many"):
        found.received("b", note(Entry(2, "$share/g/c", 0, state())), False)
    found.received("b", note(Entry(1, "", 0, None)), False)
    found.received("b", note(Entry(3, "$share/g/c", 0, state())), False)
    reporter = groups(net.nodes[1]).reporter
    reporter.max_bytes = 10_000
    client = net.nodes[1].client("m")
    for name in "def":
        subscribe(net, client, f"$share/g/{name}")
    assert sorted(reporter.own) == ["$share/g/d", "$share/g/e"]
    client.send(Unsubscribe(7, ["$share/g/d"]))
    subscribe(net, client, "$share/g/h")
    assert sorted(reporter.own) == ["$share/g/e", "$share/g/h"]


def test_groups_with_long_names_are_of_one_node() -> None:
    net = trio()
    client = net.nodes[1].client("m")
    subscribe(net, client, "$share/g/" + "x" * 5000)
    assert not groups(net.nodes[1]).reporter.own and not groups(net.nodes[0])._spans
    publish(net.nodes[1].client("p"), "x" * 5000, b"1", 1)
    net.settle()
    assert got(client) == [b"1"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02\x00",
        b"\x01\x04",
        b"\x01\x00\x07\x00\x00\x00\x01",
        note(Entry(1, "", 0, None)),
        note(Entry(1, "", 0, state())),
        note(Entry(1, "no group", 0, state())),
        note(Entry(1, "$share/g/a/#/b", 0, state())),
        note(Entry(1, "$share/g/$SYS/x", 0, state())),
        note(Entry(1, "$share/g/a", 0, state()), Entry(1, "$share/g/b", 0, state())),
        note(Entry(1, "$share/g/a", 0, GroupState(1, 2, 0, 1.0, 1.0, []))),
        note(Entry(1, "$share/g/a", 0, GroupState(1, 1, 0, float("nan"), 1.0, []))),
        note(Entry(1, "$share/g/a", 0, GroupState(1, 1, 0, 1.0, float("inf"), []))),
        note(Entry(1, "$share/g/a", 0, GroupState(1, 1, 0, 1.0, 1.0, [Slot(float("nan"), 0.0, 1)]))),
        note(Entry(1, "$share/g/a", 0, GroupState(1, 1, 0, 1.0, 1.0, [Slot(0.0, -1.0, 1)]))),
        note(Entry(1, "$share/g/a", 0, GroupState(1, 1, 0, 1.0, 1.0, [Slot(0.0, 1.0, 0)]))),
    ],
)
def test_what_a_stranger_tells_of_groups_harms_nobody(body: bytes) -> None:
    node = Node("a")
    with pytest.raises(MalformedFrame):
        groups(node).received("x", body, False)


def test_a_run_for_a_group_that_is_not_here_is_dropped_and_counted() -> None:
    node = Node("a")
    peer = peer_of(node)
    peer.send(Publisher(0, 5, "p\0$share/g/t"))
    run = run_of(message(b"1", version=5), protocol=5)
    peer.send(run)
    assert node.server.stats.drops["session_ended"] == 1
    assert peer.is_up


def test_what_is_told_is_read_again() -> None:
    entries = [
        Entry(7, "$share/g/a", 3, GroupState(9, 4, 1 << 31, 2.5, 0.5, [Slot(-1.5, 0.25, 2), Slot(0.5, 0.0, 1)])),
        Entry(8, "", 0, GroupState(1, 0, 0, 0.0, 0.0, [])),
        Entry(9, "", 0, None),
    ]
    assert decode_note(encode_note(entries, 3)) == (entries, 3)


# ---- crashes ---------------------------------------------------------------------------------------------------------


def durable_pair() -> tuple[Net, DurableBroker, DurableBroker]:
    """Two nodes with disks, the second with a member whose session is kept."""
    brokers = [DurableBroker(config=Config(**ROOMY, cluster={"name": "test"})) for _ in "ab"]
    net = Net(*[Node(name, broker) for name, broker in zip("ab", brokers, strict=True)])
    net.link(*net.nodes)
    net.settle()
    return net, brokers[0], brokers[1]


def kept_member(net: Net) -> Client:
    client = Client(net.nodes[1].broker)
    client.version = 5
    client.send(Connect("m", 5, clean_start=False, properties=Properties(session_expiry_interval=1000)))
    net.settle()  # CONNACK waits for the disk
    client.send(Subscribe(1, [SubscribeRequest(GROUP, 1)]))
    net.settle()
    return client


def test_a_message_for_a_group_survives_a_crash_where_it_was_published() -> None:
    net, origin, _ = durable_pair()
    client = kept_member(net)
    publisher = net.nodes[0].client("p")
    publish(publisher, "t/x", b"1", 1)
    net.nodes[0].settle()
    assert [type(packet) for packet in publisher.packets()] == [Puback]
    again = Node("a", origin.crash(), boot=8)
    net.wires[0].cut()
    net = Net(again, net.nodes[1])
    net.link(*net.nodes)
    net.settle()
    assert got(client) == [b"1"]


def test_a_message_for_a_group_survives_a_crash_of_the_node_that_was_chosen() -> None:
    net, _, chosen = durable_pair()
    kept_member(net)
    publish(net.nodes[0].client("p"), "t/x", b"1", 1)
    net.settle()
    assert net.nodes[0].links.spooling.ends["b"].spool.waiting == 0
    net.wires[0].cut()
    again = Node("b", chosen.crash(), boot=8)
    net = Net(net.nodes[0], again)
    net.link(*net.nodes)
    net.settle()
    client = kept_member(net)
    assert [(packet.payload, packet.dup) for packet in client.messages()] == [(b"1", True)]


def test_after_a_restart_a_node_knows_whose_members_it_has_to_keep_messages_for() -> None:
    net, origin, _ = durable_pair()
    client = kept_member(net)
    net.wires[0].cut()
    broker = origin.crash()
    again = Node("a", broker, boot=8)
    publisher = again.client("p")
    publish(publisher, "t/x", b"1", 1)
    again.settle()
    assert [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)] == [0]
    net = Net(again, net.nodes[1])
    net.link(*net.nodes)
    net.settle()
    assert got(client) == [b"1"]
    client.send(Unsubscribe(2, [GROUP]))
    net.settle()
    assert not groups(again)._spans
    assert not groups(Node("a", broker.crash(), boot=9))._spans


def test_members_that_are_away_get_nothing_that_others_can_take() -> None:
    net, _, _ = durable_pair()
    client = kept_member(net)
    client.lose()
    net.settle()
    publisher = net.nodes[0].client("p")
    publish(publisher, "t/x", b"1", 1)
    net.settle()
    other = net.nodes[0].client("other")
    other.send(Subscribe(1, [SubscribeRequest(GROUP, 1)]))
    net.settle()
    publish(publisher, "t/x", b"2", 1)
    net.settle()
    assert got(other) == [b"1", b"2"]


# ---- capacity, as in TELFOR 2020 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("heavy", [1, 4])
def test_capacity_gives_each_subscriber_its_share_however_they_are_spread(heavy: int) -> None:
    """Three brokers with 2, 6 and 12 of twenty subscribers, equal or the first of each four times as able: each gets a
    message with the probability t_i / Σ t_i."""
    net = trio({"shared_dispatcher": "capacity", "shared_weights": {"able-*": heavy}})
    places = [0] * 2 + [1] * 6 + [2] * 12
    able = {0, 2, 8}
    members = [member(net, node, f"{'able' if at in able else 'm'}-{at}") for at, node in enumerate(places)]
    publisher = net.nodes[0].client("p")
    for number in range(3000):
        publish(publisher, "t/x", b"x", 0)
        if number % 20 == 0:
            net.later(0.1)
    net.settle()
    shares = [len(client.messages()) for client in members]
    assert sum(shares) == 3000
    total = 17 + 3 * heavy
    for at, share in enumerate(shares):
        expected = 3000 * (heavy if at in able else 1) / total
        assert abs(share - expected) < 5 * expected**0.5 + 10, shares
