"""The server against callers that are silent, slow, many or wrong: on sockets, with times turned down."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import logging
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme

from headwater.web.admission import SPARE, Bounds
from headwater.web.serving import WebServer

PATIENCE = 20.0
SHORT = 0.15
LONG = 60.0
NO = b"POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
CHUNK = b"x" * 65536


class Scene:
    """An application that says who calls, reads bodies, and can be made to wait or to answer without end."""

    def __init__(self, **bounds: Any) -> None:
        self.go_on = threading.Event()
        self.bodies: list[int] = []
        self.ended = threading.Event()
        self.context: ssl.SSLContext | None = bounds.pop("context", None)
        listening = socket.create_server(("127.0.0.1", 0))
        self.server = WebServer(
            self.app, [listening], Bounds(**bounds), name="web", open_paths=["/health"], context=self.context
        )

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == "/wait":
            while not self.go_on.is_set():
                await asyncio.sleep(0.01)
        if path == "/endless":
            await self._endless(receive, send)
            return
        size = 0
        if path == "/body":
            while True:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect":
                    self.ended.set()
                    return
                if not message.get("more_body"):
                    break
            self.bodies.append(size)
        said = json.dumps({"path": path, "client": scope["client"][0], "size": size}).encode()
        headers = [(b"content-length", b"%d" % len(said))]
        await send({"type": "http.response.start", "status": 401 if path == "/no" else 200, "headers": headers})
        await send({"type": "http.response.body", "body": said})

    async def _endless(self, receive: Any, send: Any) -> None:
        gone = asyncio.create_task(self._until_gone(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
            await asyncio.sleep(0)
        self.ended.set()

    @staticmethod
    async def _until_gone(receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    @property
    def sockets(self) -> int:
        return len(self.server.places)

    def open(self, data: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.server.port), PATIENCE)
        connection.sendall(data)
        return connection

    def ask(self, path: str = "/health", **headers: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def serving(**bounds: Any) -> Iterator[Scene]:
    scene = Scene(**bounds)
    scene.server.start()
    try:
        yield scene
    finally:
        scene.go_on.set()
        scene.server.stop()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ended(connection: socket.socket) -> bytes:
    """What came until the end of the connection, which the server makes."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            said += data
    return said


