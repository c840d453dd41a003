"""What the broker remembers of topics is bounded, whatever topics clients make up."""

from __future__ import annotations

import pytest

from headwater.node.destinations.fanouts import LONGEST_CACHED, MAX_CACHED_TOPICS
from headwater.wire.packets import Publish, Subscribe, SubscribeRequest, Unsubscribe
from tests.node.memory import MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed


def test_remembered_topics_are_bounded() -> None:
    """At most two generations of 65,536, and nobody misses a message because of a topic that was forgotten."""
    broker = MemoryBroker()
    fanouts = broker.server.hot.fanouts
    reader, publisher = subscribed(broker, "r", "#"), broker.client("p")
    count = 133_000
    assert count > 2 * MAX_CACHED_TOPICS
    for start in range(0, count, 1000):
        publisher.feed(b"".join(b"\x30\x08\x00\x05%05x\x00" % number for number in range(start, start + 1000)))
        assert len(fanouts.topics) <= MAX_CACHED_TOPICS == 65536
        assert len(fanouts.older_topics) <= MAX_CACHED_TOPICS
    local = fanouts.local
    assert len(fanouts.by_destinations) == len(local.by_subscribers) == len(local.by_recipients) == 1, (
        "topics with the same recipients share one"
    )
    assert [int(message.topic, 16) for message in reader.messages()] == list(range(count))


def test_topics_in_use_stay_remembered() -> None:
    """A topic that is used now and then outlives the generation that it came with."""
    broker = MemoryBroker()
    fanouts = broker.server.hot.fanouts
    publisher = broker.client("p")
    for start in range(0, 2 * MAX_CACHED_TOPICS, 8192):
        publisher.feed(b"\x30\x08\x00\x05often\x00")
        publisher.feed(b"".join(b"\x30\x08\x00\x05%05x\x00" % number for number in range(start, start + 8192)))
    assert b"often" in fanouts.topics or b"often" in fanouts.older_topics


def test_long_topics_are_not_remembered() -> None:
    broker = MemoryBroker()
    reader, publisher = subscribed(broker, "r", "#"), broker.client("p")
    topic = "t" * (LONGEST_CACHED + 1)
    for _ in range(2):
        publisher.send(Publish(topic, b"m"))
    assert topic.encode() not in broker.server.hot.fanouts.topics
    assert [message.topic for message in reader.messages()] == [topic, topic]


@pytest.mark.parametrize("filter", ["a/b", "a/+", "#", "$share/g/a/b", "$share/g/a/#"])
@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_remembered_ends_with_every_change(filter: str, qos: int) -> None:
    """Subscribing, unsubscribing, leaving and coming back: the next message of a topic already known sees it."""
    broker = MemoryBroker()
    other, publisher = subscribed(broker, "o", "a/b"), broker.client("p")
    client = broker.client("c")

    def gets_it() -> bool:
        publisher.send(Publish("a/b", b"m", qos, False, False, 1 if qos else 0))
        assert payloads(other) == [b"m"]
        return payloads(client) == [b"m"]

    assert not gets_it()
    client.send(Subscribe(1, [SubscribeRequest(filter)]))
    assert gets_it()
    client.send(Unsubscribe(2, [filter]))
    assert not gets_it()
    client.send(Subscribe(3, [SubscribeRequest(filter)]))
    client.packets()
    assert gets_it()
    client.lose()
    assert not gets_it()
    client = subscribed(broker, "c", filter)
    assert gets_it()
