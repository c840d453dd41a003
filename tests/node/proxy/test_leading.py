"""Clients are led to the broker of their session, between proxies on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.proxy.figures import see_proxy
from headwater.node.proxy.leading import HEAD, LED, Guest
from headwater.wire.encode import encode
from headwater.wire.packets import (
    V5,
    V311,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from headwater.wire.reasons import NOT_AUTHORIZED, SERVER_UNAVAILABLE, SESSION_TAKEN_OVER
from tests.node.proxy.leading import HOST, Client, Proxy, are_linked, come, connect_of, proxy, run, until
from tests.node.transports.serving import Authority

versions = pytest.mark.parametrize("version", [V311, V5])


@contextlib.asynccontextmanager
async def homes(count: int) -> AsyncIterator[list[Broker]]:
    async with contextlib.AsyncExitStack() as stack:
        config = Config(host=HOST, port=0, sys_interval=0)
        yield [await stack.enter_async_context(Broker(config)) for _ in range(count)]


@contextlib.asynccontextmanager
async def fabric(count: int = 2, **settings: Any) -> AsyncIterator[tuple[list[Proxy], list[Broker]]]:
    async with homes(count) as brokers, contextlib.AsyncExitStack() as stack:
        proxies: list[Proxy] = []
        for name, home in zip("abc", brokers, strict=False):
            port = home.addresses[0][1]
            proxies.append(await stack.enter_async_context(proxy(name, port, list(proxies), **settings)))
        await are_linked(*proxies)
        yield proxies, brokers


async def subscribe(client: Client, *filters: str) -> None:
    client.send(Subscribe(7, [SubscribeRequest(each, 1) for each in filters]))
    assert isinstance(await client.packet(), Suback)


@versions
def test_a_session_is_resumed_from_another_proxy(version: int) -> None:
    async def main() -> None:
        async with fabric(3) as ((a, b, c), (home, *_)):
            first = await come(a.port, "x", version)
            await subscribe(first, "t/#")
            await first.drop()
            publisher = await come(a.port, "p", version, clean=True, lasts=False)
            publisher.send(Publish("t/1", b"kept", 1, packet_id=3))
            assert isinstance(await publisher.packet(), Puback)
            for other in (b, c):
                again = await come(other.port, "x", version)
                assert again.connack.session_present
                assert home.server.sessions["x"].connection is not None
                kept = await again.packet()
                assert isinstance(kept, Publish) and kept.payload == b"kept"
                await again.drop()
            assert b.leading.counters.led == c.leading.counters.led == 1
            assert a.leading.counters.led_in == 2
            assert a.node.proxy is not None and b.node.proxy is not None
            seen = see_proxy(a.node.proxy)
            assert (seen.sessions, seen.led, seen.led_in) == (1, 0, 2) and see_proxy(b.node.proxy).led == 1
            assert not b.interest._clients and not c.interest._clients  # only its home has to know what it wants
            assert a.interest._clients["x"].filters == {"t/#"}

    run(main())


def test_no_session_ends_because_the_wall_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with fabric(2) as ((a, b), _):
            first = await come(a.port, "x", V5)
            await subscribe(first, "t/#")
            await first.drop()
            residents = a.leading.homes.residents
            await until(lambda: (kept := residents.get("x")) is not None and kept.until > 0)
            now = time.time()
            monkeypatch.setattr("time.time", lambda: now + 10 * 365 * 86400)
            for each in (a, b):
                each.leading.beat()
            again = await come(b.port, "x", V5)
            assert again.connack.session_present and b.leading.counters.led == 1

    run(main())


def test_the_older_connection_ends() -> None:
    """Of sessions that end with their connections: the proxy says so; of others, the home broker does."""

    async def main() -> None:
        async with fabric() as ((a, b), _):
            old = await come(a.port, "x", clean=True, lasts=False)
            new = await come(b.port, "x", clean=True, lasts=False)
            assert await old.packet() == Disconnect(SESSION_TAKEN_OVER)
            assert await old.packet() is None
            older = await come(a.port, "y")
            newer = await come(b.port, "y")
            gone = await older.packet()
            assert isinstance(gone, Disconnect) and gone.reason == SESSION_TAKEN_OVER
            await subscribe(new, "a")
            await subscribe(newer, "a")
            assert a.leading.counters.taken_over == 1

    run(main())


def test_a_storm_of_one_client_id_ends_with_one_connection() -> None:
    async def main() -> None:
        async with fabric(3) as (proxies, brokers):

            async def one(number: int) -> Client | None:
                lasts = bool(number & 4)
                with contextlib.suppress(AssertionError):
                    return await come(proxies[number % 3].port, "x", V5, not number & 8, lasts)
                return None

            clients = [each for each in await asyncio.gather(*map(one, range(48))) if each is not None]

            def alive() -> int:
                return sum(
                    "x" in home.server.sessions and bool(home.server.sessions["x"].connection) for home in brokers
                )

            await until(lambda: alive() == 1)
            await until(lambda: sum(len(each.leading.homes.visits) for each in proxies) == 1)
            for client in clients:
                await client.drop()

    run(main())


@versions
def test_a_home_that_is_away_and_a_session_that_is_wanted(version: int) -> None:
    async def main() -> None:
        async with homes(2) as (one, two), contextlib.AsyncExitStack() as stack:
            b = await stack.enter_async_context(proxy("b", two.addresses[0][1], []))
            async with proxy("a", one.addresses[0][1], [b]) as a:
                await are_linked(a, b)
                await (await come(a.port, "x", version)).leave()
                await until(lambda: b.leading.homes.others.get("x") is not None)
            await until(lambda: not b.leading.homes.proxies)
            refused = await come(b.port, "x", version)
            if version == V5:
                assert refused.connack.reason == SERVER_UNAVAILABLE
                assert refused.connack.properties is not None and refused.connack.properties.reason_string is not None
                assert "node a" in refused.connack.properties.reason_string
            else:
                assert refused.connack.reason == 3
            assert await refused.packet() is None
            assert (await come(b.port, "x", version, clean=True)).connack.reason == 0
            assert (await come(b.port, "new", version)).connack.reason == 0

    run(main())


@versions
def test_or_that_begins_anew(version: int) -> None:
    async def main() -> None:
        async with homes(2) as (one, two), contextlib.AsyncExitStack() as stack:
            b = await stack.enter_async_context(proxy("b", two.addresses[0][1], [], lost="clean"))
            async with proxy("a", one.addresses[0][1], [b]) as a:
                await are_linked(a, b)
                await (await come(a.port, "x", version)).leave()
                await until(lambda: b.leading.homes.others.get("x") is not None)
            await until(lambda: not b.leading.homes.proxies)
            anew = await come(b.port, "x", version)
            assert anew.connack.reason == 0 and not anew.connack.session_present
            if version == V5:
                properties = anew.connack.properties
                assert properties is not None and "begins anew" in (properties.reason_string or "")
            await subscribe(anew, "t")
            await anew.leave()
            again = await come(b.port, "x", version)
            assert again.connack.session_present
            assert again.connack.properties is None or again.connack.properties.reason_string is None

    run(main())


def test_it_is_known_after_a_restart_where_sessions_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with homes(2) as (one, two), contextlib.AsyncExitStack() as stack:
            b = await stack.enter_async_context(proxy("b", two.addresses[0][1], [], tmp_path))
            for is_first in (True, False):
                async with proxy("a", one.addresses[0][1], [b], tmp_path) as a:
                    await are_linked(a, b)
                    if is_first:
                        client = await come(a.port, "x")
                        await subscribe(client, "t")
                    else:
                        client = await come(b.port, "x")
                        assert client.connack.session_present
                    await client.drop()

    run(main())


def test_a_suback_is_on_disk_as_well(tmp_path: Path) -> None:
    """That a session is here is not forgotten once its client was promised something."""

    async def main() -> None:
        async with fabric(1, folder=tmp_path) as ((a,), _):
            journal = a.node.server.journal
            assert journal is not None
            client = await come(a.port, "x")
            await subscribe(client, "t")
            assert [key for key, _ in a.leading.links.spooling.kept(b"z")] == [b"zx"]

    run(main())


def test_what_sessions_there_are_is_told_also_where_much_waits_for_the_link() -> None:
    async def main() -> None:
        async with fabric() as ((a, b), _):
            a.leading.links.outgoing.link_buffer = -1
            await (await come(a.port, "x")).leave()
            await until(lambda: b.leading.homes.others.get("x") is not None)
            await (await come(a.port, "x", clean=True, lasts=False)).leave()
            await until(lambda: b.leading.homes.others.get("x") is None)

    run(main())


def test_of_a_client_that_was_led_its_connect_is_not_kept() -> None:
    async def main() -> None:
        async with fabric() as ((a, b), _):
            await (await come(a.port, "x")).leave()
            await come(b.port, "x")
            [visit] = [end.pair.visit for end in b.leading.entering.relay.ends.values() if end.is_client]
            assert isinstance(visit, Guest) and visit.is_elsewhere and visit.opening == b""

    run(main())


def test_an_error_at_one_client_ends_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it may come in is decided in a frame of the link."""

    async def main() -> None:
        async with fabric() as ((_, b), _):
            links = dict(b.leading.links.up)

            def dial(pair: object) -> None:
                raise RuntimeError("a mistake of ours")

            with monkeypatch.context() as changed:
                changed.setattr(b.leading.entering, "dial", dial)
                reader, writer = await asyncio.open_connection(HOST, b.port)
                writer.write(encode(connect_of("x"), V5))
                assert await reader.read() == b""
                writer.close()
            assert b.leading.links.up == links
            assert b.leading.entering.relay.counters.failures == 1
            b.leading.entering.relay.counters.failures = 0
            await come(b.port, "x")

    run(main())