# ---- times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "sent"),
    [
        ("first_byte", b""),
        ("head", b"G"),
        ("head", b"GET /health HTTP/1.1\r\nHost: x\r\n"),
        ("body", b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"),
        ("body", b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    ],
)
def test_who_falls_silent_is_cut_off(bound: str, sent: bytes) -> None:
    with serving(**{**dict.fromkeys(("first_byte", "head", "body"), LONG), bound: SHORT}) as scene:
        with scene.open(sent) as connection:
            assert ended(connection) == b""
        until(lambda: scene.sockets == 0)
        assert scene.bodies == []


def test_a_head_a_byte_at_a_time_has_no_more_time() -> None:
    with serving(first_byte=LONG, head=SHORT) as scene, scene.open() as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                connection.sendall(b"G")
                time.sleep(0.01)
        until(lambda: scene.sockets == 0)


def test_a_connection_without_a_next_request_is_closed() -> None:
    with serving(idle=SHORT) as scene, scene.open(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        assert ended(connection).endswith(b'"size": 0}')


def test_a_request_that_comes_in_time_is_answered_on_the_same_connection() -> None:
    with serving(idle=LONG) as scene:
        connection = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=PATIENCE)
        for _ in range(3):
            connection.request("POST", "/body", b"x" * 200_000)
            assert json.loads(connection.getresponse().read())["size"] == 200_000
        assert scene.server.places.replaced == 0 and scene.sockets == 1
        connection.close()


def test_who_does_not_read_is_cut_off() -> None:
    with serving(write=SHORT) as scene, scene.open(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert scene.ended.wait(PATIENCE)
        until(lambda: scene.sockets == 0)


def test_half_a_handshake_has_the_time_of_a_first_byte() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with serving(first_byte=SHORT, context=context) as scene:
        with scene.open(b"\x16\x03\x01\x02\x00") as connection:
            assert ended(connection) == b""
        until(lambda: scene.sockets == 0)


def test_a_handshake_gives_way_like_any_other_that_waits() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA()
    authority.issue_cert("localhost").configure_cert(context)
    with serving(first_byte=LONG, connections=2, context=context) as scene, contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(scene.open(b"\x16\x03\x01\x02\x00"))
        trusted = ssl.create_default_context()
        authority.configure_trust(trusted)
        caller = http.client.HTTPSConnection("localhost", scene.server.port, timeout=PATIENCE, context=trusted)
        caller.request("GET", "/health")
        assert caller.getresponse().status == 200
        assert scene.sockets <= 2
        caller.close()


# ---- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost:"], ids=["silent", "half a head"])
def test_silent_connections_keep_nobody_out(sent: bytes) -> None:
    bounds = {"connections": 10, "per_address": 5, "first_byte": LONG, "head": LONG}
    with serving(**bounds) as scene, contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(scene.open(sent))
        for _ in range(3):
            assert scene.ask("/anything")[0] == 200
        assert scene.sockets <= 5


def test_health_answers_while_all_places_are_taken_and_nothing_else_does() -> None:
    with serving(connections=3, per_address=3) as scene, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(scene.open(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")) for _ in range(3)]
        until(lambda: scene.sockets == 3 and not scene.server.places.waiting)
        for _ in range(20):
            stack.enter_context(scene.open())
        for _ in range(3):
            assert scene.ask("/health")[0] == 200
            assert scene.ask("/anything")[0] == 503
        assert scene.sockets <= 3 + SPARE
        scene.go_on.set()
        assert busy[0].recv(1000).startswith(b"HTTP/1.1 200")
        until(lambda: scene.ask("/anything")[0] == 200)


def test_unfinished_heads_are_bounded_together() -> None:
    with serving(heads_size=300_000, head=LONG) as scene, contextlib.ExitStack() as stack:
        for _ in range(20):
            head = b"GET /health HTTP/1.1\r\nX: " + b"x" * 100_000
            with contextlib.suppress(ConnectionError):
                stack.enter_context(scene.open(head))
        until(lambda: scene.server.places.replaced >= 17)
        assert scene.ask("/anything")[0] == 200
        assert scene.sockets <= 4


@pytest.mark.parametrize(
    "head", [b"GET /" + b"x" * 5000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n"], ids=["long", "many lines"]
)
def test_a_head_is_bounded(head: bytes) -> None:
    with serving(head_size=4000 if b"xxx" in head else 1 << 20) as scene, scene.open(head) as connection:
        assert ended(connection).startswith(b"HTTP/1.1 400")


# ---- requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["Content-Length: 9000000", "Transfer-Encoding: chunked"])
def test_a_refusal_does_not_wait_for_the_body_and_arrives(length: str) -> None:
    with serving() as scene:
        with scene.open(f"POST /no HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode()) as connection:
            said = ended(connection)
            assert said.startswith(b"HTTP/1.1 401") and b"connection: close" in said.lower()
        until(lambda: scene.sockets == 0)


def test_a_refusal_arrives_while_the_body_is_being_sent() -> None:
    with serving() as scene, scene.open(NO % 900_000) as connection:
        for _ in range(9):
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"x" * 100_000)
        assert connection.recv(1000).startswith(b"HTTP/1.1 401")


def test_who_goes_on_sending_is_cut_off() -> None:
    with serving() as scene, scene.open(NO % 90_000_000) as connection, pytest.raises(ConnectionError):
        for _ in range(900):
            connection.sendall(b"x" * 100_000)


def test_a_small_body_that_nobody_wants_is_passed_over() -> None:
    with serving() as scene:
        connection = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=PATIENCE)
        for _ in range(3):
            connection.request("POST", "/no", b"x" * 1000)
            answer = connection.getresponse()
            assert answer.status == 401 and answer.read()
        assert scene.sockets == 1
        connection.close()


def test_rubbish_behind_a_request_that_is_being_answered(caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /endless HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving() as scene, scene.open(head) as connection:
        assert connection.recv(1000)
        connection.sendall(b"this is no chunk\r\n")
        ended(connection)
        assert scene.ended.wait(PATIENCE)
    assert "Traceback" not in caplog.text and not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_second_request_before_the_first_answer_ends_the_connection() -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving() as scene, scene.open(request * 5) as connection:
        said = ended(connection)
        assert said.count(b"HTTP/1.1 200") == 1 and b"connection: close" in said.lower()


def test_a_forwarded_address_is_ignored_unless_its_proxy_is_trusted() -> None:
    forwarded = {"X-Forwarded-For": "192.0.2.7"}
    with serving() as scene:
        assert scene.ask("/x", **forwarded)[1]["client"] == "127.0.0.1"
    with serving(trusted_proxies=("192.0.2.0/24",)) as scene:
        assert scene.ask("/x", **forwarded)[1]["client"] == "127.0.0.1"
    with serving(trusted_proxies=("127.0.0.0/8",)) as scene:
        assert scene.ask("/x", **forwarded)[1]["client"] == "192.0.2.7"


# ---- the end -----------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    with serving(write=LONG) as scene, scene.open(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"), scene.open():
        until(lambda: scene.sockets == 2)
    assert set(threading.enumerate()) <= before
    assert scene.sockets == 0


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /health HTTP/1.1\r\nX: " + b"x" * 50_000, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", NO % 900_000],
    ids=["silent", "half a head", "answered", "refused"],
)
@pytest.mark.parametrize("gives_way", [True, False])
def test_a_connection_that_has_ended_leaves_no_garbage(sent: bytes, gives_way: bool) -> None:
    with serving(connections=1) as scene:
        gc.disable()
        try:
            with scene.open(sent) as connection:
                until(lambda: scene.server._state.connections)
                left = weakref.ref(next(iter(scene.server._state.connections)))
                if sent.endswith(b"\r\n\r\n"):
                    assert connection.recv(1000)
                if gives_way:
                    scene.open().close()
                    ended(connection)
            until(lambda: left() is None)
        finally:
            gc.enable()


def test_a_process_without_files_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("headwater.web.serving.PAUSE", 0.01)
    with serving() as scene:
        accept, failures = scene.server._accept, [True] * 3

        class Failing:
            def fileno(self) -> int:
                return scene.server.sockets[0].fileno()

            def accept(self) -> Any:
                if failures:
                    failures.pop()
                    raise OSError(24, "Too many open files")
                return scene.server.sockets[0].accept()

        failing = Failing()
        loop = scene.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(loop.add_reader, failing, accept, failing)
        assert scene.ask()[0] == 200
        assert "ulimit -n" in caplog.text
