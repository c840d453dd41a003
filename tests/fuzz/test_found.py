"""What reading the code with hostile eyes and fuzzing have found, kept as tests."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.selector import run
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.shared import DISPATCHERS
from headwater.wire import FROM_SERVER, decode, encode
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater.wire.reasons import QUOTA_EXCEEDED
from tests.brokers import free_port, wait_until_listening
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

hot_and_ordinary = pytest.mark.parametrize("hot", [True, False], ids=["hot", "ordinary"])


def subscribe(client: Client, *filters: str, qos: int = 0) -> None:
    client.send(Subscribe(1, [SubscribeRequest(filter, qos) for filter in filters]))
    client.packets()


def publishes(topic: str, count: int, qos: int = 1) -> list[Packet]:
    return [Publish(topic, b"x", qos, packet_id=number + 1 if qos else 0) for number in range(count)]


@hot_and_ordinary
def test_order_across_topics_when_a_fanout_was_settled_early_in_the_turn_before(hot: bool) -> None:
    broker = MemoryBroker(hot=hot)
    reader, second, third = (broker.client(name) for name in ("reader", "second", "third"))
    subscribe(reader, "f", "g", "h")
    subscribe(second, "g")
    subscribe(third, "h")
    publisher = broker.client("publisher")
    publisher.send(Publish("f"), Publish("g"), Publish("h"))
    reader.packets()
    publisher.send(Publish("f"), Publish("h"), Publish("f"))
    assert [message.topic for message in reader.messages()] == ["f", "h", "f"]
    check(broker.server)


DISCONNECTING = Config(sys_interval=0, max_inflight=1, max_queued_messages=1, queue_full="disconnect")


@hot_and_ordinary
def test_a_client_that_overflows_within_a_run_of_messages(hot: bool) -> None:
    broker = MemoryBroker(DISCONNECTING, hot=hot)
    slow = broker.client("slow")
    subscribe(slow, "t", qos=1)
    publisher = broker.client("publisher")
    publisher.send(*publishes("t", 5))
    assert [type(packet) for packet in publisher.packets()] == [Puback] * 5
    last = slow.packets()[-1]
    assert isinstance(last, Disconnect) and last.reason == QUOTA_EXCEEDED
    check(broker.server)


@hot_and_ordinary
def test_a_client_that_overflows_itself(hot: bool) -> None:
    broker = MemoryBroker(DISCONNECTING, hot=hot)
    client = broker.client("self")
    subscribe(client, "t", qos=1)
    client.send(*publishes("t", 5), Puback(1), Publish("t"))
    assert isinstance(client.packets()[-1], Disconnect)
    check(broker.server)


def test_a_client_that_overflows_while_retained_messages_come_leaves_nothing_behind() -> None:
    """They wait for room themselves; what is published meanwhile does not."""
    broker = MemoryBroker(DISCONNECTING)
    publisher = broker.client("publisher")
    publisher.send(*[Publish(f"t/{number}", b"x", 1, True, packet_id=number + 1) for number in range(9)])
    broker.client("slow").send(Subscribe(1, [SubscribeRequest("t/#", 1)]))
    assert "slow" in broker.server.sessions
    publisher.send(*[Publish(f"t/{number}", b"y", 1, packet_id=number + 1) for number in range(9)])
    assert "slow" not in broker.server.sessions
    assert broker.server.budget.used == 0
    check(broker.server)


def test_a_shared_group_whose_members_overflow_one_after_the_other() -> None:
    """Each hands what waited for it to the next, which is full as well: that must not go ever deeper."""
    broker = MemoryBroker(DISCONNECTING.model_copy(update={"shared_dispatcher": "hash_topic"}))  # waits for the chosen
    for number in range(400):
        subscribe(broker.client(f"member {number}"), "$share/g/#", qos=1)
    publisher = broker.client("publisher")
    for number in range(5000):
        publisher.send(*publishes(f"t/{number}", 1))
    assert len(broker.server.sessions) == 1, "all members were cut off"
    check(broker.server)


@hot_and_ordinary
def test_what_waits_for_a_client_that_goes_in_the_same_turn_is_counted_as_dropped(hot: bool) -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_inflight=1), hot=hot)
    reader, publisher = broker.client("reader"), broker.client("publisher")
    subscribe(reader, "t", qos=1)
    publisher.send(*publishes("t", 2))
    with broker.one_turn():
        publisher.send(Publish("t"))
        reader.lose()
    assert broker.server.stats.publish_dropped == 2


def test_a_hook_that_disconnects_within_a_subscribe_leaves_no_subscription() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    broker.hooks.add("subscribed", lambda who, *rest: broker.server.disconnect_soon(who, QUOTA_EXCEEDED, "no"))
    client.send(Subscribe(1, [SubscribeRequest("a", 0), SubscribeRequest("b", 0)]))
    assert broker.server.subscribing.count == 0
    check(broker.server)


def test_what_is_too_large_after_a_reconnect_does_not_stop_what_is_behind_it() -> None:
    broker = MemoryBroker()
    keep = Properties(session_expiry_interval=100)
    reader = Client(broker)
    reader.connect(Connect("reader", 5, properties=keep))
    subscribe(reader, "t", qos=1)
    broker.client("publisher").send(
        *[Publish("t", b"x" * 100, 1, packet_id=number) for number in (1, 2, 3)], Publish("t", b"small", 1, packet_id=4)
    )
    reader.lose()
    again = Client(broker)
    again.version = 5
    narrow = Properties(session_expiry_interval=100, receive_maximum=1, maximum_packet_size=60)
    again.send(Connect("reader", 5, False, properties=narrow))
    assert [message.payload for message in again.messages()] == [b"small"]
    check(broker.server)


def test_long_topics_are_not_remembered() -> None:
    """A million topics of 64 KB each would otherwise fill the memory, 65,536 at a time."""
    broker = MemoryBroker()
    reader, publisher = broker.client("reader"), broker.client("publisher")
    subscribe(reader, "#")
    for number in range(20):
        publisher.send(Publish(f"{number}/" + "x" * 60_000, b"1"))
        publisher.send(Publish(f"{number}/" + "x" * 60_000, b"1", 2, packet_id=number + 1))
    assert len(reader.messages()) == 40
    fanouts = broker.server.hot.fanouts
    remembered = [
        *fanouts.topics,
        *fanouts.older_topics,
    ]
    assert sum(len(topic) for topic in remembered) < 100_000


def test_long_properties_are_not_remembered() -> None:
    broker = MemoryBroker()
    reader, publisher = broker.client("reader"), broker.client("publisher")
    subscribe(reader, "#")
    for number in range(20):
        publisher.send(Publish("t", b"1", properties=Properties(correlation_data=bytes([number]) * 15_000)))
    assert len(reader.messages()) == 20
    assert sum(len(block) for block in broker.server.hot.properties.blocks) < 50_000


def test_a_large_packet_in_tiny_parts_costs_no_object_for_each() -> None:
    broker = MemoryBroker()
    client, reader = broker.client("c"), broker.client("reader")
    subscribe(reader, "t")
    packet = encode(Publish("t", bytes(range(256)) * 256), 5)
    for start in range(0, len(packet) - 2, 2):
        client.feed(packet[start : start + 2])
    assert client.channel.parts is not None and len(client.channel.parts) < 50
    check(broker.server)
    client.feed(packet[client.channel.have :])
    assert [message.payload for message in reader.messages()] == [bytes(range(256)) * 256]


def test_a_closed_channel_keeps_no_fanout_alive() -> None:
    """Or chains of dead channels and dead fan-outs could grow as long as the broker lives."""
    broker = MemoryBroker()
    reader, other, publisher = broker.client("reader"), broker.client("other"), broker.client("publisher")
    subscribe(reader, "a", "b")
    subscribe(other, "b")
    publisher.send(Publish("a"), Publish("b"))
    assert reader.channel.pending is not None
    reader.lose()
    assert reader.channel.pending is None


class EarlyLoop(asyncio.AbstractEventLoop):
    """A loop whose alarms ring a little early, as those of uvloop do: it rounds to milliseconds."""

    def __init__(self) -> None:
        self.alarms: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        self.alarms.append((delay, callback))
        return FakeHandle()


class FakeHandle:
    def cancel(self) -> None:
        pass


def test_an_alarm_that_rings_early_is_set_again() -> None:
    broker = MemoryBroker()
    loop = EarlyLoop()
    plane = GuestPlane(broker.server.hot, broker.server.timers, loop)
    rung: list[bool] = []
    broker.server.timers.at(broker.server.hot.now + 30.0, lambda: rung.append(True))
    plane._end_turn()
    assert len(loop.alarms) == 1
    loop.alarms[0][1]()
    assert not rung
    assert len(loop.alarms) == 2, "nobody would look at the timers again"


class Raising(Dispatcher):
    """What somebody's own dispatcher may do."""

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        raise RuntimeError("no idea")


