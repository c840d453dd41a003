"""Clients that move between nodes, with sessions that last: whoever connects somewhere takes its session along.

They go now and then without any reason, and when their node does not answer; whoever comes back chooses a node. With
`cluster.session_lost = "wait"` a node refuses a client whose session is at a node that cannot be reached: it tries
again, at any node. With `"clean"` such a client begins anew. Two connections of one client may be there at once,
because one was given up: then the node ends the older one. A CONNECT that a stopped node reads later is the newer one
for the cluster, and the client connects again.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

from headwater.wire.packets import V5, V311, Connack, Disconnect, Packet, Properties, Publish, Will
from headwater.wire.reasons import SERVER_BUSY, SERVER_UNAVAILABLE, SESSION_TAKEN_OVER
from headwater_lab.chaos.client import Client
from headwater_lab.chaos.history import HEAD, Note, payload_of
from headwater_lab.chaos.publisher import Publisher
from headwater_lab.chaos.subscriber import Subscriber

if TYPE_CHECKING:
    from headwater_lab.cluster_chaos.world import ClusterWorld

ANSWER_LIMIT: Final = 4.0
"""Seconds that a client waits for CONNACK, and for the answer to what it has sent: more than `session_wait`."""
STAYS: Final = 0.3
"""How often a client comes back to the node where it was."""
COME_BACK_LATER: Final = (SERVER_UNAVAILABLE, SERVER_BUSY, 3)
"""In CONNACK; 3 is that of 3.1.1."""


class Rover(Client):
    """`node` is where it is, or was last."""

    world: ClusterWorld
    node = ""
    moves = 0
    """CONNACKs of other nodes than the one before."""
    begun_anew = 0
    """CONNACKs that said that its session is gone."""
    _was_at = ""
    hop_from: float | None = None
    """When it sent the CONNECT of a move whose time is taken."""
    _asked_at = 0.0

    def connect(self) -> None:
        self.node = self._choose()
        super().connect()
        self._asked_at = self.world.now
        if self.hop_from == 0 and self.connection is not None:
            self.hop_from = time.monotonic()

    def _choose(self) -> str:
        open_nodes = self.world.open_nodes()
        if self.node in open_nodes and (len(open_nodes) == 1 or (not self.hops and self.random.random() < STAYS)):
            return self.node
        return self.random.choice([node for node in open_nodes if node != self.node] or [self.node or "a"])

    @property
    def hops(self) -> bool:
        """It is to move to another node, and the time is taken."""
        return self.hop_from is not None

    def hop(self) -> None:
        """Move to another node, now."""
        self.hop_from = 0.0
        if self.random.random() < 0.5:
            self.leave(0.0)
        else:
            self.cut(0.0)

    def _packet(self, packet: Packet) -> None:
        if isinstance(packet, Connack) and packet.reason in COME_BACK_LATER:
            self.cut(self.random.uniform(0.05, 0.3))
        elif isinstance(packet, Disconnect) and packet.reason == SESSION_TAKEN_OVER:
            self.cut(self.random.uniform(0, 0.2))
        else:
            if isinstance(packet, Connack) and not packet.reason and self.hop_from is not None:
                self.world.takeovers.append(time.monotonic() - self.hop_from)
                self.hop_from = None
            super()._packet(packet)

    def connected(self, present: bool) -> None:
        self.moves += self._was_at not in ("", self.node)
        self.begun_anew += self._was_at != "" and not present
        self._was_at = self.node
        super().connected(present)

    def turn(self, now: float) -> None:
        if self.connection is not None and not self.ready and now > self._asked_at + ANSWER_LIMIT:
            self.cut(0.0)
        super().turn(now)


class RovingPublisher(Rover, Publisher):
    """Gives a node up that does not acknowledge. What it sends does not expire."""

    _progress = (0.0, 0)

    def act(self, now: float) -> None:
        oldest = next(iter(self.flights.values()), None)
        number = oldest.note.message if oldest is not None else 0
        if number != self._progress[1]:
            self._progress = now, number
        elif number and now > self._progress[0] + ANSWER_LIMIT and now > self._asked_at + ANSWER_LIMIT:
            self.cut(0.0)
            return
        super().act(now)


class RovingSubscriber(Rover, Subscriber):
    pass


class Member(RovingSubscriber):
    """Of a shared group; acknowledges at once.

    A message may come to a member because the connection of another one ended that had it. The node closed that one
    first, so its end is there when the message is: members whose connections have ended are read to the end before the
    message is noted, and the history has what happened in its order.
    """

    is_reading = False

    def connected(self, present: bool) -> None:
        super().connected(present)
        self.laziness = 0.0

    def read(self, to_the_end: bool = False) -> None:
        self.is_reading = True
        try:
            super().read(to_the_end)
        finally:
            self.is_reading = False

    def packet(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            for other in self.world.clients:
                if isinstance(other, Member) and not other.is_reading and other.has_ended():
                    other.read(to_the_end=True)
        super().packet(packet)

    def has_ended(self) -> bool:
        """The other side has closed the connection, though what came before may not be read."""
        if self.connection is None:
            return False
        poll = select.poll()
        poll.register(self.connection.socket, select.POLLRDHUP)
        return bool(poll.poll(0))


class Mortal(Rover):
    """Has a will of QoS 2, another one for each connection, and goes with DISCONNECT or without."""

    def __init__(self, world: ClusterWorld, name: str, topic: str) -> None:
        super().__init__(world, name, V5)
        self.topic = topic

    def new_will(self) -> Will | None:
        history = self.world.history
        note = history.note(Note(history.next_message(), self.name, self.topic, 2, size=HEAD, will=True))
        self.will = note.message
        return Will(self.topic, payload_of(note.message, HEAD), 2, False, Properties())

    def packet(self, packet: Packet) -> None:
        self.odd(f"got {packet!r:.80}")

    def act(self, now: float) -> None:
        if self.calm or self.random.random() > 0.003:
            return
        away = self.random.uniform(0, 0.3)
        if self.random.random() < 0.6:
            self.cut(away)
        else:
            self.leave(away)


def settle_down(world: ClusterWorld, rate: float) -> None:
    """Who moves: subscribers, publishers, writers of retained registers, members of a group, owners of wills."""
    places = [f"roam/{number}" for number in range(3)]
    jobs = [f"jobs/{number}" for number in range(2)]
    world.clients += [
        RovingPublisher(world, "rover-pub-1", V311, places, rate),
        RovingPublisher(world, "rover-pub-2", V311, places, rate),
        RovingPublisher(world, "rover-jobs", V311, jobs, rate),
        RovingSubscriber(world, "rover-sub-1", V311, {"roam/#": 1}),
        RovingSubscriber(world, "rover-sub-2", V5, {"roam/#": 2}, window=10),
        RovingSubscriber(world, "rover-sub-3", V5, {"roam/0": 2, "roam/1": 1}),
        *(Member(world, f"rover-member-{number}", (V311, V5)[number % 2], {GROUP: 1}) for number in range(4)),
        *(Mortal(world, f"rover-mortal-{number}", f"wills/{number}") for number in range(3)),
    ]
    for number in range(2):
        registers = [f"{REGISTER}/{number}/{each}" for each in range(4)]
        world.clients.append(RovingPublisher(world, f"rover-writer-{number}", V311, registers, rate / 2, retains=True))


GROUP: Final = "$share/crew/jobs/#"
REGISTER: Final = "register"
