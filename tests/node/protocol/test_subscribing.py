"""SUBSCRIBE and UNSUBSCRIBE: how many, and which retained messages come."""

from __future__ import annotations

import pytest

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.protocol.statistics import statistics_of
from headwater.wire.packets import (
    Disconnect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from headwater.wire.reasons import NO_SUBSCRIPTION_EXISTED, QUOTA_EXCEEDED, TOPIC_FILTER_INVALID
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed


def reasons(client: Client, *requests: SubscribeRequest) -> list[int]:
    client.send(Subscribe(1, list(requests)))
    answer = client.packets()[0]
    assert isinstance(answer, Suback)
    return answer.reasons


@pytest.mark.parametrize(("version", "refused"), [(5, QUOTA_EXCEEDED), (4, 0x80)])
def test_one_subscription_too_many_is_refused(version: int, refused: int) -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_subscriptions=2))
    client, other = broker.client("c", version), broker.client("o", version)
    assert reasons(client, *(SubscribeRequest(filter) for filter in "abc")) == [0, 0, refused]
    assert reasons(client, SubscribeRequest("a", 1)) == [1], "replacing one is not one more"
    assert reasons(client, SubscribeRequest("$share/g/a")) == [refused]
    client.send(Unsubscribe(1, ["a"]))
    client.packets()
    assert reasons(client, SubscribeRequest("c")) == [0]
    assert reasons(other, SubscribeRequest("a"), SubscribeRequest("b")) == [0, 0], "each client has its own"
    assert broker.server.subscribing.count == 4


@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    [({"max_topic_levels": 2}, "a/b", "a/b/c"), ({"max_topic_length": 5}, "abcde", "abcdef")],
)
def test_filters_are_bounded(settings: dict[str, int], good: str, bad: str) -> None:
    broker = MemoryBroker(Config(sys_interval=0, **settings))  # type: ignore[arg-type]
    assert reasons(broker.client("c"), SubscribeRequest(good), SubscribeRequest(bad)) == [0, TOPIC_FILTER_INVALID]


def test_the_granted_qos_is_bounded_by_ours() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_qos=1))
    assert reasons(broker.client("c"), *(SubscribeRequest("t", qos) for qos in (0, 1, 2))) == [0, 1, 1]


def test_unsubscribing_what_there_is_and_what_there_is_not() -> None:
    broker = MemoryBroker()
    client = subscribed(broker, "c", "$share/g/t")
    client.send(Unsubscribe(7, ["$share/g/t", "t", "$share/g/t"]))
    assert client.packets() == [Unsuback(7, [0, NO_SUBSCRIPTION_EXISTED, NO_SUBSCRIPTION_EXISTED])]
    assert broker.server.subscribing.count == 0


def retained(broker: MemoryBroker, *topics: str) -> Client:
    publisher = broker.client("p")
    for topic in topics:
        publisher.send(Publish(topic, topic.encode(), 1, True, False, 1))
    publisher.packets()
    return publisher


def test_shared_subscriptions_get_no_retained_messages() -> None:
    broker = MemoryBroker()
    retained(broker, "a")
    client = broker.client("c")
    client.send(Subscribe(1, [SubscribeRequest("$share/g/a", 1), SubscribeRequest("a", 1)]))
    assert payloads(client) == [b"a"]


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(handling: int, first: int, again: int) -> None:
    broker = MemoryBroker()
    retained(broker, "a")
    client = broker.client("c")
    for count in (first, again):
        client.send(Subscribe(1, [SubscribeRequest("a", 1, retain_handling=handling)]))
        assert [message.retain for message in client.messages()] == [True] * count


def test_no_local_holds_for_ones_own_retained_messages() -> None:
    broker = MemoryBroker()
    publisher = retained(broker, "a")
    publisher.send(Subscribe(1, [SubscribeRequest("a", 1, no_local=True)]))
    assert publisher.messages() == []


def test_retained_messages_are_bounded() -> None:
    """One too many is refused; those there are can be replaced; removing one makes room."""
    broker = MemoryBroker(Config(sys_interval=0, max_retained=2))
    reader = subscribed(broker, "r", "#", 1)
    publisher = retained(broker, "a", "b", "c", "a")
    assert payloads(reader) == [b"a", b"b", b"a"]
    assert len(broker.server.router.retained) == 2
    publisher.send(Publish("b", b"", 0, True))
    publisher.send(Publish("c", b"c", 0, True))
    late = broker.client("l")
    late.send(Subscribe(1, [SubscribeRequest("#")]))
    assert sorted(payloads(late)) == [b"a", b"c"]


def test_bytes_of_retained_messages_are_bounded() -> None:
    """What goes beyond is delivered but not kept where its publisher cannot be told (QoS 0), and what was kept before
    stays."""
    one = Message("a", b"." * 6, publisher="p").size()
    broker = MemoryBroker(Config(sys_interval=0, max_retained_bytes=one + 4))
    reader = subscribed(broker, "r", "#", 1)
    publisher = broker.client("p")
    for topic, payload in (("a", b"." * 6), ("b", b"." * 5), ("a", b"." * 11), ("a", b"." * 10)):
        publisher.send(Publish(topic, payload, 0, True))
    assert [len(payload) for payload in payloads(reader)] == [6, 5, 11, 10]
    assert broker.server.router.retained.used == one + 4
    assert statistics_of(broker.server, 1.0).retained_refused == 2
    late = broker.client("l")
    late.send(Subscribe(1, [SubscribeRequest("#")]))
    assert payloads(late) == [b"." * 10]


