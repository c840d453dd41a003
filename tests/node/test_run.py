"""A broker as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.wire import encode
from headwater.wire.packets import Connect, Disconnect
from tests.brokers import PATIENCE

SOURCES = Path(__file__).parent.parent.parent / "src"


class Process:
    """`headwater broker` on a free port; what it says is read until it listens."""

    def __init__(self, *arguments: str, python: tuple[str, ...] = (), files: int | None = None, path: str = "") -> None:
        search = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", str(SOURCES)), path]))
        limit = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*limit, sys.executable, *python, "-m", "headwater", "broker", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONPATH": search},
        )
        self._guard = threading.Timer(PATIENCE, self.process.kill)
        self._guard.start()
        self.said = ""

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if re.search(text, line):
                return
        pytest.fail(f"it never said {text!r} but:\n{self.said}", pytrace=False)

    @property
    def port(self) -> int:
        return int(re.findall(r"listening on \S+ port (\d+)", self.said)[0])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal (0: none) and wait; what it said until its end is in `said`."""
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            if number and self.process.poll() is None:
                self.process.send_signal(number)
            self.said += self.process.stdout.read()
            self.process.stdout.close()
            self._guard.cancel()
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def started(
    *arguments: str, python: tuple[str, ...] = (), files: int | None = None, path: str = ""
) -> Iterator[Process]:
    broker = Process(*arguments, python=python, files=files, path=path)
    try:
        broker.read_until(r"headwater: headwater \d|anonymous")
        yield broker
    finally:
        broker.end()


def configured(folder: Path, text: str) -> tuple[str, str]:
    file = folder / "broker.toml"
    file.write_text(text)
    return "--config", str(file)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(number: int) -> None:
    with started() as broker, socket.create_connection(("127.0.0.1", broker.port), PATIENCE) as client:
        client.sendall(encode(Connect("c", 5), 5))
        assert client.recv(4)[:1] == b"\x20"
        broker.process.send_signal(number)
        received = b""
        while data := client.recv(4096):
            received += data
        assert received.endswith(encode(Disconnect(0x8B), 5))
        client.close()
        assert broker.end() == 0
        assert "Traceback" not in broker.said and "stopping: 1 connections" in broker.said


def test_too_few_open_files_are_said_with_advice() -> None:
    with started(files=256) as broker:
        assert re.search(
            r"WARNING .*at most 192 MQTT clients can connect at a time, as the limit of open files is 256: raise it "
            r"with `ulimit -n 100064` \(systemd: LimitNOFILE=100064\), or set max_connections to what you need",
            broker.said,
        )


def test_a_limit_that_most_can_live_with_is_not_mentioned(tmp_path: Path) -> None:
    """Nobody has asked for the 100,000 connections of the default."""
    with started(files=4096) as broker:
        assert "open files" not in broker.said
    with started(*configured(tmp_path, "max_connections = 5000"), files=4096) as broker:
        assert "at most 4032 MQTT clients can connect at a time" in broker.said


def test_enough_open_files_are_not_mentioned(tmp_path: Path) -> None:
    with started(*configured(tmp_path, "max_connections = 100"), files=256) as broker:
        assert "open files" not in broker.said


@pytest.mark.parametrize(
    ("settings", "words", "absent"),
    [
        ("", "accepted from this machine (loopback)", "other machines"),
        ('host = "*"', "clients from other machines are refused (not authorized); to admit those with a password", "@"),
        ('host = "*"\nallow_anonymous = true', "accepted from anywhere", "refused"),
        ("allow_anonymous = false", "no client is admitted: allow_anonymous is false", "@"),
        ('host = "*"\n[access]\npassword_file = "{users}"', "headwater 0", "admit"),
    ],
)
def test_it_says_who_is_refused_and_how_to_admit_them(tmp_path: Path, settings: str, words: str, absent: str) -> None:
    users = tmp_path / "users"
    users.touch()
    with started(*configured(tmp_path, f"sys_interval = 0\n{settings.format(users=users)}\n")) as broker:
        broker.end()
    assert words in broker.said
    assert absent not in broker.said
    if "to admit" in broker.said:
        assert "`headwater passwd`" in broker.said and "allow_anonymous = true" in broker.said


