"""Notes and letters between nodes: when they come, how often, and what a stranger makes of them."""

from __future__ import annotations

from headwater.node.config import Config
from headwater.node.links.post import LARGEST, Service
from headwater.peering.frames.frame import MalformedFrame, Publisher, Refuse
from headwater.wire.packets import Publish
from tests.node.links.memory import ROOMY, Net, Node, pair, payloads, peer_of, publish, subscribe
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
    found = []
    for node in net.nodes:
        diary = Diary()
        node.links.post.add(diary)
        found.append(diary)
    return found


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


def test_a_letter_for_an_unknown_service_or_of_nonsense_ends_the_link() -> None:
    for topic, body in (("$headwater/none", b""), ("$headwater/diary", b"nonsense"), ("$headwater", b"")):
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


def test_clients_cannot_write_letters() -> None:
    net = pair()
    _, other = diaries(net)
    client = net.nodes[0].client("p")
    client.send(Publish("$headwater/diary", b"x", 1, False, False, 1))
    net.settle()
    assert other.seen == []
