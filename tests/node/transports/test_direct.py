"""The short way to TLS records does what the way by `ssl` does, on real sockets; and it is not gone where it cannot be.

The extension is built here, so that it is tested also where Headwater is plain Python.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.plane.channel import Channel
from headwater.node.plane.counters import Counters
from headwater.node.plane.turn import Turn
from headwater.node.transports import direct
from headwater.node.transports.tls import Tls
from headwater.session.waiting import Budget
from tests.broker import build
from tests.node.extension import built

from . import test_tls, test_tls_openssl
from .serving import Authority, over, raw, secured, serving

SOURCE = Path(direct.__file__).with_name("openssl.c")
WAYS = ["ssl", "direct"]
VERSIONS = {"1.3": "", "1.2 GCM": "ECDHE+AESGCM", "1.2 CBC": "ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384"}
made: list[ModuleType] = []
authorities: list[Authority] = []


@pytest.fixture(autouse=True, scope="module")
def _made(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> None:
    authorities.append(authority)
    made.append(built(SOURCE, tmp_path_factory.mktemp("extension")))


@contextlib.contextmanager
def going(way: str) -> Iterator[None]:
    before = direct.openssl
    direct.openssl = made[0] if way == "direct" else None
    try:
        yield
    finally:
        direct.openssl = before


class Line:
    """A channel over TLS on a real socket, and the client at its other end, which reads only when it is told to."""

    def __init__(self, way: str, version: str = "1.3") -> None:
        authority = authorities[0]
        ours, self.socket = socket.socketpair()
        for each in (ours, self.socket):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as little as the kernel has
        self.channel = Channel(Turn(Counters(), Budget(1 << 30)), ours.fileno(), ours.recv, ours.send)
        self.channel.socket = ours
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.server().values())
        client = authority.trusting()
        if VERSIONS[version]:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(VERSIONS[version])
            client.set_ciphers(VERSIONS[version])
        self.tls = Tls(self.channel, context, lambda channel, secured: None, lambda waits: None)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        with going(way):
            self._handshake()
        assert (self.tls._direct_recv is not None) == (way == "direct"), "the way that was meant"

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        if self.channel.socket is not None:
            self.channel.socket.close()

    def _handshake(self) -> None:
        done = False
        while not done:
            try:
                self.client.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            self.put(self.outgoing.read())
            while not done and not self._has_come():
                self.tls.writable()

    def _has_come(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.incoming.write(self.socket.recv(65536))
        return self.incoming.pending > 0

    def put(self, data: bytes) -> bytes:
        """Bytes on the broker's socket; what it makes of them."""
        got = b""
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[self.socket.send(data) :]
            got += self.read()
        return got

    def read(self) -> bytes:
        """All that the broker's end reads until nothing is there or the end has come."""
        parts = []
        while True:
            try:
                part = self.tls.recv(960)
            except BlockingIOError:
                if not self._is_readable():  # part of a record was, and the rest of it is
                    return b"".join(parts)
                continue
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _is_readable(self) -> bool:
        assert self.channel.socket is not None
        try:
            return bool(self.channel.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def say(self, data: bytes) -> bytes:
        self.client.write(data)
        return self.put(self.outgoing.read())

    def hear(self, most: int = 1 << 20) -> bytes:
        """What the client can decrypt of so many bytes of its socket."""
        with contextlib.suppress(BlockingIOError):
            while most and (data := self.socket.recv(min(most, 65536))):
                self.incoming.write(data)
                most -= len(data)
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while data := self.client.read(65536):
                parts.append(data)
        return b"".join(parts)


@settings(deadline=None, max_examples=40)
@given(
    way=st.sampled_from(WAYS),
    version=st.sampled_from(sorted(VERSIONS)),
    records=st.lists(st.sampled_from([1, 2, 17, 100, 441, 442, 443, 464, 2000, 16_383, 16_384, 90_000]), max_size=6),
    cuts=st.lists(st.integers(0, 200_000), max_size=8),
)
def test_what_comes_is_the_same_however_it_is_cut(way: str, version: str, records: list[int], cuts: list[int]) -> None:
    with Line(way, version) as line:
        said = [bytes((start + number) & 0xFF for number in range(size)) for start, size in enumerate(records)]
        for each in said:
            line.client.write(each)
        stream = line.outgoing.read()
        ends = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        got = b"".join(line.put(stream[start:end]) for start, end in itertools.pairwise(ends))
        assert got == b"".join(said), "something is still inside, and no event would tell of it"


@settings(deadline=None, max_examples=40)
@given(
    way=st.sampled_from(WAYS),
    steps=st.lists(
        st.tuples(st.sampled_from([1, 60, 3000, 16_384, 16_385, 50_000]), st.sampled_from([0, 1, 700, 1 << 30])),
        min_size=1,
        max_size=12,
    ),
)
def test_what_is_reported_has_gone_and_nothing_goes_twice(way: str, steps: list[tuple[int, int]]) -> None:
    with Line(way) as line:
        everything = waiting = heard = b""
        reported = 0
        for size, room in steps:
            new = bytes(number & 0xFF for number in range(len(everything), len(everything) + size))
            everything += new
            waiting += new
            gone = line.tls.send(waiting)
            reported += gone
            waiting = waiting[gone:]
            heard += line.hear(room)
            assert everything.startswith(heard)
        while waiting:
            gone = line.tls.send(waiting)
            reported += gone
            waiting = waiting[gone:]
            heard += line.hear()
            assert len(heard) == reported, "what is not reported would go again to somebody else"
        assert heard + line.hear() == everything


@pytest.mark.parametrize("way", WAYS)
def test_an_end_behind_data_is_understood(way: str) -> None:
    with Line(way) as line:
        line.client.write(b"the last")
        with contextlib.suppress(ssl.SSLWantReadError):
            line.client.unwrap()
        line.socket.send(line.outgoing.read())
        assert line.tls.recv(960) == b"the last"
        assert line.tls.recv(960) == b"", "and no event would have told of it"


@pytest.mark.parametrize("way", WAYS)
def test_an_end_that_both_have_said_is_an_end(way: str) -> None:
    with Line(way) as line:
        line.tls.end()
        assert line.hear() == b""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            line.client.unwrap()
        line.socket.send(line.outgoing.read())
        assert line.tls.recv(960) == b""
        with pytest.raises(OSError):
            line.tls.send(b"behind the end")


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_record_ends_it_and_the_client_is_told(way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headwater.transports")
    with Line(way) as line:
        assert line.say(b"fine") == b"fine"
        line.client.write(b"broken on its way")
        record = bytearray(line.outgoing.read())
        record[-1] ^= 1
        line.socket.send(record)
        with pytest.raises(ConnectionAbortedError):
            line.tls.recv(960)
        with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
            line.hear()
        assert "broke TLS" in caplog.text and "mac" in caplog.text.lower()


def test_a_socket_that_is_closed_or_reset_is_an_error_as_ever() -> None:
    with Line("direct") as line:
        assert line.channel.socket is not None
        line.channel.fd = -1  # the number may be another's by now
        for use in (lambda: line.tls.recv(960), lambda: line.tls.send(b"x")):
            with pytest.raises(OSError, match="Bad file descriptor"):
                use()
        line.channel.fd = line.channel.socket.fileno()
        line.hear()
        line.socket.close()
        assert line.tls.recv(960) == b""
        with pytest.raises(BrokenPipeError):
            line.tls.send(b"x")


def test_what_is_not_as_it_is_known_is_not_touched() -> None:
    records = made[0].Records
    with Line("ssl") as line:
        tls = line.tls._tls
        inner = tls._sslobj  # type: ignore[attr-defined]
        incoming, outgoing = line.tls._incoming, line.tls._outgoing
        assert records(inner, tls.context, incoming, outgoing)
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for wrong in (
            (inner, tls.context, outgoing, incoming),
            (inner, other, incoming, outgoing),
            (inner, tls.context, ssl.MemoryBIO(), outgoing),
            (object(), tls.context, incoming, outgoing),
            (tls.context, tls.context, incoming, outgoing),
            (inner, object(), object(), object()),
        ):
            with pytest.raises(ValueError):
                records(*wrong)
        with going("direct"):
            assert direct.records_of(tls, outgoing, incoming) is None
            assert direct.records_of(tls, incoming, outgoing) is not None
        assert line.say(b"goes on") == b"goes on"


def test_a_record_is_of_its_size() -> None:
    with Line("direct") as line:
        assert line.tls._direct_send is not None
        for size in (0, 16_385):
            with pytest.raises(ValueError):
                line.tls._direct_send(line.channel.fd, b"x" * size)
        assert line.tls.send(b"") == 0


def test_a_broker_has_it_where_it_is_installed(authority: Authority) -> None:
    with going("direct"), serving({"tls": authority.server()}) as served:
        peer = over(secured(raw(served.port()), authority.trusting()))
        peer.send(build.connect("c"))
        assert peer.packet()[0] == build.CONNACK
        [channel] = served.broker.server.channels
        assert isinstance(channel.transport, Tls) and channel.transport._direct_recv is not None


@pytest.mark.parametrize(
    "scenario",
    [
        test_tls_openssl.test_new_keys_are_answered,
        test_tls_openssl.test_renegotiation_is_refused,
        test_tls.test_many_records_in_one_read_are_all_dealt_with,
        test_tls.test_one_byte_at_a_time,
        test_tls.test_our_end_is_said,
        test_tls.test_their_end_is_understood,
        test_tls.test_a_slow_reader_gets_everything_in_order,
        test_tls.test_what_waits_for_one_who_does_not_read_is_bounded,
    ],
    ids=lambda function: function.__name__,
)
@pytest.mark.parametrize("way", WAYS)
def test_brokers_do_the_same_by_both_ways(scenario: object, way: str, authority: Authority) -> None:
    assert callable(scenario)
    with going(way):
        scenario(authority)
