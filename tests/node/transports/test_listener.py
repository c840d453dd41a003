"""Several listeners with settings of their own: addresses, Unix sockets, who may come in and how many."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.plane.channel import Channel, Transport
from headwater.node.plane.selector import run
from headwater.node.transports.listener import ProxyHeader
from headwater.node.transports.sockets import address_text, is_loopback
from tests.broker import build
from tests.broker.peer import Peer, Target, connected
from tests.brokers import free_port
from tests.node.access.arriving import rules_file, users_file
from tests.node.memory import Client, MemoryBroker

from .serving import PATIENCE, Authority, Served, over, raw, request, serving


def addresses(config: Config) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []

    async def main() -> None:
        async with Broker(config) as broker:
            found.extend(broker.addresses)

    run(main())
    return found


def to_unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    connection.connect(path)
    return connection


# ---- where ----


def test_host_and_port_are_the_simple_way() -> None:
    port, other = free_port(), free_port()
    row = {"host": "127.0.0.1", "port": other}
    assert addresses(Config(host="127.0.0.1", port=port, sys_interval=0)) == [("127.0.0.1", port)]
    assert addresses(Config(listeners=[row], sys_interval=0)) == [("127.0.0.1", other)]
    both = Config(host="127.0.0.1", port=port, listeners=[row], sys_interval=0)
    assert addresses(both) == [("127.0.0.1", port), ("127.0.0.1", other)]


def test_clients_of_all_listeners_meet() -> None:
    with serving({}, {}, {"host": "::1"}) as served:
        reader = over(raw(served.port(0)))
        writers = [over(raw(served.port(1))), over(socket.create_connection(("::1", served.port(2))))]
        for number, peer in enumerate((reader, *writers)):
            peer.send(build.connect(f"c{number}"))
            assert peer.packet()[0] == build.CONNACK
        reader.subscribe("#")
        for writer in writers:
            writer.publish("t", b"x")
            reader.expect(build.publish("t", b"x"))
        known = served.call(lambda: {each.client_id: each.address for each in served.broker.server.channels})
        assert known["c2"].startswith("[::1]:") and known["c1"].startswith("127.0.0.1:")


def test_all_listeners_or_none(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = str(tmp_path / "s")
        with pytest.raises(OSError) as caught, serving({"unix": path}, {"port": port}):
            pass
    assert caught.value.filename == f"mqtt://127.0.0.1:{port}"
    assert not os.path.exists(path)


def test_addresses_as_text() -> None:
    assert address_text("127.0.0.1", 80) == "127.0.0.1:80"
    assert address_text("::1", 80) == "[::1]:80"
    assert [is_loopback(each) for each in ("127.8.0.1", "::1", "::ffff:127.0.0.1", "1.2.7.0", "::2")] == [True] * 3 + [
        False
    ] * 2


# ---- Unix sockets ----


def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "mqtt.sock")
    mask = os.umask(0o077)
    try:
        with serving({"unix": path, "unix_mode": 0o622}) as served:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o622
            peer = over(to_unix(path))
            peer.send(build.connect("c"))
            assert peer.packet()[0] == build.CONNACK
            peer.subscribe("t", qos=1)
            peer.send(build.publish("t", b"x" * 100_000))
            peer.expect(build.publish("t", b"x" * 100_000))
            channel = served.call(lambda: next(iter(served.broker.server.channels)))
            assert (channel.address, channel.loopback) == (f"unix:{path}", True)
            peer.drop()
    finally:
        os.umask(mask)
    assert not os.path.exists(path)


def test_members_of_a_group_on_a_unix_socket_are_looked_at_too(tmp_path: Path) -> None:
    """There is no TCP to ask how long the way is."""
    path = str(tmp_path / "mqtt.sock")
    with serving({"unix": path}, shared_dispatcher="adaptive") as served:
        peer = over(to_unix(path))
        peer.send(build.connect("c"))
        assert peer.packet()[0] == build.CONNACK
        peer.subscribe("$share/g/t")
        peer.send(build.publish("t", b"x"))
        peer.expect(build.publish("t", b"x"))
        served.wait_until(lambda: served.broker.server.sampling.timer is None)
        peer.drop()


def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "mqtt.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with serving({"unix": path}):
        to_unix(path).close()


def test_a_socket_in_use_and_a_file_are_left_alone(tmp_path: Path) -> None:
    path, file = str(tmp_path / "mqtt.sock"), tmp_path / "file"
    file.write_text("dear to somebody")
    with serving({"unix": path}):
        with pytest.raises(OSError, match="in use"), serving({"unix": path}):
            pass
        with pytest.raises(OSError, match="no socket"), serving({"unix": str(file)}):
            pass
        to_unix(path).close()
    assert file.read_text() == "dear to somebody"


# ---- who and how many ----


def connect_code(served: Served, number: int, client_id: str | None = None) -> int:
    peer = over(raw(served.port(number)))
    peer.send(build.connect(f"c{number}" if client_id is None else client_id))
    return peer.packet()[1][1]


def entered(served: Served, number: int, client_id: str = "c") -> Peer:
    return connected(Target("127.0.0.1", served.port(number), True), client_id)


@pytest.mark.parametrize(
    ("general", "expected"), [(None, [0, 0x87, 0]), (False, [0x87, 0x87, 0]), (True, [0, 0x87, 0])]
)
def test_anonymous_clients_per_listener(general: bool | None, expected: list[int]) -> None:
    with serving({}, {"allow_anonymous": False}, {"allow_anonymous": True}, allow_anonymous=general) as served:
        assert [connect_code(served, number) for number in range(3)] == expected


def test_connections_per_listener() -> None:
    with serving({"max_connections": 2}, {}) as served:
        first, second = raw(served.port()), raw(served.port())
        served.wait_until(lambda: served.broker.listeners[0].connections == 2)
        third = raw(served.port())
        assert third.recv(1) == b""
        assert connect_code(served, 1) == 0
        first.close()
        served.wait_until(lambda: served.broker.listeners[0].connections == 1)
        peer = over(raw(served.port()))
        peer.send(build.connect("c"))
        assert peer.packet()[0] == build.CONNACK
        second.close()


def test_the_highest_qos_per_listener() -> None:
    """In CONNACK, for publications, wills and subscriptions."""
    with serving({"max_qos": 0}, {"max_qos": 1}, {}) as served:
        granted = []
        for number in range(3):
            peer = entered(served, number)
            granted.append(peer.properties.get("maximum_qos"))
            peer.send(build.subscribe("t", qos=2))
            assert peer.packet()[1][-1] == number
        assert granted == [[0], [1], None]
        for number, qos in ((0, 1), (1, 2)):
            peer = entered(served, number)
            peer.send(build.publish("u", b"x", qos, 1))
            peer.expect_closed(0x9B)
            late = over(raw(served.port(number)))
            late.send(build.connect("w", will=build.will("w", qos=qos)))
            assert late.packet()[1][1] == 0x9B
        entered(served, 2).publish("u", b"x", 2)
        entered(served, 1).publish("u", b"x", 1)


def test_topic_aliases_per_listener() -> None:
    with serving({"topic_alias_maximum": 3}, {"topic_alias_maximum": 0}, {}, topic_alias_maximum=5) as served:
        granted = [entered(served, number).properties.get("topic_alias_maximum") for number in range(3)]
        assert granted == [[3], None, [5]]
        peer = entered(served, 0)
        peer.send(build.publish("t", b"x", topic_alias=4))
        peer.expect_closed(0x94)


def test_ids_per_listener() -> None:
    own = {"auto_id_prefix": "door-", "allow_empty_client_id": True}
    with serving({"allow_empty_client_id": False}, own, {}, allow_empty_client_id=False, auto_id_prefix="x-") as served:
        assert [connect_code(served, number, "") for number in range(3)] == [0x85, 0, 0x85]
        (assigned,) = entered(served, 1, "").properties["assigned_client_id"]
        assert str(assigned).startswith("door-")
    with serving({}, auto_id_prefix="x-") as served:
        (assigned,) = entered(served, 0, "").properties["assigned_client_id"]
        assert str(assigned).startswith("x-")


@pytest.mark.parametrize("client_id", ["other", ""])
def test_user_names_as_client_ids(client_id: str) -> None:
    """Nobody can take over another's session by giving its id."""
    with serving({"username_as_client_id": True}) as served:
        peer = over(raw(served.port()))
        peer.send(build.connect(client_id, username="ann"))
        _, body = peer.packet()
        assert body[1] == 0 and (b"\x12\x00\x03ann" in body) is (client_id == "")
        assert served.call(lambda: list(served.broker.server.sessions)) == ["ann"]
        assert connect_code(served, 0, "ann") == 0x87, "without a user name"


