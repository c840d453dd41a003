"""Strangers: what they may take, and who gives way. Layers at the door, and what the broker is told of addresses."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import pytest

from headwater.node.proxy.announcing import proxy_header
from headwater.node.proxy.entering import EnteringLimits, Target, connect_size
from headwater.node.transports.proxy_protocol import HEAD, rest_length, source
from headwater.node.transports.settings import ListenerSettings, TlsSettings
from headwater.wire.packets import Connack, Connect, Subscribe, SubscribeRequest, Will
from tests.node.proxy.relaying import (
    PATIENCE,
    Running,
    accepted,
    connect_packet,
    in_version,
    listening,
    open_pair,
    port_of,
    read,
    relaying,
    rest,
)
from tests.node.transports.serving import Authority


def gone(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_who_sends_no_connect_in_time_is_cut_off() -> None:
    limits = EnteringLimits(connect_timeout=0.5)
    with listening() as server, relaying(port_of(server), limits=limits) as running:
        with running.connect() as silent, running.connect() as half:
            half.sendall(connect_packet()[:3])
            assert gone(silent)
            assert gone(half)
        assert running.relay.counters.cut_off == 2


def test_a_broker_that_does_not_answer() -> None:
    limits = EnteringLimits(answer_timeout=0.5)
    with listening() as server, relaying(port_of(server), limits=limits) as running, running.connect() as client:
        client.sendall(connect_packet())
        assert gone(client)
        assert running.relay.counters.cut_off == 1


def test_a_broker_that_cannot_be_reached() -> None:
    """Its queue of connections is full, and the system drops those that come."""
    limits = EnteringLimits(dial_timeout=0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with relaying(port_of(server), limits=limits) as running, running.connect() as client:
            client.sendall(connect_packet())
            assert gone(client)
            assert running.relay.counters.not_dialed == 1


def test_who_is_connected_is_no_stranger() -> None:
    limits = EnteringLimits(connect_timeout=0.3, answer_timeout=0.3)
    with listening() as server, relaying(port_of(server), limits=limits) as running:
        client, broker = open_pair(running, server)
        with client, broker, running.connect() as silent:
            assert gone(silent)
            client.sendall(b"\xc0\x00")
            assert read(broker, 2) == b"\xc0\x00"


def test_strangers_are_bounded_and_the_oldest_gives_way() -> None:
    limits = EnteringLimits(max_unauthenticated=10)
    with listening() as server, relaying(port_of(server), limits=limits) as running:
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(running.connect()) for _ in range(30)]
            for each in crowd[:20]:
                assert gone(each)
            client, broker = open_pair(running, server)
            client.close()
            broker.close()
            assert gone(crowd[20])
        assert running.relay.counters.cut_off == 21


def test_the_bytes_of_strangers_are_bounded() -> None:
    limits = EnteringLimits(max_unauthenticated_memory=300_000)
    head = b"\x10\xf0\xff\x03"
    with (
        listening() as server,
        relaying(port_of(server), limits=limits) as running,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(20):
            stack.enter_context(running.connect()).sendall(head + bytes(60_000))
        running.wait_until(lambda: running.relay.counters.cut_off > 10)
        kept = running.call(lambda: sum(len(end.pair.opening) for end in running.relay.ends.values()))
        assert kept <= 300_000


def test_what_is_learned_of_strangers_counts_with_their_bytes() -> None:
    """They may send SUBSCRIBE behind CONNECT, and the broker takes its time."""
    limits = EnteringLimits(max_unauthenticated_memory=300_000)
    asked = in_version(Subscribe(1, [SubscribeRequest("x" * 60_000, 0)]))
    with (
        listening() as server,
        relaying(port_of(server), limits=limits) as running,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(20):
            client = stack.enter_context(running.connect())
            client.sendall(connect_packet())
            broker = stack.enter_context(accepted(server))
            client.sendall(asked)
            with contextlib.suppress(ConnectionError):
                read(broker, len(connect_packet()) + len(asked))
        assert running.relay.counters.cut_off > 10


def test_strangers_of_one_address_are_bounded() -> None:
    limits = EnteringLimits(max_unauthenticated_per_address=10)
    with listening() as server, relaying(port_of(server), limits=limits) as running, contextlib.ExitStack() as stack:
        elsewhere = stack.enter_context(running.connect("127.0.0.2"))
        crowd = [stack.enter_context(running.connect()) for _ in range(30)]
        for each in crowd[:20]:
            assert gone(each)
        elsewhere.sendall(connect_packet())
        stack.enter_context(accepted(server))
        assert running.relay.counters.cut_off == 20


def test_behind_a_proxy_its_clients_addresses_count() -> None:
    limits = EnteringLimits(max_unauthenticated_per_address=1)
    door = ListenerSettings(host="127.0.0.1", port=0, proxy_protocol=True)
    with (
        listening() as server,
        relaying(port_of(server), limits=limits, listener=door) as running,
        running.connect() as one,
        running.connect() as two,
        running.connect() as one_again,
    ):
        for each, address in ((one, "192.0.2.1"), (two, "192.0.2.2"), (one_again, "192.0.2.1")):
            each.sendall(proxy_header("v2", f"{address}:1000", "192.0.2.9:1883") + connect_packet()[:3])
        assert gone(one)
        assert running.relay.counters.cut_off == 1


def test_one_connection_too_many() -> None:
    limits = EnteringLimits(max_connections=2)
    with listening() as server, relaying(port_of(server), limits=limits) as running:
        pairs = [open_pair(running, server) for _ in range(2)]
        with running.connect() as client:
            assert gone(client)
        assert running.relay.counters.refused == 1
        for client, broker in pairs:
            client.close()
            broker.close()
        running.wait_until(lambda: running.entering.connections == 0)
        client, broker = open_pair(running, server)
        client.close()
        broker.close()


def test_a_stranger_gives_way_to_another_connection() -> None:
    limits = EnteringLimits(max_connections=1)
    with listening() as server, relaying(port_of(server), limits=limits) as running, running.connect() as silent:
        running.wait_until(lambda: running.entering.connections == 1)
        client, broker = open_pair(running, server)
        assert gone(silent)
        client.close()
        broker.close()


def test_connections_of_a_listener_are_bounded() -> None:
    door = ListenerSettings(host="127.0.0.1", port=0, max_connections=1)
    with listening() as server, relaying(port_of(server), listener=door) as running:
        client, broker = open_pair(running, server)
        with client, broker, running.connect() as other:
            assert gone(other)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"\x10", 2),
        (b"\x10\x0c", 14),
        (b"\x10\x80", 3),
        (b"\x10\x80\x01", 131),
        (b"\x10\xff\xff\xff\xff", 0),
        (b"\x20", 0),
        (b"\x00\x01", 0),
    ],
)
def test_how_long_a_connect_is(data: bytes, size: int) -> None:
    assert connect_size(data) == size


def test_a_connect_that_is_too_large_is_the_brokers_to_judge() -> None:
    with listening() as server, relaying(port_of(server)) as running, running.connect() as client:
        client.sendall(b"\x10\xff\xff\xff\x7f")
        with accepted(server) as broker:
            assert read(broker, 5) == b"\x10\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    ("connect", "connack"),
    [
        (in_version(Connect("c", 4, will=Will("last" * 100, bytes(65_535)))), b"\x20\x02\x00\x00"),
        (in_version(Connect("c", 5, will=Will("last" * 100, bytes(65_535))), version=5), b"\x20\x03\x01\x00\x00"),
        (b"\x10\x0c\x00\x04MQTT\x09\x02\x00\x3c\x00\x00", b"\x20\x02\x00\x00"),
    ],
    ids=["large", "large, 5.0", "of a version to come"],
)
def test_who_is_not_understood_is_no_stranger_once_the_broker_has_accepted_it(connect: bytes, connack: bytes) -> None:
    limits = EnteringLimits(connect_timeout=0.3, answer_timeout=0.3)
    with listening() as server, relaying(port_of(server), limits=limits) as running, running.connect() as client:
        client.sendall(connect)
        with accepted(server) as broker:
            assert read(broker, len(connect)) == connect
            for byte in connack:
                broker.sendall(bytes((byte,)))
            assert read(client, len(connack)) == connack
            with running.connect() as silent:
                assert gone(silent)
            client.sendall(b"\xc0\x00")
            assert read(broker, 2) == b"\xc0\x00"


def test_who_is_not_understood_and_is_refused_stays_a_stranger() -> None:
    limits = EnteringLimits(answer_timeout=0.3)
    with listening() as server, relaying(port_of(server), limits=limits) as running, running.connect() as client:
        client.sendall(b"no MQTT at all")
        with accepted(server) as broker:
            broker.sendall(b"\x20\x02\x00\x05")
            assert read(client, 4) == b"\x20\x02\x00\x05"
            assert gone(client)


# ---- layers ------------------------------------------------------------------------------------------------------


def talk(running: Running, client: socket.socket, server: socket.socket) -> None:
    """CONNECT, CONNACK, and more bytes than a read has, both ways; then the end."""
    connack = in_version(Connack())
    data = bytes(range(256)) * 2000
    client.sendall(connect_packet())
    with accepted(server) as broker:
        assert read(broker, len(connect_packet())) == connect_packet()
        broker.sendall(connack)
        assert read(client, len(connack)) == connack
        sending = threading.Thread(target=client.sendall, args=(b"\x30\x80\xa0\x1f" + data,))
        sending.start()
        assert read(broker, len(data) + 4) == b"\x30\x80\xa0\x1f" + data
        sending.join(PATIENCE)
        sending = threading.Thread(target=broker.sendall, args=(data,))
        sending.start()
        assert read(client, len(data)) == data
        sending.join(PATIENCE)
        client.close()
        assert rest(broker) == b""


def speaking_tls(authority: Authority) -> ssl.SSLContext:
    """A broker's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = authority.server()
    context.load_cert_chain(files["certificate"], files["key"])
    return context


