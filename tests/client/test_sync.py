"""The client without an event loop of one's own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from headwater.client import Client, ConnectError, Disconnected, SyncClient
from headwater.client.sync import Message
from headwater.wire.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.brokers import PATIENCE, both_brokers, free_port
from tests.client.scripted import SOON, Peer, Scripted


@contextlib.contextmanager
def served(*scripts: Callable[[Peer], Awaitable[None]]) -> Iterator[int]:
    """A scripted server in a thread of its own; raises what a script raised."""
    port: list[int] = []
    is_listening = threading.Event()
    failures: list[BaseException] = []

    async def serve() -> None:
        async with asyncio.timeout(PATIENCE), Scripted(*scripts) as number:
            port.append(number)
            is_listening.set()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert is_listening.wait(PATIENCE)
    yield port[0]
    thread.join(PATIENCE)
    if failures:
        raise failures[0]


@both_brokers
def test_messages_go_round(broker: int) -> None:
    with SyncClient("localhost", broker) as client:
        assert client.is_connected
        assert client.client_id
        topic = f"sync/{client.client_id}"
        assert client.subscribe(topic, qos=2) == [2]
        for number in range(3):
            assert client.publish(topic, str(number), qos=number) == 0
        seen = []
        for message in client.messages:
            assert isinstance(message, Message)
            seen.append((message.payload, message.qos))
            if len(seen) == 3:
                break
        assert sorted(seen) == [(b"0", 0), (b"1", 1), (b"2", 2)]
        client.unsubscribe(topic)
    assert list(client.messages) == []
    with pytest.raises(Disconnected):
        client.publish(topic, b"too late")
    assert threading.active_count() == 1 or all(each.name != "headwater client" for each in threading.enumerate())


def test_messages_are_acknowledged_after_the_body_and_by_hand() -> None:
    async def automatic(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 1, packet_id=2))
        peer.send(Suback((await peer.receive(Subscribe)).packet_id, [0]))
        assert await peer.receive(Puback) == Puback(1)
        assert await peer.receive(Puback) == Puback(2)
        await peer.goodbye()

    async def manual(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 1, packet_id=2))
        assert await peer.receive(Puback) == Puback(1)
        await peer.goodbye()

    with served(automatic, manual) as port:
        with SyncClient("127.0.0.1", port) as client:
            for message in client.messages:
                if message.payload == b"2":
                    break
                client.subscribe("nothing was acknowledged before this")
        with SyncClient("127.0.0.1", port, acknowledge="manual") as client:
            first, second = client.receive(), client.receive()
            first.ack()
            first.ack()
            assert (first.is_done, second.is_done) == (True, False)


def test_a_body_that_raised_does_not_acknowledge() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"1", 1, packet_id=1))
        await peer.goodbye()

    with served(script) as port, pytest.raises(ValueError), SyncClient("127.0.0.1", port) as client:
        for _ in client.messages:
            raise ValueError


def test_a_take_that_timed_out_loses_nothing() -> None:
    may_send = threading.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        await asyncio.to_thread(may_send.wait)
        peer.send(Publish("a", b"1", 1, packet_id=1))
        assert await peer.receive(Puback) == Puback(1)
        await peer.goodbye()

    with served(script) as port, SyncClient("127.0.0.1", port) as client:
        with pytest.raises(TimeoutError):
            client.receive(timeout=0.02)
        may_send.set()
        assert client.receive().payload == b"1"


def test_a_request_that_timed_out() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.receive(Publish)
        await peer.receive(Subscribe)
        await peer.goodbye()

    with served(script) as port, SyncClient("127.0.0.1", port) as client:
        with pytest.raises(TimeoutError):
            client.publish("a", b"", qos=1, timeout=0.05)
        with pytest.raises(TimeoutError):
            client.subscribe("a", timeout=0.05)


def test_it_connects_again() -> None:
    async def cut(peer: Peer) -> None:
        await peer.accept()
        peer.cut()

    async def back(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"back"))
        await peer.goodbye()

    with served(cut, back) as port, SyncClient("127.0.0.1", port, reconnect=SOON) as client:
        assert client.receive(PATIENCE).payload == b"back"
        client.wait_connected(PATIENCE)


def test_it_fails_as_the_other_does() -> None:
    with pytest.raises(ConnectError, match="nobody listens"), SyncClient("127.0.0.1", free_port()):
        pass
    with pytest.raises(Disconnected, match="not connected"):
        SyncClient().publish("a", b"")
    assert all(each.name != "headwater client" for each in threading.enumerate())


def test_threads_share_the_work() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*(Publish("a", str(number).encode()) for number in range(100)))
        await asyncio.to_thread(all_taken.wait)
        await peer.goodbye()

    all_taken = threading.Event()
    taken: list[bytes] = []

    def work(client: SyncClient) -> None:
        for message in client.messages:
            taken.append(message.payload)
            if len(taken) == 100:
                all_taken.set()

    with served(script) as port:
        with SyncClient("127.0.0.1", port) as client:
            threads = [threading.Thread(target=work, args=[client]) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert all_taken.wait(PATIENCE)
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(map(int, taken)) == list(range(100))


def test_the_arguments_are_the_same() -> None:
    assert inspect.signature(SyncClient) == inspect.signature(Client)
    for name in ("publish", "subscribe", "unsubscribe"):
        ours = dict(inspect.signature(getattr(SyncClient, name)).parameters)
        assert ours.pop("timeout").default is None
        assert ours == dict(inspect.signature(getattr(Client, name)).parameters)


def test_ctrl_c_interrupts_and_leaves_in_good_order() -> None:
    program = (
        "import sys\nfrom headwater.client import SyncClient\n"
        "with SyncClient('127.0.0.1', int(sys.argv[1])) as client:\n"
        "    for message in client.messages:\n        print(message.topic, flush=True)\n"
    )

    async def script(peer: Peer) -> None:
        assert (await peer.receive(Connect)).version == 5
        peer.writer.write(b"\x20\x03\x00\x00\x00")
        peer.send(Publish("ready", b""))
        await peer.goodbye()

    with served(script) as port:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        assert errors.decode().rstrip().endswith("KeyboardInterrupt")
