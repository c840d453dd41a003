"""Owners without disk and links: streams are queues, gossip is carried from one node to one other, and many filters
that overlap are split and joined. At the end each position of each store is in one stretch of its topic, in order."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any, NamedTuple

from headwater.edge.declaration import Declaration
from headwater.edge.messages import View
from headwater.edge.owners import Owners, Part, Refused
from headwater.edge.seeing import status_of
from headwater.edge.status import EdgeStatus, stretches_of

TOPICS = ["plant/0/a", "plant/0/b", "plant/1/a", "plant/1/b"]
FILTERS = ["plant/#", "plant/+/a", "plant/0/#", "plant/1/#", "plant/0/a", "plant/+/b"]


class Message(NamedTuple):
    publisher: str
    topic: str
    number: int


class RowsNode:
    """`stored`: what is at position 1, 2 and so on."""

    def __init__(self, name: str, world: RowsWorld, keeps: bool) -> None:
        part = Part(name, "north", ("receiving", "delivery"), keeps)
        self.name = name
        self.world = world
        self.owners = Owners(part, 1, lambda: [each for each in world.nodes if each != name])
        self.stored: list[Message] = []
        self.streams: dict[str, deque[View | Message]] = defaultdict(deque)
        """By who sends."""

    @property
    def position(self) -> int:
        return len(self.stored) + 1

    def change(self) -> None:
        while (view := self.owners.next_view()) is not None:
            for peer in self.others():
                peer.streams[self.name].append(view)
        self.owners.look(self.position)

    def others(self) -> list[RowsNode]:
        return [each for each in self.world.nodes.values() if each is not self]

    def publish(self, message: Message) -> None:
        owner = self.owners.owner(message.topic)
        for peer in self.others():
            peer.streams[self.name].append(message)
        if owner == self.name:
            self.stored.append(message)

    def take(self, sender: str) -> None:
        """One of what a node sent, if it may be taken now."""
        stream = self.streams[sender]
        if not stream:
            return
        first = stream[0]
        if isinstance(first, View):
            if self.owners.must_wait(sender, first):
                return
            self.owners.hear(sender, first)
            for peer in self.others():
                peer.owners.has_seen(self.name, self.owners.numbers())
            stream.popleft()
            self.change()
        else:
            stream.popleft()
            heard = self.owners.heard.get(sender)
            if heard is not None and heard.table.owner(first.topic) == self.name:
                self.stored.append(first)

    def declaration(self) -> Declaration:
        return self.owners.declaration(f"s-{self.name}")


class RowsWorld:
    """`one_by_one`: no move begins while another one goes on; else the order between stores is not kept. `forgets`: one
    node is lost for good now and then; what is in its store, or on its way there, is not looked for."""

    def __init__(
        self, seed: int, names: str = "abc", keeps: bool = True, one_by_one: bool = True, forgets: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.one_by_one = one_by_one
        self.forgets = forgets
        self.moved = 0
        self.forgotten = 0
        self.nodes: dict[str, RowsNode] = {}
        self.nodes = {name: RowsNode(name, self, keeps) for name in names}
        self.published: list[Message] = []
        for node in self.nodes.values():
            node.owners.begin(["plant/#"] if node.name == "a" else [], 1, 0.0)
            for peer in node.others():
                peer.streams[node.name].append(node.owners.view)
        self.settle()

    def happen(self) -> None:
        chosen, node = self.random.random(), self.random.choice(list(self.nodes.values()))
        peer = self.random.choice(node.others())
        if chosen < 0.4:
            self.publish(node, self.random.choice(TOPICS))
        elif chosen < 0.75:
            for _ in range(self.random.randint(1, 6)):
                node.take(peer.name)
        elif chosen < 0.93:
            self.tell(peer, node)
        elif chosen < 0.935 and self.forgets and len(self.nodes) > 2:
            self.forget(node)
        else:
            self.move(node, self.random.choice(FILTERS), self.random.random() < 0.5)

    def publish(self, node: RowsNode, topic: str) -> None:
        message = Message(node.name, topic, len(self.published))
        self.published.append(message)
        node.publish(message)

    def tell(self, node: RowsNode, to: RowsNode) -> None:
        to.owners.declare(node.name, node.declaration())
        to.change()

    def forget(self, lost: RowsNode) -> None:
        """All at once, but each changes its view in its own time."""
        self.forgotten += 1
        del self.nodes[lost.name]
        for node in self.nodes.values():
            node.owners.forget(lost.name)
            node.streams.pop(lost.name, None)

    def move(self, node: RowsNode, filter: str, joins: bool) -> None:
        if self.one_by_one and any(
            not claim.is_settled for each in self.nodes.values() for claim in each.owners.claims.values()
        ):
            return
        if joins:
            wider = node.owners.target().wider(filter)
            if wider is None:
                return
            node = self.nodes[wider.node]
        try:
            node.owners.claim(filter, joins, list(self.nodes), node.position, 0.0)
        except Refused:
            return
        self.moved += 1
        node.change()

    def settle(self) -> None:
        for _ in range(100):
            before = self._state()
            for node in self.nodes.values():
                for peer in node.others():
                    self.tell(node, peer)
            for node in self.nodes.values():
                for peer in node.others():
                    for _ in range(len(node.streams[peer.name])):
                        node.take(peer.name)
            if before == self._state() and not any(any(node.streams.values()) for node in self.nodes.values()):
                return
        raise AssertionError("it does not come to an end")

    def _state(self) -> list[object]:
        return [(each.declaration(), each.position, each.owners.view) for each in self.nodes.values()]

    def status(self) -> EdgeStatus:
        one = next(iter(self.nodes.values()))
        return status_of(one.owners, one.declaration(), {}, "local", 0, ())

    def check(self) -> None:
        self._check_rows()
        for node in self.nodes.values():
            table = node.owners.target()
            assert all(table.claims[filter].node == node.name for filter in node.owners.claims)
            assert node.owners.endings == {} and node.owners.view.table == table
        if not self.forgotten:
            places = [message for node in self.nodes.values() for message in node.stored]
            assert sorted(places) == sorted(self.published)
            if self.one_by_one:
                self._check_order()

    def _check_rows(self) -> None:
        """Each position is in exactly one stretch of its topic."""
        status = self.status()
        for node in self.nodes.values():
            for position, message in enumerate(node.stored, 1):
                found = [
                    each
                    for each in stretches_of(status, message.topic)
                    if each.node == node.name
                    and each.first <= position
                    and (each.last is None or position <= each.last)
                ]
                assert len(found) == 1, f"{node.name}:{position} ({message}) is in {found}"

    def _check_order(self) -> None:
        for topic in TOPICS:
            read: list[Message] = []
            for stretch in stretches_of(self.status(), topic):
                stored = self.nodes[stretch.node].stored
                last = len(stored) if stretch.last is None else stretch.last
                read += [each for each in stored[stretch.first - 1 : last] if each.topic == topic]
            for name in self.nodes:
                sent = [each.number for each in self.published if (each.publisher, each.topic) == (name, topic)]
                got = [each.number for each in read if each.publisher == name]
                assert got == sent, f"{topic} of {name}: {got} instead of {sent}"


def run(seed: int, steps: int, **how: Any) -> RowsWorld:
    world = RowsWorld(seed, **how)
    for _ in range(steps):
        world.happen()
    world.settle()
    world.check()
    return world
