"""WebSocket on real sockets: the request, frames in every shape, hostile clients."""

from __future__ import annotations

import base64
import hashlib
import socket
from typing import Any

import pytest

from headwater.wire.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, FrameReader, masked_frame
from tests.broker import build
from tests.broker.peer import Peer

from .serving import MASK, Authority, Served, WebSocketClient, over, raw, request, response, secured, serving

WEB: dict[str, Any] = {"protocol": "websocket"}


def accepted(client: WebSocketClient, client_id: str = "c") -> Peer:
    peer = over(client)
    peer.send(build.connect(client_id))
    first, body = peer.packet()
    assert (first, body[1]) == (build.CONNACK, 0)
    return peer


def all_of(connection: socket.socket) -> bytes:
    """Everything until the broker ends the connection."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


# ---- the request ----


def test_the_response() -> None:
    """[MQTT-6.0.0-4] and the example of RFC 6455, 1.3."""
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    with serving(WEB) as served:
        connection = raw(served.port())
        connection.sendall(request("/mqtt?token=x", protocol="other, mqtt", key=key))
        head = response(connection).decode().lower().split("\r\n")
        assert head[0].startswith("http/1.1 101")
        proof = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        assert f"sec-websocket-accept: {proof.decode().lower()}" in head
        assert "sec-websocket-protocol: mqtt" in head
        assert not any("extensions" in line for line in head)


@pytest.mark.parametrize(("offered", "chosen"), [("mqttv3.1", "mqttv3.1"), ("mqttv3.1, mqtt", "mqtt")])
def test_the_sub_protocol_of_old_clients(offered: str, chosen: str) -> None:
    with serving(WEB) as served:
        connection = raw(served.port())
        connection.sendall(request("/mqtt", protocol=offered))
        assert f"sec-websocket-protocol: {chosen}" in response(connection).decode().lower().split("\r\n")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request("/other"), b"404"),
        (request(protocol=""), b"400"),
        (request(protocol="wamp"), b"400"),
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (request().replace(b"Version: 13", b"Version: 8"), b"426"),
        (request().replace(b"GET", b"POST"), b"400"),
        (b"\x11\x0c\r\n\r\n", b"400"),
        (request("/mqtt", "Origin: https://evil.example"), b"403"),
    ],
    ids=["path", "no protocol", "other protocol", "no upgrade", "version", "post", "no HTTP", "origin"],
)
def test_requests_that_are_refused(asked: bytes, status: bytes) -> None:
    with serving(WEB | {"websocket_origins": ["https://good.example"]}) as served:
        connection = raw(served.port())
        connection.sendall(asked)
        answer = all_of(connection)
        assert answer.split(b" ")[1] == status
        served.wait_until(lambda: not served.broker.server.channels)


@pytest.mark.parametrize("header", ["Origin: https://GOOD.example", "X-No: origin"])
def test_origins(header: str) -> None:
    with serving(WEB | {"websocket_origins": ["https://good.example/"]}) as served:
        connection = raw(served.port())
        connection.sendall(request("/mqtt", header))
        assert response(connection).startswith(b"HTTP/1.1 101")


def test_any_path() -> None:
    with serving(WEB | {"websocket_path": "/"}) as served:
        accepted(WebSocketClient(raw(served.port()), path="/what/ever"))


def test_a_request_is_bounded() -> None:
    with serving(WEB) as served:
        connection = raw(served.port())
        try:
            for _ in range(100):
                connection.sendall(b"GET /mqtt HTTP/1.1\r\nX: " + b"x" * 1000)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert all_of(connection) == b""
        served.wait_until(lambda: not served.broker.server.channels)


@pytest.mark.parametrize("spoken", ["100c00044d5154540402003c0000", "16030100c8"], ids=["MQTT", "TLS"])
def test_who_comes_to_the_wrong_door_need_not_wait_for_an_answer(spoken: str) -> None:
    with serving(WEB, connect_timeout=600) as served:
        connection = raw(served.port())
        connection.sendall(bytes.fromhex(spoken))
        assert all_of(connection) == b""


def test_a_large_request_within_the_bound() -> None:
    with serving(WEB) as served:
        connection = raw(served.port())
        asked = request("/mqtt", "Cookie: " + "x" * 15_000)
        for at in range(0, len(asked), 700):
            connection.sendall(asked[at : at + 700])
        assert response(connection).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_request_has_its_time(share: float) -> None:
    with serving(WEB, connect_timeout=0.3) as served:
        connection = raw(served.port())
        asked = request()
        connection.sendall(asked[: int(share * len(asked))])
        served.wait_until(lambda: len(served.broker.server.channels) == 1)
        all_of(connection)
        connection.close()
        served.wait_until(lambda: not served.broker.server.channels)


# ---- frames ----


@pytest.mark.parametrize("frame", [1, 7, 1 << 20])
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
def test_messages_pass(authority: Authority, frame: int, secure: bool) -> None:
    """[MQTT-6.0.0-2] A packet may span frames."""
    listener = WEB | ({"tls": authority.server()} if secure else {})
    with serving(listener) as served:
        connection = raw(served.port())
        peer = accepted(WebSocketClient(secured(connection, authority.trusting()) if secure else connection, frame))
        peer.subscribe("t", qos=1)
        for number, size in enumerate((0, 1, 200, 70_000), 1):
            peer.send(build.publish("t", b"x" * size, 1, number))
            peer.expect_unordered(build.publish("t", b"x" * size, 1, number), build.puback(number))
            peer.send(build.puback(number))
        peer.send(*(build.publish("t", b"%d" % number) for number in range(100)))
        assert [peer.publication().payload for _ in range(100)] == [b"%d" % number for number in range(100)]


def test_one_byte_at_a_time() -> None:
    with serving(WEB) as served:
        connection = raw(served.port())
        for byte in request():
            connection.sendall(bytes([byte]))
        assert response(connection).startswith(b"HTTP/1.1 101")
        for byte in masked_frame(BINARY, build.connect("c"), MASK):
            connection.sendall(bytes([byte]))
        assert FrameReader(masked=False).feed(connection.recv(1000))[0] == build.CONNACK


def test_all_of_it_in_one_write() -> None:
    """A client that does not wait for the response; frames come with the request."""
    with serving(WEB) as served:
        connection = raw(served.port())
        connection.sendall(request() + masked_frame(BINARY, build.connect("c"), MASK))
        assert response(connection).startswith(b"HTTP/1.1 101")
        assert FrameReader(masked=False).feed(connection.recv(1000))[0] == build.CONNACK


def test_what_a_turn_sends_is_one_frame() -> None:
    with serving(WEB) as served:
        client = WebSocketClient(raw(served.port()))
        peer = accepted(client)
        peer.send(build.subscribe("t"))
        peer.expect(build.suback(0))
        peer.send(*(build.publish("t", b"%d" % number) for number in range(3)), build.PINGREQ)
        expected = [*(build.publish("t", b"%d" % number) for number in range(3)), build.PINGRESP]
        size = sum(map(len, expected))
        data = b""
        while len(data) < size + 2:
            data += client.connection.recv(1000)
        assert data == bytes([0x82, size]) + b"".join(expected)


def test_a_ping_is_answered() -> None:
    with serving(WEB) as served:
        client = WebSocketClient(raw(served.port()))
        peer = accepted(client)
        client.connection.sendall(masked_frame(PING, b"hello", MASK) + masked_frame(PONG, b"unasked", MASK))
        assert client.connection.recv(100) == bytes([0x80 | PONG, 5]) + b"hello"
        peer.expect_nothing()


def test_a_slow_reader_gets_everything_in_order(authority: Authority) -> None:
    with serving(WEB, WEB | {"tls": authority.server()}) as served:
        readers = [
            accepted(WebSocketClient(raw(served.port(0))), "plain"),
            accepted(WebSocketClient(secured(raw(served.port(1)), authority.trusting())), "secure"),
        ]
        for reader in readers:
            reader.subscribe("t", qos=1)
        writer = accepted(WebSocketClient(raw(served.port(0))), "w")
        for number in range(200):
            writer.send(build.publish("t", b"%d " % number + b"x" * 50_000, 1, number + 1))
        for number in range(200):
            writer.expect_ack(build.PUBACK, number + 1)
        waiting = served.call(lambda: [each.backlog_size for each in served.broker.server.channels])
        assert sum(size > 0 for size in waiting) == 2, "a socket took everything; the test shows nothing"
        for reader in readers:
            for number in range(200):
                assert reader.publication().payload == b"%d " % number + b"x" * 50_000


# ---- ends ----


def closing_code(connection: socket.socket) -> int:
    reader = FrameReader(masked=False)
    reader.feed(all_of(connection))
    assert reader.closed is not None
    return int.from_bytes(reader.closed, "big")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked_frame(TEXT, b"hello", MASK), 1003),
        (build.connect("c"), 1002),
        (bytes([0x82, 5]) + b"hello", 1002),
        (masked_frame(CONTINUATION, b"x", MASK), 1002),
        (bytes([0x09, 0x80]) + MASK, 1002),
        (bytes([0xC2, 0x80]) + MASK, 1002),
    ],
    ids=["text", "no frame", "unmasked", "continues nothing", "fragmented ping", "compressed"],
)
def test_broken_frames_end_the_connection(data: bytes, code: int) -> None:
    """[MQTT-6.0.0-1] among others."""
    with serving(WEB) as served:
        other = accepted(WebSocketClient(raw(served.port())), "other")
        client = WebSocketClient(raw(served.port()))
        client.connection.sendall(data)
        assert closing_code(client.connection) == code
        other.expect_nothing()
        served.wait_until(lambda: len(served.broker.server.channels) == 1)


def test_wrong_masks_are_wrong_packets() -> None:
    with serving(WEB) as served:
        client = WebSocketClient(raw(served.port()))
        data = bytearray(masked_frame(BINARY, build.connect("c"), MASK))
        data[2:6] = b"\x00\x00\x00\x00"
        client.connection.sendall(bytes(data))
        assert closing_code(client.connection) == 1000
        served.wait_until(lambda: not served.broker.server.channels)


@pytest.mark.parametrize("last", [b"", build.disconnect(), build.PINGREQ], ids=["nothing", "DISCONNECT", "PINGREQ"])
def test_a_client_that_closes(served_web: Served, last: bytes) -> None:
    """Its Close frame is answered, and the socket is not waited for."""
    client = WebSocketClient(raw(served_web.port()))
    accepted(client)
    frames = masked_frame(BINARY, last, MASK) if last else b""
    client.connection.sendall(frames + masked_frame(CLOSE, b"\x03\xe8", MASK))
    assert closing_code(client.connection) == 1000
    served_web.wait_until(lambda: not served_web.broker.server.channels)


def test_a_client_that_disconnects_may_close_as_well(served_web: Served) -> None:
    """Closing the socket before the client's own Close frame came would be a reset, which browsers call unclean."""
    client = WebSocketClient(raw(served_web.port()))
    peer = accepted(client)
    peer.send(build.disconnect())
    assert client.connection.recv(100) == bytes([0x80 | CLOSE, 2]) + b"\x03\xe8"
    assert served_web.call(lambda: len(served_web.broker.server.channels)) == 1
    assert served_web.call(lambda: served_web.broker.statistics().connections) == 0
    client.connection.sendall(masked_frame(CLOSE, b"\x03\xe8", MASK))
    served_web.wait_until(lambda: not served_web.broker.server.channels)


def test_we_close_in_good_order(served_web: Served) -> None:
    client = WebSocketClient(raw(served_web.port()))
    peer = accepted(client)
    peer.send(build.connect("c"))  # a second one breaks the protocol
    peer.expect_closed(0x82)
    assert client.reader.closed == b"\x03\xe8"


@pytest.fixture
def served_web() -> Any:
    with serving(WEB) as served:
        yield served
