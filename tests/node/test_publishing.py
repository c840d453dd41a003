"""PUBLISH as clients see it: who may write where, and what is open at a time."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.wire.packets import Disconnect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from headwater.wire.reasons import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PACKET_IDENTIFIER_NOT_FOUND,
    QOS_NOT_SUPPORTED,
    RECEIVE_MAXIMUM_EXCEEDED,
    TOPIC_NAME_INVALID,
)
from tests.node.memory import Client, MemoryBroker
from tests.node.test_server import payloads, subscribed


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
