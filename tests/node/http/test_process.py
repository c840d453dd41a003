"""HTTP in a process of its own, beside a broker that runs as a process: how it lives and dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.client.sync import Client
from tests.brokers import PATIENCE
from tests.node.test_run import Process

TOKEN = "0123456789abcdef-secret"
SETTINGS = """
data_dir = "{data}"
sys_interval = 0
{more}
[store]
enabled = true
[rest]
enabled = true
port = 0
token = "{token}"
[admin]
enabled = true
port = 0
token = "{token}"
"""


class Served(Process):
    def __init__(self, *arguments: str, python: tuple[str, ...] = ()) -> None:
        super().__init__(*arguments, python=python)
        self._guard.cancel()  # processes that are started again take their time
        self._guard = threading.Timer(4 * PATIENCE, self.process.kill)
        self._guard.start()

    @property
    def http(self) -> int:
        """The process that serves HTTP."""
        pids: list[int] = []
        for children in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            pids += map(int, children.read_text().split())
        [found] = [pid for pid in pids if "headwater.node.http" in Path(f"/proc/{pid}/cmdline").read_text()]
        return found

    def url(self, name: str) -> str:
        return str(re.findall(rf"{name} is at (http://\S+:\d+)", self.said)[0])

    def call(self, method: str, path: str, name: str = "REST", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=self.url(name), timeout=PATIENCE, headers=headers) as client:
            return client.request(method, path, **more)

    def messages(self) -> list[str]:
        return [each["payload"] for each in self.call("GET", "/v1/messages").json()["messages"]]

    def client(self, **options: Any) -> Client:
        return Client("127.0.0.1", self.port, timeout=PATIENCE, **options)


@contextlib.contextmanager
def served(folder: Path, more: str = "", python: tuple[str, ...] = ()) -> Iterator[Served]:
    file = folder / "broker.toml"
    file.write_text(SETTINGS.format(data=folder / "data", token=TOKEN, more=more))
    broker = Served("--config", str(file), python=python)
    try:
        broker.read_until("admin API is at")
        yield broker
    finally:
        broker.end()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def answers(work: Callable[[], Any]) -> bool:
    try:
        work()
    except httpx.HTTPError:
        return False
    return True


def test_who_was_acknowledged_finds_the_message_at_once(tmp_path: Path) -> None:
    with served(tmp_path) as broker, broker.client() as client:
        for number in range(10):
            client.publish("a", b"%d" % number, qos=1)
            assert broker.messages()[-1] == str(number)


def test_a_tail_gets_what_comes(tmp_path: Path) -> None:
    with served(tmp_path) as broker, broker.client() as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.stream("GET", broker.url("REST") + "/v1/tail", headers=headers, timeout=PATIENCE) as tail:
            lines = tail.iter_lines()
            assert next(lines).startswith("retry")
            for number in range(5):
                client.publish("a", b"%d" % number, qos=1)
                data = next(line for line in lines if line.startswith("data:"))
                assert json.loads(data[5:])["payload"] == str(number)


def test_a_node_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        http = broker.http
        broker.process.kill()
        until(lambda: not is_there(http))


def test_a_process_that_is_killed_comes_back_and_mqtt_does_not_notice(tmp_path: Path) -> None:
    with served(tmp_path) as broker, broker.client(client_id="steady") as client:
        client.publish("a", b"before", qos=1)
        assert broker.messages() == ["before"]
        first = broker.http
        os.kill(first, signal.SIGKILL)
        client.publish("a", b"meanwhile", qos=1)
        broker.read_until(r"HTTP process ended \(.*killed by signal 9\); it is started again in 0.1 s")
        assert broker.messages() == ["before", "meanwhile"]  # who calls meanwhile waits for it
        assert broker.http != first
        client.publish("a", b"after", qos=1)
        assert broker.messages() == ["before", "meanwhile", "after"]
        assert broker.call("GET", "/v1/clients/steady", "admin API").status_code == 200
        assert broker.call("PUT", "/v1/readers/r", json={"position": 2}).status_code == 200
        os.kill(broker.http, signal.SIGKILL)
        broker.read_until("started again in 0.2 s")
        assert broker.call("GET", "/v1/readers/r").json()["position"] == 2
        assert broker.end() == 0


def test_signals_for_the_terminal_are_the_nodes(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(broker.http, number)
        assert broker.call("GET", "/health").status_code == 200
        http = broker.http
        assert broker.end(signal.SIGINT) == 0
        assert not is_there(http)
        assert "Traceback" not in broker.said and "ended (" not in broker.said


def test_answers_under_way_end_with_the_node(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.stream("GET", broker.url("REST") + "/v1/tail", headers=headers, timeout=PATIENCE) as tail:
            lines = tail.iter_lines()
            assert next(lines).startswith("retry")
            broker.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(httpx.HTTPError):
                for _ in lines:
                    pass
        assert broker.end(0) == 0


def test_readiness_is_the_nodes(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        assert broker.call("GET", "/ready").status_code == 200
        assert broker.call("GET", "/readyz", "admin API").json() == {"status": "ready"}


def test_the_node_does_not_load_what_answers_http(tmp_path: Path) -> None:
    """What Python says of its imports is the node's alone: the other process is started without that."""
    with served(tmp_path, python=("-X", "importtime")) as broker:
        assert broker.call("GET", "/v1/messages").status_code == 200
        figures = broker.call("GET", "/metrics", "admin API").text
        broker.end()
        loaded = set(re.findall(r"\| +([\w.]+)$", broker.said, re.MULTILINE))
    assert "headwater.node.http.link" in loaded
    assert loaded & {"fastapi", "starlette", "uvicorn", "h11", "prometheus_client", "pyarrow"} == set()
    assert figures.count("headwater_loop_lag_seconds_bucket") == 14
    assert "process_resident_memory_bytes" in figures


def test_the_process_has_no_urgency(tmp_path: Path) -> None:
    """Whatever the node has."""
    with served(tmp_path) as broker:
        assert os.sched_getscheduler(broker.http) == os.SCHED_OTHER


def test_a_new_token_reaches_it_and_a_process_that_comes_back(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        file = tmp_path / "broker.toml"
        head, admin = file.read_text().split("[admin]")
        file.write_text(head + "[admin]" + admin.replace(TOKEN, "another-token-for-it"))
        broker.process.send_signal(signal.SIGHUP)
        broker.read_until("were read again")
        until(lambda: broker.call("GET", "/v1/groups", "admin API").status_code == 401)
        os.kill(broker.http, signal.SIGKILL)
        broker.read_until("started again")
        assert broker.call("GET", "/v1/groups", "admin API").status_code == 401


def test_large_payloads_go_through(tmp_path: Path) -> None:
    with served(tmp_path, more="max_packet_size = 4000000") as broker:
        body = os.urandom(3_000_000)
        assert broker.call("POST", "/v1/topics/a", content=body).status_code == 201
        assert broker.call("POST", "/v1/topics/a", content=bytes(4_000_001)).status_code == 413
        assert broker.call("GET", "/health").status_code == 200


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/store"])
def test_silent_callers_keep_nobody_out(tmp_path: Path, path: str) -> None:
    with served(tmp_path) as broker, contextlib.ExitStack() as stack:
        port = int(broker.url("REST").rpartition(":")[2])
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
        assert answers(lambda: broker.call("GET", path))
