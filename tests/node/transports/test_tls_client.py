"""The client's side of TLS, against the server's, on memory that takes as many bytes as a test says."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.plane.channel import Channel
from headwater.node.plane.counters import Counters
from headwater.node.plane.turn import Turn
from headwater.node.transports.tls import Tls
from headwater.session.waiting import Budget

from .serving import HOST, Authority

_authority: list[Authority] = []
ANY = 1 << 60


@pytest.fixture(autouse=True, scope="module")
def _certificates(authority: Authority) -> None:
    _authority.append(authority)


class End:
    """One end of a connection. `room` is how many bytes its socket takes before it blocks."""

    def __init__(self, context: ssl.SSLContext, server_side: bool, hostname: str | None = None) -> None:
        self.incoming = bytearray()
        self.other: End
        self.room = ANY
        self.waits = False
        self.established = 0
        self.got = b""
        self.failed: OSError | None = None
        channel = Channel(Turn(Counters(), Budget(1 << 30)), 99, self._recv, self._send)
        self.tls = Tls(channel, context, self._secured, self._wait_writable, None, hostname, server_side)

    def _recv(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        data = bytes(self.incoming[:size])
        del self.incoming[:size]
        return data

    def _send(self, data: bytes) -> int:
        if self.room == 0:
            raise BlockingIOError
        count = min(self.room, len(data))
        self.room -= count
        self.other.incoming += data[:count]
        return count

    def _secured(self, channel: Channel, tls: ssl.SSLObject) -> None:
        self.established += 1

    def _wait_writable(self, wanted: bool) -> None:
        self.waits = wanted

    def turn(self) -> bool:
        """What an event loop would do; False: there was nothing to do."""
        did = False
        if self.waits and self.room:
            self.tls.writable()
            did = True
        while self.incoming and self.failed is None:
            did = True
            try:
                with contextlib.suppress(BlockingIOError):
                    self.got += self.tls.recv(65536)
            except OSError as error:
                self.failed = error
        return did


def pair(server: ssl.SSLContext, client: ssl.SSLContext, hostname: str | None = HOST) -> tuple[End, End]:
    ends = End(server, True), End(client, False, hostname)
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends


def run(*ends: End, between: Callable[[], None] = lambda: None) -> None:
    while any(each.turn() for each in ends):
        between()


def contexts(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Both sides ask for a certificate."""
    authority = _authority[0]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.server().values())
    server.load_verify_locations(authority.file)
    server.verify_mode = ssl.CERT_REQUIRED
    client = authority.trusting(authority.client("somebody"))
    client.maximum_version = version
    return server, client


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(VERSIONS), st.lists(st.integers(1, 700), max_size=12), st.binary(min_size=1, max_size=40_000))
def test_a_handshake_ends_however_little_the_socket_takes(
    version: ssl.TLSVersion, rooms: list[int], data: bytes
) -> None:
    server, client = pair(*contexts(version))
    rooms = [*rooms, ANY]
    client.room = rooms.pop(0)

    def more_room() -> None:
        if client.room == 0 and rooms:
            client.room = rooms.pop(0)

    client.tls.begin()
    more_room()
    run(server, client, between=more_room)
    assert (server.established, client.established) == (1, 1)
    assert not client.waits
    client.room = ANY
    for here, there in ((client, server), (server, client)):
        assert here.tls.send(data) == len(data)
        run(server, client)
        assert there.got == data


def test_the_end_of_the_handshake_goes_though_nothing_else_is_sent() -> None:
    """The server may wait for it before it says anything, so it must not wait for what the client sends next."""
    server, client = pair(*contexts())
    client.tls.begin()
    client.room = 0
    run(server, client)
    assert client.established == 1 and client.waits, "nobody would tell when the socket takes bytes"
    client.room = ANY
    run(server, client)
    assert server.established == 1 and not client.waits


def test_a_server_that_nobody_trusts(another_authority: Authority) -> None:
    server, client = pair(contexts()[0], another_authority.trusting())
    client.tls.begin()
    run(server, client)
    assert client.established == server.established == 0
    assert client.tls.failure == "self-signed certificate in certificate chain", "that of its authority"
    assert str(client.failed) == client.tls.failure
    assert "UNKNOWN_CA" in server.tls.failure, "the client says why"


def test_a_client_without_a_certificate() -> None:
    server, client = pair(contexts()[0], _authority[0].trusting())
    client.tls.begin()
    run(server, client)
    assert server.established == 0
    assert server.tls.failure == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    assert "CERTIFICATE_REQUIRED" in client.tls.failure, "told behind the handshake, which is over for the client"


def test_a_name_is_checked_if_the_context_says_so() -> None:
    server, client = pair(*contexts(), hostname="elsewhere.example.org")
    client.tls.begin()
    run(server, client)
    assert client.established == 0 and "mismatch" in client.tls.failure.lower()
