"""A broker on real sockets in a thread, certificates for one run, and sockets that speak TLS or WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import trustme

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.selector import run
from headwater.wire.websocket import BINARY, FrameReader, masked_frame
from tests.broker.peer import Peer

PATIENCE = 15.0
HOST = "127.0.0.1"
MASK = b"\x01\x80\xff\x5a"
Result = TypeVar("Result")

opened: list[socket.socket] = []


class Served:
    """A broker that runs; `call` runs a function on its thread."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        self.broker = broker
        self.loop = loop
        self.stop = stop

    def port(self, number: int = 0) -> int:
        return self.broker.listeners[number].port

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        async def called() -> Result:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(PATIENCE)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until it holds on the broker's thread; AssertionError when it does not in time."""
        until = time.monotonic() + PATIENCE
        while not self.call(condition):
            assert time.monotonic() < until, "it did not come to that"
            time.sleep(0.005)


@contextlib.contextmanager
def serving(*listeners: dict[str, Any], hooks: Hooks | None = None, **settings: Any) -> Iterator[Served]:
    """Serve these listeners (on free ports of loopback unless they say otherwise) on our own event loop. The time to
    connect is longer than any test waits, so that nothing ends by that alone."""
    rows = [each if "unix" in each else {"host": HOST, "port": 0, **each} for each in listeners]
    config = Config(**{"sys_interval": 0, "connect_timeout": 10 * PATIENCE, **settings, "listeners": rows})
    ready = threading.Event()
    result: list[Served | BaseException] = []

    async def main() -> None:
        stop = asyncio.Event()
        async with Broker(config, hooks) as broker:
            result.append(Served(broker, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    def body() -> None:
        try:
            run(main())
        except BaseException as error:
            result.append(error)
            ready.set()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    if isinstance(result[0], BaseException):
        thread.join()
        raise result[0]
    served = result[0]
    try:
        yield served
        assert served.broker.server.stats.failures == 0, "the broker failed at something"
    finally:
        close_all()  # it would wait a moment for its clients to go
        served.loop.call_soon_threadsafe(served.stop.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Authority:
    """A certificate authority with files in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.file = str(folder / f"{name}.pem")
        self.ca.cert_pem.write_to_path(self.file)

    def server(self, name: str = "server") -> dict[str, str]:
        """`certificate` and `key` of a certificate for loopback."""
        return self._issue(name, self.ca.issue_cert(HOST, "localhost", "::1"))

    def client(self, common_name: str | None, *names: str) -> dict[str, str]:
        label = (common_name or "nameless").replace("/", "_")
        return self._issue(label, self.ca.issue_cert(*(names or ("x@example.org",)), common_name=common_name))

    def _issue(self, name: str, leaf: trustme.LeafCert) -> dict[str, str]:
        files = {"certificate": str(self.folder / f"{name}.crt"), "key": str(self.folder / f"{name}.key")}
        Path(files["certificate"]).write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(files["key"])
        return files

    def trusting(self, client: dict[str, str] | None = None) -> ssl.SSLContext:
        """What a client uses that trusts this authority, with this certificate of its own."""
        context = ssl.create_default_context(cafile=self.file)
        if client is not None:
            context.load_cert_chain(client["certificate"], client["key"])
        return context


def close_all() -> None:
    """Close the sockets that a test has opened."""
    while opened:
        opened.pop().close()


def raw(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.append(connection)
    return connection


def secured(connection: socket.socket, context: ssl.SSLContext, **arguments: Any) -> ssl.SSLSocket:
    tls = context.wrap_socket(connection, server_hostname=HOST, **arguments)
    opened.append(tls)
    return tls


def over(connection: Any, version: int = 5) -> Peer:
    """An MQTT peer on something like a socket."""
    return Peer(connection, version, True, PATIENCE)


def request(path: str = "/mqtt", *headers: str, protocol: str = "mqtt", key: str = "") -> bytes:
    """The HTTP request of a WebSocket client."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key or base64.b64encode(os.urandom(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def response(connection: socket.socket) -> bytes:
    """The head of an HTTP response, read to the byte."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    return head


class WebSocketClient:
    """Like a socket for an MQTT peer: what is sent goes in binary frames of `frame` bytes each."""

    def __init__(self, connection: socket.socket, frame: int = 1 << 20, path: str = "/mqtt") -> None:
        self.connection = connection
        self.frame = frame
        connection.settimeout(PATIENCE)
        connection.sendall(request(path))
        self.response = response(connection)
        assert self.response.startswith(b"HTTP/1.1 101"), self.response
        self.reader = FrameReader(masked=False)

    def settimeout(self, seconds: float) -> None:
        self.connection.settimeout(seconds)

    def setsockopt(self, *arguments: Any) -> None:
        self.connection.setsockopt(*arguments)

    def sendall(self, data: bytes) -> None:
        pieces = [data[at : at + self.frame] for at in range(0, len(data), self.frame)]
        self.connection.sendall(b"".join(masked_frame(BINARY, piece, MASK) for piece in pieces))

    def recv(self, size: int) -> bytes:
        while self.reader.closed is None:
            data = self.connection.recv(size)
            if not data:
                return b""
            payload = self.reader.feed(data)
            if payload:
                return payload
        return b""

    def shutdown(self, how: Literal[0, 1, 2]) -> None:
        if not isinstance(self.connection, ssl.SSLSocket):  # which would forget that it speaks TLS
            self.connection.shutdown(how)

    def close(self) -> None:
        self.connection.close()
