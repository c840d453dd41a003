"""A subscription that has not got all its retained messages outlives the process, and then gets them."""

from __future__ import annotations

import pytest

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.persistence.records import SUBSCRIPTION, subscription_in
from headwater.wire.packets import Publish, Suback
from tests.fuzz.invariants import check
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import connect, waits
from tests.node.protocol.test_retained_sender import Reader

TOPICS = [f"r/{number}" for number in range(30)]


def filled() -> DurableBroker:
    broker = DurableBroker(config=Config(sys_interval=0, max_inflight=4, max_queued_messages=8))
    for topic in TOPICS:
        broker.server.publishing.route(Message(topic, b"old", 1, True), None)
    broker.turn()
    broker.settle()
    return broker


def read_all(broker: DurableBroker, reader: Reader) -> None:
    broker.settle()
    while reader.read():
        broker.settle()


def pending(broker: DurableBroker) -> list[bool]:
    return [subscription_in("r/#", value).retained_pending for _, value in broker.backend.scan(SUBSCRIPTION)]


def test_suback_does_not_wait_for_acknowledgements() -> None:
    broker = filled()
    reader = Reader(connect(broker, "c"))
    reader.subscribe("r/#", 1)
    assert waits(broker, reader.client, Suback)
    assert pending(broker) == [True]


@pytest.mark.parametrize("acknowledged", [0, 1, 4, 12])
@pytest.mark.parametrize("keep", [0, None])
def test_the_rest_comes_after_a_crash(acknowledged: int, keep: int | None) -> None:
    broker = filled()
    reader = Reader(connect(broker, "c"))
    reader.subscribe("r/#", 1)
    broker.settle()
    for _ in range(acknowledged):
        reader.read(1)
        broker.settle()
    broker = broker.crash(keep)
    again = Reader(connect(broker, "c", settle=False))
    read_all(broker, again)
    assert set(again.topics()) == set(TOPICS), "from the beginning: where it was is not on disk"
    assert pending(broker) == [False]
    check(broker.server)
    broker = broker.crash(None)
    third = Reader(connect(broker, "c", settle=False))
    read_all(broker, third)
    assert third.got == []


def test_a_crash_before_suback_owes_nothing() -> None:
    broker = filled()
    reader = Reader(connect(broker, "c"))
    reader.subscribe("r/#", 1)
    broker = broker.crash()
    again = Reader(connect(broker, "c", settle=False))
    read_all(broker, again)
    assert again.got == []


def test_one_that_is_served_at_once_is_written_as_such() -> None:
    broker = filled()
    reader = Reader(connect(broker, "c"))
    reader.subscribe("r/1", 1)
    assert [type(packet) for packet in reader.client.packets()] == []
    broker.settle()
    assert [type(packet) for packet in reader.client.packets()] == [Suback, Publish]
    assert pending(broker) == [False]
