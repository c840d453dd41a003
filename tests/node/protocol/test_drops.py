"""Why messages were not delivered, told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from headwater.node.config import Config
from headwater.node.operations.metrics import families
from headwater.node.protocol.statistics import Statistics, statistics_of
from headwater.session.rights import Rights
from headwater.session.session import Session
from headwater.wire.packets import Properties, Puback, Publish, Subscribe, SubscribeRequest, Unsubscribe
from tests.node.memory import Client, MemoryBroker

KEPT = Properties(session_expiry_interval=1000)


def broker_with(**settings: Any) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, **settings))


def reader(broker: MemoryBroker, name: str = "t", **properties: Any) -> Client:
    client = broker.client("reader", properties=Properties(session_expiry_interval=1000, **properties))
    client.send(Subscribe(1, [SubscribeRequest(name, 1)]))
    return client


def publish(broker: MemoryBroker, qos: int = 1, count: int = 1, payload: bytes = b"x", **properties: Any) -> None:
    publisher = broker.client("publisher")
    for packet_id in range(1, count + 1):
        publisher.send(Publish("t", payload, qos, False, False, packet_id if qos else 0, Properties(**properties)))


def drops(broker: MemoryBroker) -> dict[str, int]:
    """Those that happened, also as Prometheus sees them."""
    statistics = statistics_of(broker.server, 1.0)
    samples = [
        sample
        for family in families(Statistics, [statistics])
        for sample in family.samples
        if sample.name == "headwater_messages_dropped_total"
    ]
    assert {sample.labels["reason"]: sample.value for sample in samples} == statistics.drops
    assert sum(statistics.drops.values()) == statistics.dropped == broker.server.stats.publish_dropped
    return {reason: count for reason, count in statistics.drops.items() if count}


def test_nothing() -> None:
    broker = broker_with()
    assert drops(broker) == {}
    assert set(statistics_of(broker.server, 1.0).drops) == {
        *("queue_full", "slow_reader", "expired", "too_large", "not_authorized", "session_ended"),
        "too_many_topics",
    }, "all reasons are there from the beginning: rates can be computed from the first on"


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "disconnect"])
@pytest.mark.parametrize("name", ["t", "$share/g/t"])
def test_a_full_queue(policy: str, name: str) -> None:
    broker = broker_with(max_queued_messages=2, queue_full=policy)
    reader(broker, name).lose()
    publish(broker, count=5)
    assert drops(broker) == {"queue_full": 3}


def test_a_reader_that_is_too_slow_for_qos_0() -> None:
    broker = broker_with(outbound_buffer=4096)
    client = reader(broker)
    client.socket.room = 0
    publish(broker, qos=0, count=10, payload=bytes(5000))
    assert drops(broker) == {"slow_reader": 9}


@pytest.mark.parametrize("name", ["t", "$share/g/t"])
def test_what_expired_while_it_waited(name: str) -> None:
    broker = broker_with()
    client = reader(broker, name)
    client.lose()
    publish(broker, message_expiry_interval=5)
    broker.later(10)
    broker.client("reader", clean_start=False, properties=KEPT)
    assert drops(broker) == {"expired": 1}


@pytest.mark.parametrize("waited", [True, False])
def test_what_is_larger_than_the_client_takes(waited: bool) -> None:
    broker = broker_with()
    client = reader(broker, maximum_packet_size=100)
    if waited:
        client.lose()
    publish(broker, payload=bytes(200))
    if waited:
        broker.client("reader", clean_start=False, properties=Properties(maximum_packet_size=100))
    assert drops(broker) == {"too_large": 1}


def test_what_is_larger_than_the_client_takes_now() -> None:
    broker = broker_with()
    client = reader(broker)
    publish(broker, payload=bytes(200))
    client.lose()
    broker.client("reader", clean_start=False, properties=Properties(maximum_packet_size=100))
    assert drops(broker) == {"too_large": 1}


class ReceivesNothing(Rights):
    def decide(self, topic: str, action: int) -> bool:
        return False


def test_what_waited_and_may_not_be_received_any_more() -> None:
    broker = broker_with()
    client = reader(broker, receive_maximum=1)
    publish(broker, count=2)
    [first] = client.messages()
    client.channel.rights = ReceivesNothing()
    client.send(Puback(first.packet_id))
    assert drops(broker) == {"not_authorized": 1}


def test_what_waited_in_a_session_that_ended() -> None:
    broker = broker_with()
    reader(broker).lose()
    publish(broker, count=3)
    broker.later(2000)
    assert drops(broker) == {"session_ended": 3}


def test_what_waited_in_a_group_that_the_last_member_left() -> None:
    broker = broker_with()
    reader(broker, "$share/g/t").lose()
    publish(broker, count=3)
    client = broker.client("reader", clean_start=False, properties=Properties(receive_maximum=1))
    client.send(Unsubscribe(2, ["$share/g/t"]))
    assert drops(broker) == {"session_ended": 2}


def test_statistics_cost_the_same_however_many_sessions_there_are() -> None:
    class Untouchable(dict[str, Session]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("all sessions are looked at")

        def values(self) -> NoReturn:
            raise AssertionError("all sessions are looked at")

        items = values

    broker = MemoryBroker(Config(sys_interval=0))
    for number in range(3):
        away = broker.client(f"away-{number}", properties=Properties(session_expiry_interval=100))
        away.send(Subscribe(1, [SubscribeRequest("t", 1)]))
        away.lose()
    broker.client("p").send(*(Publish("t", b"x", 1, packet_id=each) for each in (1, 2)))
    broker.server.sessions = Untouchable(broker.server.sessions)
    assert statistics_of(broker.server, 1.0).queued == 6
