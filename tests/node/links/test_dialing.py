"""Dialing other nodes: by every form of address, over TLS, and where nobody answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.node.links import dialing, resolving
from headwater.node.links.channels import Unclaimed
from headwater.node.links.contexts import LinkContexts
from headwater.node.links.dialing import Dialer, is_own
from headwater.node.links.resolving import MOST_LOOKUPS, Resolver
from headwater.node.links.settings import ClusterTls
from headwater.node.plane.channel import Channel, Transport
from headwater.peering.membership.seeds import Seed
from tests.node.transports.serving import HOST, PATIENCE, Authority
from tests.node.transports.test_tls import revocations

from .nodes import Call, dialed, door_of, halls, run, say, tls, two_servers, uncollected, until, written

DISTRUST = "this node does not trust the other one's certificate: "
PLANES = pytest.mark.parametrize("plane", [0, 1], ids=["epoll", "guest"])
"""That of who dials; the door is of the other one."""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dialing.DIAL_TIMEOUT == 5.0
    monkeypatch.setattr(dialing, "DIAL_TIMEOUT", 0.3)


# ---- a link ----


@PLANES
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_bytes_pass_both_ways(authority: Authority, plane: int, secure: bool) -> None:
    here, there = (tls(authority, "a"), tls(authority, "b")) if secure else (None, None)
    data = bytes(range(256)) * 2000

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1 - plane], there) as door:
            server, other = servers[plane], servers[1 - plane]
            call = await dialed(server, f"{HOST}:{door.port}", here)
            assert (call.reason, call.peer is None) == ("", False)
            peer = call.peer
            assert peer is not None
            await say(server, peer.channel, data)
            guests = halls[door].guests
            await until(lambda: bool(guests) and guests[0].got == data)
            await say(other, guests[0].channel, data[::-1])
            await until(lambda: peer.got == data[::-1])
            for channel, owner in ((peer.channel, "b"), (guests[0].channel, "a")):
                assert channel.loopback and channel.over_tcp and channel.socket is not None
                assert channel.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                subject = channel.certificate["subject"] if channel.certificate else ()
                assert (("commonName", owner),) in subject if secure else channel.certificate is None  # type: ignore[operator]
            assert peer.channel.address == f"{HOST}:{door.port}" and peer.channel.known
            assert peer.channel not in server.channels, "it is no client"
            other.lost(guests[0].channel)
            await until(lambda: peer.losses == 1)

    run(body())


@PLANES
def test_the_first_to_speak_may_be_either(authority: Authority, plane: int) -> None:
    """What the door says at once comes with the end of the handshake, and is not lost there."""

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1 - plane], tls(authority, "b")) as door:
            greeting = b"welcome" * 5000
            call = Call(Dialer(servers[plane], tls(authority, "a"), Resolver()), f"{HOST}:{door.port}")
            await until(lambda: bool(halls[door].guests) and halls[door].guests[0].channel.certificate is not None)
            await say(servers[1 - plane], halls[door].guests[0].channel, greeting)
            await until(lambda: call.peer is not None and call.peer.got == greeting)
            assert call.peer is not None
            servers[plane].lost(call.peer.channel)

    run(body())


@PLANES
def test_a_unix_socket(tmp_path: Path, plane: int) -> None:
    path = str(tmp_path / "link")

    async def body() -> None:
        async with two_servers() as servers:
            call = await dialed(servers[plane], f"unix:{path}")
            assert call.reason == "No such file or directory"
            async with door_of(servers[1 - plane], unix=path) as door:
                call = await dialed(servers[plane], f"unix:{path}")
                assert call.peer is not None
                channel = call.peer.channel
                assert (channel.address, channel.loopback, channel.over_tcp) == (f"unix:{path}", True, False)
                await say(servers[plane], channel, b"hello")
                await until(lambda: bool(halls[door].guests) and halls[door].guests[0].got == b"hello")
                servers[plane].lost(channel)
                assert call.peer.losses == 1

    run(body())


def test_a_name_with_several_addresses_leads_to_the_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "addresses_of", lambda host: ["127.0.0.9", HOST] if host == "node" else [])

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1]) as door:
            call = await dialed(servers[0], f"node:{door.port}")
            assert call.peer is not None and call.peer.channel.address == f"{HOST}:{door.port}"
            servers[0].lost(call.peer.channel)
            door.close()
            call = await dialed(servers[0], f"node:{call.peer.channel.address.rpartition(':')[2]}")
            assert call.reason is not None and call.reason.count("Connection refused") == 2
            assert "127.0.0.9:" in call.reason and HOST in call.reason
            assert (await dialed(servers[0], "nobody:1")).reason == "nobody has no address"

    run(body())


def test_of_many_addresses_some_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "addresses_of", lambda host: [f"127.0.0.{number}" for number in range(10, 99)])

    async def body() -> None:
        with socket.socket() as taken:
            taken.bind(("", 0))  # and does not listen
            async with two_servers() as servers:
                call = await dialed(servers[0], f"node:{taken.getsockname()[1]}")
                assert call.reason is not None
                assert call.reason.count("Connection refused") == dialing.MOST_TRIED == 8

    run(body())


# ---- nobody answers ----


@PLANES
def test_a_closed_port(plane: int) -> None:
    async def body() -> None:
        with socket.socket() as taken:
            taken.bind((HOST, 0))  # and does not listen
            async with two_servers() as servers:
                call = await dialed(servers[plane], f"{HOST}:{taken.getsockname()[1]}")
                assert (call.peer, call.reason) == (None, "Connection refused")

    run(body())


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("no-such-node.invalid:11883", "cannot resolve no-such-node.invalid: "),
        (f"{'x' * 64}.org:11883", "that is no host name"),
        ("a:b:c", "is not of the form host:port"),
        (f"unix:{'x' * 200}", "path too long"),
    ],
)
def test_what_is_no_address(address: str, reason: str) -> None:
    async def body() -> None:
        async with two_servers() as servers:
            call = await dialed(servers[0], address)
            assert call.peer is None and call.reason is not None and reason in call.reason

    run(body())


@contextlib.contextmanager
def full() -> Iterator[int]:
    """The port of one who listens and does not accept: the system drops what comes when its queue is full."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(0)
        with socket.create_connection(listener.getsockname()):
            assert select.select([listener], [], [], PATIENCE)[0]  # it is in the queue, which has room for one
            yield listener.getsockname()[1]


