"""What the broker remembers of topics is bounded, whatever topics clients make up."""

from __future__ import annotations

import pytest

from headwater.node.destinations.fanouts import LONGEST_CACHED, MAX_CACHED_TOPICS
from headwater.node.destinations.local import LONGEST_FIRST_LEVEL, MAX_FIRST_LEVELS
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


def test_changes_elsewhere_leave_what_is_remembered() -> None:
    """Who subscribes and unsubscribes where nobody publishes does not slow down others."""
    broker = MemoryBroker()
    fanouts = broker.server.hot.fanouts
    reader, publisher, busy = subscribed(broker, "r", "a/+"), broker.client("p"), broker.client("b")
    publisher.send(Publish("a/b", b"1"))
    before = fanouts.topics[b"a/b"]
    for filter in ("churn/#", "$share/g/churn/+", "ab/#", "churn"):
        busy.send(Subscribe(1, [SubscribeRequest(filter)]), Unsubscribe(1, [filter]))
        assert fanouts.topics.get(b"a/b") is before
    for filter in ("a/#", "+/b", "#", "$share/g/a/+"):
        busy.send(Subscribe(1, [SubscribeRequest(filter)]))
        assert b"a/b" not in fanouts.topics
        publisher.send(Publish("a/b", b"2"))
    assert payloads(reader) == [b"1"] + [b"2"] * 4


@pytest.mark.parametrize("first", ["{}", "x" * LONGEST_FIRST_LEVEL + "{}"])
def test_first_levels_are_bounded(first: str) -> None:
    """Beyond, every change is one that matters: nobody misses a message."""
    broker = MemoryBroker()
    local = broker.server.hot.fanouts.local
    client, publisher = broker.client("c"), broker.client("p")
    for number in range(MAX_FIRST_LEVELS + 10):
        publisher.send(Publish(first.format(number) + "/t", b"m"))
    assert local.any_first_level and len(local.first_levels) <= MAX_FIRST_LEVELS
    client.send(Subscribe(1, [SubscribeRequest(first.format(3) + "/#")]))
    assert not local.any_first_level and not local.first_levels
    publisher.send(Publish(first.format(3) + "/t", b"for c"))
    assert payloads(client) == [b"for c"]


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
