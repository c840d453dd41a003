"""A broker on real sockets, the same under asyncio's own loop, under uvloop and under ours."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from headwater.message import Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.loop import EpollPlane
from headwater.node.plane.selector import run
from headwater.wire import FROM_SERVER, PacketReader, decode, encode
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
)
from headwater.wire.reasons import SERVER_SHUTTING_DOWN, USE_ANOTHER_SERVER
from tests.brokers import free_port

PATIENCE = 20.0

Main = Coroutine[Any, Any, None]
under_each_loop = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run, run], ids=["asyncio", "uvloop", "ours"])
Runner = Callable[[Main], None]


def settings(**others: Any) -> Config:
    return Config(**{"host": "127.0.0.1", "port": 0, "sys_interval": 0, **others})


class Peer:
    """A 5.0 client with nothing but a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._packets = PacketReader(1 << 28)
        self._waiting: list[Packet] = []

    @classmethod
    async def connect(cls, broker: Broker, client_id: str, properties: Properties | None = None) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", broker.port))
        peer.send(Connect(client_id, 5, properties=properties))
        answer = await peer.packet()
        assert isinstance(answer, Connack) and answer.reason == 0
        return peer

    async def subscribe(self, filter: str, qos: int = 0) -> Peer:
        self.send(Subscribe(1, [SubscribeRequest(filter, qos)]))
        await self.packet()
        return self

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, 5) for packet in packets))

    async def packet(self) -> Packet | None:
        """The next packet; None at the end of the stream."""
        while not self._waiting:
            data = await asyncio.wait_for(self.reader.read(65536), PATIENCE)
            if not data:
                return None
            self._packets.feed(data)
            self._waiting += [decode(first, body, 5, FROM_SERVER) for first, body in self._packets]
        return self._waiting.pop(0)

    async def payload(self) -> bytes:
        packet = await self.packet()
        assert isinstance(packet, Publish)
        return packet.payload

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def closing(*peers: Peer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for peer in peers:
            await peer.close()


# ---- start and stop ----


@under_each_loop
def test_clients_are_served_and_told_when_it_stops(runner: Runner) -> None:
    async def main() -> None:
        async with Broker(settings()) as broker:
            expected = EpollPlane if runner is run else GuestPlane
            assert type(broker.server.plane) is expected
            reader = await (await Peer.connect(broker, "r")).subscribe("#", 1)
            writer = await Peer.connect(broker, "w")
            writer.send(*(Publish("a", b"%d" % number, number % 2, False, False, number % 2) for number in range(100)))
            assert [await reader.payload() for _ in range(100)] == [b"%d" % number for number in range(100)]
            idle = Peer(*await asyncio.open_connection("127.0.0.1", broker.port))
            while broker.statistics().sockets_opened < 3:
                await asyncio.sleep(0)
        async with closing(reader, writer, idle):
            assert await reader.packet() == Disconnect(SERVER_SHUTTING_DOWN)
            assert await reader.packet() is None
            assert await idle.packet() is None, "who has not connected is not sent a DISCONNECT"
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", broker.port)

    runner(main())


@under_each_loop
def test_nothing_of_it_stays_in_the_loop(runner: Runner) -> None:
    async def main() -> None:
        broker = Broker(settings(sys_interval=0.01))
        await broker.start()
        peer = await Peer.connect(broker, "c", Properties(session_expiry_interval=1))
        await broker.stop()
        await peer.close()
        await broker.stop()  # again: nothing happens
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(broker.server.timers) == 0 and not broker.server.channels
        plane = broker.server.plane
        if isinstance(plane, GuestPlane):
            assert plane.alarm is None
        else:
            assert asyncio.get_running_loop().hot_selector.plane is None  # type: ignore[attr-defined]

    runner(main())


@under_each_loop
def test_a_port_in_use(runner: Runner) -> None:
    """OSError, and the loop is as it was: a broker on another port is served as fast as ever."""

    async def main() -> None:
        async with Broker(settings()) as first:
            with pytest.raises(OSError, match="in use"):
                await Broker(settings(port=first.port)).start()
        port = free_port()
        with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="in use"):
            await Broker(settings(port=port)).start()
        async with Broker(settings(port=port)) as second:
            assert type(second.server.plane) is (EpollPlane if runner is run else GuestPlane)
            await (await Peer.connect(second, "c")).close()

    runner(main())


