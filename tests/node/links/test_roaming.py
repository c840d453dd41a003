"""Clients that roam between three nodes while links break and nodes are killed: nothing is lost, QoS 2 comes once.

Everything is drawn from a seed: which bytes move when, what the disks do, who connects where, what breaks.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from headwater.node.links.known import born, first_claim
from headwater.wire.packets import Connack, Packet
from tests.node.links.memory import BOOT, Net, Node
from tests.node.links.test_sessions import durable
from tests.node.memory import MemoryBroker
from tests.node.persistence.durable import Device, DurableBroker

SEEDS = 50


class Roamer(Device):
    """A device that is refused now and then."""

    def connect(self, broker: MemoryBroker) -> None:
        super().connect(broker)
        self.refused = 0

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connack) and packet.reason:
            self.refused += 1
            return
        super()._take(packet)


class Beginner(Roamer):
    """One that is told now and then that its session is gone, and forgets what belonged to it.

    A node that is cut off from where the client began anew gives it the session from before, and cannot know better:
    what is repeated then is not counted.
    """

    given = ""
    """The lineage of the session that CONNACK tells of, which may be read when that is gone."""
    lineage = ""
    """Of the session that it had last."""

    def connect(self, broker: MemoryBroker) -> None:
        super().connect(broker)
        self.given = ""

    def look(self) -> None:
        session = None if self.client is None else self.client.broker.server.sessions.get(self.client_id)
        if session is not None and self.client is not None and session.connection is self.client.channel:
            self.given = first_claim(session.lineage)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connack) and not packet.reason:
            if not packet.session_present:
                self.publishing.clear()
                self.open_ids.clear()
                if self.subscribed:
                    self.subscribe("t/#", 2)
            elif self.given != self.lineage:
                self.publishing.clear()
                if born(self.given) < born(self.lineage):
                    self.delivered.clear()
            self.lineage = self.given
        super()._take(packet)


class World:
    def __init__(self, seed: int, may_kill: bool, do_writers_roam: bool = True, lost: str = "wait") -> None:
        self.random = random.Random(seed)
        self.may_kill = may_kill
        self.lost = lost
        self.boot = BOOT
        self.net = Net(*(Node(name, durable(), sessions=True, session_lost=lost) for name in "abc"))
        self.link_all()
        kind = Roamer if lost == "wait" else Beginner
        self.reader = kind("x")
        self.writers = [kind("p"), kind("q")]
        self.devices = [self.reader, *self.writers]
        self.roamers = self.devices if do_writers_roam else [self.reader]
        self.number = 0
        self.qos: dict[bytes, int] = {}
        for device in self.devices:
            self.arrive(device)
        self.reader.subscribe("t/#", 2)
        self.settle()
        assert self.reader.subscribed == 1

    def link_all(self) -> None:
        linked = [{each.name for each in wire.nodes} for wire in self.net.wires if wire.links[0].channel.fd >= 0]
        self.net.wires = [wire for wire in self.net.wires if wire.links[0].channel.fd >= 0]
        for one, other in combinations(self.net.nodes, 2):
            if {one.name, other.name} not in linked:
                self.net.link(one, other)
        self.net.settle()

    def settle(self) -> None:
        for _ in range(50):
            self.net.settle()
            for device in self.devices:
                if isinstance(device, Beginner):
                    device.look()
                device.read()
                device.answer()
            if not any(device.unread for device in self.devices):
                return
        raise AssertionError("it does not come to rest")

    def arrive(self, device: Device) -> None:
        for _ in range(20):
            device.connect(self.random.choice(self.net.nodes).broker)
            self.settle()
            if device.welcome and device.online:
                return
            self.net.later(3)
        raise AssertionError(f"{device.client_id} is never let in")

    # ---- what may happen -------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.do_something()
        for device in self.devices:
            if isinstance(device, Beginner):
                device.look()

    def do_something(self) -> None:
        choice = self.random.random()
        if choice < 0.35:
            wire = self.random.choice(self.net.wires)
            wire.move(self.random.randrange(2), self.random.choice((20, 200, 5000)))
        elif choice < 0.55:
            broker = self.random.choice(self.net.nodes).broker
            assert isinstance(broker, DurableBroker)
            broker.step()
        elif choice < 0.75:
            self.publish(self.random.choice(self.writers))
        elif choice < 0.87:
            device = self.random.choice(self.devices)
            device.read()
            device.answer(self.random.randrange(4))
        elif choice < 0.93:
            self.random.choice(self.roamers).connect(self.random.choice(self.net.nodes).broker)
        elif choice < 0.96:
            for node in self.net.nodes:
                node.broker.later(0.3)
        elif choice < 0.98:
            self.random.choice(self.net.wires).cut(self.random.randrange(2))
        elif choice < 0.995 or not self.may_kill:
            self.link_some()
        else:
            self.kill(self.random.randrange(3))

    def publish(self, writer: Device) -> None:
        if writer.welcome and writer.online and len(writer.publishing) < 20:
            payload = b"%s-%d" % (writer.client_id.encode(), self.number)
            self.number += 1
            self.qos[payload] = self.random.choice((1, 2))
            writer.publish("t/1", payload, self.qos[payload])

    def link_some(self) -> None:
        for one, other in combinations(self.net.nodes, 2):
            alive = [wire for wire in self.net.wires if {*wire.nodes} == {one, other} and wire.links[0].channel.fd >= 0]
            if not alive:
                self.net.wires = [wire for wire in self.net.wires if {*wire.nodes} != {one, other}]
                self.net.link(one, other)
                return

    def kill(self, victim: int) -> None:
        before = self.net.nodes[victim]
        assert isinstance(before.broker, DurableBroker)
        for wire in self.net.wires:
            if before in wire.nodes:
                wire.cut()
        for device in self.devices:
            if device.client is not None and device.client.broker is before.broker:
                device.client.lose()
        self.boot += 1
        keep = self.random.choice((0, 1, None))
        self.net.nodes[victim] = Node(
            before.name, before.broker.crash(keep), boot=self.boot, sessions=True, session_lost=self.lost
        )
        for other in self.net.nodes:
            if other.name != before.name:
                self.net.nodes[victim].links.join(other.name, is_known=True)
        self.net.wires = [wire for wire in self.net.wires if before not in wire.nodes]
        self.link_some()

    # ---- what must be ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.link_all()
        self.settle()
        self.net.later(3)
        for device in self.devices:
            self.arrive(device)
        for _ in range(5):
            self.settle()
            self.net.later(3)
        delivered = self.reader.delivered
        if self.lost == "wait":
            acknowledged = self.writers[0].acknowledged | self.writers[1].acknowledged
            assert [device.lost_sessions for device in self.devices] == [0, 0, 0]
            assert acknowledged - set(delivered) == set()
        assert [each for each in self.qos if self.qos[each] == 2 and delivered.count(each) > 1] == []
        for node in self.net.nodes:
            sessions = node.links.sessions
            assert sessions is not None
            assert not sessions.moves.left and not sessions.claims.pending
            assert all(session.moving is None for session in node.server.sessions.values())
        assert sum("x" in node.server.sessions for node in self.net.nodes) == 1
        self.writers[0].publish("t/1", b"last", 1)
        self.settle()
        assert delivered[-1] == b"last", "it believes to be subscribed"

    def check_order(self) -> None:
        for writer in self.writers:
            name = writer.client_id.encode() + b"-"
            mine = dict.fromkeys(each for each in self.reader.delivered if each.startswith(name))
            for qos in (1, 2):  # [MQTT-4.6.0-6] the order is that of one topic and QoS
                numbers = [int(each[len(name) :]) for each in mine if self.qos[each] == qos]
                assert numbers == sorted(numbers)


def walked(seed: int, may_kill: bool, do_writers_roam: bool = True, lost: str = "wait") -> World:
    world = World(seed, may_kill, do_writers_roam, lost)
    for _ in range(400):
        world.step()
    world.check()
    return world


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("may_kill", [False, True])
def test_what_was_acknowledged_arrives_wherever_clients_are(may_kill: bool, part: int) -> None:
    for seed in range(part * SEEDS // 5, (part + 1) * SEEDS // 5):
        try:
            walked(seed, may_kill)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("may_kill", [False, True])
def test_qos_2_comes_once_also_to_clients_that_begin_anew(may_kill: bool, part: int) -> None:
    """And in the end there is one session, and nothing waits for anything."""
    for seed in range(part * 4, (part + 1) * 4):
        try:
            walked(seed, may_kill, lost="clean")
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize(
    ("may_kill", "seeds"),
    [
        (False, (17, 52, 62, 82, 265, 403, 428, 429, 643, 647, 3405, 3545, 3680)),
        (True, (96, 341, 351, 367, 632, 680, 764, 832, 1070, 1179, 1223, 1314, 2044)),
    ],
)
def test_walks_that_have_failed(may_kill: bool, seeds: tuple[int, ...]) -> None:
    """Two sessions of a client met that both had a message, or a move waited for a mark that was forgotten."""
    for seed in seeds:
        try:
            walked(seed, may_kill, lost="clean")
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("part", range(3))
def test_messages_of_a_publisher_that_stays_come_in_order(part: int) -> None:
    """One that moves may overtake what it published elsewhere, if that waits for a link."""
    for seed in range(10_000 + part * SEEDS // 5, 10_000 + (part + 1) * SEEDS // 5):
        try:
            walked(seed, False, do_writers_roam=False).check_order()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
