"""Retained messages wait for room in a session: none is lost for a subscriber that acknowledges."""

from __future__ import annotations

from itertools import count

import pytest

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.plane.counters import QUEUE_FULL
from headwater.node.protocol.retained_sender import AHEAD, PendingRetained
from headwater.wire.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

TOPICS = [f"r/{number}" for number in range(100)]
KEPT = Properties(session_expiry_interval=1000)


def small(**settings: object) -> Config:
    """Proportions of a large broker, in small."""
    return Config(sys_interval=0, max_inflight=4, max_queued_messages=8, **settings)  # type: ignore[arg-type]


def retain(broker: MemoryBroker, topic: str, payload: bytes = b"old", qos: int = 2) -> None:
    message = Message(topic, payload, qos, True, publisher="p")
    broker.server.publishing.route(message, None)


@pytest.fixture
def broker() -> MemoryBroker:
    return filled(MemoryBroker(small()))


def filled(broker: MemoryBroker) -> MemoryBroker:
    for topic in TOPICS:
        retain(broker, topic)
    return broker


class Reader:
    """Reads and acknowledges everything; `got` is what it has been sent, in order."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.got: list[tuple[str, bytes]] = []
        self.subacks = 0

    def subscribe(self, filter: str, qos: int, retain_handling: int = 0) -> None:
        self.client.send(Subscribe(9, [SubscribeRequest(filter, qos, retain_handling=retain_handling)]))

    def read(self, most: int = 1 << 30) -> int:
        """Read what has come, and acknowledge so many; how many it acknowledged."""
        acknowledged = 0
        for packet in self.client.packets():
            if isinstance(packet, Publish):
                self.got.append((packet.topic, packet.payload))
                if packet.qos and acknowledged < most:
                    acknowledged += 1
                    self.client.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                self.client.send(Pubcomp(packet.packet_id))
                acknowledged += 1
            self.subacks += isinstance(packet, Suback)
        return acknowledged

    def read_all(self) -> None:
        while self.read():
            pass

    def topics(self) -> list[str]:
        return [topic for topic, _ in self.got]


def connected(broker: MemoryBroker, **connect: object) -> Reader:
    return Reader(broker.client("c", **connect))  # type: ignore[arg-type]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest", "disconnect"])
def test_all_of_them_come(qos: int, policy: str) -> None:
    broker = filled(MemoryBroker(small(queue_full=policy)))
    reader = connected(broker)
    reader.subscribe("r/#", qos)
    reader.read_all()
    assert sorted(reader.topics()) == sorted(TOPICS)
    assert reader.subacks == 1 and broker.server.stats.publish_dropped == 0
    check(broker.server)


def test_the_client_is_read_from_meanwhile(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    first = reader.client.packets()
    assert [type(packet) for packet in first] == [Suback] + 4 * [Publish], "no more than may be in flight"
    assert reader.client.watched == (True, False)
    reader.client.send(Pingreq())
    assert reader.client.packets() == [Pingresp()]
    assert broker.server.sessions["c"].outbound.waiting() == 0, "the queue is left to what is published now"
    check(broker.server)


def test_others_are_not_delayed(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    other = broker.client("o")
    other.send(Subscribe(1, [SubscribeRequest("r/1", 1)]))
    assert [type(packet) for packet in other.packets()] == [Suback, Publish]


def test_what_is_published_meanwhile_has_the_queue(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.client.send(Subscribe(8, [SubscribeRequest("live", 1)]))
    reader.subscribe("r/#", 1)
    for number in range(8):
        broker.server.publishing.route(Message("live", b"%d" % number, 1), None)
    assert broker.server.stats.publish_dropped == 0
    reader.read_all()
    lived = [number for number, topic in enumerate(reader.topics()) if topic == "live"]
    assert lived == list(range(4, 12)), "behind what was in flight, and before the rest"
    assert sorted(set(reader.topics())) == sorted([*TOPICS, "live"])


@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_message_comes_before_a_newer_one_of_its_topic(broker: MemoryBroker, qos: int) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    reader.read(0)
    seen = set(reader.topics())
    publisher = broker.client("p")
    late = [topic for topic in TOPICS if topic not in seen][-1]
    early = reader.got[0][0]
    for packet_id, topic in ((1, late), (2, early), (3, late)):
        publisher.send(Publish(topic, b"new", qos, packet_id=packet_id if qos else 0))
    for packet_id in range(1, 5):
        reader.client.send(Puback(packet_id))
    reader.read_all()
    assert [each for each in reader.got if each[0] == late] == [(late, b"old"), (late, b"new"), (late, b"new")]
    assert [each for each in reader.got if each[0] == early] == [(early, b"old"), (early, b"new")]
    assert sorted(set(reader.topics())) == sorted(TOPICS) and len(reader.got) == len(TOPICS) + 3
    assert broker.server.budget.used == 0
    check(broker.server)


def test_the_newest_one_is_sent(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    for topic in TOPICS:
        retain(broker, topic, b"" if topic == TOPICS[50] else b"new", 0)
    reader.read_all()
    for topic in TOPICS:
        payloads = [payload for each, payload in reader.got if each == topic]
        assert payloads == sorted(payloads, reverse=True), "never an older one behind a newer one"
        assert payloads[-1] == (b"" if topic == TOPICS[50] else b"new")


def test_a_newer_message_that_has_no_room(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    seen = {packet.topic for packet in reader.client.messages()}
    for topic in (topic for topic in TOPICS if topic not in seen):
        broker.server.publishing.route(Message(topic, b"new", 1), None)
    assert broker.server.stats.drops[QUEUE_FULL] == 96 - 4, "four with what came before them fill the queue"
    for packet_id in range(1, 5):
        reader.client.send(Puback(packet_id))
    reader.read_all()
    got = [topic for topic, payload in reader.got if payload == b"old"]
    assert sorted(got) == sorted(topic for topic in TOPICS if topic not in seen), "each once"
    for topic in {topic for topic, payload in reader.got if payload == b"new"}:
        assert [payload for each, payload in reader.got if each == topic] == [b"old", b"new"]
    check(broker.server)


def test_what_is_noted_of_topics_is_bounded(broker: MemoryBroker) -> None:
    pending = PendingRetained(broker.server.budget)
    for number in range(AHEAD + 10):
        pending.bring_ahead("r/#", f"r/{number}")
    assert pending.brought == AHEAD
    pending.clear()
    assert broker.server.budget.used == 0
    broker.server.budget.limit = 0
    pending.bring_ahead("r/#", "r/1")
    assert pending.brought == 0


def test_without_memory_they_wait(broker: MemoryBroker) -> None:
    budget = broker.server.budget
    reader = connected(broker)
    budget.used += budget.limit
    reader.subscribe("r/#", 1)
    assert reader.read() == 0 and reader.subacks == 1
    broker.later(10)
    assert reader.read() == 0
    budget.used -= budget.limit
    broker.later(10)
    reader.read_all()
    assert sorted(reader.topics()) == sorted(TOPICS)
    check(broker.server)


def test_another_subscription_meanwhile(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    reader.subscribe("r/+", 1)
    reader.subscribe("r/5", 2)
    reader.read_all()
    assert sorted(reader.topics()) == sorted([*TOPICS, *TOPICS, "r/5"])
    assert reader.subacks == 3


def test_the_same_subscription_again(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    for _ in range(5):
        reader.read()
    assert len(reader.got) == 20
    reader.subscribe("r/#", 1, retain_handling=2)  # as they were asked for, and no more
    reader.subscribe("r/#", 1, retain_handling=1)
    reader.read_all()
    assert sorted(reader.topics()) == sorted(TOPICS)
    reader.got = []
    reader.subscribe("r/#", 1)
    reader.read()
    reader.subscribe("r/#", 1)
    reader.read_all()
    assert len(reader.got) >= len(TOPICS) + 4 and set(reader.topics()) == set(TOPICS), "from the beginning"


def test_who_unsubscribes_gets_no_more(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    reader.client.send(Unsubscribe(3, ["r/#"]))
    reader.read_all()
    assert len(reader.got) == 4
    reader.subscribe("r/1", 1)
    reader.read_all()
    assert len(reader.got) == 5
    check(broker.server)


def test_a_session_that_is_not_kept(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    reader.client.send(Disconnect())
    assert broker.server.budget.used == 0
    check(broker.server)
    again = connected(broker)
    again.read_all()
    assert again.got == []


def test_a_session_that_is_kept_gets_the_rest(broker: MemoryBroker) -> None:
    reader = connected(broker, properties=KEPT)
    reader.subscribe("r/#", 1)
    for _ in range(10):
        reader.read()
    reader.client.lose()
    check(broker.server)
    late = [topic for topic in TOPICS if topic not in reader.topics()][-1]
    broker.server.publishing.route(Message(late, b"new", 1), None)
    again = connected(broker, clean_start=False, properties=KEPT)
    again.read_all()
    assert set(reader.topics()) | set(again.topics()) == set(TOPICS)
    assert len(reader.got) + len(again.got) == len(TOPICS) + 1, "each once, and one is new"
    assert [each for each in again.got if each[0] == late] == [(late, b"old"), (late, b"new")]
    assert broker.server.budget.used == 0
    check(broker.server)


def test_a_clean_start_gets_none_of_the_rest(broker: MemoryBroker) -> None:
    reader = connected(broker, properties=KEPT)
    reader.subscribe("r/#", 1)
    reader.client.lose()
    again = connected(broker, properties=KEPT)
    again.read_all()
    assert again.got == []
    assert broker.server.budget.used == 0


def test_shared_groups_go_on(broker: MemoryBroker) -> None:
    reader = connected(broker)
    reader.subscribe("r/#", 1)
    reader.subscribe("$share/g/s", 1)
    reader.read()
    numbers = count()
    while len(set(reader.topics())) <= len(TOPICS):
        broker.server.publishing.route(Message("s", b"", 1), None)
        assert next(numbers) < 200
        if not reader.read():
            break
    assert "s" in reader.topics()[:20]
    check(broker.server)


def test_large_ones_with_qos_0() -> None:
    """They are more than may be written in one turn, and wait for the socket instead of being dropped."""
    broker = MemoryBroker(Config(sys_interval=0, outbound_buffer=100_000))
    for number in range(50):
        retain(broker, f"r/{number}", b"x" * 100_000)
    reader = connected(broker)
    reader.client.socket.room = 150_000
    reader.subscribe("r/#", 0)
    while reader.client.channel.backlog_size:
        reader.client.unblock(150_000)
    reader.read_all()
    assert len(reader.got) == 50 and broker.server.stats.publish_dropped == 0