@PLANES
@pytest.mark.usefixtures("short")
def test_one_who_does_not_answer(plane: int) -> None:
    async def body() -> None:
        with full() as port:
            async with two_servers() as servers:
                call = await dialed(servers[plane], f"{HOST}:{port}")
                assert (call.peer, call.reason) == (None, "no answer in time")
                assert call.took >= 0.3

    run(body())


def test_one_who_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "DIAL_TIMEOUT", 1.0)

    async def body() -> None:
        with full() as port:
            async with two_servers() as servers, door_of(servers[1], host="127.0.0.2", port=port) as door:
                monkeypatch.setattr(resolving, "addresses_of", lambda host: [HOST, "127.0.0.2"])
                call = await dialed(servers[0], f"node:{port}")
                assert call.peer is not None and call.peer.channel.address == door.addresses[0]
                servers[0].lost(call.peer.channel)

    run(body())


@pytest.mark.usefixtures("short")
def test_a_unix_socket_whose_queue_is_full(tmp_path: Path) -> None:
    path = str(tmp_path / "link")

    async def body() -> None:
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
            listener.bind(path)
            listener.listen(0)
            waiting.connect(path)
            async with two_servers() as servers:
                call = await dialed(servers[0], f"unix:{path}")
                assert (call.peer, call.reason) == (None, "too many connections wait there")

    run(body())


@PLANES
@pytest.mark.usefixtures("short")
def test_one_who_connects_and_does_not_answer_the_handshake(authority: Authority, plane: int) -> None:
    async def body() -> None:
        with socket.create_server((HOST, 0)) as listener:
            async with two_servers() as servers:
                call = await dialed(servers[plane], f"{HOST}:{listener.getsockname()[1]}", tls(authority, "a"))
                assert (call.peer, call.reason) == (None, "no answer to the TLS handshake within 0.3 s")

    run(body())


def test_a_connection_to_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as connection, socket.create_server((HOST, 0)) as listener:
        connection.bind((HOST, 0))
        connection.connect(connection.getsockname())
        assert is_own(connection)
        with socket.create_connection(listener.getsockname()) as other:
            assert not is_own(other)
    monkeypatch.setattr(dialing, "is_own", lambda connection: True)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1]) as door:
            call = await dialed(servers[0], f"{HOST}:{door.port}")
            assert (call.peer, call.reason) == (None, "Connection refused")

    run(body())