def test_names_of_the_broker_are_no_client_ids() -> None:
    """By an id such as a bridge's, a user would have the bridge's rights."""
    with serving({"username_as_client_id": True}) as served:
        peer = over(raw(served.port()))
        peer.send(build.connect("c", username="$bridge/x"))
        assert peer.packet()[1][1] == 0x85


def outcome(served: Served, number: int, password: bytes) -> tuple[int, int | None]:
    """Of CONNECT as user u, and of a message that the rules forbid."""
    peer = over(raw(served.port(number)))
    peer.send(build.connect(f"c{number}", username="u", password=password, session_expiry=100))
    code = peer.packet()[1][1]
    if code:
        return code, None
    peer.send(build.publish("forbidden", b"x", 1, 1))
    first, body = peer.packet()
    assert first == build.PUBACK
    peer.close()
    return 0, body[2]


def test_passwords_and_rules_per_listener(tmp_path: Path) -> None:
    access = {
        "password_file": users_file(tmp_path, u="right"),
        "acl_file": rules_file(tmp_path, "user u\ntopic read a\n"),
    }
    rows: tuple[dict[str, Any], ...] = ({}, {"use_passwords": False}, {"use_rules": False})
    with serving(*rows, access=access, allow_anonymous=True) as served:
        assert [outcome(served, number, b"wrong") for number in range(3)] == [(0x87, None), (0, 0x87), (0x87, None)]
        assert [outcome(served, number, b"right") for number in (0, 2)] == [(0, 0x87), (0, 0x10)]
        server = served.broker.server
        rules_file(tmp_path, "user u\ntopic read b\n")
        served.call(server.access.reload, server.config.access)
        sessions = served.call(lambda: dict(server.sessions))
        assert [sessions[f"c{number}"].rights is None for number in range(3)] == [False, False, True]