@pytest.mark.skipif(not socket.has_ipv6, reason="without IPv6 localhost has one address")
def test_half_of_localhost_is_not_enough() -> None:
    """A port that is taken on one of a host's addresses is taken: clients would reach somebody else there."""
    port = free_port()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="in use"):
            await Broker(Config(host="localhost", port=port)).start()
        async with Broker(Config(host="localhost", port=port)) as broker:
            assert {address for _, address in broker.addresses} == {port}

    asyncio.run(main())


@under_each_loop
def test_several_brokers_in_one_process(runner: Runner) -> None:
    """They know nothing of each other, and the end of one is not the end of the other."""

    async def main() -> None:
        async with Broker(settings()) as second, Broker(settings()) as first:
            peers = [await (await Peer.connect(broker, "c")).subscribe("t") for broker in (first, second)]
            async with closing(*peers):
                for number, broker in enumerate((first, second)):
                    broker.publish(Message("t", b"%d" % number))
                assert [await peer.payload() for peer in peers] == [b"0", b"1"]
                await first.stop()
                assert await peers[0].packet() == Disconnect(SERVER_SHUTTING_DOWN)
                peers[1].send(Publish("t", b"still"))
                assert await peers[1].payload() == b"still"

    runner(main())


@under_each_loop
def test_a_broker_after_a_broker(runner: Runner) -> None:
    async def main() -> None:
        for _ in range(2):
            async with Broker(settings()) as broker:
                peer = await (await Peer.connect(broker, "c")).subscribe("t")
                peer.send(Publish("t", b"m"))
                async with closing(peer):
                    assert await peer.payload() == b"m"

    runner(main())


# ---- one loop for all ----


@under_each_loop
def test_other_tasks_and_timers_run_while_the_broker_is_busy(runner: Runner) -> None:
    """A thread publishes as fast as it can; meanwhile tasks, timers, threads' calls and the program's streams go on."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Broker(settings()) as broker:
            stop = threading.Event()
            flood = threading.Thread(target=publish_until, args=(broker.port, stop))
            flood.start()
            try:
                while broker.statistics().messages_received == 0:
                    await asyncio.sleep(0)
                for _ in range(20):
                    before = broker.statistics().messages_received
                    asked = loop.time()
                    await asyncio.sleep(0.01)
                    assert loop.time() - asked >= 0.009
                    called = asyncio.Event()
                    threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,)).start()
                    await asyncio.wait_for(called.wait(), PATIENCE)
                    assert await asyncio.to_thread(lambda: 42) == 42
                    while broker.statistics().messages_received == before:
                        await asyncio.sleep(0)
                peer = await Peer.connect(broker, "c")
                async with closing(peer):
                    peer.send(Pingreq())
                    assert await peer.packet() == Pingresp()
            finally:
                stop.set()
                await asyncio.to_thread(flood.join)

    runner(main())


def publish_until(port: int, stop: threading.Event) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(encode(Connect("flood", 5), 5))
        batch = encode(Publish("t", b"x" * 20), 5) * 100
        while not stop.is_set():
            connection.sendall(batch)


@under_each_loop
@pytest.mark.parametrize("way", ["soon", "later"])
def test_what_a_hook_schedules_happens_without_anything_else_happening(runner: Runner, way: str) -> None:
    """The loop may be deep in its wait for the broker's sockets when a hook wakes a task or sets a timer."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        happened, noticed = asyncio.Event(), threading.Event()
        broker = Broker(settings())

        def hook(client: object, session_present: bool) -> None:
            if way == "soon":
                happened.set()
            else:
                loop.call_later(0.01, happened.set)

        broker.hooks.add("session_established", hook)
        async with broker:
            in_time = loop.run_in_executor(None, connect_and_wait, broker.port, noticed)
            await happened.wait()
            noticed.set()
            assert await in_time

    runner(main())


