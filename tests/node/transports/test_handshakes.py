"""Steps of TLS handshakes that are done beside the broker's loop: by the thread of openssl.c, and by one that a test
holds back."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headwater.node.transports import direct
from headwater.node.transports import handshakes as module
from tests.broker import build
from tests.node.extension import built

from .serving import PATIENCE, Authority, Served, over, raw, secured, serving

SOURCE = Path(direct.__file__).with_name("openssl.c")


@pytest.fixture(scope="module")
def openssl(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Built here, so that it is tested also where Headwater is plain Python."""
    return built(SOURCE, tmp_path_factory.mktemp("extension"))


class Held:
    """Does what the thread of openssl.c does, when a test lets it."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.waiting: list[tuple[Any, object]] = []
        self._done: list[tuple[object, int, str | None, int]] = []
        self.free = True

    def fileno(self) -> int:
        return self._fd

    def begin(self, tls: Any, context: object, incoming: object, outgoing: object, token: object) -> None:
        self.waiting.append((tls, token))
        if self.free:
            self.go()

    def go(self) -> None:
        for tls, token in self.waiting:
            kind, why = 0, None
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                kind = 2
            except ssl.SSLError as error:
                kind, why = 1, error.reason
            self._done.append((token, kind, why, 0))
        self.waiting.clear()
        os.eventfd_write(self._fd, 1)

    def next(self) -> tuple[object, int, str | None, int] | None:
        done = self._done.pop(0) if self._done else None
        if not self._done:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._fd)
        return done


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    made = Held()
    monkeypatch.setattr(module, "handshakes", lambda: made)
    return made


def connects(served: Served, context: ssl.SSLContext, client_id: str = "c") -> None:
    peer = over(secured(raw(served.port()), context))
    peer.send(build.connect(client_id))
    assert peer.packet()[1][1] == 0
    peer.close()


@pytest.mark.parametrize("protocol", ["mqtt", "websocket"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_is_served_when_its_steps_are_done(
    held: Held, authority: Authority, protocol: str, version: ssl.TLSVersion
) -> None:
    context = authority.trusting()
    context.maximum_version = version
    with serving({"tls": authority.server(), "protocol": protocol}) as served:
        if protocol == "mqtt":
            connects(served, context)
        else:
            connection = secured(raw(served.port()), context)
            connection.sendall(b"GET /none HTTP/1.1\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_others_are_served_meanwhile(held: Held, authority: Authority) -> None:
    held.free = False
    with serving({"tls": authority.server()}, {}) as served:
        waiting = raw(served.port())
        hello = b"\x16\x03\x01"
        waiting.sendall(hello)
        served.wait_until(lambda: len(held.waiting) == 1)
        plain = over(raw(served.port(1)))
        plain.send(build.connect("plain"))
        assert plain.packet()[1][1] == 0
        waiting.sendall(b"more")
        assert served.call(lambda: len(held.waiting)) == 1, "it is not read from"
        waiting.close()
        held.free = True
        served.call(held.go)
        served.wait_until(lambda: len(served.broker.server.channels) == 1)


def test_steps_are_bounded_and_who_comes_waits_outside(
    held: Held, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    held.free = False
    with serving({"tls": authority.server()}, {}) as served:
        crowd = [raw(served.port()) for _ in range(3)]
        for each in crowd:
            each.sendall(b"\x16\x03\x01")
        served.wait_until(lambda: len(held.waiting) == 3)
        outside = [raw(served.port()) for _ in range(4)]
        plain = over(raw(served.port(1)))
        plain.send(build.connect("plain"))
        assert plain.packet()[1][1] == 0, "where there is no TLS, others come in"
        assert served.call(lambda: len(served.broker.server.channels)) == 4
        held.free = True
        served.call(held.go)
        served.wait_until(lambda: len(served.broker.server.channels) == 8)
        for each in outside:
            each.close()
        connects(served, authority.trusting())


def test_who_takes_too_long_is_cut_off_and_its_step_comes_too_late(held: Held, authority: Authority) -> None:
    held.free = False
    with serving({"tls": authority.server()}, connect_timeout=0.05) as served:
        waiting = raw(served.port())
        waiting.sendall(b"\x16\x03\x01")
        assert waiting.recv(1) == b""
        served.wait_until(lambda: not served.broker.server.channels)
        served.call(held.go)
        assert served.call(lambda: served.broker.server.stats.failures) == 0


def test_a_step_that_cannot_be_done_there_is_done_here(
    held: Held, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*given: object) -> None:
        raise ValueError("no connection of a known kind")

    monkeypatch.setattr(held, "begin", unknown)
    with serving({"tls": authority.server()}) as served:
        connects(served, authority.trusting())


# ---- the thread itself -------------------------------------------------------------------------------------------


def pair(authority: Authority) -> tuple[ssl.SSLObject, ssl.SSLObject, list[ssl.MemoryBIO]]:
    """A server and a client, and in and out of each."""
    bios = [ssl.MemoryBIO() for _ in range(4)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = authority.server("pair")
    context.load_cert_chain(files["certificate"], files["key"])
    server = context.wrap_bio(bios[0], bios[1], server_side=True)
    client = authority.trusting().wrap_bio(bios[2], bios[3], server_hostname="localhost")
    return server, client, bios


def done(handshakes: Any) -> list[tuple[object, int, str | None, int]]:
    ready, _, _ = select.select([handshakes.fileno()], [], [], PATIENCE)
    assert ready
    found = []
    while (each := handshakes.next()) is not None:
        found.append(each)
    return found


def step(handshakes: Any, server: Any, bios: list[ssl.MemoryBIO], token: object) -> None:
    handshakes.begin(server._sslobj, server.context, bios[0], bios[1], token)


def test_the_thread_shakes_hands(openssl: ModuleType, authority: Authority) -> None:
    handshakes = openssl.Handshakes()
    server, client, bios = pair(authority)
    token = object()
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    bios[0].write(bios[3].read())
    step(handshakes, server, bios, token)
    assert done(handshakes) == [(token, 2, None, 0)]
    bios[2].write(bios[1].read())
    client.do_handshake()
    bios[0].write(bios[3].read())
    step(handshakes, server, bios, token)
    assert done(handshakes) == [(token, 0, None, 0)]
    assert server.version() == "TLSv1.3" and handshakes.next() is None


def test_what_fails_there_is_said(openssl: ModuleType, authority: Authority) -> None:
    handshakes = openssl.Handshakes()
    server, _, bios = pair(authority)
    bios[0].write(b"GET / HTTP/1.1\r\n\r\n")
    step(handshakes, server, bios, "it")
    ((token, kind, why, code),) = done(handshakes)
    assert (token, kind, code) == ("it", 1, 0) and why


def test_only_what_is_known_is_touched(openssl: ModuleType, authority: Authority) -> None:
    handshakes = openssl.Handshakes()
    server, client, bios = pair(authority)
    for given in ((object(), server.context, bios[0], bios[1]), (server._sslobj, client.context, bios[0], bios[1])):
        with pytest.raises(ValueError, match="no connection"):
            handshakes.begin(*given, None)


def test_it_ends_with_steps_left(openssl: ModuleType, authority: Authority) -> None:
    handshakes = openssl.Handshakes()
    made = [pair(authority) for _ in range(5)]
    for server, _, bios in made:
        bios[0].write(b"\x16\x03\x01")
        step(handshakes, server, bios, server)
    del handshakes


def test_many_at_once(openssl: ModuleType, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "openssl", openssl)
    with serving({"tls": authority.server()}) as served:
        assert served.broker._accepting is not None and served.broker._accepting.handshaking is not None
        peers = [socket.create_connection(("127.0.0.1", served.port()), PATIENCE) for _ in range(40)]
        secure = [over(secured(peer, authority.trusting())) for peer in peers]
        for number, peer in enumerate(secure):
            peer.send(build.connect(f"c{number}"))
        assert all(peer.packet()[1][1] == 0 for peer in secure)
        for peer in secure:
            peer.close()
