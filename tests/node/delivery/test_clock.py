"""Arrivals never go back, and the clock of a store says what is settled."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from headwater.store.memory import MemoryStore
from headwater.store.reader import StoreReader
from tests.node.delivery.node import running
from tests.store.messages import NOON, SECOND, Writer, found

LATER = 2_900_000_000 * SECOND


def test_a_wall_clock_that_was_set_back_does_not_set_back_arrivals() -> None:
    """The last message of an earlier run came when the clock was ahead of today's."""
    store = MemoryStore("s1")
    writer = Writer(store)
    writer.take("a", arrival=NOON)
    writer.take("a", arrival=LATER)
    writer.sync()
    with running(store=store) as node:
        assert node.call("POST", "/v1/topics/a", content=b"1").json()["position"] == 3
        assert [entry.arrival for entry in found(store)] == [NOON, LATER, LATER]
        moment, next = StoreReader(node.url).clock()
        assert (moment, next) == (datetime.fromtimestamp(LATER // SECOND, UTC), 4)


def test_what_arrived_before_the_clock_can_be_read() -> None:
    """Also if the disk is slow: the answer waits for it, and for it alone."""

    class Slow(MemoryStore):
        def sync(self) -> None:
            begun.set()
            assert may_sync.wait(15.0)
            super().sync()

    begun, may_sync = threading.Event(), threading.Event()
    answers: list[tuple[datetime, int]] = []
    store = Slow("s1")
    with running(store=store) as node, node.client() as client:
        asking = threading.Thread(target=lambda: answers.append(StoreReader(node.url).clock()))
        try:
            client.publish("a", b"1")
            assert begun.wait(15.0)
            asking.start()
            asking.join(0.2)
            assert not answers and store.next == 1
        finally:
            may_sync.set()
        asking.join(15.0)
        [(moment, next)] = answers
        [entry] = found(store)
        assert entry.arrival <= moment.timestamp() * 1e6 and next == 2
        client.publish("a", b"2", qos=1)
        assert moment.timestamp() * 1e6 <= found(store)[1].arrival


def test_with_durability_async_too() -> None:
    with running(durability="async", commit_interval=0.2) as node, node.client() as client:
        for number in range(1, 20):
            client.publish("a", b"1")
            client.publish("a", b"1", qos=1)  # has passed the broker, with the one before
            moment, next = StoreReader(node.url).clock()
            assert next == 2 * number + 1 == node.store.next
            assert found(node.store)[-1].arrival <= moment.timestamp() * 1e6