@pytest.mark.parametrize("qos", [1, 2])
def test_who_can_be_told_is_refused_what_cannot_be_retained(qos: int) -> None:
    """And then nobody gets it: it would come again with the next try. In 3.1.1 it is delivered and not kept."""
    broker = MemoryBroker(Config(sys_interval=0, max_retained=1))
    reader = subscribed(broker, "r", "#", 0)
    new, old = broker.client("n"), broker.client("o", 4)
    for number, client in enumerate((new, new, old), 1):
        client.send(Publish(f"t/{number}", b"%d" % number, qos, True, packet_id=number))
    assert [packet.reason for packet in new.packets() if isinstance(packet, (Puback, Pubrec))] == [0, 0x97]
    assert [packet.reason for packet in old.packets() if isinstance(packet, (Puback, Pubrec))] == [0]
    assert payloads(reader) == [b"1", b"3"]
    assert len(broker.server.router.retained) == 1
    new.send(Publish("t/1", b"again", qos, True, packet_id=9), Publish("t/1", b"", qos, True, packet_id=10))
    assert [packet.reason for packet in new.packets() if isinstance(packet, (Puback, Pubrec))] == [0, 0]


def test_all_that_is_retained_counts() -> None:
    """Properties of 130 KB for each of 15,000 messages were 2 GB that nobody counted."""
    broker = MemoryBroker(Config(sys_interval=0, max_retained_bytes=10_000))
    publisher = broker.client("p")
    heavy = [
        Publish("t/1", b"x", 1, True, packet_id=1, properties=Properties(user_properties=[("k", "v" * 10_000)])),
        Publish("t/2", b"x", 1, True, packet_id=2, properties=Properties(user_properties=[("", "")] * 100)),
        Publish("t/3", b"x", 1, True, packet_id=3, properties=Properties(correlation_data=bytes(10_000))),
        Publish("t/" + "x" * 10_000, b"x", 1, True, packet_id=4),
        Publish("t/" + "x" * 2_500 + "\U0001f600", b"x", 1, True, packet_id=5),
        Publish("t/6", b"x", 1, True, packet_id=6, properties=Properties(response_topic="r" * 10_000)),
        Publish("t/7", b"x", 1, True, packet_id=7, properties=Properties(content_type="r" * 10_000)),
    ]
    publisher.send(*heavy)
    answers = [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)]
    assert answers == [0x97] * 7 and broker.server.router.retained.used == 0
    publisher = broker.client("p" * 10_000)
    publisher.send(Publish("t/8", b"x", 1, True, packet_id=1))
    assert [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)] == [0x97], "its id is kept"


def test_a_retained_message_expires() -> None:
    broker = MemoryBroker()
    broker.client("p").send(Publish("a", b"m", 0, True, properties=Properties(message_expiry_interval=10)))
    broker.later(9.5)
    client = broker.client("c")
    client.send(Subscribe(1, [SubscribeRequest("a")]))
    [message] = client.messages()
    assert message.properties == Properties(message_expiry_interval=1)
    broker.later(1)
    client.send(Subscribe(1, [SubscribeRequest("a")]))
    assert client.messages() == []


KEPT = Properties(session_expiry_interval=100)


@pytest.mark.parametrize("bad", ["a/#/b", "a+", "$share/g", "$share/+/t"])
@pytest.mark.parametrize("number", [1, 200], ids=["short", "decoded in slices"])
def test_a_subscribe_that_breaks_the_protocol_has_no_effect(bad: str, number: int) -> None:
    broker = MemoryBroker(Config(sys_interval=0))
    client = broker.client("c", properties=KEPT)
    client.send(Subscribe(1, [*(SubscribeRequest(f"good/{each}") for each in range(number)), SubscribeRequest(bad)]))
    broker.turn()
    assert [type(packet) for packet in client.packets()] == [Disconnect]
    assert broker.server.sessions["c"].subscriptions == {}
    assert broker.server.subscribing.count == 0


@pytest.mark.parametrize("bad", ["a/#/b", "$share/g"])
@pytest.mark.parametrize("number", [1, 200], ids=["short", "decoded in slices"])
def test_an_unsubscribe_that_breaks_the_protocol_has_no_effect(bad: str, number: int) -> None:
    broker = MemoryBroker(Config(sys_interval=0))
    client = broker.client("c", properties=KEPT)
    names = [f"good/{each}" for each in range(number)]
    client.send(Subscribe(1, [SubscribeRequest(name) for name in names]))
    broker.turn()
    client.packets()
    client.send(Unsubscribe(2, [*names, bad]))
    broker.turn()
    assert [type(packet) for packet in client.packets()] == [Disconnect]
    assert list(broker.server.sessions["c"].subscriptions) == names


@pytest.mark.parametrize(
    ("setting", "bad"), [("wildcard_subscription_available", "w/#"), ("shared_subscription_available", "$share/g/t")]
)
def test_a_subscribe_that_asks_for_what_is_not_supported_has_no_effect(setting: str, bad: str) -> None:
    broker = MemoryBroker(Config(sys_interval=0, **{setting: False}))  # type: ignore[arg-type]
    client = broker.client("c", properties=KEPT)
    client.send(Subscribe(1, [SubscribeRequest("good"), SubscribeRequest(bad)]))
    assert [type(packet) for packet in client.packets()] == [Disconnect]
    assert broker.server.sessions["c"].subscriptions == {}
