"""What clients of a proxy meet, as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.links import resolving
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.selector import run
from headwater.node.protocol.server import Server
from headwater.node.proxy.front import Front, limits_of
from headwater.node.transports.listener import Listener
from headwater.node.transports.settings import ListenerSettings
from headwater.peering.membership.seeds import Seed
from headwater.wire.packets import Connack
from tests.brokers import free_port
from tests.node.proxy.relaying import Notes, connect_packet, in_version, read

PATIENCE = 20.0


@contextlib.asynccontextmanager
async def front(home: Seed, **settings: object) -> AsyncIterator[tuple[Front, int]]:
    server = Server(Config(**settings), Hooks())  # type: ignore[arg-type]
    server.plane = GuestPlane(server.hot, server.timers, asyncio.get_running_loop())
    listener = Listener(ListenerSettings(host="127.0.0.1", port=0))
    listener.open()
    made = Front(server, [listener], home, Notes())
    try:
        yield made, (await made.start())[0][1]
    finally:
        made.stop()


@contextlib.contextmanager
def answering(port: int = 0) -> Iterator[int]:
    """A broker that accepts everybody and says no more."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as connection:
                    connection.recv(1000)
                    connection.sendall(in_version(Connack()))

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


async def is_accepted(port: int) -> bool:
    def body() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
            client.sendall(connect_packet())
            return read(client, 4) == in_version(Connack())

    return await asyncio.to_thread(body)


def test_a_name_is_resolved_and_its_addresses_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "addresses_of", lambda host: ["127.0.0.9", "127.0.0.1"])

    async def main() -> None:
        with answering() as broker:
            async with front(Seed("broker.example", broker)) as (made, port):
                assert [await is_accepted(port) for _ in range(3)] == [False, True, True]
                assert made.counters.not_dialed == 1

    asyncio.run(main())


def test_a_name_that_cannot_be_resolved_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(resolving, "addresses_of", lambda host: found or OSError("no such name"))
    monkeypatch.setattr("headwater.node.proxy.front.LOOK_UP_AGAIN", 0.05)

    async def main() -> None:
        with answering() as broker:
            async with front(Seed("broker.example", broker)) as (_, port):
                assert not await is_accepted(port)
                found.append("127.0.0.1")
                async with asyncio.timeout(PATIENCE):
                    while not await is_accepted(port):
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_broker_that_comes_back() -> None:
    async def main() -> None:
        port_of_broker = free_port()
        async with front(Seed("127.0.0.1", port_of_broker)) as (_, port):
            assert not await is_accepted(port)
            with answering(port_of_broker):
                assert await is_accepted(port)

    run(main())


def test_limits_are_those_of_the_nodes_clients() -> None:
    limits = limits_of(Config(max_connections=7, max_unauthenticated=8, connect_timeout=9.0), "v2")
    assert (limits.max_connections, limits.max_unauthenticated, limits.connect_timeout) == (7, 8, 9.0)
    assert limits.send_proxy == "v2"
