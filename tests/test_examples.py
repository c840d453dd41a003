"""The examples do what they say, run as a reader would run them."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.client import SyncClient
from headwater.fleet.node import RunningNode
from headwater.pipeline.java import QUICK_JAVA
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
from tests.brokers import running as running_broker
from tests.client.test_tls import Certificates

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
    tests = Path(__file__).read_text()
    assert EXAMPLES
    assert [name for name in EXAMPLES if f'("{name}"' not in tests] == []


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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_broker("headwater", tmp_path_factory.mktemp("broker")) as port:
        yield port


class Program:
    """A client example, and the lines that it prints."""

    def __init__(self, name: str, *arguments: object) -> None:
        path = os.environ.get("PYTHONPATH", str(ROOT / "src"))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(ROOT / "examples" / name), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._guard = threading.Timer(PATIENCE, self.process.kill)
        self._guard.start()

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def output(self) -> str:
        """All that is left, of a program that ends by itself and well."""
        printed, errors = self.process.communicate()
        assert (self.process.returncode, errors) == (0, "")
        return printed

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._guard.cancel()


def test_subscribe(broker: int) -> None:
    with Program("subscribe.py", broker) as program, SyncClient("localhost", broker) as client:
        assert program.lines(1) == ["subscribed"]
        client.publish("garden/door", "open", qos=1)
        assert program.lines(1) == ["garden/door: open"]
    with SyncClient("localhost", broker) as client:
        client.publish("garden/door", "closed while you were away", qos=1)
    with Program("subscribe.py", broker) as program:
        seen: set[str] = set()
        while "garden/door: closed while you were away" not in seen:
            [line] = program.lines(1)
            assert line, "the program has ended"
            seen.add(line)
        # The first one comes again if the program died before it asked for the next, and so acknowledged it.
        assert seen - {"garden/door: open"} == {"subscribed", "garden/door: closed while you were away"}


def test_publish(broker: int) -> None:
    with SyncClient("localhost", broker) as client:
        client.subscribe("garden/#", qos=2)
        with Program("publish.py", broker) as program:
            seen = [client.receive(PATIENCE) for _ in range(1002)]
            assert program.output() == "1002 messages are with the server\n"
        assert [message.payload for message in seen[1:-1]] == [str(number).encode() for number in range(1000)]
        assert (seen[0].topic, seen[0].payload) == ("garden/status", b"here")
        assert (seen[-1].payload, seen[-1].qos) == (b"21.5", 2)
        assert seen[-1].properties.user_properties == [("unit", "°C")]


def test_manual_ack(broker: int) -> None:
    with Program("manual_ack.py", broker) as program, SyncClient("localhost", broker) as client:
        assert program.lines(1) == ["subscribed"]
        for number in range(10):
            client.publish("orders/new", str(number), qos=2)
        assert sorted(program.lines(10)) == [f"stored {number}" for number in range(10)]


def test_script(broker: int) -> None:
    with Program("script.py", broker) as program:
        assert program.output() == "hello\nworld\n"


def test_share_by_load(broker: int) -> None:
    with (
        Program("share_by_load.py", broker) as one,
        Program("share_by_load.py", broker) as two,
        SyncClient("localhost", broker) as client,
    ):
        assert one.lines(1) == two.lines(1) == ["subscribed"]
        for number in range(20):
            client.publish("jobs/a", str(number), qos=1)
        assert one.lines(1)[0].startswith("done ")
        assert two.lines(1)[0].startswith("done ")


def test_own_report(broker: int) -> None:
    with Program("own_report.py", broker) as program, SyncClient("localhost", broker) as client:
        assert program.lines(1) == ["subscribed"]
        for number in range(30):
            client.publish("jobs/a", str(number), qos=1)
        assert program.lines(30) == [f"jobs/a: {number}" for number in range(30)]


def test_tls_and_reconnect(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue("client", "somebody")
    settings = certificates.settings("require_certificate true")
    context = certificates.context()
    context.load_cert_chain(cert, key)
    with running_broker("mosquitto", tmp_path, settings) as port:
        arguments = ["localhost", port, certificates.trusted, cert, key]
        with (
            Program("tls_and_reconnect.py", *arguments) as program,
            SyncClient("localhost", port, tls=context) as client,
        ):
            assert program.lines(1) == ["subscribed"]
            client.publish("garden/door", "open", qos=1)
            assert program.lines(1) == ["garden/door: open"]


def test_lakehouse(tmp_path: Path) -> None:
    """As a notebook, which has the cells of the script."""
    import nbformat
    from nbclient import NotebookClient

    name, patience = ("lakehouse.py", 400)  # Spark takes its time on a busy machine
    made = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))["notebook"]
    page = (ROOT / "examples" / "lakehouse.ipynb").read_text(encoding="utf-8")
    assert made((ROOT / "examples" / name).read_text(encoding="utf-8")) == page, "run scripts/notebook.py"
    notebook = nbformat.reads(page, as_version=4)
    nbformat.validate(notebook)
    fleet = [sys.executable, "-m", "headwater", "fleet", "--rate", "1000", "-C", "200", "-q", "1", "--quiet"]
    with RunningNode(tmp_path / "node") as node:
        subprocess.run([*fleet, "-p", str(node.port)], check=True, timeout=patience)
        given = {"NODE": node.url, "LAKE": str(tmp_path / "lake"), "JDK_JAVA_OPTIONS": QUICK_JAVA}
        path = os.environ.get("PYTHONPATH", "src").split(os.pathsep)
        given["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path))
        client = NotebookClient(notebook, timeout=patience, resources={"metadata": {"path": str(tmp_path)}})
        client.execute(env={**os.environ, **given})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert {(output.output_type, output.name) for output in outputs} == {("stream", "stdout")}
    printed = "".join(output.text for output in outputs)
    assert printed.startswith("100 messages of thermometers are stored\n")
    assert printed.endswith("200 messages, 200 positions, the last is 200\n")


@contextlib.contextmanager
def silent_server() -> Iterator[socket.socket]:
    """It accepts, and says nothing: who connects waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


def interrupted(words: list[object], is_ready: Callable[[subprocess.Popen[str]], object]) -> tuple[int, str]:
    """How it ends by Ctrl-C, and what it says on the standard error."""
    path = os.environ.get("PYTHONPATH", str(ROOT / "src"))
    with subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as process:
        is_ready(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "lakehouse.py"])
def test_ctrl_c_ends_it_quietly(name: str, tmp_path: Path) -> None:
    """lakehouse.py takes a Spark; it was tried by hand."""
    example = ROOT / "examples" / name
    if name in ("embedded.py", "hooks.py"):
        status, errors = interrupted([example, 0], lambda process: process.stdout and process.stdout.readline())
        assert (status, errors) == (0, "")
        return
    with silent_server() as server, contextlib.ExitStack() as accepted:
        words: list[object] = [example, server.getsockname()[1]]
        if name == "tls_and_reconnect.py":
            found = Certificates(tmp_path)
            words = [example, "localhost", words[1], found.trusted, found.cert, found.key]
        status, errors = interrupted(words, lambda _: accepted.enter_context(server.accept()[0]))
    assert (status, errors) == (0, "")


def test_the_pages_quote_the_examples() -> None:
    """What docs/client.md shows is what was run here."""
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    sources = [(ROOT / "examples" / name).read_text(encoding="utf-8") for name in EXAMPLES]
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 5
    assert [block for block in blocks if not any(block.strip("\n") in source for source in sources)] == []
