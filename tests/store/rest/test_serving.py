"""The server: a thread of its own, bounded connections, an end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import httpx
import pytest
import trustme

from headwater.store.memory import MemoryStore
from headwater.store.rest.serving import RestServer
from headwater.web.admission import Bounds
from tests.store.rest.served import EVERYTHING, PATIENCE, SomeGate, serving


@pytest.mark.parametrize(
    "sent", [b"", b"GET /v1/messages HTTP/1.1\r\n", b"PUT /v1/topics/a HTTP/1.1\r\nContent-Length: 5\r\n\r\n"]
)
def test_connections_are_bounded_and_silent_ones_keep_nobody_out(sent: bytes) -> None:
    with serving(MemoryStore("s1"), bounds=Bounds(connections=4)) as served, contextlib.ExitStack() as stack:
        for _ in range(30):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port), PATIENCE))
            idle.sendall(sent)
        for path in ("/health", "/v1/topics"):
            assert served.call("GET", path).status_code == 200
        assert len(served.server.web.places) <= 4


def test_health_is_answered_when_all_places_are_taken() -> None:
    with serving(MemoryStore("s1"), bounds=Bounds(connections=2)) as served, contextlib.ExitStack() as stack:
        for _ in range(2):
            watching = stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port), PATIENCE))
            head = f"GET /v1/tail HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {EVERYTHING}\r\n\r\n"
            watching.sendall(head.encode())
            assert watching.recv(1000).startswith(b"HTTP/1.1 200")
        with httpx.Client(base_url=served.url, timeout=PATIENCE) as another:
            assert another.get("/health").status_code == 200
            assert another.get("/ready").status_code == 200
            assert another.get("/v1/topics").status_code == 503


def test_a_forwarded_address_is_ignored() -> None:
    with serving(MemoryStore("s1")) as served:
        served.call("GET", "/v1/topics", headers={"X-Forwarded-For": "192.0.2.7"})
        assert served.gate.approaches[-1].address.startswith("127.0.0.1:")


def test_it_stops_without_having_started_and_twice() -> None:
    store = MemoryStore("s1")
    listening = socket.create_server(("127.0.0.1", 0))
    server = RestServer(store, SomeGate(store), [listening])
    server.stop()
    assert listening.fileno() == -1
    server.stop()


def test_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    with serving(MemoryStore("s1")) as served:
        served.call("GET", "/v1/messages")
        assert {thread.name.partition("_")[0] for thread in set(threading.enumerate()) - before} == {"rest"}
    assert set(threading.enumerate()) <= before


def test_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serving(MemoryStore("s1"), context=context) as served:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(verify=trusted, timeout=PATIENCE) as client:
            assert client.get(f"https://localhost:{served.server.port}/health").json() == {"status": "ok"}


def test_what_is_no_http() -> None:
    with serving(MemoryStore("s1")) as served:
        for rubbish in (
            b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\r\n\r\n",
            b"GET / HTTP/9\r\n\r\n",
            b"A" * 300_000,
        ):
            place = ("127.0.0.1", served.server.port)
            # It may end the connection at once.
            with socket.create_connection(place, PATIENCE) as client, contextlib.suppress(OSError):
                client.sendall(rubbish)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1000):
                    pass
        assert served.call("GET", "/health").status_code == 200
