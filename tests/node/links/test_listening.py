"""The door for nodes: who comes in, how many may wait there, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from pathlib import Path

import pytest

from headwater.node.links import listening
from headwater.node.links.channels import Unclaimed
from headwater.node.links.listening import LinkDoor
from headwater.node.links.settings import ClusterSettings
from headwater.node.plane.channel import Channel, Transport
from tests.node.transports.serving import HOST, PATIENCE, Authority, secured
from tests.node.transports.test_tls import revocations

from .nodes import FOR_NODES, Hall, door_of, halls, run, say, tls, two_servers, uncollected, until, written

PLANES = pytest.mark.parametrize("plane", [0, 1], ids=["epoll", "guest"])


def connected(port: int, source: str = HOST) -> socket.socket:
    """From another address of loopback, if told so."""
    return socket.create_connection((HOST, port), PATIENCE, (source, 0))


def has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@PLANES
def test_bytes_pass_both_ways(plane: int) -> None:
    async def body() -> None:
        async with two_servers() as servers, door_of(servers[plane]) as door:
            with connected(door.port) as client:
                client.sendall(b"hello")
                guests = halls[door].guests
                await until(lambda: bool(guests) and guests[0].got == b"hello")
                channel = guests[0].channel
                assert channel.loopback and channel.over_tcp and channel.certificate is None
                assert channel.address == "{}:{}".format(*client.getsockname())
                assert channel.socket is not None
                assert channel.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert channel not in servers[plane].channels, "it is no client"
                await say(servers[plane], channel, b"welcome")
                client.setblocking(False)
                answers: list[bytes] = []

                def answered() -> bool:
                    try:
                        answers.append(client.recv(100))
                    except BlockingIOError:
                        return False
                    return True

                await until(answered)
                assert answers == [b"welcome"]
            await until(lambda: guests[0].losses == 1)
            assert door.unproven == 0

    run(body())


def test_all_addresses_of_a_host() -> None:
    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0], host="localhost") as door:
            assert f"127.0.0.1:{door.port}" in door.addresses
            for address in door.addresses:
                host = address.rpartition(":")[0].strip("[]")
                with socket.create_connection((host, door.port), PATIENCE):
                    await until(lambda: halls[door].guests != [] and halls[door].guests[-1].losses == 0)
                assert halls[door].guests[-1].channel.loopback
                await until(lambda: halls[door].guests[-1].losses == 1)
            assert len(halls[door].guests) == len(door.addresses)

    run(body())


def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "link")

    async def body() -> None:
        async with two_servers() as servers:
            async with door_of(servers[0], unix=path) as door:
                assert (door.port, door.addresses) == (0, [f"unix:{path}"])
                clients = [socket.socket(socket.AF_UNIX) for _ in range(listening.MOST_UNPROVEN_OF_ONE_ADDRESS + 1)]
                for client in clients:
                    client.connect(path)
                guests = halls[door].guests
                await until(lambda: len(guests) == len(clients))  # all have one address, which says nothing
                assert all(guest.channel.loopback and not guest.channel.over_tcp for guest in guests)
                assert guests[0].channel.address == f"unix:{path}"
                for client in clients:
                    client.close()
            assert not Path(path).exists()

    run(body())


def test_an_address_in_use_is_named() -> None:
    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            settings = ClusterSettings(**{**FOR_NODES, "port": door.port})
            with pytest.raises(OSError) as error:
                LinkDoor(servers[1], settings, None, Hall().accepted).open()
            assert error.value.filename == f"{HOST}:{door.port}"

    run(body())


# ---- who is not proven ----


@PLANES
def test_who_says_nothing_is_closed_after_its_time(
    plane: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert listening.HELLO_TIMEOUT == 5.0
    monkeypatch.setattr(listening, "HELLO_TIMEOUT", 0.2)
    caplog.set_level(logging.INFO, "headwater.links")

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[plane]) as door:
            guests = halls[door].guests
            with connected(door.port) as proven, connected(door.port) as silent:
                await until(lambda: len(guests) == 2)
                door.settled(guests[0].channel)
                assert [guest.channel.known for guest in guests] == [True, False]
                await until(lambda: guests[1].losses == 1)
                await until(lambda: has_ended(silent))
                assert not has_ended(proven) and guests[0].losses == 0
                assert door.unproven == 0
        assert "was cut off: no Hello within 0.2 s" in caplog.text

    run(body())


def test_half_a_tls_handshake_has_its_time(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HELLO_TIMEOUT", 0.2)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0], tls(authority, "a")) as door:
            with connected(door.port) as client:
                client.sendall(b"\x16\x03\x01\x02\x00")
                await until(lambda: has_ended(client))
            assert halls[door].guests[0].got == b""

    run(body())


def test_of_65_that_are_not_proven_the_oldest_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.links")
    assert (listening.MOST_UNPROVEN, listening.MOST_UNPROVEN_OF_ONE_ADDRESS) == (64, 8)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            guests = halls[door].guests
            clients = [connected(door.port, "127.0.0.100")]  # the oldest of all, and the only one of its address
            clients += [connected(door.port, f"127.0.0.{number // 7 + 1}") for number in range(63)]
            await until(lambda: len(guests) == 64)
            clients.append(connected(door.port, "127.0.0.101"))
            await until(lambda: has_ended(clients[1]))
            assert [guest.losses for guest in guests] == [0, 1, *[0] * 63]
            assert (door.unproven, door.cut_off.count) == (64, 1)
            assert "was cut off: 64 connections have not said Hello" in caplog.text
            door.settled(guests[0].channel)
            clients.append(connected(door.port, "127.0.0.100"))
            await until(lambda: len(guests) == 66)
            assert door.cut_off.count == 1, "a node that is proven does not count"
            for client in clients:
                client.close()
            await until(lambda: door.unproven == 0)

    run(body())


def test_of_nine_of_one_address_the_oldest_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.links")

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            guests = halls[door].guests
            clients = [connected(door.port, "127.0.0.2"), *(connected(door.port) for _ in range(8))]
            await until(lambda: len(guests) == 9)
            clients.append(connected(door.port))
            await until(lambda: has_ended(clients[1]))
            assert [guest.losses for guest in guests] == [0, 1, *[0] * 8]
            assert "8 connections of its address have not said Hello" in caplog.text
            clients.pop(2).close()
            await until(lambda: guests[2].losses == 1)
            clients.append(connected(door.port))  # whoever has gone does not count
            await until(lambda: len(guests) == 11)
            assert (door.unproven, door.cut_off.count) == (9, 1)
            for client in clients:
                client.close()

    run(body())


def test_the_log_has_the_first_stranger_of_many(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.links")

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            clients = [connected(door.port) for _ in range(8 + 20)]
            await until(lambda: door.cut_off.count == 20)
            assert caplog.text.count("was cut off") == 1
            for client in clients:
                client.close()

    run(body())


def test_who_comes_and_goes_leaves_nothing_behind() -> None:
    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            guests = halls[door].guests
            for number in range(100):
                connected(door.port).close()
                await until(lambda count=number: len(guests) > count and guests[count].losses == 1)  # type: ignore[misc]
            assert len(door._unproven) <= 1

    run(body())


def test_without_file_descriptors_it_waits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(listening, "LATER", 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            with connected(door.port):
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
                try:
                    await until(lambda: "cannot accept a link: Too many open files" in caplog.text)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                await until(lambda: len(halls[door].guests) == 1)
                assert servers[0].timers.failures == 0

    run(body())


def test_closing_ends_who_is_not_proven_and_nobody_else() -> None:
    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            guests = halls[door].guests
            with connected(door.port) as proven, connected(door.port) as waiting:
                await until(lambda: len(guests) == 2)
                port = door.port
                door.settled(guests[0].channel)
                door.close()
                await until(lambda: has_ended(waiting))
                assert [guest.losses for guest in guests] == [0, 1] and not has_ended(proven)
                with pytest.raises(ConnectionRefusedError):
                    connected(port)

    run(body())


def test_one_that_cannot_be_served_ends_and_the_next_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0]) as door:
            accepted = door._accepted
            door._accepted = lambda channel: halls[door].guests[0]  # there are none
            with connected(door.port) as client:
                await until(lambda: has_ended(client))
            assert "serving a new link failed" in caplog.text and servers[0].stats.failures == 1
            servers[0].stats.failures = 0
            door._accepted = accepted
            with connected(door.port):
                await until(lambda: len(halls[door].guests) == 1)
                assert door.connections == door.unproven == 1

    run(body())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_what_a_connection_had_goes_with_it(authority: Authority, secure: bool) -> None:
    """Not only when the garbage collector comes."""

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0], tls(authority, "a") if secure else None) as door:
            with uncollected(Channel, Transport) as left:
                door._accepted = lambda channel: Unclaimed(servers[0], channel)
                clients = [connected(door.port) for _ in range(5)]
                await until(lambda: door.connections == 5)
                for client in clients:
                    client.close()
                await until(lambda: door.connections == door.unproven == 0)
                assert left() == []

    run(body())


# ---- TLS ----


async def is_refused(door: LinkDoor, context: ssl.SSLContext) -> bool:
    """Whether the door refuses who comes with this, by the handshake or behind it."""
    port, before = door.port, len(halls[door].guests)
    context.check_hostname = False

    def client() -> None:
        with contextlib.suppress(OSError), secured(connected(port), context) as connection:
            connection.sendall(b"hello")
            connection.recv(1)  # until the other end closes

    thread = asyncio.create_task(asyncio.to_thread(client))
    await until(lambda: len(halls[door].guests) > before)
    guest = halls[door].guests[before]
    await until(lambda: guest.got != b"" or guest.losses == 1)
    door._core.lost(guest.channel)
    await thread
    return guest.got == b""


def test_who_has_no_good_certificate_is_refused(
    authority: Authority, another_authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headwater.transports")

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0], tls(authority, "a")) as door:
            assert not await is_refused(door, authority.trusting(authority.client("b")))
            certificate = halls[door].guests[0].channel.certificate
            assert certificate is not None and certificate["subject"][-1] == (("commonName", "b"),)  # type: ignore[index]
            assert await is_refused(door, authority.trusting())
            assert "failed in the TLS handshake: PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text
            caplog.clear()
            assert await is_refused(door, authority.trusting(another_authority.client("b")))
            assert "failed in the TLS handshake: unable to get local issuer certificate" in caplog.text

    run(body())


def test_a_revoked_certificate_is_refused_from_the_next_reload_on(authority: Authority, tmp_path: Path) -> None:
    crl = written(tmp_path, "crl.pem", revocations(authority))
    good, bad = authority.client("good"), authority.client("bad")
    contexts = tls(authority, "a", crl=crl)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[0], contexts) as door:
            assert not await is_refused(door, authority.trusting(bad))
            Path(crl).write_bytes(revocations(authority, bad["certificate"]))
            contexts.load()()
            assert await is_refused(door, authority.trusting(bad))
            assert not await is_refused(door, authority.trusting(good))

    run(body())
