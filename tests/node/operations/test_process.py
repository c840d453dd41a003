from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from headwater.node.operations.process import BETWEEN, Collector, give_way_soon, keep_what_is_freed
from headwater.wire.packets import (
    Connect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Will,
)
from tests.node.memory import Client, MemoryBroker


class Clock:
    """A loop that has nothing but `call_later`."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.due.append((delay, callback))

    def ring(self) -> None:
        ((delay, callback),) = self.due
        assert delay == BETWEEN
        self.due.clear()
        callback()


@pytest.fixture
def unchanged() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("unchanged")
def test_old_garbage_goes_when_there_is_much_more_than_before() -> None:
    clock = Clock()
    Collector(cast(asyncio.AbstractEventLoop, clock)).start()
    circle = Circle()
    there = weakref.ref(circle)
    gc.collect(1)  # it is among the old ones now
    del circle
    clock.ring()
    assert there() is not None, "it is not worth the time"
    grown: list[Any] = [[number] for number in range(sys.getallocatedblocks() // 2)]
    assert there() is not None, "looks at all objects come from the clock alone"
    clock.ring()
    assert there() is None
    del grown
    assert len(clock.due) == 1, "the next look is set"


MEASURE = """
import resource
from headwater.node.operations.process import keep_what_is_freed
%s
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    bytes(bytearray(500_000))
before = faults()
for _ in range(100):
    bytes(bytearray(500_000))
print(faults() - before)
"""


def test_freed_memory_is_kept() -> None:
    def faults(first: str) -> int:
        done = subprocess.run([sys.executable, "-c", MEASURE % first], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults("keep_what_is_freed()") < 1000 < faults("")


@pytest.mark.usefixtures("unchanged")
def test_other_threads_give_way_soon() -> None:
    keep_what_is_freed()
    give_way_soon()
    assert sys.getswitchinterval() == pytest.approx(0.0001)


def life(broker: MemoryBroker, number: int) -> None:
    """Much of what a client can do, and its end."""
    client = Client(broker)
    will = Will("w", b"gone", 1)
    client.connect(Connect(f"c{number}", 5, will=will, properties=Properties(session_expiry_interval=number % 2)))
    client.send(
        Subscribe(1, [SubscribeRequest("t/#", 1), SubscribeRequest("q", 2), SubscribeRequest("$share/g/s", 1)]),
        Publish("t/1", b"x", 1, packet_id=1),
        Publish("q", b"x", 2, packet_id=2),
        Publish("s", b"x", 1, packet_id=3),
        Publish("t/2", b"x", properties=Properties(user_properties=[("a", "b")])),
    )
    for packet in client.packets():
        if isinstance(packet, Publish) and packet.qos == 1 and number % 3:
            client.send(Puback(packet.packet_id))
        elif isinstance(packet, Publish) and packet.qos == 2:
            client.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrec):
            client.send(Pubrel(packet.packet_id))
    if number % 5 == 0:
        client.feed(b"\x00\x00")  # not MQTT
    client.lose()
    broker.later(2.0)


def test_clients_that_go_leave_no_circles_behind() -> None:
    """They would wait for a look at all objects, which is rare."""
    broker = MemoryBroker()
    for number in range(10):
        life(broker, number)
    gc.collect()
    gc.disable()
    try:
        for number in range(60):
            life(broker, number)
        found = gc.collect()
    finally:
        gc.enable()
    assert found < 60, f"{found} objects for 60 clients"
