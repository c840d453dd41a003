"""Transport × who × action on real sockets: the rules are the same by every way in, and so is who one is.

One broker with a listener for each transport, and one table for all of them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.node.access.settings import AccessSettings
from headwater.wire.reasons import NOT_AUTHORIZED, SUCCESS
from tests.broker import build
from tests.broker.peer import Peer
from tests.node.access.arriving import key_file, rules_file, users_file
from tests.node.access.test_tokens import token
from tests.node.transports.serving import (
    Authority,
    Served,
    WebSocketClient,
    close_all,
    opened,
    over,
    raw,
    secured,
    serving,
)

TRANSPORTS = ["tcp", "tls", "websocket", "secure websocket", "unix"]
WITH_CERTIFICATES = ["tls", "secure websocket"]
RULES = """
topic readwrite open/#
user alice
topic readwrite home/#
topic deny home/private
user carol
topic write reports/carol
topic read orders/#
pattern readwrite of/%u
"""

# What each may write and read.
TABLE = """
who            topic            write  read
anonymous      open/x           yes    yes
anonymous      home/x           no     no
anonymous      of/              no     no
password       home/x           yes    yes
password       home/private     no     no
password       open/x           no     no
password       of/alice         yes    yes
token          home/x           yes    yes
token          of/bob           no     no
certificate    reports/carol    yes    no
certificate    orders/1         no     yes
certificate    of/carol         yes    yes
certificate    home/x           no     no
"""
WHO: dict[str, dict[str, Any]] = {
    "anonymous": {},
    "password": {"username": "alice", "password": b"right"},
    "token": {"username": "bob", "password": token()},
    "certificate": {"username": "alice", "password": b"wrong"},
}
CELLS = [
    pytest.param(transport, who, topic, write == "yes", read == "yes", id=f"{transport}-{who}-{topic}")
    for who, topic, write, read in (line.split() for line in TABLE.strip().splitlines()[1:])
    for transport in TRANSPORTS
    if who != "certificate" or transport in WITH_CERTIFICATES
]


class Ways:
    """The listeners of one broker, and how to come in by each."""

    def __init__(self, served: Served, authority: Authority, unix: str) -> None:
        self.served = served
        self.authority = authority
        self.unix = unix

    def enter(self, transport: str, certificate: bool) -> Peer:
        number = TRANSPORTS.index(transport)
        if transport == "unix":
            connection = socket.socket(socket.AF_UNIX)
            opened.append(connection)
            connection.connect(self.unix)
            return over(connection)
        connection = raw(self.served.port(number))
        if "tls" in transport or "secure" in transport:
            context: ssl.SSLContext = self.authority.trusting(self.authority.client("carol") if certificate else None)
            connection = secured(connection, context)
        return over(WebSocketClient(connection) if "websocket" in transport else connection)


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    folder: Path = tmp_path_factory.mktemp("access")
    authority = Authority(folder)
    tls = authority.server() | {"client_certificates": "optional", "ca": authority.file}
    unix = str(folder / "socket")
    access = AccessSettings(
        password_file=users_file(folder, alice="right"),
        jwt_key_file=key_file(folder),
        acl_file=rules_file(folder, RULES),
    )
    listeners: list[dict[str, Any]] = [
        {},
        {"tls": tls},
        {"protocol": "websocket"},
        {"protocol": "websocket", "tls": tls},
        {"unix": unix},
    ]
    with serving(*listeners, allow_anonymous=True, access=access) as served:
        yield Ways(served, authority, unix)


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    close_all()


@pytest.mark.parametrize(("transport", "who", "topic", "write", "read"), CELLS)
def test_the_table_is_obeyed(transport: str, who: str, topic: str, write: bool, read: bool, ways: Ways) -> None:
    peer = ways.enter(transport, who == "certificate")
    peer.send(build.connect("client", version=5, **WHO[who]))
    first, body = peer.packet()
    assert first == build.CONNACK and body[1] == SUCCESS
    peer.send(build.subscribe(topic, qos=1, pid=1, version=5))
    peer.expect(build.suback(1 if read else NOT_AUTHORIZED, pid=1, version=5))
    peer.send(build.publish(topic, b"x", 1, 7, version=5))
    found = [peer.packet()]
    if write and read:
        found.append(peer.packet())
    peer.expect_nothing()
    acknowledgements = [body for first, body in found if first == build.PUBACK]
    assert len(acknowledgements) == 1
    assert (NOT_AUTHORIZED in acknowledgements[0][2:]) is not write
    assert len(found) - len(acknowledgements) == (write and read)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "said",
    [{"username": "alice", "password": b"wrong"}, {"username": "bob", "password": token(exp=1)}],
    ids=["password", "token"],
)
def test_who_is_not_who_it_says_comes_in_by_no_way(transport: str, said: dict[str, Any], ways: Ways) -> None:
    peer = ways.enter(transport, False)
    peer.send(build.connect("client", version=5, **said))
    peer.expect_refused(NOT_AUTHORIZED)
