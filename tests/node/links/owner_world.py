"""Nodes of an edge, devices and a cloud, in which anything may happen at any time; and what has to be true at the end.

Bytes on wires move in any pieces, disks do a step when it is their turn, gossip is carried from one node to one other,
links are cut, the power of a node goes and comes back with as much of what was not synced as the seed says.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections import Counter, defaultdict
from typing import Any

from headwater.edge.status import EdgeStatus, Stretch, stretches_of
from headwater.store.entry import Entry
from headwater.wire.packets import Packet, Publish
from tests.node.links.edges import EdgeNet, EdgeNode
from tests.node.persistence.durable import Device

TOPICS = ["plant/1", "plant/2", "plant/2/x", "other"]
FILTERS = ["plant/2/#", "plant/+/x", "plant/2", "plant/#", "other"]


class Sensor(Device):
    """`homes`: nodes that it may connect to; it stays at one, as sessions do not move here."""

    def __init__(self, client_id: str, home: str) -> None:
        super().__init__(client_id)
        self.home = home
        self.sends: Counter[bytes] = Counter()
        self.sent: list[tuple[str, bytes, int]] = []

    def send(self, packet: Packet) -> None:
        if isinstance(packet, Publish) and self.online and packet.payload:
            self.sends[packet.payload] += 1
        super().send(packet)


class OwnerWorld:
    """`one_by_one`: no move is begun while another one goes on anywhere. Nodes see to that as far as they know; of two
    that begin at the same moment they do not, and then only the order between stores may suffer. `hold`: the setting;
    if it is long, it is looked at every moment that no message is stored before those that were published before it."""

    patience = 200
    """Rounds that it may take until all is quiet."""

    def __init__(
        self, seed: int, crashes: bool = True, one_by_one: bool = True, hold: float = 10.0, breaks: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.may_crash = crashes and breaks
        self.may_break = breaks
        self.one_by_one = one_by_one
        self.net = EdgeNet(
            EdgeNode("r", roles=["receiving"], hold=hold),
            EdgeNode("a", owns=["plant/#"], hold=hold),
            EdgeNode("b", hold=hold),
            EdgeNode("c", edge="south", hold=hold),
        )
        self.names = [each.name for each in self.net.nodes]
        self.sensors = [Sensor(f"sensor-{name}", name) for name in self.names]
        self.cloud = [Sensor(f"cloud-{name}", name) for name in ("a", "b", "r")]
        self.crashes = 0
        self.breaks = 0
        """After which messages of QoS 0 may be missing."""
        self.moved = 0
        self.is_held = one_by_one and hold >= 600.0
        self.looked_at: dict[str, int] = {}
        self.on_disk: set[bytes] = set()
        for device in [*self.sensors, *self.cloud]:
            device.connect(self.net.node(device.home).broker)
        self.net.settle()
        for device in self.cloud:
            self._turns(device)
            device.subscribe("#", 2)
        self.net.settle()
        for device in [*self.sensors, *self.cloud]:
            self._turns(device)
        self.net.settle()

    # ---- what happens --------------------------------------------------------------------------------------------

    def happen(self) -> None:
        chosen = self.random.random()
        if chosen < 0.30:
            self.publish()
        elif chosen < 0.60:
            self.move_bytes()
        elif chosen < 0.75:
            node = self.random.choice(self.net.nodes)
            for _ in range(self.random.randint(1, 8)):
                node.broker.step()
        elif chosen < 0.83:
            self._turns(self.random.choice([*self.sensors, *self.cloud]))
        elif chosen < 0.91:
            one, other = self.random.sample(self.net.nodes, 2)
            if frozenset((one.name, other.name)) in self.net.at:
                one.hears(other)
        elif chosen < 0.94:
            for node in self.net.nodes:
                node.broker.later(self.random.choice([0.001, 0.03, 0.1]))
        elif chosen < 0.97:
            self.order()
        elif chosen < 0.985:
            if self.may_break:
                self.cut_or_connect()
        elif self.may_crash and chosen < 0.99:
            self.crash(self.random.choice(self.names))
        if self.is_held:
            self.look_at_stores()

    def look_at_stores(self) -> None:
        """What a new owner stores comes behind what the former one has, but for what is published at itself."""
        fresh = []
        for node in self.net.nodes:
            rows = node.rows
            fresh += [(node.name, row) for row in rows[self.looked_at.get(node.name, 0) :]]
            self.looked_at[node.name] = len(rows)
        self.on_disk.update(row.payload for _, row in fresh)
        for name, row in fresh:
            home, _, number = row.payload.decode().partition(":")
            if home != name and row.qos:
                sent = next(each for each in self.sensors if each.home == home).sent
                qos = sent[int(number)][2]
                before = [
                    payload for topic, payload, level in sent[: int(number)] if (topic, level) == (row.topic, qos)
                ]
                assert self.on_disk.issuperset(before), f"{row.payload!r} is stored before {set(before) - self.on_disk}"

    def publish(self) -> None:
        sensor = self.random.choice(self.sensors)
        if not sensor.online or not sensor.welcome or len(sensor.publishing) > 20:
            return
        topic, qos = self.random.choice(TOPICS), self.random.choice([0, 1, 2])
        payload = f"{sensor.home}:{len(sensor.sent)}".encode()
        sensor.sent.append((topic, payload, qos))
        if qos:
            sensor.publish(topic, payload, qos)
        else:
            sensor.send(Publish(topic, payload, 0, False, False, 0))
        self.net.node(sensor.home).broker.turn()

    def move_bytes(self) -> None:
        if self.net.wires:
            wire = self.random.choice(self.net.wires)
            wire.move(self.random.randint(0, 1), self.random.choice([1, 50, 500, 1 << 20]))

    def order(self) -> None:
        """A split by the new owner itself, or by somebody else; most are refused, as something is on its way."""
        if self.one_by_one and self._is_moving():
            return
        node = self.random.choice(self.net.nodes)
        to = self.random.choice("abc")
        joins = self.random.random() < 0.3

        def done(is_done: bool, text: str) -> None:
            self.moved += is_done

        node.owning.order(to, self.random.choice(FILTERS), joins, False, done)
        node.broker.turn()

    def _is_moving(self) -> bool:
        return any(
            not claim.is_settled for node in self.net.nodes for claim in node.owning.owners.claims.values()
        ) or any(node.owning._orders for node in self.net.nodes)

    def cut_or_connect(self) -> None:
        one, other = self.random.sample(self.names, 2)
        if frozenset((one, other)) in self.net.at:
            self.net.cut(one, other)
            self.breaks += 1
        else:
            self.net.connect(self.net.node(one), self.net.node(other))

    def crash(self, name: str) -> None:
        self.crashes += 1
        self.breaks += 1
        node = self.net.crash(name, self.random.choice([0, 0, 1, None]))
        for device in [*self.sensors, *self.cloud]:
            if device.home == name:
                device.connect(node.broker)

    def _turns(self, device: Sensor) -> None:
        device.read()
        device.answer()
        self.net.node(device.home).broker.turn()

    def end(self) -> None:
        """All is mended, and has time."""
        for number, one in enumerate(self.names):
            for other in self.names[number + 1 :]:
                if frozenset((one, other)) not in self.net.at:
                    self.net.connect(self.net.node(one), self.net.node(other))
        for _ in range(self.patience):
            self.net.later(1.0)
            for device in [*self.sensors, *self.cloud]:
                self._turns(device)
            if not self._is_busy():
                break
        else:
            raise AssertionError("it does not come to an end")
        self.net.later(15.0)

    def _is_busy(self) -> bool:
        devices = [*self.sensors, *self.cloud]
        return (
            any(device.publishing or device.unread or device.to_answer for device in devices)
            or any(node.waits for node in self.net.nodes)
            or any(end.spool.waiting for node in self.net.nodes for end in node.links.spooling.ends.values())
            or any(status.moves for status in self.statuses())
        )

    # ---- what has to be true -------------------------------------------------------------------------------------

    def statuses(self) -> list[EdgeStatus]:
        return [node.owning.status(()) for node in self.net.nodes]

    def check(self) -> None:
        self._check_stored()
        if self.one_by_one:
            self._check_order()
        self._check_delivered()
        tables = [{each.filter: each.node for each in status.ownership} for status in self.statuses()]
        assert all(each == tables[0] for each in tables), tables
        for node in self.net.nodes:
            owners = node.owning.owners
            assert owners.endings == {}
            assert {each.filter: each.node for each in owners.view.table} == tables[0]
            for peer, view in owners.heard.items():
                assert view.table == self.net.node(peer).owning.owners.view.table

    def stored(self) -> dict[str, list[Entry]]:
        return {f"s-{node.name}": node.rows for node in self.net.nodes if node.rows}

    def _check_stored(self) -> None:
        places = defaultdict(list)
        for store, rows in self.stored().items():
            for row in rows:
                places[row.payload].append(f"{store}:{row.position}")
        for sensor in self.sensors:
            for topic, payload, qos in sensor.sent:
                found = places.pop(payload, [])
                assert found or (qos == 0 and self.breaks), f"{payload!r} ({topic}, QoS {qos}) is stored nowhere"
                most = sensor.sends[payload] if qos == 1 else 1
                assert len(found) <= most, f"{payload!r} ({topic}, QoS {qos}, sent {most} times) is stored at {found}"
        assert not places

    def _check_order(self) -> None:
        """Whoever reads a topic from store to store has all of it, and each publisher's messages in order."""
        status, stores = self.statuses()[0], self.stored()
        for topic in TOPICS:
            got: list[bytes] = []
            for stretch in stretches_of(status, topic):
                got += [
                    row.payload
                    for row in stores.get(stretch.id, [])
                    if row.topic == topic and _is_in(stretch, row.position)
                ]
            for sensor in self.sensors:
                for qos in (0, 1, 2):  # between two of different QoS there is no order that a cluster keeps
                    sent = [payload for name, payload, level in sensor.sent if (name, level) == (topic, qos)]
                    read = [payload for payload in dict.fromkeys(got) if payload in set(sent)]
                    if qos == 0:
                        sent = [each for each in sent if each in set(read)]
                    assert read == sent, f"{topic} of {sensor.home}, QoS {qos}: {read} instead of {sent}"

    def _check_delivered(self) -> None:
        for device in self.cloud:
            got = Counter(device.delivered)
            for sensor in self.sensors:
                for topic, payload, qos in sensor.sent:
                    if qos or not self.breaks:
                        assert got[payload] >= 1, f"{device.client_id} did not get {payload!r} ({topic})"
                    if qos != 1:
                        assert got[payload] <= 1, f"{device.client_id} got {payload!r} {got[payload]} times"


def _is_in(stretch: Stretch, position: int) -> bool:
    return stretch.first <= position and (stretch.last is None or position <= stretch.last)


def run(seed: int, steps: int, **how: Any) -> OwnerWorld:
    world = OwnerWorld(seed, **how)
    for _ in range(steps):
        world.happen()
    world.end()
    world.check()
    return world


def main() -> None:
    """Many seeds: PYTHONPATH=src:. python -m tests.node.links.owner_world --seeds 1000"""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--seeds", type=int, default=1000)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--steps", type=int, default=600)
    options.add_argument("--at-once", action="store_true", help="moves may begin while others go on")
    given = options.parse_args()
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.seeds):
        try:
            world = run(seed, given.steps, one_by_one=not given.at_once, hold=600.0)
        except AssertionError as error:
            counts["failed"] += 1
            print(f"seed {seed}: {error}")
        else:
            counts.update(worlds=1, moves=world.moved, crashes=world.crashes)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