def test_tls_at_the_door(authority: Authority) -> None:
    tls = TlsSettings(**authority.server())
    door = ListenerSettings(host="127.0.0.1", port=0, tls=tls)
    with listening() as server, relaying(port_of(server), listener=door) as running:
        client = authority.trusting().wrap_socket(running.connect(), server_hostname="localhost")
        talk(running, client, server)
        running.wait_until(lambda: not running.relay.ends)


def test_what_the_broker_is_told_of_addresses() -> None:
    for version in ("v1", "v2"):
        limits = EnteringLimits(send_proxy=version)  # type: ignore[arg-type]
        with listening() as server, relaying(port_of(server), limits=limits) as running, running.connect() as client:
            client.sendall(connect_packet())
            ours = client.getsockname()
            with accepted(server) as broker:
                expected = proxy_header(version, f"127.0.0.1:{ours[1]}", f"127.0.0.1:{running.port}")  # type: ignore[arg-type]
                assert read(broker, len(expected) + len(connect_packet())) == expected + connect_packet()


def test_proxy_headers() -> None:
    assert proxy_header("v1", "192.0.2.1:5", "192.0.2.2:6") == b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n"
    assert proxy_header("v1", "[2001:db8::1]:5", "[::1]:6") == b"PROXY TCP6 2001:db8::1 ::1 5 6\r\n"
    assert proxy_header("v1", "unix:/run/x", "") == b"PROXY UNKNOWN\r\n"
    for client, door in (
        ("192.0.2.1:5", "192.0.2.2:6"),
        ("[2001:db8::1]:5", "[::1]:6"),
        ("[::ffff:192.0.2.1]:5", "127.0.0.1:6"),
    ):
        made = proxy_header("v2", client, door)
        assert rest_length(made[:HEAD]) == len(made) - HEAD
        found = source(made[:HEAD], made[HEAD:])
        assert found.port == 5
        assert found.host in ("192.0.2.1", "2001:db8::1")
    made = proxy_header("v2", "unix:/run/x", "")
    assert source(made[:HEAD], made[HEAD:]).host == ""


