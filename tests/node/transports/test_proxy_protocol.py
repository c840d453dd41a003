"""The PROXY protocol, version 2: whose connection it is, and what is refused."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.hooks import Hooks
from headwater.node.plane.channel import Channel
from headwater.node.transports.proxy_protocol import HEAD, SIGNATURE, ProxyError, rest_length, source
from headwater.wire.packets import Connect
from tests.broker import build

from .serving import Authority, WebSocketClient, over, raw, secured, serving

PROXY: dict[str, Any] = {"proxy_protocol": True}


def header(command: int, family: int, rest: bytes, length: int | None = None) -> bytes:
    size = len(rest) if length is None else length
    return SIGNATURE + bytes([command, family]) + size.to_bytes(2, "big") + rest


def tcp(client: str, port: int, tlvs: bytes = b"") -> bytes:
    address = ipaddress.ip_address(client)
    server = bytes(len(address.packed))
    rest = address.packed + server + port.to_bytes(2, "big") + b"\x07\x5b" + tlvs
    return header(0x21, 0x11 if address.version == 4 else 0x21, rest)


def unix(path: bytes) -> bytes:
    return header(0x21, 0x31, path.ljust(108, b"\0") + b"server".ljust(108, b"\0"))


TLV = b"\x03\x00\x04\x01\x02\x03\x04"
LOCAL = header(0x20, 0x00, b"")


@pytest.mark.parametrize(
    ("said", "address", "loopback"),
    [
        (tcp("203.0.113.7", 4711), "203.0.113.7:4711", False),
        (tcp("127.0.0.1", 4711, TLV), "127.0.0.1:4711", True),
        (tcp("2001:db8::1", 4711, TLV + TLV), "[2001:db8::1]:4711", False),
        (tcp("::1", 4711), "[::1]:4711", True),
        (unix(b"/run/app.sock"), "unix:/run/app.sock", False),
        (LOCAL, None, True),
        (header(0x20, 0x11, b"whatever it says"), None, True),
        (header(0x21, 0x00, b"whatever it says"), None, False),
    ],
    ids=["IPv4", "IPv4 with TLV", "IPv6 with TLVs", "IPv6 loopback", "Unix", "local", "local with more", "unspecified"],
)
def test_whose_connection_it_is(said: bytes, address: str | None, loopback: bool) -> None:
    seen: list[tuple[str, bool]] = []
    hooks = Hooks()

    @hooks.on("connect_authenticate")
    def look(client: Channel, connect: Connect) -> bool:
        seen.append((client.address, client.loopback))
        return True

    with serving(PROXY, hooks=hooks) as served:
        connection = raw(served.port())
        host, port = connection.getsockname()
        connection.sendall(said + build.connect("c"))
        assert over(connection).packet()[0] == build.CONNACK
        assert seen == [(address or f"{host}:{port}", loopback)]


def test_one_byte_at_a_time() -> None:
    with serving(PROXY) as served:
        connection = raw(served.port())
        for byte in tcp("127.0.0.1", 1, TLV) + build.connect("c"):
            connection.sendall(bytes([byte]))
        assert over(connection).packet()[0] == build.CONNACK


def test_who_comes_from_elsewhere_is_not_of_this_machine() -> None:
    """Anonymous clients are accepted from loopback only; the proxy's own address must not count."""
    with serving(PROXY) as served:
        connection = raw(served.port())
        connection.sendall(tcp("203.0.113.7", 4711) + build.connect("c"))
        over(connection).expect_refused(0x87)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("web", [False, True], ids=["MQTT", "WebSocket"])
def test_in_front_of_everything_else(authority: Authority, secure: bool, web: bool) -> None:
    listener = PROXY | ({"tls": authority.server()} if secure else {}) | ({"protocol": "websocket"} if web else {})
    with serving(listener) as served:
        connection = raw(served.port())
        connection.sendall(tcp("127.0.0.1", 4711))
        if secure:
            connection = secured(connection, authority.trusting())
        peer = over(WebSocketClient(connection) if web else connection)
        peer.send(build.connect("c"))
        assert peer.packet()[0] == build.CONNACK


WRONG = {
    "nothing of it": build.connect("c"),
    "version 1": b"PROXY TCP4 203.0.113.7 203.0.113.8 4711 1883\r\n",
    "a version to come": header(0x31, 0x11, bytes(12)),
    "an unknown command": header(0x22, 0x11, bytes(12)),
    "UDP": header(0x21, 0x12, bytes(12)),
    "addresses cut off": header(0x21, 0x11, bytes(11)),
    "IPv6 addresses cut off": header(0x21, 0x21, bytes(12)),
    "a TLV cut off": tcp("203.0.113.7", 1, TLV[:-1]),
    "half the head of a TLV": tcp("203.0.113.7", 1, b"\x03\x00"),
    "too long": header(0x21, 0x11, b"", 4097),
    "a broken signature": b"\r\n\r\n\x00\r\nQUIX\n" + bytes(20),
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG.keys())
def test_what_is_refused(said: bytes) -> None:
    with serving(PROXY) as served:
        connection = raw(served.port())
        connection.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1000) == b""
        served.wait_until(lambda: not served.broker.server.channels)


def test_version_1_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headwater.transports")
    test_what_is_refused(WRONG["version 1"])
    assert "send version 2" in caplog.text


def test_a_header_has_its_time() -> None:
    with serving(PROXY, connect_timeout=0.3) as served:
        connection = raw(served.port())
        connection.sendall(SIGNATURE)
        served.wait_until(lambda: len(served.broker.server.channels) == 1)
        assert connection.recv(1000) == b""


def test_a_listener_without_it_takes_no_header() -> None:
    with serving({}) as served:
        connection = raw(served.port())
        connection.sendall(tcp("127.0.0.1", 4711) + build.connect("c"))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000) == b""


@given(st.binary(max_size=40), st.binary(max_size=300))
def test_whatever_comes_is_understood_or_refused(end_of_head: bytes, rest: bytes) -> None:
    head = (SIGNATURE + end_of_head)[:HEAD]
    try:
        length = rest_length(head)
        if len(head) == HEAD:
            source(head, rest[:length])
    except ProxyError:
        pass