# ---- certificates ----


@PLANES
def test_a_door_that_nobody_trusts(
    authority: Authority, another_authority: Authority, plane: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headwater.transports")

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1 - plane], tls(authority, "b")) as door:
            contexts = tls(another_authority, "a")
            call = await dialed(servers[plane], f"{HOST}:{door.port}", contexts)
            assert (call.peer, call.reason) == (None, DISTRUST + "self-signed certificate in certificate chain")
            assert f"{HOST}:{door.port} failed in the TLS handshake: self-signed certificate" in caplog.text
            await until(lambda: halls[door].guests[0].losses == 1)
            assert halls[door].guests[0].got == b"" and "UNKNOWN_CA" in caplog.text

    run(body())


@PLANES
def test_who_is_not_trusted_by_the_door(
    authority: Authority, another_authority: Authority, plane: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In TLS 1.3 the door says so when the handshake is over for who dials: the link is lost at once."""
    caplog.set_level(logging.INFO, "headwater.transports")
    both = another_authority.folder / "both.pem"
    both.write_bytes(Path(authority.file).read_bytes() + Path(another_authority.file).read_bytes())
    contexts = LinkContexts(ClusterTls(**another_authority.client("a"), ca=str(both)))

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1 - plane], tls(authority, "b")) as door:
            call = await dialed(servers[plane], f"{HOST}:{door.port}", contexts)
            await until(lambda: call.peer is not None and call.peer.losses == 1)
            await until(lambda: halls[door].guests[0].losses == 1)
            assert halls[door].guests[0].got == b""
            assert f"{HOST}:{door.port} broke TLS: " in caplog.text
            assert "ALERT_UNKNOWN_CA" in caplog.text.upper().replace(" ", "_")  # with openssl.c: "alert unknown ca"

    run(body())


def test_a_door_whose_certificate_was_revoked(authority: Authority, tmp_path: Path) -> None:
    door_contexts = tls(authority, "revoked")
    crl = written(tmp_path, "crl.pem", revocations(authority))
    contexts = tls(authority, "a", crl=crl)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1], door_contexts) as door:
            call = await dialed(servers[0], f"{HOST}:{door.port}", contexts)
            assert call.peer is not None
            Path(crl).write_bytes(revocations(authority, door_contexts.settings.certificate))
            contexts.load()()
            again = await dialed(servers[0], f"{HOST}:{door.port}", contexts)
            assert (again.peer, again.reason) == (None, DISTRUST + "certificate revoked")
            assert call.peer.losses == 0, "it was there before, and stays"
            servers[0].lost(call.peer.channel)

    run(body())


def test_tls_and_none(authority: Authority) -> None:
    async def body() -> None:
        async with (
            two_servers() as servers,
            door_of(servers[1]) as plain,
            door_of(servers[1], tls(authority, "b")) as door,
        ):
            call = Call(Dialer(servers[0], tls(authority, "a"), Resolver()), f"{HOST}:{plain.port}")
            await until(lambda: bool(halls[plain].guests))
            await say(servers[1], halls[plain].guests[0].channel, b"this is no TLS at all")
            await until(lambda: call.is_over)
            assert (call.peer, call.reason) == (None, "the other node speaks no TLS there (cluster.tls)")
            call = await dialed(servers[0], f"{HOST}:{door.port}")
            assert call.peer is not None
            peer = call.peer
            await say(servers[0], peer.channel, b"hello, this is no TLS at all")
            await until(lambda: peer.losses == 1)

    run(body())


# ---- ends ----


@PLANES
def test_nobody_is_told_after_the_end(authority: Authority, plane: int) -> None:
    async def body() -> None:
        told: list[str] = []
        with full() as port, socket.create_server((HOST, 0)) as silent:
            async with two_servers() as servers:
                dialer = Dialer(servers[plane], tls(authority, "a"), Resolver())
                for each in (port, silent.getsockname()[1]):
                    dialer.dial(f"{HOST}:{each}", lambda channel, reason: told.append(reason))
                await until(lambda: len(dialer._securing) == 1)
                silent.settimeout(PATIENCE)
                accepted, _ = silent.accept()
                dialer.close()
                await until(lambda: not dialer._dialing and not dialer._securing)
                with accepted:
                    accepted.settimeout(PATIENCE)
                    while accepted.recv(65536):
                        pass
        assert told == []

    run(body())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_channel_that_nobody_takes_is_closed(
    authority: Authority, secure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = (tls(authority, "a"), tls(authority, "b")) if secure else (None, None)

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1], there) as door:
            dialer = Dialer(servers[0], here, Resolver())
            dialer.dial(f"{HOST}:{door.port}", lambda channel, reason: None)
            guests = halls[door].guests
            await until(lambda: bool(guests) and guests[0].losses == 1)

            def fail(channel: Channel | None, reason: str) -> None:
                raise ZeroDivisionError

            dialer.dial(f"{HOST}:{door.port}", fail)
            await until(lambda: len(guests) == 2 and guests[1].losses == 1)
            assert "a link that was dialed could not be used" in caplog.text
            assert servers[0].stats.failures == 1
            servers[0].stats.failures = 0

    run(body())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_what_a_link_had_goes_with_it(authority: Authority, another_authority: Authority, secure: bool) -> None:
    """Not only when the garbage collector comes, however it ended."""
    here, there = (tls(authority, "a"), tls(authority, "b")) if secure else (None, None)
    strange = tls(another_authority, "b") if secure else None

    async def body() -> None:
        async with two_servers() as servers, door_of(servers[1], there) as door, door_of(servers[1], strange) as other:
            for each in (door, other):
                each._accepted = lambda channel: Unclaimed(servers[1], channel)
            dialer = Dialer(servers[0], here, Resolver())
            with uncollected(Channel, Transport) as left:
                for each in (door, other):
                    for _ in range(3):
                        dialer.dial(f"{HOST}:{each.port}", lambda channel, reason: None)
                await until(lambda: not dialer._dialing and not dialer._securing)
                await until(lambda: door.connections == other.connections == dialer.connections == 0)
                assert servers[0].stats.sockets_opened == 6
                assert door.unproven == other.unproven == 0
                await until(lambda: left() == [])

    run(body())


# ---- names ----


def test_names_are_resolved_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is silent stops nobody, and a name is asked for once at a time."""
    go_on = threading.Event()
    asked: list[str] = []

    def addresses_of(host: str) -> list[str] | OSError:
        asked.append(host)
        if host == "slow":
            go_on.wait(PATIENCE)
        return OSError("none") if host == "unknown" else [f"10.0.0.{len(host)}", "::1"]

    monkeypatch.setattr(resolving, "addresses_of", addresses_of)

    async def body() -> None:
        resolver = Resolver()
        seeds = [Seed(host, 1) for host in ("slow", "fast", "unknown", "127.0.0.1", "fast")] + [Seed("/path", 0)]
        for _ in range(2):
            found = await resolver.resolve(seeds, 0.2)
            assert found == {"fast": ["10.0.0.4", "::1"]}
        assert asked.count("slow") == 1 and asked.count("fast") == 2
        go_on.set()
        assert await resolver.resolve(seeds, PATIENCE) == {"slow": ["10.0.0.4", "::1"], "fast": ["10.0.0.4", "::1"]}
        with pytest.raises(OSError, match="none"):
            await resolver.addresses("unknown")

    asyncio.run(body())


def test_few_names_are_looked_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    running: set[str] = set()
    most: list[int] = []

    def addresses_of(host: str) -> list[str] | OSError:
        running.add(host)
        most.append(len(running))
        go_on.wait(PATIENCE)
        running.discard(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(resolving, "addresses_of", addresses_of)

    async def body() -> None:
        resolver = Resolver()
        names = [f"node-{number}" for number in range(3 * MOST_LOOKUPS)]
        task = asyncio.ensure_future(resolver.resolve([Seed(name, 1) for name in names], PATIENCE))
        await until(lambda: len(running) == MOST_LOOKUPS)
        go_on.set()
        assert list(await task) == names
        assert max(most) <= MOST_LOOKUPS

    asyncio.run(body())


def test_a_real_name() -> None:
    assert HOST in resolving.addresses_of("localhost")  # type: ignore[operator]
    assert isinstance(resolving.addresses_of("no-such-node.invalid"), OSError)
    assert isinstance(resolving.addresses_of("x" * 64), OSError)
