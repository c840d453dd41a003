"""A relay on a loop in a thread of its own, a broker that is nothing but sockets, and clients of the same kind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.loop import EpollPlane, Plane
from headwater.node.plane.selector import HotEventLoop
from headwater.node.protocol.server import Server
from headwater.node.proxy.entering import Entering, EnteringLimits, Target
from headwater.node.proxy.pacing import BURST, ENOUGH
from headwater.node.proxy.passages import Passages
from headwater.node.proxy.relay import Relay
from headwater.node.proxy.tap import TappedClient, Watcher
from headwater.node.transports.listener import Listener
from headwater.node.transports.settings import ListenerSettings
from headwater.wire import encode
from headwater.wire.packets import Connack, Connect, Packet, Properties

PATIENCE = 20.0

Way = Callable[..., Any] | None
"""What makes passages (passing.c); None: the relay's own way."""


class Notes(Watcher):
    """What the tap told; holds SUBACKs back if `holds`."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.holds = False
        self.releases: list[Callable[[], None]] = []

    def opened(self, client: TappedClient) -> None:
        self.told.append(("opened", client.client_id, client.version, client.is_persistent, client.session_present))

    def subscribing(
        self, client: TappedClient, packet_id: int, filters: list[tuple[str, int]], release: Callable[[], None]
    ) -> bool:
        self.told.append(("subscribing", client.client_id, packet_id, filters))
        if self.holds:
            self.releases.append(release)
        return self.holds

    def unsubscribed(self, client: TappedClient, filters: list[str]) -> None:
        self.told.append(("unsubscribed", client.client_id, filters))

    def retained(self, client: TappedClient, topic: str, payload: bytes | None, qos: int) -> None:
        self.told.append(("retained", client.client_id, topic, payload, qos))

    def closed(self, client: TappedClient, session_ended: bool) -> None:
        self.told.append(("closed", client.client_id, session_ended))


class Running:
    def __init__(self, loop: asyncio.AbstractEventLoop, entering: Entering, port: int, notes: Notes) -> None:
        self.loop = loop
        self.entering = entering
        self.relay = entering.relay
        self.port = port
        self.notes = notes

    def call(self, function: Callable[[], Any]) -> Any:
        """On the loop's thread."""

        async def body() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(body(), self.loop).result(PATIENCE)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not self.call(is_so):
            assert time.monotonic() < until, "it does not come to that"
            time.sleep(0.005)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE, source_address=(source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


@contextlib.contextmanager
def relaying(
    broker_port: int | None,
    *,
    limits: EnteringLimits | None = None,
    listener: ListenerSettings | None = None,
    target: Target | None = None,
    max_memory: int = 64 << 20,
    write_timeout: float = 60.0,
    is_guest: bool = False,
    short_way: Way = None,
) -> Iterator[Running]:
    """`broker_port` None: nobody knows where the broker is. Without a `short_way`, bytes go the relay's own."""
    loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop() if is_guest else HotEventLoop()
    server = Server(Config(), Hooks())
    plane: Plane
    if isinstance(loop, HotEventLoop):
        plane = loop.hot_selector.plane = EpollPlane(server.hot, server.timers, loop.hot_selector.epoll)
    else:
        plane = GuestPlane(server.hot, server.timers, loop)
    server.plane = plane
    door = Listener(listener or ListenerSettings(host="127.0.0.1", port=0))
    door.open()
    where = target or (None if broker_port is None else Target(("127.0.0.1", broker_port)))
    relay = Relay(plane, server.timers, max_memory, write_timeout)
    relay.passages = None if short_way is None else Passages(short_way(relay.epoll, ENOUGH, BURST))
    notes = Notes()
    entering = Entering(relay, server.hot, [door], lambda: where, notes, limits or EnteringLimits())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = Running(loop, entering, door.port, notes)
    try:
        running.call(entering.start)
        yield running
        assert relay.counters.failures == 0
    finally:
        running.call(entering.close)
        assert relay.used == 0
        assert not relay.ends
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """Where the relay finds its broker."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        server.settimeout(PATIENCE)
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def accepted(server: socket.socket) -> socket.socket:
    connection, _ = server.accept()
    connection.settimeout(PATIENCE)
    return connection


def read(connection: socket.socket, size: int) -> bytes:
    """So many bytes; fewer if there are no more."""
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 16))
        if not more:
            break
        data += more
    return bytes(data)


def rest(connection: socket.socket) -> bytes:
    data = bytearray()
    while more := connection.recv(1 << 16):
        data += more
    return bytes(data)


def reset(connection: socket.socket) -> None:
    """Close it with a RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def connect_packet(client_id: str = "c", version: int = 4, clean: bool = True, expiry: int | None = None) -> bytes:
    properties = Properties(session_expiry_interval=expiry) if expiry is not None else None
    return encode(Connect(client_id, version, clean_start=clean, properties=properties), version)


def in_version(*packets: Packet, version: int = 4) -> bytes:
    return b"".join(encode(packet, version) for packet in packets)


def open_pair(
    running: Running, server: socket.socket, connect: bytes | None = None, connack: bytes | None = None
) -> tuple[socket.socket, socket.socket]:
    """A client that the broker has accepted: its socket, and the broker's."""
    client = running.connect()
    connect = connect_packet() if connect is None else connect
    client.sendall(connect)
    broker = accepted(server)
    assert read(broker, len(connect)) == connect
    connack = in_version(Connack()) if connack is None else connack
    broker.sendall(connack)
    assert read(client, len(connack)) == connack
    return client, broker


def does_not_come(connection: socket.socket) -> bool:
    """Nothing can be read now."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(PATIENCE)


under_both_planes = pytest.mark.parametrize("is_guest", [False, True], ids=["ours", "asyncio"])