def test_a_header_comes_in_and_another_goes_out() -> None:
    door = ListenerSettings(host="127.0.0.1", port=0, proxy_protocol=True)
    limits = EnteringLimits(send_proxy="v1")
    with (
        listening() as server,
        relaying(port_of(server), listener=door, limits=limits) as running,
        running.connect() as client,
    ):
        client.sendall(proxy_header("v2", "192.0.2.9:77", "192.0.2.1:1883") + connect_packet())
        with accepted(server) as broker:
            expected = f"PROXY TCP4 192.0.2.9 127.0.0.1 77 {running.port}\r\n".encode() + connect_packet()
            assert read(broker, len(expected)) == expected


def test_tls_to_the_broker(authority: Authority) -> None:
    with listening() as server:
        target = Target(("127.0.0.1", port_of(server)), authority.trusting(), "localhost")
        with (
            relaying(None, target=target) as running,
            speaking_tls(authority).wrap_socket(server, server_side=True) as secure,
        ):
            secure.settimeout(PATIENCE)
            talk(running, running.connect(), secure)


def test_a_broker_that_is_not_trusted(authority: Authority) -> None:
    with listening() as server:
        target = Target(("127.0.0.1", port_of(server)), ssl.create_default_context(), "localhost")
        with relaying(None, target=target) as running, running.connect() as client:
            client.sendall(connect_packet())
            with accepted(server) as broker, contextlib.suppress(OSError):
                speaking_tls(authority).wrap_socket(broker, server_side=True).recv(1)
            assert gone(client)
