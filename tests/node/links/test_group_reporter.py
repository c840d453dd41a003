"""What other nodes are told of members here: at once, or now and then, and nothing that they know."""

from __future__ import annotations

from headwater.node.links.group_reporter import INTERVAL
from headwater.node.links.post import Service
from headwater.peering.groups.notes import Entry, decode_note
from headwater.wire.packets import Properties, Puback, Subscribe, SubscribeRequest
from tests.node.links.memory import Net, publish, subscribe
from tests.node.links.test_groups import GROUP, groups, member, trio
from tests.node.memory import Client


class Heard(Service):
    """What node a hears of groups at b."""

    def __init__(self, net: Net) -> None:
        self.name = "groups"
        self.entries: list[Entry] = []
        self.notes = 0
        self.service = groups(net.nodes[0])
        net.nodes[0].links.post.add(self)  # instead of the one of that name

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        if node == "b":
            self.notes += 1
            self.entries += decode_note(body)[0]
        self.service.received(node, body, is_letter)

    def take(self) -> list[Entry]:
        found, self.entries = self.entries, []
        return found


def working(net: Net, node: int = 1) -> tuple[Client, Client]:
    """A member there and a publisher here."""
    return member(net, node, "m"), net.nodes[0].client("p")


def test_who_comes_and_goes_is_told_at_once() -> None:
    net = trio()
    heard = Heard(net)
    client = member(net, 1, "m")
    [entry] = heard.take()
    assert entry.name == GROUP and entry.state is not None and entry.state.online == 1
    client.lose()
    net.settle()
    [gone] = heard.take()
    assert gone.number == entry.number and gone.state is None


def test_how_often_others_are_told() -> None:
    net = trio()
    member_of_b, publisher = working(net)
    heard = Heard(net)
    for _ in range(100):
        publish(publisher, "t/x", b"x", 1)
        net.later(0.001)
        member_of_b.send(*[Puback(packet.packet_id) for packet in member_of_b.messages()])
        net.settle()
    assert 1 <= heard.notes <= 0.1 / INTERVAL + 2


def test_what_is_no_news_is_not_told() -> None:
    net = trio()
    client, publisher = working(net)
    publish(publisher, "t/x", b"x", 0)
    net.later(INTERVAL)
    net.later(INTERVAL)
    heard = Heard(net)
    for _ in range(200):
        net.later(0.01)
    assert heard.notes <= 1
    assert not groups(net.nodes[1]).reporter._active
    assert [packet.payload for packet in client.messages()] == [b"x"]


def test_a_group_without_room_is_looked_at_until_it_has_some() -> None:
    net = trio()
    client = member(net, 1, "m", properties=Properties(receive_maximum=1))
    publisher = net.nodes[1].client("p")  # which others do not see
    publish(publisher, "t/x", b"x", 1)
    net.nodes[1].client("other").send(Subscribe(1, [SubscribeRequest(GROUP, 1)]))
    net.settle()
    [packet] = client.messages()
    net.later(5.0)
    heard = Heard(net)
    client.send(Puback(packet.packet_id))
    net.later(INTERVAL)
    state = groups(net.nodes[0])._spans[GROUP].spread.nodes["b"]
    assert state.credit > 0
    assert heard.notes <= 1


def test_members_with_small_windows_have_work_ahead() -> None:
    """A window of one, and 10 ms for a message: five may wait there, though none of them can be sent."""
    net = trio({"shared_dispatcher": "adaptive"})
    client = member(net, 1, "m", properties=Properties(receive_maximum=1))
    publisher = net.nodes[0].client("p")
    got = 0
    for number in range(30):
        publish(publisher, "t/x", b"%d" % number, 1)
    for _ in range(40):
        net.later(0.01)
        packets = client.messages()
        got += len(packets)
        client.send(*[Puback(packet.packet_id) for packet in packets])
        net.settle()
    assert got == 30
    group = net.nodes[1].server.router.groups.get("g", "t/#")
    assert group is not None


def test_this_nodes_own_members_are_modelled_as_others_are() -> None:
    """Looking at them again, without news, does not make them later."""
    net = trio({"shared_dispatcher": "adaptive"})
    member(net, 0, "here")
    member(net, 1, "there")
    publisher = net.nodes[0].client("p")
    for _ in range(2):
        publish(publisher, "t/x", b"x", 0)
    net.settle()
    spread = groups(net.nodes[0])._spans[GROUP].spread
    net.later(INTERVAL)
    net.later(INTERVAL)
    before = spread.own.starts
    for _ in range(20):
        net.later(INTERVAL)
    now = net.nodes[0].server.hot.now
    assert len(spread.own.starts) == len(before) == 1
    assert spread.own.starts[0] <= max(before[0], now) + 1e-6


def test_many_groups_are_told_some_at_a_time() -> None:
    net = trio()
    net.wires[0].cut()
    client = net.nodes[1].client("m")
    for number in range(600):
        client.send(Subscribe(1, [SubscribeRequest(f"$share/g/x/{number}", 1)]))
    net.settle()
    net.wires.pop(0)
    net.link(net.nodes[0], net.nodes[1])
    net.settle()
    assert len(groups(net.nodes[0])._spans) >= 256
    for _ in range(5):
        net.later(INTERVAL)
    assert len([each for each in groups(net.nodes[0])._spans.values() if "b" in each.spread.nodes]) == 600


def test_whose_link_takes_nothing_hears_the_latest_later() -> None:
    net = trio(link_buffer=65536)
    subscribe(net, net.nodes[0].client("s"), "big")
    socket = net.wires[0].ends[1]
    socket.room = 0
    publish(net.nodes[1].client("p"), "big", bytes(100_000))
    member(net, 1, "m")
    assert GROUP in groups(net.nodes[1]).reporter.own
    assert GROUP not in groups(net.nodes[0])._spans
    socket.room = 1 << 60
    net.nodes[1].server.plane._write(net.nodes[1].links.up["a"].channel)
    net.later(INTERVAL)
    assert GROUP in groups(net.nodes[0])._spans
