"""The examples do what they say, run as a reader would run them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.wire import FROM_SERVER, PacketReader, decode, encode
from headwater.wire.packets import (
    Connack,
    Connect,
    Packet,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from tests.brokers import PATIENCE

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


class Example:
    def __init__(self, name: str) -> None:
        path = os.environ.get("PYTHONPATH", str(ROOT / "src"))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(ROOT / "examples" / name), "0"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._guard = threading.Timer(PATIENCE, self.process.kill)
        self._guard.start()
        self.port = int(self.line().removeprefix("listening on port "))

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> None:
        assert self.process.stdout is not None
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self._guard.cancel()


@contextlib.contextmanager
def running(name: str) -> Iterator[Example]:
    example = Example(name)
    try:
        yield example
    finally:
        example.stop()


@contextlib.contextmanager
def talking(example: Example) -> Iterator[Talk]:
    with socket.create_connection(("127.0.0.1", example.port), PATIENCE) as connection:
        yield Talk(connection)


class Talk:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = PacketReader(1 << 20)
        self.waiting: list[Packet] = []

    def ask(self, packet: Packet) -> Packet:
        """Send a packet; the next one that comes."""
        self.connection.sendall(encode(packet, 5))
        return self.packet()

    def packet(self) -> Packet:
        while not self.waiting:
            data = self.connection.recv(4096)
            assert data, "the broker hung up"
            self.reader.feed(data)
            self.waiting += [decode(first, body, 5, FROM_SERVER) for first, body in self.reader]
        return self.waiting.pop(0)


def test_each_example_has_a_test() -> None:
    assert EXAMPLES == ["embedded.py", "hooks.py"]


def test_embedded() -> None:
    with running("embedded.py") as example, talking(example) as client:
        assert isinstance(client.ask(Connect("c", 5)), Connack)
        assert client.ask(Subscribe(1, [SubscribeRequest("t")])) == Suback(1, [0])
        assert client.ask(Publish("t", b"hello")) == Publish("t", b"hello")


@pytest.mark.parametrize(("username", "password"), [(None, None), ("alice", b"guess"), ("bob", b"wonderland")])
def test_hooks_let_nobody_else_in(username: str | None, password: bytes | None) -> None:
    with running("hooks.py") as example, talking(example) as client:
        answer = client.ask(Connect("c", 5, username=username, password=password))
        assert isinstance(answer, Connack) and answer.reason == 0x87


def test_hooks_guard_stamp_and_show() -> None:
    with running("hooks.py") as example, talking(example) as client:
        answer = client.ask(Connect("c", 5, username="alice", password=b"wonderland"))
        assert isinstance(answer, Connack) and answer.reason == 0
        assert client.ask(Publish("bob/t", b"mischief", 1, False, False, 1)) == Puback(1, 0x87)
        assert client.ask(Subscribe(2, [SubscribeRequest("#")])) == Suback(2, [0])
        stamped = Properties(user_properties=[("from", "alice")])
        assert client.ask(Publish("alice/t", b"hello")) == Publish("alice/t", b"hello", properties=stamped)
        assert example.line() == "alice/t: hello"