def test_there_is_room_for_all_files_from_the_start(tmp_path: Path) -> None:
    """Making room later, again and again, would have all clients wait each time."""
    with started(*configured(tmp_path, "max_connections = 5000"), files=8192) as broker:
        status = Path(f"/proc/{broker.process.pid}/status").read_text()
        assert int(re.findall(r"FDSize:\s*(\d+)", status)[0]) >= 5000


@pytest.mark.parametrize(
    ("setting", "said"),
    [("", r"from this machine \(loopback\)"), ("allow_anonymous = true", "from anywhere")],
)
def test_anonymous_clients_are_warned_of(setting: str, said: str, tmp_path: Path) -> None:
    with started(*configured(tmp_path, setting)) as broker:
        broker.end()
        assert re.search(rf"WARNING .*anonymous clients are accepted {said}", broker.said)


def test_without_anonymous_clients_there_is_no_warning(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch()
    settings = f'allow_anonymous = false\n[access]\npassword_file = "{users}"'
    with started(*configured(tmp_path, settings)) as broker:
        broker.end()
        assert "anonymous clients" not in broker.said


@pytest.mark.parametrize(
    ("setting", "warned"),
    [
        ("", True),
        ("allow_anonymous = true", True),
        ("allow_anonymous = false", False),
        ('websocket_origins = ["https://example.org"]', False),
    ],
)
def test_web_pages_of_anybody_are_warned_of(setting: str, warned: bool, tmp_path: Path) -> None:
    listener = f'[[listeners]]\nport = 0\nprotocol = "websocket"\n{setting}\n'
    with started(*configured(tmp_path, listener)) as broker:
        broker.end()
        found = re.search(r"WARNING .*ws://localhost:\d+ accepts anonymous clients from any web page", broker.said)
        assert (found is not None) == warned


def test_a_port_in_use_is_said_and_ends_it() -> None:
    with started() as broker:
        second = Process("--port", str(broker.port))
        assert second.end(0) == 1
        assert f":{broker.port}: Address already in use; is another broker running there?" in second.said
        assert "Traceback" not in second.said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('host = "192.0.2.1"', "mqtt://192.0.2.1:0: Cannot assign requested address; `host` is an address of this"),
        ('host = "no such name"', "; `host` is a name or an address of this machine"),
        ('host = "no..name"', "; `host` is a name or an address of this machine"),
        ('[[listeners]]\nunix = "/no/such/folder/socket"', "No such file or directory; make its folder first"),
    ],
)
def test_what_cannot_be_listened_on_comes_with_advice(settings: str, said: str, tmp_path: Path) -> None:
    broker = Process(*configured(tmp_path, settings))
    assert broker.end(0) == 1
    assert said in broker.said and "Traceback" not in broker.said and "another broker" not in broker.said


@pytest.mark.parametrize(("text", "said"), [("prot = 1", "did you mean 'port'?"), ("port = ", "not valid TOML")])
def test_a_wrong_configuration_is_said_and_ends_it(text: str, said: str, tmp_path: Path) -> None:
    broker = Process(*configured(tmp_path, text))
    assert broker.end(0) != 0
    assert said in broker.said and "Traceback" not in broker.said


def test_what_a_plain_broker_does_not_need_is_not_loaded(tmp_path: Path) -> None:
    """Modules of these names lie in its path, so an import of one of them would succeed and be seen."""
    heavy = [
        "fastapi",
        "starlette",
        "prometheus_client",
        "rocksdict",
        "pyspark",
        "uvicorn",
        "httpx",
        "pyarrow",
        "deltalake",
        "matplotlib",
        "numpy",
    ]
    for name in heavy:
        (tmp_path / f"{name}.py").touch()
    with started(python=("-X", "importtime"), path=str(tmp_path)) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), PATIENCE) as client:
            client.sendall(encode(Connect("c", 5), 5))
            assert client.recv(4)[:1] == b"\x20"
        broker.end()
        loaded = {line.split("|")[-1].strip() for line in broker.said.splitlines() if line.startswith("import time:")}
    assert {"headwater.node.broker", "asyncio"} <= loaded
    assert sorted(loaded & set(heavy)) == []
