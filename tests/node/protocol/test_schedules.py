"""Whatever clients do and however their connections break, QoS promises hold.

Devices with lasting sessions publish and subscribe; bytes wait on both sides of each connection, and whenever one
breaks, those that have not arrived are lost. The devices are honest: they remember what the standard asks of a client
and send it again. In the end everybody comes back and reads. Then: QoS 2 exactly once, QoS 1 at least once, QoS 0 at
most once, and all messages of one publisher in their order, over all its topics and QoS levels (repetitions aside).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.wire import encode
from headwater.wire.packets import (
    Connect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
)
from tests.node.memory import Client, MemoryBroker

VERSIONS = [4, 5, 5, 4]
SUBSCRIBED = [2, 2, 1, None]
"""Which QoS the devices subscribe with to everything; the last only publishes."""

Step = Callable[["World"], None]


class Device:
    """An honest client: `outbox` are bytes on their way to the broker, `inbox` packets that it has not looked at."""

    def __init__(self, broker: MemoryBroker, number: int) -> None:
        self.broker = broker
        self.number = number
        self.version = VERSIONS[number]
        self.link: Client | None = None
        self.outbox = b""
        self.inbox: list[Packet] = []
        self.next_id = 1
        self.open: dict[int, Publish | None] = {}  # by packet id; None: PUBREC came, PUBREL is out
        self.unreleased: set[int] = set()
        self.got: list[tuple[int, int, int]] = []  # publisher, number, QoS it was published with
        self.published: list[int] = []  # their QoS

    def connect(self, receive_maximum: int) -> None:
        self.lose()
        self.link = Client(self.broker)
        properties = None
        if self.version == 5:
            properties = Properties(session_expiry_interval=0xFFFFFFFF, receive_maximum=receive_maximum)
        first_time = not self.broker.server.sessions.get(f"d{self.number}")
        packet = Connect(f"d{self.number}", self.version, False, properties=properties)
        self.link.version = self.version
        self.link.send(packet)
        self.fetch()
        connack = self.inbox.pop(0)
        assert connack.session_present is not first_time  # type: ignore[attr-defined]
        for packet_id, publish in self.open.items():
            if publish is None:
                self.send(Pubrel(packet_id))
            else:
                publish.dup = True
                self.send(publish)

    def send(self, packet: Packet) -> None:
        self.outbox += encode(packet, self.version)

    def publish(self, topic: str, qos: int) -> None:
        number = len(self.published)
        self.published.append(qos)
        packet_id = 0
        if qos:
            while self.next_id in self.open:
                self.next_id = self.next_id % 100 + 1
            packet_id = self.next_id
            self.next_id = packet_id % 100 + 1
        publish = Publish(topic, b"%d %d %d" % (self.number, number, qos), qos, False, False, packet_id)
        if qos:
            self.open[packet_id] = publish
        if self.link is not None:
            self.send(publish)

    def flush(self, count: int) -> None:
        """Bytes arrive at the broker."""
        if self.link is not None and self.outbox:
            data, self.outbox = self.outbox[:count], self.outbox[count:]
            self.link.feed(data)

    def fetch(self) -> None:
        if self.link is not None:
            self.inbox += self.link.packets()

    def read(self, count: int) -> None:
        self.fetch()
        packets, self.inbox = self.inbox[:count], self.inbox[count:]
        for packet in packets:
            self.look_at(packet)

    def look_at(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.arrived(packet)
        elif isinstance(packet, Puback):
            assert isinstance(self.open.pop(packet.packet_id), Publish)
        elif isinstance(packet, Pubrec):
            self.open[packet.packet_id] = None
            self.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            assert self.open.pop(packet.packet_id) is None
        elif isinstance(packet, Pubrel):
            self.unreleased.discard(packet.packet_id)
            self.send(Pubcomp(packet.packet_id))

    def arrived(self, packet: Publish) -> None:
        if packet.qos == 2:
            self.send(Pubrec(packet.packet_id))
            if packet.packet_id in self.unreleased:
                return
            self.unreleased.add(packet.packet_id)
        elif packet.qos == 1:
            self.send(Puback(packet.packet_id))
        publisher, number, qos = packet.payload.split()
        self.got.append((int(publisher), int(number), int(qos)))

    def lose(self) -> None:
        if self.link is not None:
            self.link.lose()
        self.link = None
        self.outbox = b""
        self.inbox = []

    @property
    def busy(self) -> bool:
        self.fetch()
        return bool(self.outbox or self.inbox)


class World:
    def __init__(self, hot: bool) -> None:
        config = Config(sys_interval=0, max_inflight=3)
        self.broker = MemoryBroker(config, hot=hot)
        self.devices = [Device(self.broker, number) for number in range(len(VERSIONS))]
        for device, qos in zip(self.devices, SUBSCRIBED, strict=True):
            device.connect(10)
            if qos is not None:
                device.send(Subscribe(1, [SubscribeRequest("#", qos)]))
            device.flush(1 << 20)

    def settle(self) -> None:
        """Everybody comes back, and everything that is on its way arrives."""
        for device in self.devices:
            device.connect(2)
        for _ in range(2000):
            if not any(device.busy for device in self.devices):
                break
            for device in self.devices:
                device.flush(1 << 20)
                device.read(1 << 20)
        else:
            raise AssertionError("never quiet")
        assert not any(device.open for device in self.devices), "a publisher still waits"

    def check(self) -> None:
        stats = self.broker.server.stats
        assert (stats.failures, stats.protocol_errors, stats.publish_dropped) == (0, 0, 0)
        for device, granted in zip(self.devices, SUBSCRIBED, strict=True):
            counts = Counter(device.got)
            if granted is None:
                assert not counts
                continue
            for publisher in self.devices:
                for number, qos in enumerate(publisher.published):
                    count = counts.pop((publisher.number, number, qos), 0)
                    effective = min(qos, granted)
                    assert count <= 1 if effective == 0 else count >= 1 if effective == 1 else count == 1
                firsts = list(dict.fromkeys(n for p, n, _ in device.got if p == publisher.number))
                assert firsts == sorted(firsts), "out of order"
            assert not counts, "what nobody published"


def publishing(number: int, topic: str, qos: int) -> Step:
    return lambda world: world.devices[number].publish(topic, qos)


def flushing(number: int, count: int) -> Step:
    return lambda world: world.devices[number].flush(count)


def flushing_all(count: int) -> Step:
    """Bytes of all devices arrive in one turn."""

    def step(world: World) -> None:
        with world.broker.one_turn():
            for device in world.devices:
                device.flush(count)

    return step


def reading(number: int, count: int) -> Step:
    return lambda world: world.devices[number].read(count)


def losing(number: int) -> Step:
    return lambda world: world.devices[number].lose()


def connecting(number: int, receive_maximum: int) -> Step:
    return lambda world: world.devices[number].connect(receive_maximum)


def narrowing(number: int, room: int) -> Step:
    """The connection takes only so many bytes more until it is widened."""

    def step(world: World) -> None:
        link = world.devices[number].link
        if link is not None:
            link.unblock(room)

    return step


numbers = st.integers(0, len(VERSIONS) - 1)
publishes = st.builds(publishing, numbers, st.sampled_from("ab"), st.sampled_from([0, 1, 1, 2, 2]))
flushes = st.builds(flushing, numbers, st.sampled_from([1, 7, 20, 60, 1 << 20, 1 << 20]))
reads = st.builds(reading, numbers, st.sampled_from([1, 2, 5, 1 << 20]))
steps = st.one_of(
    publishes,
    publishes,
    flushes,
    flushes,
    st.builds(flushing_all, st.sampled_from([20, 60, 1 << 20])),
    reads,
    reads,
    st.builds(losing, numbers),
    st.builds(connecting, numbers, st.integers(1, 4)),
    st.builds(narrowing, numbers, st.sampled_from([0, 10, 100, 1 << 60])),
)


@settings(max_examples=250, deadline=None)
@given(st.booleans(), st.lists(steps, min_size=10, max_size=80))
@example(True, [publishing(3, "a", 2), flushing(3, 1 << 20), losing(3), connecting(3, 1)])
def test_random_schedules_keep_the_promises(hot: bool, schedule: list[Step]) -> None:
    world = World(hot)
    for step in schedule:
        step(world)
    world.settle()
    world.check()


def test_the_schedules_would_notice_a_broken_promise() -> None:
    """The checker itself: a device that forgets what it has seen of QoS 2 gets a message twice, and that is found."""
    world = World(hot=True)
    world.devices[3].publish("a", 2)
    world.devices[3].flush(1 << 20)
    world.devices[0].read(1)  # the SUBACK
    world.devices[0].read(1)
    world.devices[0].unreleased.clear()
    world.settle()
    try:
        world.check()
    except AssertionError:
        return
    raise AssertionError("twice was not noticed")