def connect_and_wait(port: int, noticed: threading.Event) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(encode(Connect("c", 5), 5))
        return noticed.wait(5.0)


# ---- what a program can do with it ----


@under_each_loop
def test_a_program_publishes_and_disconnects(runner: Runner) -> None:
    async def main() -> None:
        async with Broker(settings()) as broker:
            peer = await (await Peer.connect(broker, "c")).subscribe("t", 1)
            async with closing(peer):
                broker.publish(Message("t", b"m", 1))
                packet = await peer.packet()
                assert isinstance(packet, Publish) and (packet.payload, packet.qos) == (b"m", 1)
                peer.send(Puback(packet.packet_id))
                assert broker.disconnect("c", USE_ANOTHER_SERVER, "there:1883")
                assert await peer.packet() == Disconnect(USE_ANOTHER_SERVER, Properties(server_reference="there:1883"))
                assert await peer.packet() is None
            assert not broker.disconnect("c", USE_ANOTHER_SERVER)
            assert not broker.disconnect("nobody", USE_ANOTHER_SERVER)

    runner(main())


def test_a_program_cannot_publish_to_a_filter() -> None:
    async def main() -> None:
        async with Broker(settings()) as broker:
            for topic in ("a/#", "", "a\0"):
                with pytest.raises(ValueError):
                    broker.publish(Message(topic))

    asyncio.run(main())


@under_each_loop
def test_time_that_passed_in_sleep_does_not_count_against_a_new_connection(runner: Runner) -> None:
    """The broker's clock may be old when somebody connects, if nothing happened for long."""

    async def main() -> None:
        async with Broker(settings(connect_timeout=5)) as broker:
            broker.server.hot.now -= 3600
            peer = await Peer.connect(broker, "c")
            async with closing(peer):
                peer.send(Pingreq())
                assert await peer.packet() == Pingresp()

    runner(main())


@under_each_loop
def test_timers_fire_without_traffic(runner: Runner) -> None:
    """Keep alive, connect time-out and session expiry, by the real clock."""

    async def main() -> None:
        async with Broker(settings(connect_timeout=0.2)) as broker:
            silent = Peer(*await asyncio.open_connection("127.0.0.1", broker.port))
            peer = await Peer.connect(broker, "c", Properties(session_expiry_interval=1))
            await peer.close()
            async with closing(silent):
                assert await silent.packet() is None
            while broker.server.sessions:
                await asyncio.wait_for(asyncio.sleep(0.02), PATIENCE)
            assert broker.statistics().expired == 1

    runner(main())


@under_each_loop
def test_a_reader_that_pauses_gets_everything_in_order(runner: Runner) -> None:
    """More than the kernel buffers waits in the broker meanwhile; the others are not held up."""
    count, size = 400, 20_000

    async def main() -> None:
        async with Broker(settings(outbound_buffer=32 << 20)) as broker:
            slow = await (await Peer.connect(broker, "s")).subscribe("t")
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            quick = await (await Peer.connect(broker, "q")).subscribe("t")
            writer = await Peer.connect(broker, "w")
            async with closing(slow, quick, writer):
                expected = [b"%06d" % number for number in range(count)]
                for number in range(count):
                    writer.send(Publish("t", b"%06d" % number + bytes(size)))
                    await writer.writer.drain()
                assert [(await quick.payload())[:6] for _ in range(count)] == expected
                assert broker.statistics().queued_bytes > 0
                slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
                assert [(await slow.payload())[:6] for _ in range(count)] == expected
                while broker.statistics().queued_bytes:
                    await asyncio.sleep(0)
                assert broker.statistics().dropped == 0

    runner(main())
