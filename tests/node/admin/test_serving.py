"""The admin API of a broker that runs as a process."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headwater.node.admin.secret import read_token
from headwater.node.config import Admin, Config, ConfigError
from headwater.wire import encode
from headwater.wire.packets import Connect
from tests.brokers import PATIENCE, free_port
from tests.node.admin.api import TOKEN, admin
from tests.node.test_run import Process

SETTINGS = f"[admin]\nenabled = true\nport = 0\ntoken = '{TOKEN}'\n"


class Served(Process):
    @property
    def admin_port(self) -> int:
        return int(re.findall(r"admin API is at http://\S+:(\d+)", self.said)[0])

    def ask(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=PATIENCE)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextlib.contextmanager
def served(folder: Path, text: str = SETTINGS, *arguments: str, files: int | None = None) -> Iterator[Served]:
    file = folder / "broker.toml"
    file.write_text(text)
    broker = Served("--config", str(file), *arguments, files=files)
    try:
        broker.read_until("admin API is at")
        yield broker
    finally:
        broker.end()


def connect(broker: Served, packet: Connect) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", broker.port), PATIENCE)
    client.sendall(encode(packet, 5))
    assert client.recv(4)[:1] == b"\x20"
    return client


def test_it_is_served_beside_the_broker(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        assert "listening on" in broker.said.split("admin API")[0]
        assert broker.ask("GET", "/readyz") == (200, b'{"status":"ready"}')
        with connect(broker, Connect("a", 5)) as client:
            status, body = broker.ask("GET", "/v1/clients/a")
            assert (status, json.loads(body)["address"]) == (200, f"127.0.0.1:{client.getsockname()[1]}")
            assert broker.ask("POST", "/v1/kick", {"client_id": "a"})[0] == 204
            rest = b""
            while data := client.recv(100):
                rest += data
            assert rest.endswith((b"\xe0\x01\x98", b"\xe0\x02\x98\x00"))
        assert b"headwater_connections 0.0" in broker.ask("GET", "/metrics")[1]
        assert broker.ask("GET", "/v1/clients", token="wrong")[0] == 401
        assert broker.end() == 0
        assert "Traceback" not in broker.said


def test_a_trace_ends_with_the_broker(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=PATIENCE)
        order = json.dumps({"client_id": "a", "seconds": 100})
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/trace", order, headers)
        answer = connection.getresponse()
        with connect(broker, Connect("a", 5, username="u", password=b"hidden-password")):
            assert json.loads(answer.readline())["packet"] == "CONNECT"
            assert json.loads(answer.readline())["packet"] == "CONNACK"
        broker.process.send_signal(signal.SIGTERM)
        assert json.loads(answer.readlines()[-1])["ended"] == "the broker stops"
        connection.close()
        assert broker.end() == 0


BODY = b"POST /v1/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 50\r\n\r\nhalf"


def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """Neither from the API nor, where the process may open few files, from the broker."""
    with served(tmp_path, SETTINGS, files=256) as broker, contextlib.ExitStack() as stack:
        place = ("127.0.0.1", broker.admin_port)
        for number in range(300):
            silent = stack.enter_context(socket.create_connection(place, PATIENCE))
            silent.sendall((b"", b"GET /healthz HTTP/1.1\r\n")[number % 2])
        for _ in range(3):
            assert broker.ask("GET", "/healthz")[0] == 200
            assert broker.ask("GET", "/v1/groups")[0] == 200
        with connect(broker, Connect("a", 5)):
            pass  # clients are served on


def test_health_is_answered_when_all_places_are_taken(tmp_path: Path) -> None:
    with served(tmp_path, SETTINGS + "max_connections = 3\n") as broker, contextlib.ExitStack() as stack:
        for _ in range(3):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", broker.admin_port), PATIENCE))
            half.sendall((BODY % TOKEN.encode()).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert half.recv(1000).startswith(b"HTTP/1.1 100")
        assert broker.ask("GET", "/v1/groups")[0] == 503
        for path in ("/healthz", "/readyz"):
            assert broker.ask("GET", path)[0] == 200


def test_clients_leave_files_for_the_api(tmp_path: Path) -> None:
    with served(tmp_path, SETTINGS, files=256) as broker, contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), PATIENCE))
        assert broker.ask("GET", "/healthz")[0] == 200
        assert broker.ask("GET", "/metrics")[0] == 200
        broker.end()
        assert "cannot accept" not in broker.said


def test_a_body_is_not_read_before_the_token(tmp_path: Path) -> None:
    with served(tmp_path) as broker, socket.create_connection(("127.0.0.1", broker.admin_port), PATIENCE) as connection:
        connection.sendall(BODY % b"wrong-wrong-wrong-wrong")
        assert connection.recv(1000).startswith(b"HTTP/1.1 401")


def test_a_signal_replaces_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-token-of-many\n")
    with served(tmp_path, f"[admin]\nenabled = true\nport = 0\ntoken_file = '{token}'\n") as broker:
        assert broker.ask("GET", "/v1/groups", token="first-token-of-many")[0] == 200
        token.write_text("second-token-of-many")
        broker.process.send_signal(signal.SIGHUP)
        broker.read_until("were read again")
        assert broker.ask("GET", "/v1/groups", token="first-token-of-many")[0] == 401
        assert broker.ask("GET", "/v1/groups", token="second-token-of-many")[0] == 200
        token.write_text("short")
        broker.process.send_signal(signal.SIGHUP)
        broker.read_until("at least 16 characters")
        assert broker.ask("GET", "/v1/groups", token="second-token-of-many")[0] == 200


def test_a_signal_reads_the_settings_again(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        file = tmp_path / "broker.toml"
        file.write_text("max_connections = 1\nmax_qos = 1\n" + SETTINGS)
        broker.process.send_signal(signal.SIGHUP)
        broker.read_until("only a restart takes them over: max_qos")
        assert "changed: max_connections" in broker.said
        second = socket.create_connection(("127.0.0.1", broker.port), PATIENCE)
        with connect(broker, Connect("a", 5)), second:
            second.sendall(encode(Connect("b", 5), 5))
            assert second.recv(4)[3:4] == b"\x89"
        file.write_text("max_conections = 1\n")
        broker.process.send_signal(signal.SIGHUP)
        broker.read_until("did you mean 'max_connections'")


def test_no_secret_is_logged(tmp_path: Path) -> None:
    secret = "hidden-password"
    with served(tmp_path, 'log_level = "debug"\n' + SETTINGS) as broker:
        with connect(broker, Connect("a", 5, username="u", password=secret.encode())) as client:
            broker.ask("POST", "/v1/trace", {"client_id": "b", "to": "log", "packets": 1})
            connect(broker, Connect("b", 5, username="u", password=secret.encode())).close()
            client.sendall(b"\xff\xff\xff\xff\xff")
            assert client.recv(100)
        broker.ask("GET", "/v1/groups", token=secret)
        broker.end()
        assert "CONNECT" in broker.said
        assert secret not in broker.said and TOKEN not in broker.said


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = tmp_path / "broker.toml"
        file.write_text(SETTINGS)
        broker = Process("--config", str(file), "--set", f"admin.port={port}")
        assert broker.end(0) == 1
        assert (
            f"http://localhost:{port} for the admin API (admin.host, admin.port): Address already in use" in broker.said
        )
        assert "Traceback" not in broker.said


def test_what_is_missing_for_it_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module("headwater.node.run")
    monkeypatch.setattr(
        "headwater.node.operations.checking.find_spec", lambda name: None if name == "uvicorn" else object()
    )
    assert module.run_broker(Config(port=free_port(), admin=admin())) == 1
    assert "the admin API needs uvicorn: pip install 'headwater[admin]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"short", "at least 16"), (b"a" * 16 + b"\nb", "one line"), ("é".encode() * 16, "ASCII"), (None, "No such file")],
)
def test_a_file_without_a_token(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_token(Admin(enabled=True, token_file=str(path)))


def test_lines_and_spaces_around_a_token_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f" {TOKEN}\n")
    assert read_token(Admin(enabled=True, token_file=str(path))) == TOKEN
