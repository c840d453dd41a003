"""The short way from socket to socket (passing.c) does what the relay's own way does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.proxy import short_way
from headwater.node.proxy.scanner import Scanner
from headwater.wire.packets import DISCONNECT, SUBSCRIBE
from tests.node.extension import built
from tests.node.proxy.test_scanner import PACKETS, packet

TYPES = 1 << SUBSCRIBE | 1 << DISCONNECT
BITS = 17
MASK = (1 << BITS) - 1


SOURCE = Path(short_way.__file__).with_name("passing.c")


@pytest.fixture(scope="module")
def passing(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(SOURCE, tmp_path_factory.mktemp("extension"))


@pytest.fixture(scope="module")
def sockets() -> Iterator[list[socket.socket]]:
    """Two connections: what is sent to the first can be read at the second, from the third to the fourth."""
    made = [*socket.socketpair(), *socket.socketpair()]
    for each in made:
        each.setblocking(False)
    yield made
    for each in made:
        each.close()


def taken(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 20)
    except BlockingIOError:
        return b""


def pass_on(passing: ModuleType, sockets: list[socket.socket], data: bytes, skip: int) -> object:
    """What it returns; `data` is passed from the second to the third."""
    sockets[0].sendall(data)
    return passing.pass_on(sockets[1].fileno(), sockets[2].fileno(), 1 << 16, skip, TYPES, True)


@given(
    st.one_of(PACKETS.map(lambda packets: b"".join(packet(*each) for each in packets)), st.binary()), st.integers(0, 9)
)
def test_what_passes_is_what_the_scanner_would_have_let_pass(
    passing: ModuleType, sockets: list[socket.socket], data: bytes, skip: int
) -> None:
    """The same count of packets and the same rest to skip; what matters is given back, unsent."""
    data = data[:60_000] or b"\xc0\x00"
    scanner = Scanner(TYPES, True, 300)
    scanner.skipped(0, skip)
    found = scanner.scan(data)
    is_simple = found is None and scanner.simple_skip >= 0
    result = pass_on(passing, sockets, data, skip)
    if is_simple:
        assert isinstance(result, int)
        assert result & MASK == len(data)
        assert result >> BITS & MASK == scanner.packets
        assert result >> 2 * BITS == scanner.simple_skip
        assert taken(sockets[3]) == data
    else:
        assert result == data
        assert taken(sockets[3]) == b""


def test_without_a_scanner_nothing_is_looked_at(passing: ModuleType, sockets: list[socket.socket]) -> None:
    data = b"\x82\x00\xff\xff\xff\xff\xff"
    assert pass_on(passing, sockets, data, -1) == len(data)
    assert taken(sockets[3]) == data


def test_nothing_to_read(passing: ModuleType, sockets: list[socket.socket]) -> None:
    assert passing.pass_on(sockets[1].fileno(), sockets[2].fileno(), 1 << 16, 0, TYPES, True) is None


def test_the_end(passing: ModuleType) -> None:
    first, second = socket.socketpair()
    with first, second:
        second.setblocking(False)
        first.shutdown(socket.SHUT_WR)
        assert passing.pass_on(second.fileno(), second.fileno(), 1 << 16, 0, TYPES, True) == b""


def test_a_socket_that_takes_a_part(passing: ModuleType, sockets: list[socket.socket]) -> None:
    """What it did not take is given back; and all, if it took nothing."""
    to, reader = socket.socketpair()
    with to, reader:
        to.setblocking(False)
        to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        data = packet(0x30, bytes(60_000))
        seen = b""
        rest = b""
        while not rest:
            sockets[0].sendall(data)
            result = passing.pass_on(sockets[1].fileno(), to.fileno(), 1 << 16, 0, TYPES, True)
            if isinstance(result, tuple):
                assert result[0] & MASK == len(data)
                rest = result[1]
            elif isinstance(result, bytes):
                rest = result
            seen += data
        assert rest == data[-len(rest) :]
        reader.settimeout(5)
        got = b""
        while len(got) < len(seen) - len(rest):
            got += reader.recv(1 << 16)
        assert got + rest == seen


def test_a_connection_that_is_broken(passing: ModuleType) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        passing.pass_on(-1, -1, 1 << 16, 0, TYPES, True)


def test_which_way_a_relay_has(monkeypatch: pytest.MonkeyPatch, passing: ModuleType) -> None:
    monkeypatch.setattr(short_way, "passing", None)
    assert short_way.short_way() is None
    monkeypatch.setattr(short_way, "passing", passing)
    assert short_way.short_way() is passing.pass_on
