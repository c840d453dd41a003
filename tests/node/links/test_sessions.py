"""Clients that come to another node: they take their sessions along, whatever happens on the way."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.hooks import Refusal
from headwater.node.links.entry import Entry
from headwater.node.persistence.recovery import end_moves
from headwater.peering.frames.frame import Publisher
from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.messages import MAX_CUTS
from headwater.session.connection import CONNECTED
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
)
from tests.node.links.memory import BOOT, ROOMY, Net, Node, payloads, peer_of, subscribe
from tests.node.links.test_receiving import message, run_of, spooling_peer
from tests.node.memory import Client, MemoryBroker
from tests.node.persistence.durable import DurableBroker

LASTS = Properties(session_expiry_interval=1000)


def durable() -> DurableBroker:
    return DurableBroker(config=Config(**ROOMY))


def mesh(*names: str, is_durable: bool = False, **settings: object) -> Net:
    net = Net(*(Node(name, durable() if is_durable else None, sessions=True, **settings) for name in names))
    for number, one in enumerate(net.nodes):
        for other in net.nodes[number + 1 :]:
            net.link(one, other)
    net.settle()
    return net


def begin(node: Node, client_id: str, clean: bool = False, **more: object) -> Client:
    """CONNECT; its answer may come later."""
    client = Client(node.broker)
    client.version = 5
    client.send(Connect(client_id, 5, clean_start=clean, properties=LASTS, **more))  # type: ignore[arg-type]
    return client


def arrive(net: Net, node: Node, client_id: str, **more: object) -> tuple[Client, Connack]:
    client = begin(node, client_id, **more)
    net.settle()
    connack, *client._behind_connack = client.packets()
    assert isinstance(connack, Connack)
    return client, connack


def present(net: Net, node: Node, client_id: str) -> Client:
    """A client whose session ends with its connection."""
    client = Client(node.broker)
    client.version = 5
    client.send(Connect(client_id, 5))
    net.settle()
    [connack] = client.packets()
    assert isinstance(connack, Connack) and connack.reason == 0
    return client


def publish(client: Client, topic: str, payload: bytes, qos: int) -> None:
    """With an id of its own."""
    number = client.__dict__["sent_ids"] = client.__dict__.get("sent_ids", 0) + 1
    client.send(Publish(topic, payload, qos, False, False, number if qos else 0))


def is_connected(client: Client) -> bool:
    return client.channel.fd >= 0 and client.channel.state == CONNECTED


def away(net: Net, node: Node, client_id: str, filter: str = "t/#") -> None:
    """A session with a subscription, whose client has gone."""
    client, _ = arrive(net, node, client_id)
    subscribe(net, client, filter)
    client.lose()
    net.settle()


def acknowledge(net: Net, client: Client, packets: list[Packet]) -> list[bytes]:
    """As a correct client does; the payloads of what is new."""
    found = []
    while packets:
        for packet in packets:
            if isinstance(packet, Publish):
                if not (packet.qos == 2 and packet.packet_id in client_ids(client)):
                    found.append(packet.payload)
                if packet.qos == 1:
                    client.send(Puback(packet.packet_id))
                elif packet.qos == 2:
                    client_ids(client).add(packet.packet_id)
                    client.send(Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                client_ids(client).discard(packet.packet_id)
                client.send(Pubcomp(packet.packet_id))
        net.settle()
        packets = client.packets()
    return found


def client_ids(client: Client) -> set[int]:
    found: set[int] = client.__dict__.setdefault("open_ids", set())
    return found


def quiet(net: Net) -> None:
    """Nothing is left of a move."""
    net.later(2)
    for node in net.nodes:
        sessions = node.links.sessions
        assert sessions is not None
        claims = sessions.claims
        assert not sessions.moves.left and not claims.pending and not claims.following and not claims.granted
        assert all(session.moving is None for session in node.server.sessions.values())
        assert all(end.spool.waiting == 0 for end in node.links.spooling.ends.values())


def holders(net: Net, client_id: str) -> list[str]:
    return [node.name for node in net.nodes if client_id in node.server.sessions]


def test_a_session_comes_along_with_what_waits_in_it() -> None:
    for is_durable in (False, True):
        net = mesh("a", "b", "c", is_durable=is_durable)
        a, b, c = net.nodes
        away(net, a, "x")
        publisher = present(net, c, "p")
        for number in range(100):
            publish(publisher, "t/1", b"%d" % number, 1 + number % 2)
        net.settle()
        client, connack = arrive(net, b, "x")
        assert connack.session_present
        assert acknowledge(net, client, client.packets()) == [b"%d" % number for number in range(100)]
        assert holders(net, "x") == ["b"]
        publish(publisher, "t/1", b"later", 2)
        net.settle()
        assert acknowledge(net, client, client.packets()) == [b"later"]
        quiet(net)
        assert list(a.server.router.trie.filters()) == []
        assert a.server.budget.used == 0 and a.server.subscribing.count == 0


def test_a_session_that_came_and_ended_is_not_waited_for() -> None:
    for is_durable in (False, True):
        net = mesh("a", "b", "c", is_durable=is_durable)
        away(net, net.nodes[0], "x")
        client, connack = arrive(net, net.nodes[1], "x")
        assert connack.session_present
        client.send(Disconnect(0, Properties(session_expiry_interval=0)))
        net.settle()
        assert holders(net, "x") == []
        _, connack = arrive(net, net.nodes[2], "x")
        assert (connack.reason, connack.session_present) == (0, False)
        quiet(net)


def test_a_connection_is_ended_where_it_was() -> None:
    net = mesh("a", "b")
    first, _ = arrive(net, net.nodes[0], "x")
    second, connack = arrive(net, net.nodes[1], "x")
    [bye] = [each for each in first.packets() if isinstance(each, Disconnect)]
    assert bye.reason == 0x8E and connack.session_present and connack.reason == 0
    assert holders(net, "x") == ["b"] and is_connected(second)
    quiet(net)


def test_a_session_that_ends_with_its_connection_is_not_sent() -> None:
    net = mesh("a", "b")
    first = present(net, net.nodes[0], "x")
    net.settle()
    _, connack = arrive(net, net.nodes[1], "x")
    assert not connack.session_present and not is_connected(first)
    assert holders(net, "x") == ["b"]
    quiet(net)


def test_clean_start_ends_the_session_wherever_it_is() -> None:
    net = mesh("a", "b")
    away(net, net.nodes[0], "x")
    publish(present(net, net.nodes[0], "p"), "t/1", b"lost", 1)
    client, connack = arrive(net, net.nodes[1], "x", clean=True)
    assert not connack.session_present and payloads(client) == [] and holders(net, "x") == ["b"]
    quiet(net)


def test_flights_of_both_directions_come_along() -> None:
    """QoS 2 sent and not received, received and not completed, and ids of what the client sent."""
    net = mesh("a", "b", is_durable=True)
    a, b = net.nodes
    client, _ = arrive(net, a, "x")
    subscribe(net, client, "t/#")
    publisher = present(net, b, "p")
    for payload in (b"1", b"2", b"3"):
        publish(publisher, "t/1", payload, 2)
        net.settle()
    sent = [each for each in client.packets() if isinstance(each, Publish)]
    client.send(Pubrec(sent[0].packet_id))
    client.send(Publish("u", b"mine", 2, False, False, 77))
    net.settle()
    assert Pubrel(sent[0].packet_id) in client.packets()
    again, connack = arrive(net, b, "x")
    packets = again.packets()
    assert connack.session_present
    assert Pubrel(sent[0].packet_id) in packets
    assert [(each.packet_id, each.payload, each.dup) for each in packets if isinstance(each, Publish)] == [
        (sent[1].packet_id, b"2", True),
        (sent[2].packet_id, b"3", True),
    ]
    before = b.server.stats.messages_received
    again.send(Publish("u", b"mine", 2, False, True, 77))
    net.settle()
    assert [each for each in again.packets() if isinstance(each, Pubrec)]
    assert b.server.stats.messages_received - before <= 1
    assert 77 in b.server.sessions["x"].received
    quiet(net)
    assert a.server.budget.used == 0


def test_qos_0_that_waited_for_the_connection_stays_behind() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    client, _ = arrive(net, a, "x")
    subscribe(net, client, "t/#")
    a.server.sessions["x"].outbound.quota = 1
    publisher = present(net, b, "p")
    for number in range(6):
        publish(publisher, "t/1", b"%d" % number, number % 2)
    net.settle()
    again, connack = arrive(net, b, "x")
    assert connack.session_present
    assert acknowledge(net, again, again.packets()) == [b"1", b"3", b"5"]
    quiet(net)


def test_options_and_identifiers_of_subscriptions_come_along() -> None:
    net = mesh("a", "b")
    client, _ = arrive(net, net.nodes[0], "x")
    request = SubscribeRequest("t/+", 1, no_local=True, retain_as_published=True, retain_handling=2)
    client.send(Subscribe(1, [request], Properties(subscription_identifiers=[7])))
    net.settle()
    arrive(net, net.nodes[1], "x")
    found = net.nodes[1].server.sessions["x"].subscriptions["t/+"]
    assert (found.qos, found.no_local, found.retain_as_published, found.identifier) == (1, True, True, 7)


def test_retained_messages_that_were_still_to_come_come() -> None:
    net = mesh("a", "b")
    publisher = present(net, net.nodes[0], "p")
    for number in range(50):
        publisher.send(Publish(f"t/{number}", b"r", 1, True, False, number + 1))
    net.settle()
    client, _ = arrive(net, net.nodes[0], "x")
    client.send(Subscribe(1, [SubscribeRequest("t/#", 1)]))
    net.settle()
    client.lose()
    again, connack = arrive(net, net.nodes[1], "x")
    assert connack.session_present and len(set(acknowledge(net, again, again.packets()))) <= 1
    assert net.nodes[1].server.sessions["x"].pending_retained is None


def test_of_two_who_connect_at_once_the_later_stays() -> None:
    net = mesh("a", "b", "c")
    clients = [begin(node, "x") for node in net.nodes]
    net.settle()
    assert len(holders(net, "x")) == 1
    alive = [client for client in clients if is_connected(client)]
    assert len(alive) == 1
    net.later(3)
    quiet(net)


def test_a_storm_ends_with_one_connection() -> None:
    net = mesh("a", "b", "c", is_durable=True)
    away(net, net.nodes[0], "x")
    publisher = present(net, net.nodes[0], "p")
    clients = []
    for number in range(30):
        clients.append(begin(net.nodes[number % 3], "x"))
        publish(publisher, "t/1", b"%d" % number, 1)
        for wire in net.wires[: number % 3 + 1]:
            wire.move(0)
            wire.move(1)
    net.settle()
    net.later(3)
    assert len([client for client in clients if is_connected(client)]) <= 1
    assert len(holders(net, "x")) == 1
    last, connack = arrive(net, net.nodes[0], "x")
    assert connack.session_present
    seen = {payload for client in [*clients, last] for payload in payloads(client)}
    seen.update(acknowledge(net, last, last.packets()))
    assert seen == {b"%d" % number for number in range(30)}
    quiet(net)


def test_nothing_published_while_it_moves_is_lost_or_comes_twice() -> None:
    net = mesh("a", "b", "c", is_durable=True)
    away(net, net.nodes[0], "x")
    publishers = [present(net, node, f"p-{node.name}") for node in net.nodes]
    net.settle()
    client = begin(net.nodes[1], "x")
    number = 0
    for _ in range(60):
        for publisher in publishers:
            publish(publisher, "t/1", b"%d" % number, 2)
            number += 1
        for node in net.nodes:
            node.settle()
        for wire in net.wires:
            wire.move(0, 300)
            wire.move(1, 300)
    for publisher in publishers:
        for packet in publisher.packets():
            if isinstance(packet, Pubrec):
                publisher.send(Pubrel(packet.packet_id))
    net.settle()
    found = acknowledge(net, client, client.packets())
    assert sorted(found, key=int) == [b"%d" % each for each in range(number)]
    for first in range(3):  # in order from each
        assert [each for each in found if int(each) % 3 == first] == [b"%d" % each for each in range(first, number, 3)]
    quiet(net)


def test_a_session_at_a_dead_node_begins_anew_and_its_messages_come_when_the_node_is_back() -> None:
    net = mesh("a", "b", "c", is_durable=True)
    a, b, c = net.nodes
    away(net, a, "x")
    publisher = present(net, c, "p")
    publish(publisher, "t/1", b"before", 1)
    net.settle()
    for wire in net.wires[:2]:
        wire.cut()
    publish(publisher, "t/1", b"while a is away", 1)
    net.settle()
    client, connack = arrive(net, b, "x")
    assert not connack.session_present and connack.reason == 0
    subscribe(net, client, "t/#")
    publish(publisher, "t/1", b"after", 2)
    net.settle()
    for packet in publisher.packets():
        if isinstance(packet, Pubrec):
            publisher.send(Pubrel(packet.packet_id))
    net.settle()
    assert acknowledge(net, client, client.packets()) == [b"after"]
    net.link(a, b)
    net.link(a, c)
    net.settle()
    assert sorted(acknowledge(net, client, client.packets())) == [b"before", b"while a is away"]
    assert holders(net, "x") == ["b"]
    quiet(net)


@pytest.mark.parametrize("then", ["b", "c", "b, killed in between", "b, when a is back"])
def test_a_client_that_has_not_seen_that_its_session_began_anew_is_told_so_again(then: str) -> None:
    """It would rely on subscriptions that it does not have."""
    net = mesh("a", "b", "c", is_durable=True)
    away(net, net.nodes[0], "x")
    for wire in net.wires[:2]:
        wire.cut()
    unseen = begin(net.nodes[1], "x")
    net.settle()
    assert is_connected(unseen)
    unseen.lose()
    net.settle()
    if "back" in then:
        net.link(net.nodes[0], net.nodes[1])
        net.link(net.nodes[0], net.nodes[2])
        net.settle()
    elif "killed" in then:
        restarted(net, 1, linked_with=[2])
    client, connack = arrive(net, net.nodes["abc".index(then[0])], "x")
    assert not connack.session_present
    subscribe(net, client, "t/#")
    client, connack = arrive(net, net.nodes[2], "x")
    assert connack.session_present, "it has said something since"
    publish(present(net, net.nodes[2], "p"), "t/1", b"m", 1)
    net.settle()
    assert payloads(client) == [b"m"]


def dropped(net: Net) -> int:
    """Messages of sessions that were lost, at all nodes."""
    return sum(node.links.sessions.moves.dropped for node in net.nodes if node.links.sessions is not None)


@pytest.mark.parametrize("cuts", [2, 3])
def test_qos_2_of_an_old_session_comes_if_no_third_one_can_have_had_it(cuts: int) -> None:
    """With all links cut b cannot know whether the client was at c in between, with the same message."""
    net = mesh("a", "b", "c", is_durable=True)
    a, b, _ = net.nodes
    away(net, a, "x")
    publisher = present(net, a, "p")
    publish(publisher, "t/1", b"one", 1)
    publish(publisher, "t/1", b"two", 2)
    acknowledge(net, publisher, publisher.packets())
    for wire in net.wires[:cuts]:
        wire.cut()
    client = begin(b, "x")
    net.settle()
    net.later(3)
    connack, *_ = client.packets()
    assert isinstance(connack, Connack) and not connack.session_present
    subscribe(net, client, "t/#")
    for number, one in enumerate(net.nodes):
        for other in net.nodes[number + 1 : 3 if number == 0 or cuts == 3 else 0]:
            net.link(one, other)
    net.settle()
    assert acknowledge(net, client, client.packets()) == ([b"one", b"two"] if cuts == 2 else [b"one"])
    assert dropped(net) == cuts - 2
    quiet(net)


def test_what_was_in_flight_does_not_come_again_to_a_client_that_is_told_again_that_it_has_no_session() -> None:
    """It has forgotten that it had it."""
    net = mesh("a", "b", "c", is_durable=True)
    a, b, _ = net.nodes
    away(net, a, "x")
    publisher = present(net, a, "p")
    publish(publisher, "t/1", b"m", 2)
    acknowledge(net, publisher, publisher.packets())
    for wire in net.wires[:2]:
        wire.cut()
    silent, connack = arrive(net, b, "x")
    assert not connack.session_present
    net.link(a, b)
    net.link(a, net.nodes[2])
    net.settle()
    assert payloads(silent) == [b"m"]
    silent.lose()
    net.settle()
    client, connack = arrive(net, b, "x")
    assert not connack.session_present
    assert payloads(client) == []
    assert dropped(net) == 1
    quiet(net)


def test_what_was_in_flight_is_released_if_a_younger_session_of_the_client_is_met() -> None:
    """The client may have been told in between that it has none."""
    net = mesh("a", "b", is_durable=True)
    a, b = net.nodes
    client, _ = arrive(net, b, "x")
    subscribe(net, client, "t/#")
    publish(present(net, b, "p"), "t/1", b"m", 2)
    net.settle()
    assert payloads(client) == [b"m"]
    net.wires[0].cut()
    told, connack = arrive(net, a, "x")
    assert not connack.session_present
    told.lose()
    begin(b, "x").lose()  # it counts as the later one, as it would if clocks were not the same
    net.settle()
    net.link(a, b)
    net.settle()
    client, connack = arrive(net, a, "x")
    assert connack.session_present
    assert [type(packet) for packet in client._behind_connack] == [Pubrel]
    assert dropped(net) == 1
    net.settle()


def test_a_client_that_only_publishes_and_has_seen_that_its_session_began_anew_has_one() -> None:
    net = mesh("a", "b", "c")
    away(net, net.nodes[0], "x")
    for wire in net.wires[:2]:
        wire.cut()
    client, connack = arrive(net, net.nodes[1], "x")
    assert not connack.session_present
    net.later(0.1)
    publish(client, "u", b"m", 1)
    client.lose()
    _, connack = arrive(net, net.nodes[1], "x")
    assert connack.session_present


@pytest.mark.parametrize("session_lost", ["wait", "clean"])
@pytest.mark.parametrize("places", ["bab", "bcbc", "bcabcb"])
def test_a_session_moves_on_and_on_while_a_node_is_away(places: str, session_lost: str) -> None:
    """What that node had sent before belongs to the first node, and what it sends later to the last."""
    net = mesh("a", "b", "c", "d", is_durable=True, session_lost=session_lost)
    d = net.nodes[3]
    away(net, net.nodes[0], "x")
    publishers = [present(net, node, f"p-{node.name}") for node in net.nodes]
    away_from_d = [wire for wire in net.wires if d in wire.nodes]
    for number, wire in enumerate(away_from_d):
        if number:
            wire.cut()
    publish(publishers[3], "t/1", b"0", 2)
    d.settle()
    away_from_d[0].cut()
    found, sent = [], [b"0"]
    for place in places:
        client, connack = arrive(net, net.nodes["abc".index(place)], "x")
        assert (connack.reason, connack.session_present) == (0, True)
        for publisher in publishers:
            sent.append(b"%d" % len(sent))
            publish(publisher, "t/1", sent[-1], 2)
        net.settle()
        found += acknowledge(net, client, client.packets())
        assert [each for each in sent if int(each) % 4] == sorted(found, key=int)
    for node in net.nodes[:3]:
        net.link(d, node)
    net.settle()
    net.later(1)
    found += acknowledge(net, client, client.packets())
    assert sorted(found, key=int) == sent
    assert [each for each in found if int(each) % 4 == 0] == [each for each in sent if int(each) % 4 == 0], "in order"
    for publisher in publishers:
        for packet in publisher.packets():
            if isinstance(packet, Pubrec):
                publisher.send(Pubrel(packet.packet_id))
    quiet(net)
    assert holders(net, "x") == [places[-1]]


def test_how_often_a_session_moves_on_while_a_node_is_away() -> None:
    net = mesh("a", "b", "c", is_durable=True, session_lost="wait")
    away(net, net.nodes[0], "x")
    for wire in net.wires[1:]:
        wire.cut()
    for number in range(MAX_CUTS + 1):
        _, connack = arrive(net, net.nodes[1 - number % 2], "x")
        assert (connack.reason, connack.session_present) == (0, True)
    refused = begin(net.nodes[0], "x")
    net.later(3)
    [connack] = [each for each in refused.packets() if isinstance(each, Connack)]
    assert connack.reason == 0x88
    for node in net.nodes[:2]:
        net.link(net.nodes[2], node)
    net.settle()
    net.later(1)
    _, connack = arrive(net, net.nodes[0], "x")
    assert (connack.reason, connack.session_present) == (0, True)
    quiet(net)


def test_or_its_client_is_refused_until_the_node_is_back() -> None:
    net = mesh("a", "b", session_lost="wait")
    a, b = net.nodes
    away(net, a, "x")
    net.wires[0].cut()
    client = begin(b, "x")
    net.settle()
    assert client.packets() == []
    net.later(3)
    [connack] = [each for each in client.packets() if isinstance(each, Connack)]
    assert connack.reason == 0x88 and not is_connected(client)
    _, connack = arrive(net, b, "y")
    assert connack.reason == 0  # nobody knows a session of that one
    net.link(a, b)
    net.settle()
    _, connack = arrive(net, b, "x")
    assert connack.session_present
    quiet(net)


def test_clean_start_while_the_node_is_away_ends_the_session_there_when_it_is_back() -> None:
    net = mesh("a", "b", session_lost="wait")
    a, b = net.nodes
    away(net, a, "x")
    publish(present(net, a, "p"), "t/1", b"lost", 1)
    net.wires[0].cut()
    client, connack = arrive(net, b, "x", clean=True)
    assert connack.reason == 0 and not connack.session_present
    subscribe(net, client, "t/#")
    net.link(a, b)
    net.settle()
    assert payloads(client) == [] and holders(net, "x") == ["b"]
    quiet(net)


def test_both_sides_of_a_partition_had_the_client() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    net.wires[0].cut()
    one, _ = arrive(net, a, "x")
    two, _ = arrive(net, b, "x")
    subscribe(net, one, "t/#")
    subscribe(net, two, "t/#")
    publish(present(net, a, "p"), "t/1", b"at a", 1)
    net.settle()
    one.lose()
    net.link(a, b)
    net.settle()
    assert holders(net, "x") == ["b"] and is_connected(two)
    assert b"at a" in payloads(two)
    quiet(net)


def test_a_move_survives_kills_of_each_node() -> None:
    """After any number of bytes on the wires one node is killed; then it comes back."""
    for steps in range(0, 40, 3):
        for victim in range(3):
            net = mesh("a", "b", "c", is_durable=True, session_lost="wait")
            a, b, c = net.nodes
            away(net, a, "x")
            publisher = present(net, c, "p")
            sent = []
            for number in range(5):
                publish(publisher, "t/1", b"%d" % number, 1)
                sent.append(b"%d" % number)
            net.settle()
            begin(b, "x")
            for _ in range(steps):
                for wire in net.wires:
                    wire.move(0, 100)
                    wire.move(1, 100)
                for node in net.nodes:
                    node.settle()
            again = killed(net, victim)
            again.later(3)
            client, connack = arrive(again, again.nodes[2], "x")
            publish(present(again, again.nodes[0], "q"), "t/1", b"last", 1)
            again.settle()
            found = acknowledge(again, client, client.packets())
            assert connack.session_present, (steps, victim)
            assert sorted(found) == [*sent, b"last"], (steps, victim)
            quiet(again)


def restarted(net: Net, victim: int, linked_with: list[int]) -> None:
    """With the default of `session_lost`."""
    before = net.nodes[victim]
    assert isinstance(before.broker, DurableBroker)
    for wire in net.wires:
        if before in wire.nodes:
            wire.cut()
    net.wires = [wire for wire in net.wires if before not in wire.nodes]
    again = net.nodes[victim] = Node(before.name, before.broker.crash(), boot=BOOT + 1, sessions=True)
    for other in net.nodes:
        if other is not again:
            again.links.join(other.name, is_known=True)
    for number in linked_with:
        net.link(again, net.nodes[number])
    net.settle()


def killed(net: Net, victim: int) -> Net:
    nodes = list(net.nodes)
    for wire in net.wires:
        if nodes[victim] in wire.nodes:
            wire.cut()
    before = nodes[victim]
    assert isinstance(before.broker, DurableBroker)
    nodes[victim] = Node(before.name, before.broker.crash(), boot=BOOT + 1, sessions=True, session_lost="wait")
    again = Net(*nodes)
    again.wires = [wire for wire in net.wires if before not in wire.nodes]
    for node in nodes:
        if node is not nodes[victim]:
            again.link(nodes[victim], node)
    again.settle()
    return again


def test_without_a_cluster_a_session_that_was_leaving_is_this_nodes_own() -> None:
    net = mesh("a", "b", is_durable=True)
    a, b = net.nodes
    away(net, a, "x")
    publish(present(net, a, "p"), "t/1", b"waits", 1)
    net.settle()
    begin(b, "x")
    net.wires[0].move(1)
    a.settle()
    assert "x" not in a.server.sessions and isinstance(a.broker, DurableBroker)
    alone = a.broker.crash(None)
    end_moves(alone.server)
    session = alone.server.sessions["x"]
    assert session.moving is None and list(session.subscriptions) == ["t/#"]
    alone.turn()
    alone.settle()
    again = alone.crash(None)
    assert again.server.sessions["x"].moving is None and not again.server.moved


def test_a_client_that_goes_while_it_waits_leaves_nothing() -> None:
    net = mesh("a", "b")
    away(net, net.nodes[0], "x")
    client = begin(net.nodes[1], "x")
    client.lose()
    net.settle()
    quiet(net)
    assert len(holders(net, "x")) == 1
    assert net.nodes[1].server.attaching.connected == 0


def test_a_client_that_is_refused_after_it_was_claimed_leaves_nothing() -> None:
    net = Net(Node("a", MemoryBroker(Config(**ROOMY, max_sessions=1)), sessions=True))
    entry = Entry(net.nodes[0].server)
    entry.close(10, lambda client_id: Refusal(0x88))
    clients = [begin(net.nodes[0], client_id) for client_id in ("x", "y")]
    entry.open()
    net.settle()
    connacks = [each for client in clients for each in client.packets() if isinstance(each, Connack)]
    assert [connack.reason for connack in connacks] == [0, 0x97]
    quiet(net)


def test_a_new_node_does_not_disturb_a_move() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    away(net, a, "x")
    client = begin(b, "x")
    net.wires[0].move(1)
    c = Node("c", sessions=True)
    net.nodes.append(c)
    net.link(a, c)
    net.link(b, c)
    publisher = present(net, c, "p")
    net.settle()
    publish(publisher, "t/1", b"m", 1)
    net.settle()
    assert [each for each in payloads(client) if each == b"m"] == [b"m"]
    quiet(net)


def test_a_node_that_claims_in_anothers_name_is_cut_off() -> None:
    for claim in (
        said.Claim(said.Move("x", Stamp(1, "y")), False),
        said.Answer(said.Move("x", Stamp(1, "y")), said.HELD, Stamp(0, "")),
    ):
        node = Node("b", sessions=True)
        peer = peer_of(node)
        peer.send(Publisher(0, 5, ""), run_of(message(said.encode(claim), 0, "$headwater/sessions", 5), protocol=5))
        assert peer.is_closed


def test_letters_in_a_note_and_the_other_way_round_end_the_link() -> None:
    move = said.Move("x", Stamp(1, "x"))
    for body, qos in ((said.Begin(move, 1, 1, 1, None, (), "", NEVER_WRITTEN), 0), (said.Claim(move, False), 1)):
        node = Node("b", sessions=True)
        peer = spooling_peer(node)
        packet = message(said.encode(body), qos, "$headwater/sessions", 5)
        peer.send(Publisher(0, 5, ""), run_of(packet, protocol=5, position=qos))
        assert peer.is_closed


def test_malformed_subscriptions_and_messages_of_a_session_end_the_link() -> None:
    move = said.Move("x", Stamp(1, "b"))
    begin = said.Begin(move, 10, 10, 1, None, (), "1 x", NEVER_WRITTEN)
    for behind in (
        said.Subscriptions(move, (("t", b"short"),)),
        said.Messages(move, (said.Moved(1, False, False, 0, (), "p", b"no packet"),), "1 x"),
        said.Messages(move, (said.Moved(1, False, False, 0, (), "p", b""),), "1 x"),
    ):
        node = Node("b", sessions=True)
        peer = spooling_peer(node)
        packets = [message(said.encode(each), 1, "$headwater/sessions", 5) for each in (begin, behind)]
        peer.send(Publisher(0, 5, ""), run_of(*packets, protocol=5, position=1))
        assert peer.is_closed and "malformed" in peer.link.why


def test_all_sessions_are_told_as_fast_as_a_node_reads() -> None:
    """More than one note, and more than may wait for its socket."""
    net = Net(Node("a", sessions=True), Node("b", sessions=True))
    a, b = net.nodes
    for number in range(1500):
        client = begin(a, f"{number:04}" + "x" * 200)
        client.lose()
    net.link(a, b)
    net.settle()
    net.later(1)
    assert b.links.sessions is not None and len(b.links.sessions.holding.holders) == 1500
    assert b.links.sessions.is_informed


def test_what_waits_for_the_only_member_of_a_group_moves_with_the_qos_and_identifier_of_its_subscription() -> None:
    net = mesh("a", "b")
    a, b = net.nodes
    member, _ = arrive(net, a, "x")
    properties = Properties(subscription_identifiers=[7])
    member.send(Subscribe(1, [SubscribeRequest("$share/g/t/#", 1)], properties))
    net.settle()
    member.lose()
    publisher = present(net, a, "p")
    publish(publisher, "t/1", b"waits", 2)
    net.settle()
    moved, _ = arrive(net, b, "x")
    net.later(1)
    [got] = [each for each in moved.packets() if isinstance(each, Publish)]
    assert (got.payload, got.qos) == (b"waits", 1)
    assert got.properties is not None and got.properties.subscription_identifiers == [7]