def test_strangers_at_the_side_door() -> None:
    async def main() -> None:
        async with fabric() as ((a, _), _):
            port = a.leading.door.port
            right = bytes((LED,)) + a.leading._key
            for words in (b"\x10\x10\x00\x04MQTT", bytes((LED,)) + bytes(HEAD), b"GET / HTTP/1.1\r\n" * 9):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(words)
                assert await reader.read() == b""
                writer.close()
            reader, writer = await asyncio.open_connection(HOST, port)
            for byte in right + b"\x03abc" + encode(connect_of("x"), V5):
                writer.write(bytes((byte,)))
                await asyncio.sleep(0)
            assert (await reader.readexactly(1)) == b"\x20"
            assert a.leading.counters.led_in == 1
            writer.close()

    run(main())


def test_with_tls_between_nodes(authority: Authority) -> None:
    async def main() -> None:
        async with homes(2) as (one, two), contextlib.AsyncExitStack() as stack:
            proxies: list[Proxy] = []
            for name, home in (("a", one), ("b", two)):
                tls = {**authority.client(name, f"{name}.example.org"), "ca": authority.file}
                made = proxy(name, home.addresses[0][1], list(proxies), tls=tls)
                proxies.append(await stack.enter_async_context(made))
            a, b = proxies
            await are_linked(a, b)
            await (await come(a.port, "x")).leave()
            led = await come(b.port, "x")
            assert led.connack.session_present and a.leading.counters.led_in == 1
            reader, writer = await asyncio.open_connection(HOST, a.leading.door.port)
            writer.write(bytes((LED,)) + a.leading._key + b"\x01x" + encode(connect_of("x"), V5))
            with contextlib.suppress(ConnectionError):
                assert (await reader.read(100))[:1] != b"\x20"
            writer.close()
            assert a.leading.counters.led_in == 1

    run(main())


