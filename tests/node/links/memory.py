"""Nodes without sockets, clock or dialing: links over wires whose bytes a test moves."""

from __future__ import annotations

import socket
from typing import Any, cast

from headwater.node.config import Config
from headwater.node.links.link import CLOSED, UP, Link
from headwater.node.links.links import Links
from headwater.node.links.settings import ClusterSettings
from headwater.node.plane.channel import Channel
from headwater.peering.frames import v1
from headwater.peering.frames.frame import Frame, Hello
from headwater.peering.frames.hello import encode_hello
from headwater.peering.frames.reading import FrameReader
from headwater.wire.packets import Packet, Publish, Subscribe, SubscribeRequest
from tests.node.memory import Client, MemoryBroker, MemorySocket
from tests.node.persistence.durable import DurableBroker

BOOT = 7
ROOMY: dict[str, Any] = {
    "sys_interval": 0,
    "max_inflight": 65535,
    "receive_maximum": 65535,
    "topic_alias_maximum": 10,
    "shared_dispatcher": "round_robin",
}


class Node:
    """A broker with links. `settings` are those of the cluster. Without `sessions`, clients need not wait for others to
    say whether they have theirs."""

    def __init__(
        self,
        name: str,
        broker: MemoryBroker | None = None,
        boot: int = BOOT,
        secret: bytes = b"",
        sessions: bool = False,
        **settings: Any,
    ) -> None:
        self.name = name
        self.broker = broker or MemoryBroker(Config(**ROOMY))
        self.server = self.broker.server
        self.settings = ClusterSettings(name="test", node=name, **settings)
        self.links = Links(self.server, self.settings, name, boot, secret)
        if not sessions:
            self.links.sessions = None
        self.left: list[str] = []
        self.links.node_left = self.left.append
        self.links.start()
        self.broker.turn()

    def channel(self, end: MemorySocket, loopback: bool = True) -> Channel:
        channel = Channel(self.server.hot, end.fileno(), end.recv, end.send)
        channel.socket = cast(socket.socket, end)
        channel.address = f"memory:{end.fileno()}"
        channel.loopback = loopback
        self.server.plane.add(channel)
        return channel

    def open(self, dialed: str = "", loopback: bool = True) -> tuple[Link, MemorySocket]:
        """A connection, before anything has come over it."""
        end = MemorySocket(self.broker.new_descriptor())
        link = self.links.open(self.channel(end, loopback), dialed)
        self.broker.turn()
        return link, end

    def settle(self) -> None:
        self.broker.turn()
        if isinstance(self.broker, DurableBroker):
            self.broker.settle()

    def client(self, client_id: str, version: int = 5, **connect: object) -> Client:
        client = self.broker.client(client_id, version, **connect)
        self.settle()
        return client


class Wire:
    """Two ends of a connection; `one` has dialed."""

    def __init__(self, one: Node, other: Node) -> None:
        self.nodes = (one, other)
        opened = [one.open(other.name), other.open()]
        self.links = tuple(link for link, _ in opened)
        self.ends = tuple(end for _, end in opened)
        self.moved = [0, 0]

    @property
    def waiting(self) -> int:
        return sum(len(end.sent) - moved for end, moved in zip(self.ends, self.moved, strict=True))

    @property
    def is_up(self) -> bool:
        return all(link.phase == UP for link in self.links)

    def move(self, side: int, size: int = 1 << 60) -> bool:
        """So many bytes of what one side has sent arrive at the other; whether there were any."""
        end, other = self.ends[side], 1 - side
        data = bytes(end.sent[self.moved[side] : self.moved[side] + size])
        self.moved[side] += len(data)
        receiver = self.links[other]
        if data and receiver.channel.fd >= 0:
            self.nodes[other].server.hot.feed(receiver.channel, data)
        elif end.closed and self.moved[side] == len(end.sent) and receiver.phase != CLOSED:
            self.nodes[other].server.lost(receiver.channel)
            self.nodes[other].broker.turn()
            return True
        self.nodes[other].broker.turn()
        return bool(data)

    def cut(self, side: int = 0) -> None:
        """One side loses it, with all that is under way; the other one too."""
        for number in (side, 1 - side):
            if self.links[number].channel.fd >= 0:
                self.nodes[number].server.lost(self.links[number].channel)
                self.nodes[number].broker.turn()
        self.moved = [len(end.sent) for end in self.ends]


class Net:
    """Nodes and wires, on one clock."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = list(nodes)
        self.wires: list[Wire] = []

    def link(self, one: Node, other: Node) -> Wire:
        wire = Wire(one, other)
        self.wires.append(wire)
        return wire

    def settle(self) -> None:
        """Until nothing moves any more."""
        is_moving = True
        while is_moving:
            is_moving = False
            for node in self.nodes:
                node.settle()
            for wire in self.wires:
                for side in (0, 1):
                    is_moving = wire.move(side) or is_moving
        assert all(node.server.stats.failures == 0 for node in self.nodes)
        assert all(node.server.timers.failures == 0 for node in self.nodes)
        assert all(node.server.background.failures == 0 for node in self.nodes)

    def later(self, seconds: float) -> None:
        for node in self.nodes:
            node.broker.later(seconds)
        self.settle()


def pair(**settings: Any) -> Net:
    """Two nodes that are linked."""
    net = Net(Node("a", **settings), Node("b", **settings))
    net.link(*net.nodes)
    net.settle()
    return net


def subscribe(net: Net, client: Client, filter: str, qos: int = 2) -> list[Packet]:
    client.send(Subscribe(1, [SubscribeRequest(filter, qos)]))
    net.settle()
    return client.packets()


def publish(client: Client, topic: str, payload: bytes, qos: int = 0) -> None:
    client.send(Publish(topic, payload, qos, False, False, 1 + len(client.socket.sent) % 60000 if qos else 0))


def payloads(client: Client) -> list[bytes]:
    return [each.payload for each in client.messages()]


class FakePeer:
    """The other end of a node's link, which says what a test wants."""

    def __init__(
        self, node: Node, name: str = "x", boot: int = BOOT, dialed: bool = False, loopback: bool = True
    ) -> None:
        self.node = node
        self.link, self.end = node.open("fake" if dialed else "", loopback)
        services = tuple(each.name for each in node.links.post.services)
        self.hello = Hello(name, boot, "test", (1,), "subscribe", False, bytes(32), services)
        self._reader = FrameReader(1 << 28)
        self._read = 0
        self.greeting: Hello | None = None

    def say(self, data: bytes) -> None:
        if self.link.channel.fd >= 0:
            self.node.server.hot.feed(self.link.channel, data)
        self.node.broker.turn()

    def greet(self) -> None:
        self.say(encode_hello(self.hello))

    def send(self, *frames: Frame) -> None:
        self.say(b"".join(map(v1.encode, frames)))

    def heard(self) -> list[Frame]:
        """What the node has said since the last time, but for its Hello."""
        self._reader.feed(bytes(self.end.sent[self._read :]))
        self._read = len(self.end.sent)
        if self.greeting is None:
            self.greeting = self._reader.next_hello()
        found: list[Frame] = []
        while self.greeting is not None and (frame := self._reader.next_frame()) is not None:
            found.append(frame)
        return found

    @property
    def is_up(self) -> bool:
        return self.link.phase == UP

    @property
    def is_closed(self) -> bool:
        return self.link.phase == CLOSED


def peer_of(node: Node, name: str = "x", **more: Any) -> FakePeer:
    """One whose link is up; what the node has said until then is read."""
    peer = FakePeer(node, name, **more)
    peer.greet()
    assert peer.is_up
    peer.heard()
    return peer