def test_where_passwords_are_not_asked_for_strangers_stay_out(tmp_path: Path) -> None:
    access = {"password_file": users_file(tmp_path, u="right")}
    with serving({"use_passwords": False}, access=access, allow_anonymous=False) as served:
        assert outcome(served, 0, b"right") == (0x87, None)


def test_all_addresses() -> None:
    """`*` is IPv4 and IPv6, where there is any."""
    with serving({"host": "*"}) as served:
        for host in ("127.0.0.1", "::1"):
            peer = over(socket.create_connection((host, served.port()), PATIENCE))
            peer.send(build.connect(host))
            assert peer.packet()[1][1] == 0


def test_a_plain_listener_pays_nothing() -> None:
    with serving({}) as served:
        connection = raw(served.port())
        served.wait_until(lambda: len(served.broker.server.channels) == 1)
        channel = next(iter(served.broker.server.channels))
        assert channel.socket is not None and channel.transport is None
        assert channel.recv.__self__ is channel.socket  # type: ignore[attr-defined]
        assert channel.send_bytes.__self__ is channel.socket  # type: ignore[attr-defined]
        connection.close()


def test_a_transport_whose_own_bytes_wait_is_told_that_they_may_go() -> None:
    told: list[bool] = []

    class Waiting(Transport):
        def writable(self) -> None:
            told.append(True)

        def end(self) -> None:
            pass

    broker = MemoryBroker()
    channel = Client(broker).channel
    broker.plane._write(channel)
    assert not told
    channel.transport = Waiting()
    broker.plane._write(channel)
    assert told


@pytest.mark.parametrize("row", [{"proxy_protocol": True}, {"protocol": "websocket"}, {"tls": None}], ids=str)
def test_what_a_connection_had_goes_with_it(row: dict[str, Any], authority: Authority) -> None:
    """Not only when the garbage collector comes."""
    if "tls" in row:
        row = {"tls": authority.server()}
    with serving(row) as served:
        gc.collect()
        gc.disable()
        kinds = (Channel, Transport, ProxyHeader)
        of_others = {id(each) for each in gc.get_objects() if isinstance(each, kinds)}  # of tests before this one
        try:
            connections = [raw(served.port()) for _ in range(5)]
            served.wait_until(lambda: len(served.broker.server.channels) == 5)
            for connection in connections:
                connection.close()
            served.wait_until(lambda: not served.broker.server.channels)
            served.wait_until(
                lambda: not any(isinstance(each, kinds) and id(each) not in of_others for each in gc.get_objects())
            )
        finally:
            gc.enable()


# ---- under other loops ----


def test_the_same_under_asyncio(tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def main() -> None:
        row = {"unix": path, "protocol": "websocket"}
        async with Broker(Config(listeners=[row], sys_interval=0)):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(request())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


# ---- settings ----


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "has a `port`, or is a `unix` socket"),
        ({"port": 1, "unix": "/x"}, "has a `port`, or is a `unix` socket"),
        ({"unix": "/x", "tls": {"certificate": "c", "key": "k"}}, "TLS on a Unix socket"),
        ({"port": 1, "tls": {"certificate": "c"}}, "key"),
        ({"port": 1, "websocket_path": "mqtt"}, "pattern"),
        ({"port": 1, "tls": {"certificate": "c", "key": "k", "client_certificates": "required"}}, "need `ca`"),
        ({"port": 1, "tls": {"certificate": "c", "key": "k", "crl": "x"}}, "not asked for"),
        ({"port": 1, "auto_id_prefix": "\0"}, "pattern"),
        ({"port": 1, "certificate": "c"}, "Extra inputs"),
    ],
)
def test_settings_that_do_not_fit(row: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config(listeners=[row])