@pytest.mark.parametrize("delay", [0, 1], ids=["at once", "by a timer"])
def test_an_exception_outside_of_any_packet_does_not_end_the_broker(
    delay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A will is routed when its client is lost, or later; the shared group's dispatcher raises there."""
    monkeypatch.setitem(DISPATCHERS, "raising", Raising)

    async def main() -> int:
        async with Broker(Config(host="127.0.0.1", port=0, sys_interval=0, shared_dispatcher="raising")) as broker:
            member = await Raw.connect(broker.port, Connect("member", 5))
            await member.ask(Subscribe(1, [SubscribeRequest("$share/g/t", 1)]))
            will = Will("t", b"gone", 1, properties=Properties(will_delay_interval=delay))
            keep = Properties(session_expiry_interval=100)
            failing = await Raw.connect(broker.port, Connect("failing", 5, will=will, properties=keep))
            failing.writer.close()
            while not broker.statistics().failures:
                await asyncio.sleep(0.01)
            assert isinstance(await member.ask(Pingreq()), Pingresp)
            again = await Raw.connect(broker.port, Connect("again", 5))
            assert isinstance(await again.ask(Pingreq()), Pingresp)
            member.writer.close()
            again.writer.close()
            return broker.statistics().failures

    assert run(asyncio.wait_for(main(), 20)) == 1


class Raw:
    """A client that sends packets and waits for the next one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, packet: Connect) -> Raw:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        assert isinstance(await client.ask(packet), Connack)
        return client

    async def ask(self, packet: Packet) -> Packet:
        self.writer.write(encode(packet, 5))
        first, length = await self.reader.readexactly(2)
        return decode(first, await self.reader.readexactly(length), 5, FROM_SERVER)


def test_a_log_that_nobody_reads_stops_nobody() -> None:
    port = free_port()
    command = [sys.executable, "-m", "headwater", "broker", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
            wait_until_listening(process, port)
            for _ in range(150):  # each of which is worth a line
                with socket.create_connection(("127.0.0.1", port), timeout=15) as peer:
                    peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    assert peer.recv(100) == b""
        finally:
            process.terminate()
            stopped = process.wait(15)  # still unread
    assert stopped == 0


def test_slow_readers_of_large_messages_stay_within_the_memory_for_all() -> None:
    """What did not fit into the sockets was added to the budget first and looked at later, for each reader. Sockets
    have half of it."""
    limit = 1 << 20
    broker = MemoryBroker(Config(sys_interval=0, max_queue_memory=limit))
    readers = [broker.client(f"reader {number}") for number in range(20)]
    for reader in readers:
        subscribe(reader, "t")
        reader.socket.room = 0
    broker.client("publisher").send(Publish("t", bytes(300_000)))
    check(broker.server)
    assert broker.server.budget.used <= limit // 2
    kept = [reader for reader in readers if reader.channel.fd >= 0]
    assert len(kept) == 1
    kept[0].unblock()
    assert [len(message.payload) for message in kept[0].messages()] == [300_000]


def test_a_promise_of_large_packets_takes_no_memory_from_others() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_queue_memory=1 << 20))
    for number in range(100):
        broker.client(f"promising {number}").feed(b"\x30\xff\xff\xff\x06\x00\x01t")
    assert broker.server.budget.used == 100 * 8
    absent = Client(broker)
    absent.connect(Connect("absent", 4, False))
    subscribe(absent, "t", qos=1)
    absent.lose()
    broker.client("publisher").send(*publishes("t", 3))
    assert broker.server.sessions["absent"].outbound.waiting() == 3
    check(broker.server)


def test_a_large_packet_for_which_there_is_no_memory() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_queue_memory=100_000))
    client = broker.client("c")
    packet = encode(Publish("t", bytes(1_000_000)), 5)
    for start in range(0, len(packet), 10_000):
        client.feed(packet[start : start + 10_000])
        check(broker.server)
    last = client.packets()[-1]
    assert isinstance(last, Disconnect) and last.reason == QUOTA_EXCEEDED
    assert broker.server.budget.used == 0
