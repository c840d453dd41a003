"""Content that is on disk only: what is in memory, what is counted, what is read."""

from __future__ import annotations

import gc

import pytest

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.persistence.records import DELIVERY, MESSAGE
from headwater.session.journaled import AWAY, DurableDelivery
from headwater.wire.packets import Puback, Pubcomp, Pubrec
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import connect, count, passing, publish, subscribe


def absent(broker: DurableBroker, client_id: str = "a", qos: int = 1) -> None:
    reader = connect(broker, client_id)
    subscribe(broker, reader, "t", qos)
    reader.lose()


def fill(broker: DurableBroker, number: int, size: int = 1000, version: int = 5) -> Client:
    publisher = passing(broker, "filler", version=version)
    for each in range(number):
        publish(publisher, "t", b"%03d" % each + bytes(size), packet_id=each + 1)
    broker.settle()
    return publisher


@pytest.mark.parametrize("hot", [True, False])
def test_nothing_of_the_content_stays_in_memory(hot: bool) -> None:
    broker = DurableBroker(config=Config(sys_interval=0, queue_memory=0))
    broker.server.hot.enabled = hot
    absent(broker)
    fill(broker, 1, 100_000)
    (delivery,) = broker.server.sessions["a"].outbound.queue or ()
    assert delivery.message is AWAY
    assert isinstance(delivery.journaled, DurableDelivery)
    stored = delivery.journaled.journaled
    assert (stored.message, stored.head, stored.tail) == (None, b"", b"")


def test_what_was_put_away_for_one_and_is_kept_again_for_another_is_whole() -> None:
    """A message that comes back to its group after it was put away, and whose record has gone meanwhile."""
    broker = DurableBroker(config=Config(sys_interval=0, queue_memory=0))
    for name in ("a", "b"):
        member = connect(broker, name)
        subscribe(broker, member, "$share/g/t", 1)
        member.lose()
    fill(broker, 3)
    first = connect(broker, "a")
    assert [message.payload[:3] for message in first.messages()] == []  # they were read by `connect`
    second = connect(broker, "b")
    broker.settle()
    first.lose()
    broker.settle()
    assert [message.payload[:3] for message in second.messages()] == [b"000", b"001", b"002"]
    second.lose()
    broker.settle()
    broker = broker.crash()
    second = connect(broker, "b", settle=False)
    broker.settle()
    assert [message.payload[:3] for message in second.messages()] == [b"000", b"001", b"002"]


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "disconnect"])
def test_a_full_budget_costs_nothing_that_was_acknowledged(policy: str) -> None:
    """Nor does a queue give way to what others need: the publisher waits (3.1.1) until there is room."""
    broker = DurableBroker(config=Config(sys_interval=0, queue_memory=0, max_queue_memory=20_000, queue_full=policy))
    absent(broker)
    fill(broker, 10)
    broker.server.budget.used += 20_000  # others need all
    publisher = fill(broker, 1, 8000, version=4)
    assert [packet for packet in publisher.packets() if isinstance(packet, Puback)] == []
    broker.server.budget.used -= 20_000
    broker.later(1)
    broker.settle()
    assert [packet.packet_id for packet in publisher.packets() if isinstance(packet, Puback)] == [1]
    assert broker.server.sessions["a"].outbound.waiting() == 11
    assert (broker.server.stats.publish_dropped, broker.server.stats.failures) == (0, 0)


def test_what_is_dropped_is_not_read_unless_somebody_wants_to_know() -> None:
    broker = DurableBroker(config=Config(sys_interval=0, queue_memory=0))
    absent(broker)
    fill(broker, 10)
    reads: list[bytes] = []
    read = broker.committer.read
    broker.committer.read = lambda key: reads.append(key) or read(key)  # type: ignore[method-assign, func-returns-value]
    passing(broker, "a")
    broker.settle()
    assert reads == []
    assert (count(broker, MESSAGE), count(broker, DELIVERY)) == (0, 0)
    assert broker.server.budget.used == 0


def test_who_wants_to_know_what_is_dropped_gets_it_whole() -> None:
    broker = DurableBroker(config=Config(sys_interval=0, queue_memory=0))
    absent(broker)
    fill(broker, 2)
    told: list[bytes] = []

    @broker.hooks.on("publish_dropped")
    def dropped(client_id: str, message: Message) -> None:
        told.append(message.payload[:3])

    passing(broker, "a")
    assert told == [b"000", b"001"]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_done_needs_no_garbage_collector(qos: int) -> None:
    broker = DurableBroker()
    broker.server.hot.enabled = False
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 2)
    publish(connect(broker, "p"), "t", qos=qos)
    broker.settle()
    gc.collect()
    gc.disable()
    try:
        (packet,) = reader.messages()
        for answer in [Puback] if qos == 1 else [Pubrec, Pubcomp]:
            reader.send(answer(packet.packet_id))
            broker.settle()
        assert gc.collect() == 0
    finally:
        gc.enable()
