"""Power cuts at any moment, with any part of what was not synced left: nothing that was acknowledged is lost, no QoS 2
message comes twice. Deterministic: the disk is in memory and moves in steps, and so does all else."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.wire.packets import Connack, Connect, Packet, Subscribe, SubscribeRequest
from tests.node.memory import Client, MemoryBroker
from tests.node.persistence.durable import Device, DurableBroker

WANTS = {
    "all": ("t/#", 2),
    "one": ("t/a", 1),
    "first": ("$share/g/t/#", 1),
    "second": ("$share/g/t/#", 2),
    "steady": ("$share/h/t/#", 2),
    "passing": ("$share/h/t/#", 2),
}
TOPICS = ["t/a", "t/b"]


class Passing(Device):
    """One whose session ends with its connection, so that it has to subscribe each time."""

    def connect(self, broker: MemoryBroker) -> None:
        self.client = Client(broker)
        self.client.version = self.version
        self.client.send(Connect(self.client_id, self.version))
        self.to_answer = []
        self.open_ids = set()
        self.welcome = self.has_session = False

    def _take(self, packet: Packet) -> None:
        super()._take(packet)
        if isinstance(packet, Connack):
            self.subscribe(*WANTS[self.client_id])


class World:
    """Some devices, a broker, and what may happen to them."""

    def __init__(self, seed: int, config: Config) -> None:
        self.random = random.Random(seed)
        self.broker = self.new_broker(config)
        self.publishers = [Device("p4", 4), Device("p5", 5)]
        self.subscribers = {name: self.new_subscriber(name) for name in WANTS}
        self.sent: dict[bytes, tuple[str, int]] = {}
        self.retained: dict[str, list[bytes]] = {}
        self.crashes = 0
        for device in self.devices:
            device.connect(self.broker)
        self.quiet()
        for name, (filter, qos) in WANTS.items():
            self.subscribers[name].subscribe(filter, qos)
        self.quiet()
        assert all(device.subscribed for device in self.subscribers.values())

    def new_subscriber(self, name: str) -> Device:
        return Passing(name) if name == "passing" else Device(name, 4 if name == "one" else 5)

    def new_broker(self, config: Config) -> DurableBroker:
        return DurableBroker(config=config)

    @property
    def devices(self) -> list[Device]:
        return [*self.publishers, *self.subscribers.values()]

    def quiet(self) -> None:
        """Everything goes on until nothing happens any more."""
        for _ in range(1000):
            self.broker.settle()
            for device in self.devices:
                device.read()
                device.answer()
            if not (
                self.broker.committer.batch
                or any(device.to_answer or device.publishing for device in self.devices)
                or any(device.unread for device in self.devices)
            ):
                return
        raise AssertionError("no end")

    def happen(self) -> None:
        draw = self.random.random()
        device = self.random.choice(self.devices)
        if draw < 0.35:
            self._publish(self.random.choice(self.publishers))
        elif draw < 0.60:
            self.broker.step()
        elif draw < 0.75:
            device.read()
        elif draw < 0.88:
            device.read()
            device.answer(self.random.randint(1, 4))
        elif draw < 0.92:
            if device.online and device.client is not None:
                device.client.lose()
        elif draw < 0.98:
            if not device.online:
                device.connect(self.broker)
        else:
            self.crash()

    def _publish(self, device: Device) -> None:
        if not device.online or not device.welcome or len(device.publishing) > 20:
            return
        number = len(self.sent)
        qos = self.random.choice([1, 2])
        retain = self.random.random() < 0.2
        topic = f"r/{device.client_id}" if retain else self.random.choice(TOPICS)
        payload = b"%d" % number
        self.sent[payload] = (topic, qos)
        if retain:
            qos = 1 if device.client_id == "p4" else 2  # a QoS 1 message that comes again may undo one of QoS 2
            self.retained.setdefault(topic, []).append(payload)
        device.publish(topic, payload, qos, retain)

    def crash(self) -> None:
        self.crashes += 1
        self.broker = self.broker.crash(self.random.choice([0, 0, 1, None]))
        for device in self.devices:
            device.read()  # what had been sent arrives
            device.client = None
        for device in self.devices:
            if self.random.random() < 0.8:
                device.connect(self.broker)

    def end(self) -> None:
        for device in self.devices:
            if not device.online:
                device.connect(self.broker)
        self.quiet()

    def check(self) -> None:
        acknowledged = set().union(*(device.acknowledged for device in self.publishers))
        assert all(device.lost_sessions == 0 for device in self.devices)
        counts = {name: Counter(device.delivered) for name, device in self.subscribers.items()}
        group = counts["first"] + counts["second"]
        mixed = counts["steady"] + counts["passing"]
        for payload, (topic, qos) in self.sent.items():
            if topic.startswith("r/"):
                continue
            for name, got in (("all", counts["all"]), ("one", counts["one"]), ("group", group)):
                if name == "one" and topic != "t/a":
                    continue
                assert got[payload] or payload not in acknowledged, f"{payload!r} for {name} is lost"
            if qos == 2:
                assert counts["all"][payload] <= 1, f"{payload!r} came twice"
                assert mixed[payload] <= 1, f"{payload!r} came twice in the group"  # if at all [MQTT-4.8.2-5]
            else:
                assert mixed[payload] or payload not in acknowledged, f"{payload!r} is lost in the group"
        self._check_retained(acknowledged)

    def _check_retained(self, acknowledged: set[bytes]) -> None:
        reader = Client(self.broker)
        reader.version = 5
        reader.send(Connect("reader", 5))
        reader.send(Subscribe(1, [SubscribeRequest("r/#", 0)]))
        self.broker.settle()
        there = {message.topic: message.payload for message in reader.messages()}
        for topic, payloads in self.retained.items():
            last = [number for number, payload in enumerate(payloads) if payload in acknowledged]
            if last:
                assert there.get(topic) in payloads[last[-1] :], f"the retained message of {topic} is not the last one"


def run(seed: int, steps: int, config: Config) -> World:
    world = World(seed, config)
    for _ in range(steps):
        world.happen()
    world.end()
    world.check()
    return world


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(20, 400))
def test_what_was_acknowledged_survives(seed: int, steps: int) -> None:
    run(seed, steps, Config(sys_interval=0))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_it_does_with_content_on_disk_only(seed: int) -> None:
    """Everything that waits is put away as soon as it is on disk."""
    run(seed, 300, Config(sys_interval=0, queue_memory=0, max_inflight=2))


@pytest.mark.parametrize("dispatcher", ["round_robin", "sticky", "hash_topic"])
def test_it_does_with_other_dispatchers(dispatcher: str) -> None:
    for seed in range(5):
        run(seed, 300, Config(sys_interval=0, shared_dispatcher=dispatcher))


def test_there_were_crashes() -> None:
    assert sum(run(seed, 300, Config(sys_interval=0)).crashes for seed in range(10)) > 10
