"""Notes and letters between nodes: when they come, how often, and what a stranger makes of them."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.links.post import LARGEST, Service
from headwater.peering.frames.frame import MalformedFrame, Publisher, Refuse
from headwater.wire.packets import Publish, Subscribe, SubscribeRequest
from tests.node.links.memory import ROOMY, FakePeer, Net, Node, Wire, pair, payloads, peer_of, publish, subscribe
from tests.node.links.test_receiving import message, run_of, spooling_peer
from tests.node.persistence.durable import DurableBroker


class Diary(Service):
    def __init__(self) -> None:
        self.name = "diary"  # not of the class: compiled code would not see it
        self.seen: list[tuple[str, bytes, bool]] = []
        self.told: list[tuple[str, str]] = []
        self.is_open = True

    def link_up(self, node: str) -> None:
        self.told.append(("up", node))

    def link_down(self, node: str) -> None:
        self.told.append(("down", node))

    def forgotten(self, node: str) -> None:
        self.told.append(("forgotten", node))

    def has_room(self, node: str, body: bytes) -> bool:
        return self.is_open

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        if body == b"nonsense":
            raise MalformedFrame("nonsense")
        self.seen.append((node, body, is_letter))


def diaries(net: Net) -> list[Diary]:
    """Nodes say at the beginning of a link what they have: they are linked anew."""
    found = [Diary() for _ in net.nodes]
    for node, diary in zip(net.nodes, found, strict=True):
        node.links.post.add(diary)
    again(net)
    return found


def again(net: Net) -> None:
    for wire in net.wires[:]:
        wire.cut()
        net.wires.remove(wire)
        net.link(*wire.nodes)
    net.settle()


def test_a_note_and_a_letter_come_once() -> None:
    net = pair()
    one, other = diaries(net)
    assert net.nodes[0].links.post.note("b", one, b"note")
    assert net.nodes[0].links.post.letter("b", one, b"letter")
    net.settle()
    assert sorted(other.seen) == [("a", b"letter", True), ("a", b"note", False)]
    assert net.nodes[1].server.stats.messages_received == 0
    assert net.nodes[0].links.spooling.ends["b"].spool.waiting == 0


def test_a_letter_waits_for_the_link_and_a_note_does_not() -> None:
    net = pair()
    one, other = diaries(net)
    net.wires[0].cut()
    assert not net.nodes[0].links.post.note("b", one, b"note")
    assert net.nodes[0].links.post.letter("b", one, b"letter")
    assert not net.nodes[0].links.post.letter("nobody", one, b"letter")
    net.settle()
    assert other.seen == []
    net.link(*net.nodes)
    net.settle()
    assert other.seen == [("a", b"letter", True)]
    assert ("down", "b") in one.told and ("up", "b") in one.told
    net.nodes[0].links.forget("b")
    assert one.told[-1] == ("forgotten", "b")


def test_letters_and_messages_come_in_the_order_they_were_sent() -> None:
    """So a letter says something about all messages before it."""
    net = pair()
    one, other = diaries(net)
    client = net.nodes[1].client("s")
    subscribe(net, client, "t")
    publisher = net.nodes[0].client("p")
    seen_at: list[int] = []
    stats = net.nodes[1].server.stats
    other.received = lambda node, body, is_letter: seen_at.append(stats.messages_received)  # type: ignore[method-assign]
    for number in range(3):
        publish(publisher, "t", b"%d" % number, 1)
        net.nodes[0].links.post.letter("b", one, b"after %d" % number)
    net.settle()
    assert seen_at == [1, 2, 3]
    assert payloads(client) == [b"0", b"1", b"2"]


def test_a_letter_waits_for_room_with_all_behind_it() -> None:
    net = pair()
    one, other = diaries(net)
    client = net.nodes[1].client("s")
    subscribe(net, client, "t")
    publisher = net.nodes[0].client("p")
    other.is_open = False
    net.nodes[0].links.post.letter("b", one, b"letter")
    publish(publisher, "t", b"behind", 1)
    net.settle()
    assert other.seen == [] and payloads(client) == []
    other.is_open = True
    net.later(1)
    assert other.seen == [("a", b"letter", True)] and payloads(client) == [b"behind"]


def test_a_letter_survives_a_kill_of_who_wrote_it() -> None:
    broker = DurableBroker(config=Config(**ROOMY))
    net = Net(Node("a", broker), Node("b"))
    net.link(*net.nodes)
    net.settle()
    one, other = diaries(net)
    net.wires[0].cut()
    net.nodes[0].links.post.letter("b", one, b"letter")
    net.nodes[0].settle()
    again = Net(Node("a", broker.crash(), boot=8), net.nodes[1])
    again.link(*again.nodes)
    again.settle()
    assert other.seen == [("a", b"letter", True)]


def test_a_large_letter_comes() -> None:
    net = pair()
    one, other = diaries(net)
    net.nodes[0].links.post.letter("b", one, bytes(5 << 20))
    net.settle()
    assert [len(body) for _, body, _ in other.seen] == [5 << 20]


def test_the_largest_letter_is_a_packet() -> None:
    assert LARGEST + len("$headwater/diary") + 16 < 1 << 28


def test_nonsense_ends_the_link() -> None:
    for topic, body in (("$headwater/diary", b"nonsense"), ("$headwater", b"")):
        node = Node("b")
        node.links.post.add(Diary())
        peer = peer_of(node)
        peer.send(Publisher(0, 4, ""), run_of(message(body, topic=topic)))
        assert peer.is_closed
        assert any(isinstance(each, Refuse) for each in peer.heard())


def test_a_letter_that_comes_again_is_taken_once() -> None:
    node = Node("b")
    diary = Diary()
    node.links.post.add(diary)
    peer = spooling_peer(node)
    run = run_of(message(b"one", 1, "$headwater/diary"), message(b"two", 1, "$headwater/diary"), position=1)
    peer.send(run, run)
    assert [body for _, body, _ in diary.seen] == [b"one", b"two"]


# ---- nodes of different versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_for_a_service_that_this_node_does_not_have_is_skipped(
    qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headwater.cluster")
    node = Node("b")
    client = node.client("s")
    client.send(Subscribe(1, [SubscribeRequest("t", 2)]))
    peer = spooling_peer(node)
    unknown = message(b"?", qos, "$headwater/tomorrow")
    peer.send(
        run_of(unknown, unknown, message(b"before", qos, "t"), position=qos),
        run_of(unknown, message(b"behind", qos, "t"), counter=3, position=4 * qos),
    )
    assert peer.is_up and payloads(client) == [b"before", b"behind"]
    assert node.links.spooling.ends["x"].skipped == 3
    assert caplog.text.count("$headwater/tomorrow") == 1, "a line for each would fill the log"


def test_a_service_has_to_do_with_nodes_that_have_it_alone() -> None:
    """A node is upgraded: it has a service that the other one does not know. Messages go on, both ways."""
    net = pair()
    newer, older = net.nodes
    diary = Diary()
    newer.links.post.add(diary)
    again(net)
    reader, writer = newer.client("reader"), newer.client("writer")
    other_reader, other_writer = older.client("other reader"), older.client("other writer")
    subscribe(net, reader, "t")
    subscribe(net, other_reader, "t")
    assert diary.told == [], "it does not hear of a node that it cannot talk to"
    assert not newer.links.post.note("b", diary, b"note")
    assert not newer.links.post.letter("b", diary, b"letter")
    for qos in (0, 1):
        publish(writer, "t", b"from the newer", qos)
        publish(other_writer, "t", b"from the older", qos)
    net.settle()
    both = [b"from the newer"] * 2 + [b"from the older"] * 2
    assert sorted(payloads(reader)) == sorted(payloads(other_reader)) == both
    assert net.wires[0].is_up and older.links.spooling.ends["a"].skipped == 0
    net.wires[0].cut()
    assert diary.told == [], "nor that it has gone"
    assert not newer.links.post.letter("b", diary, b"letter"), "what it said last counts while it is away"
    upgraded = Diary()
    older.links.post.add(upgraded)
    again(net)
    assert diary.told == [("up", "b")]
    assert newer.links.post.letter("b", diary, b"letter")
    net.settle()
    assert upgraded.seen == [("a", b"letter", True)]


def test_a_letter_that_waited_for_a_node_that_comes_back_older_is_skipped() -> None:
    net = pair()
    one, _ = diaries(net)
    net.wires[0].cut()
    assert net.nodes[0].links.post.letter("b", one, b"letter")
    older = Node("b", boot=8)
    net.nodes[1] = older
    client = older.client("s")
    net.wires[0] = Wire(net.nodes[0], older)
    net.settle()
    subscribe(net, client, "t")
    publish(net.nodes[0].client("p"), "t", b"behind", 1)
    net.settle()
    assert payloads(client) == [b"behind"] and older.links.spooling.ends["a"].skipped == 1
    assert net.nodes[0].links.spooling.ends["b"].spool.waiting == 0


def test_a_node_that_cannot_tell_who_has_which_sessions_is_not_waited_for() -> None:
    """Else no client could connect at a node that is linked with older ones alone."""
    node = Node("b", sessions=True)
    assert node.links.sessions is not None
    peer = FakePeer(node)
    peer.hello = peer.hello._replace(services=())
    peer.greet()
    assert peer.is_up and node.links.sessions.is_informed
    node.client("s")
    assert "s" in node.server.sessions
    other = FakePeer(node, "y")
    other.greet()
    assert other.is_up and not node.links.sessions.is_informed, "this one can tell, and has not yet"


def test_clients_cannot_write_letters() -> None:
    net = pair()
    _, other = diaries(net)
    client = net.nodes[0].client("p")
    client.send(Publish("$headwater/diary", b"x", 1, False, False, 1))
    net.settle()
    assert other.seen == []
