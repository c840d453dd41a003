"""What happens in one simulation: nodes, clients, faults, all from a seed; and what came of it.

For ten seconds clients subscribe, unsubscribe and publish, while links are cut one way or both, nodes are cut off from
each other, crash and start again, join, or are slow. Then all heals, what is owed has time to arrive, and for a while
nobody does anything. `checking.py` judges.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

from headwater.peering.methods.names import NAMES
from headwater.routing.topics import matches
from headwater_lab.peering_simulation.disk import Disk
from headwater_lab.peering_simulation.network import Clock, Network
from headwater_lab.peering_simulation.node import Life

HEALED: Final = 7.0
SETTLED: Final = 12.0
END: Final = 14.0
QUIET: Final = 2.5
"""Seconds without a change of links after which all who can reach each other know everything."""
MIXED: Final = "mixed"
TOPICS: Final = ("a", "a/b", "a/b/c", "b/x", "c/1/t", "c/2/t")
FILTERS: Final = (*TOPICS, "a/#", "+/b", "c/+/t", "#", "a/+/c", "b/+")


class Member:
    """A node, over all its lives."""

    def __init__(self, node: str, method: str, random: Random) -> None:
        self.node = node
        self.method = method
        self.disk = Disk()
        self.rate = random.uniform(0.95, 1.05)
        self.offset = random.uniform(0.0, 1000.0)
        self.slowness = random.choice((0.0002, 0.0005, 0.002))
        self.subscribers: list[Subscriber] = []
        self.life: Life | None = None


class Subscriber:
    """One subscription of a client whose session outlives crashes."""

    def __init__(self, number: int, node: str, filter: str, time: float) -> None:
        self.number = number
        self.node = node
        self.filter = filter
        self.asked = time
        self.granted: float | None = None
        self.ended: float | None = None
        self.links_when_asked: set[tuple[str, str]] = set()
        self.informed: dict[str, float] = {}
        """Nodes that have to know of it, and since when."""
        self.by_link: set[str] = set()
        """Those of them that have to because a link to them is up, and has not ended since."""
        self.got: list[tuple[float, Publication]] = []


class Publication:
    def __init__(self, number: int, node: str, client: int, topic: str, qos: int, time: float) -> None:
        self.number = number
        self.node = node
        self.client = client
        self.topic = topic
        self.qos = qos
        self.time = time
        self.packet = b"\x30\x08" + number.to_bytes(8, "big")
        self.acknowledged: float | None = None
        self.owed: set[int] = set()
        """Numbers of subscribers that its node had to know of when it was published."""
        self.reached: set[str] = set()
        """Nodes that could be reached then."""

    def is_like(self, other: Publication) -> bool:
        return (self.client, self.topic, self.qos) == (other.client, other.topic, other.qos)


class World:
    def __init__(self, seed: int, method: str) -> None:
        self.random = Random(f"{seed} {method}")
        self.clock = Clock()
        self.network = Network(self.clock, self.random)
        self.members: dict[str, Member] = {}
        self.subscribers: list[Subscriber] = []
        self.publications: list[Publication] = []
        self.links: set[tuple[str, str]] = set()
        """Directed: the first node sees its link to the second as up."""
        self.changes: list[float] = [0.0]
        """When links changed."""
        self.frames_sent = 0
        self.frames_when_quiet = 0
        self.spool_bytes = self.random.choice((600, 3000, 1 << 20))
        self.method = method
        self.faults = self.random.choice((0, 1, 1, 2, 3, 5))
        names = [f"n{number}" for number in range(self.random.randint(2, 4))]
        self.edges = self._graph(names) if self.random.random() < 0.5 else None
        for name in names:
            self._add(name)
        for member in self.members.values():
            member.disk.members = set(names)
            self._start(member)

    def _graph(self, names: list[str]) -> set[frozenset[str]]:
        """A line, a star, a ring, or some more edges."""
        shape = self.random.choice(("line", "star", "ring", "any"))
        if shape == "star":
            return {frozenset((names[0], other)) for other in names[1:]}
        edges = {frozenset(pair) for pair in pairwise(names)}
        if shape == "ring" and len(names) > 2:
            edges.add(frozenset((names[0], names[-1])))
        if shape == "any":
            edges.add(frozenset(self.random.sample(names, 2)))
        return edges

    def _add(self, name: str) -> Member:
        method = self.random.choice(NAMES) if self.method == MIXED else self.method
        self.members[name] = member = Member(name, method, self.random)
        return member

    def _start(self, member: Member) -> None:
        member.life = Life(self, member)

    # ---- what nodes ask of the world -----------------------------------------------------------------------------

    def are_neighbours(self, one: str, two: str) -> bool:
        return self.edges is None or frozenset((one, two)) in self.edges

    def dial(self, life: Life, peer: str) -> None:
        member = self.members[peer]
        if member.life is None or not self.network.is_through(life.node, peer):
            return
        here, there = self.network.connect(life.node, peer)
        other = member.life
        other.attach(there)
        life.attach(here)

    def publications_of(self, packets: bytes) -> list[Publication]:
        numbers = (int.from_bytes(packets[at + 2 : at + 10], "big") for at in range(0, len(packets), 10))
        return [self.publications[number] for number in numbers]

    def acknowledged(self, publication: Publication) -> None:
        publication.acknowledged = self.clock.now

    def delivered(self, subscriber: Subscriber, publication: Publication) -> None:
        subscriber.got.append((self.clock.now, publication))

    def link_down(self, node: str, peer: str, was_synced: bool) -> None:
        """A link that was synced leaves behind what was told over it. One that was not leaves nothing: what the node
        knew before counts again, and what was granted since then is not owed before they are linked again."""
        self.changes.append(self.clock.now)
        self.links.discard((node, peer))
        for subscriber in self.subscribers:
            if subscriber.node == peer and node in subscriber.by_link:
                subscriber.by_link.remove(node)
                if not was_synced:
                    del subscriber.informed[node]

    def link_up(self, node: str, peer: str) -> None:
        self.changes.append(self.clock.now)
        self.links.add((node, peer))
        if self.edges is None:
            # Until the peer has told all, this node takes it for one that wants everything.
            for subscriber in self.subscribers:
                if subscriber.node == peer and subscriber.granted is not None and node not in subscriber.informed:
                    subscriber.informed[node] = self.clock.now
                    subscriber.by_link.add(node)
                    self.clock.after(0.0, partial(self.publish, self._topic_for(subscriber), node))

    def subscribed(self, subscriber: Subscriber, is_late: bool) -> None:
        """SUBACK. Whoever was linked all the time has to know, unless the wait was over before."""
        subscriber.granted = self.clock.now
        subscriber.informed[subscriber.node] = self.clock.now
        self.clock.after(0.0, partial(self.publish, self._topic_for(subscriber)))  # a client that knows of it
        if not is_late:
            for node in self._reached(subscriber.node, self.links & subscriber.links_when_asked):
                subscriber.informed.setdefault(node, self.clock.now)

    def _reached(self, node: str, links: set[tuple[str, str]]) -> set[str]:
        """Over links that both ends see; in a full mesh nothing is relayed."""
        both = {(one, two) for one, two in links if (two, one) in links}
        reached = {node} | {two for one, two in both if one == node}
        while self.edges is not None:
            more = {two for one, two in both if one in reached} - reached
            if not more:
                break
            reached |= more
        return reached

    # ---- what clients do -----------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        member = self._living()
        if member is None or member.life is None:
            return
        subscriber = Subscriber(len(self.subscribers), member.node, self.random.choice(FILTERS), self.clock.now)
        subscriber.links_when_asked = set(self.links)
        self.subscribers.append(subscriber)
        member.subscribers.append(subscriber)
        member.life.subscribe(subscriber)

    def unsubscribe(self) -> None:
        member = self._living()
        if member is None or member.life is None:
            return
        there = [each for each in member.subscribers if each.ended is None]
        if there:
            gone = self.random.choice(there)
            gone.ended = self.clock.now
            member.life.count(gone.filter, -1)

    def publish(self, topic: str = "", node: str = "") -> None:
        """A client sends some messages at once; of any topic and any node, unless they are named."""
        member = self.members[node] if node else self._living()
        if member is None or member.life is None:
            return
        topic = topic or self.random.choice(TOPICS)
        client, qos = self.random.randint(0, 1), self.random.randint(0, 1)
        reached = self._reached(member.node, self.links)
        for _ in range(self.random.choice((1, 1, 2, 6))):
            number = len(self.publications)
            publication = Publication(number, member.node, client, topic, qos, self.clock.now)
            publication.reached = reached
            publication.owed = {each.number for each in self.subscribers if self._has_to_know(member.node, each)}
            self.publications.append(publication)
            member.life.publish(publication)
        if qos and self.faults and self.clock.now < HEALED - 1.0 and self.random.random() < 0.1:
            # While commits are under way, and what they are about is on its way.
            self.clock.after(self.random.uniform(0.0, 0.05), self._crash)

    def _topic_for(self, subscriber: Subscriber) -> str:
        return self.random.choice([topic for topic in TOPICS if matches(subscriber.filter, topic)])

    def _has_to_know(self, node: str, subscriber: Subscriber) -> bool:
        if subscriber.granted is None:
            return False
        if node not in subscriber.informed and self.clock.now - max(self.changes[-1], subscriber.granted) > QUIET:
            for reached in self._reached(subscriber.node, self.links):
                subscriber.informed.setdefault(reached, self.clock.now)
        return node in subscriber.informed

    def _living(self) -> Member | None:
        living = [member for member in self.members.values() if member.life is not None]
        return self.random.choice(living) if living else None

    # ---- faults --------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        self.random.choice((self._cut, self._cut_off, self._crash, self._crash, self._slow, self._join, self._switch))()

    def _cut(self) -> None:
        one, two = self.random.sample(sorted(self.members), 2)
        self.network.cut(one, two)
        if self.random.random() < 0.5:
            self.network.cut(two, one)
        self.clock.after(self.random.choice((0.1, 1.0, 4.0)), self.network.heal)

    def _cut_off(self) -> None:
        """Some nodes from the others."""
        some = {name for name in self.members if self.random.random() < 0.5}
        for one in sorted(some):
            for two in sorted(set(self.members) - some):
                self.network.cut(one, two)
                self.network.cut(two, one)
        self.clock.after(self.random.choice((1.0, 4.0)), self.network.heal)

    def _crash(self) -> None:
        member = self._living()
        if member is None or member.life is None:
            return
        member.life.crash()
        member.life = None
        self.changes.append(self.clock.now)
        self.links = {(one, two) for one, two in self.links if one != member.node}
        for subscriber in self.subscribers:
            subscriber.by_link.discard(member.node)  # one that knows of nobody takes all for such as want everything
        for subscriber in member.subscribers:
            if subscriber.granted is None:
                subscriber.ended = self.clock.now  # never acknowledged: the session does not have it
        self.clock.after(self.random.uniform(0.05, 2.0), lambda: self._start(member))

    def _slow(self) -> None:
        member = self.random.choice(list(self.members.values()))
        before = member.slowness
        member.slowness = 0.1
        self.clock.after(1.0, lambda: setattr(member, "slowness", before))

    def _switch(self) -> None:
        """A node uses another method from now on."""
        member = self._living()
        if member is not None and member.life is not None:
            member.method = self.random.choice(NAMES)
            member.life.use_method()

    def _join(self) -> None:
        if len(self.members) >= 5:
            return
        others = sorted(self.members)
        member = self._add(f"n{len(self.members)}")
        member.disk.members = {*others, member.node}
        if self.edges is not None:
            self.edges.add(frozenset((member.node, self.random.choice(others))))
        for other in others:
            self.clock.after(self.random.uniform(0.0, 0.5), partial(self._meet, other, member.node))
        self._start(member)

    def _meet(self, node: str, newcomer: str) -> None:
        """A node hears of a new one; one that is down, when it is back."""
        member = self.members[node]
        member.disk.members.add(newcomer)
        if member.life is not None:
            member.life.join(newcomer)

    # ---- the course of it ----------------------------------------------------------------------------------------

    def run(self) -> None:
        random = self.random
        for _ in range(random.randint(3, 10)):
            self.clock.at(random.uniform(0.0, HEALED), self.subscribe)
        for _ in range(random.randint(0, 4)):
            self.clock.at(random.uniform(1.0, HEALED), self.unsubscribe)
        for _ in range(random.randint(10, 40)):
            self.clock.at(random.uniform(0.0, SETTLED - 3.0), self.publish)
        for _ in range(self.faults):
            self.clock.at(random.uniform(1.0, HEALED - 1.0), self.fault)
        self.clock.run(HEALED)
        self.network.heal()
        self.clock.run(SETTLED)
        self.frames_when_quiet = self.frames_sent
        self.clock.run(END)
