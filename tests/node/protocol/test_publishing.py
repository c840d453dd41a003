"""PUBLISH as clients see it: who may write where, and what is open at a time."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.wire import encode
from headwater.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater.wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PACKET_IDENTIFIER_NOT_FOUND,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    TOPIC_NAME_INVALID,
)
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed


def last_reason(client: Client) -> int:
    last = client.packets()[-1]
    assert isinstance(last, Disconnect)
    return last.reason


def test_clients_may_not_write_below_sys() -> None:
    """5.0 clients are told, 3.1.1 clients cannot be; nobody gets it and nothing is kept."""
    broker = MemoryBroker()
    reader = subscribed(broker, "r", "$SYS/#")
    for version, reason in ((5, NOT_AUTHORIZED), (4, 0)):
        client = broker.client(f"c{version}", version)
        client.send(
            Publish("$SYS/x", b"m", 1, True, False, 1),
            Publish("$SYS/x", b"m", 2, True, False, 2),
            Publish("$SYS/x", b"m"),
        )
        assert client.packets() == [Puback(1, reason), Pubrec(2, reason)]
    assert payloads(reader) == [] and len(broker.server.router.retained) == 0


@pytest.mark.parametrize("version", [4, 5])
def test_nobody_there_is_told_to_those_who_understand(version: int) -> None:
    client = MemoryBroker().client("c", version)
    client.send(Publish("t", b"", 1, False, False, 1))
    assert client.packets() == [Puback(1, NO_MATCHING_SUBSCRIBERS if version == 5 else 0)]


def test_open_qos_2_messages_are_bounded() -> None:
    broker = MemoryBroker(Config(sys_interval=0, receive_maximum=2))
    client, old = broker.client("c"), broker.client("o", 4)
    packets: list[Packet] = [Publish("t", b"", 2, False, False, number) for number in (1, 2)]
    for each in (client, old):
        each.send(*packets)
        each.send(Publish("t", b"", 2, False, True, 2))  # again, not one more
        each.send(Pubrel(1), Publish("t", b"", 2, False, False, 1))
        assert len(each.packets()) == 5
        each.send(Publish("t", b"", 2, False, False, 3))
    assert last_reason(client) == RECEIVE_MAXIMUM_EXCEEDED
    assert old.packets() == [Pubrec(3)], "3.1.1 has no such limit"


def test_a_release_of_what_is_not_open() -> None:
    broker = MemoryBroker()
    for version, reason in ((5, PACKET_IDENTIFIER_NOT_FOUND), (4, 0)):
        client = broker.client(f"c{version}", version)
        client.send(Pubrel(9))
        assert client.packets() == [Pubcomp(9, reason)]


def test_the_qos_is_bounded() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_qos=0))
    for qos in (1, 2):
        client = broker.client("c")
        client.send(Publish("t", b"", qos, False, False, 1))
        assert last_reason(client) == QOS_NOT_SUPPORTED


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    [({"max_topic_levels": 2}, "a/b", "a/b/c"), ({"max_topic_length": 5}, "abcde", "abcdef")],
)
def test_topics_are_bounded(settings: dict[str, int], good: str, bad: str, hot: bool) -> None:
    broker = MemoryBroker(Config(sys_interval=0, **settings), hot=hot)  # type: ignore[arg-type]
    reader, client = subscribed(broker, "r", "#"), broker.client("c")
    client.send(Publish(good, b"good"), Publish(bad, b"bad"))
    assert payloads(reader) == [b"good"]
    assert last_reason(client) == TOPIC_NAME_INVALID


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("most", [0, 2, 3000])
def test_user_properties_are_bounded(most: int, hot: bool) -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_user_properties=most), hot=hot)
    reader = broker.client("r")
    reader.send(Subscribe(1, [SubscribeRequest("t", 1)]))
    reader.packets()
    client = broker.client("c")
    pairs = [("k", str(number)) for number in range(most)]
    client.send(Publish("t", b"x", 1, packet_id=1, properties=Properties(user_properties=pairs or None)))
    assert broker.server.stats.messages_sent == 1
    assert reader.socket.sent.count(b"\x26\x00\x01k") == most
    assert isinstance(client.packets()[0], Puback)
    client.send(Publish("t", b"x", 1, packet_id=1, properties=Properties(user_properties=[*pairs, ("k", "one more")])))
    (said,) = client.packets()
    assert isinstance(said, Disconnect) and said.reason == QUOTA_EXCEEDED
    assert broker.server.stats.messages_sent == 1


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_payloads_are_bounded(version: int, hot: bool) -> None:
    """What is too large is acknowledged and dropped, whether it comes at once or in parts, alone or in a run."""
    broker = MemoryBroker(Config(sys_interval=0, max_payload_size=10), hot=hot)
    reader, client = subscribed(broker, "r", "#", 2), broker.client("c", version)
    good, bad = b"x" * 10, b"y" * 11
    refused = IMPLEMENTATION_SPECIFIC_ERROR if version == 5 else 0
    for payload, reason in ((good, 0), (bad, refused)):
        client.send(Publish("t", payload), Publish("t", payload), Publish("t", payload, 1, packet_id=1))
        client.send(Publish("t", payload, 1, True, packet_id=2), Publish("t", payload, 2, packet_id=3))
        assert client.packets() == [Puback(1, reason), Puback(2, reason), Pubrec(3, reason)]
        for byte in encode(Publish("t", payload), version):
            client.feed(bytes((byte,)))
        client.send(Pubrel(3))
        client.packets()
    assert payloads(reader) == [good] * 6
    kept = broker.server.router.retained.get("t")
    assert kept is not None and kept.payload == good
    assert not client.socket.closed


@pytest.mark.parametrize(("version", "code"), [(4, 5), (5, PACKET_TOO_LARGE)])
def test_payloads_of_wills_are_bounded(version: int, code: int) -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_payload_size=10))
    assert Client(broker).connect(Connect("c", version, will=Will("w", b"x" * 10))).reason == 0
    assert Client(broker).connect(Connect("c", version, will=Will("w", b"x" * 11))).reason == code


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_the_wrong_acknowledgement_ends_the_connection_behind_the_right_ones(before: int, hot: bool) -> None:
    """What was acknowledged before it is done; the other message is kept for the client that comes back."""
    broker = MemoryBroker(hot=hot)
    reader = subscribed(broker, "r", "#", 2, properties=Properties(session_expiry_interval=100))
    client = broker.client("c")
    for number in range(before):
        client.send(Publish("t", b"1", 1, packet_id=number + 1))
    client.send(Publish("t", b"2", 2, packet_id=100))
    assert len(reader.messages()) == before + 1
    reader.send(*[Puback(number) for number in range(1, before + 2)], Puback(before + 2))
    assert last_reason(reader) == PROTOCOL_ERROR
    (left,) = broker.server.sessions["r"].outbound.flights.values()
    assert left.qos == 2


def test_subscriptions_of_one_client_differ_in_the_retain_flag() -> None:
    """[MQTT-3.8.3.1] Retain As Published is of a subscription, also where topics share their destinations."""
    broker = MemoryBroker()
    client = broker.client("c")
    client.send(Subscribe(1, [SubscribeRequest("a", 0, False, False, 2), SubscribeRequest("b", 0, False, True, 2)]))
    client.packets()
    for topic in ("a", "b", "a", "b"):
        client.send(Publish(topic, b"x", 0, True))
    assert [(each.topic, each.retain) for each in client.messages()] == [("a", False), ("b", True)] * 2