def test_a_door_that_does_not_open() -> None:
    """The link is there, and the way for clients is not."""

    async def main() -> None:
        async with fabric(lost="clean") as ((a, b), _):
            await (await come(a.port, "x")).leave()
            door = b.leading._doors["a"]
            with socket.create_server((HOST, 0)) as closed:
                port = closed.getsockname()[1]
            b.leading._doors["a"] = door._replace(port=port)
            anew = await come(b.port, "x")
            assert not anew.connack.session_present and anew.connack.reason == 0
            assert b.leading.counters.anew == 1

    run(main())


def test_a_connect_that_the_broker_refuses_leaves_nothing(tmp_path: Path) -> None:
    """Nor does it end the connection of the client that it says it is."""

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            [open_to_all] = await stack.enter_async_context(homes(1))
            config = Config(host=HOST, port=0, sys_interval=0, allow_anonymous=False)
            guarded = await stack.enter_async_context(Broker(config))
            a = await stack.enter_async_context(proxy("a", open_to_all.addresses[0][1], [], tmp_path))
            b = await stack.enter_async_context(proxy("b", guarded.addresses[0][1], [a], tmp_path))
            await are_linked(a, b)
            owner = await come(a.port, "x0", clean=True, lasts=False)
            for number in range(3):
                assert (await come(b.port, f"x{number}")).connack.reason == NOT_AUTHORIZED
            await until(lambda: not b.leading.homes._waiting)
            assert len(b.leading.homes.residents) == 0 and not b.leading.homes.has_news
            await subscribe(owner, "t")

    run(main())
