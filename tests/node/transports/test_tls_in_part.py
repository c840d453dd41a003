"""What a socket takes in part, with TLS and WebSocket in between: what is reported as gone is what the client has."""

from __future__ import annotations

import contextlib
import itertools
import ssl
from functools import partial
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.plane.channel import Channel, Transport
from headwater.node.plane.counters import Counters
from headwater.node.plane.turn import Turn
from headwater.node.transports.tls import Tls, overhead_of
from headwater.node.transports.websocket import WebSocket
from headwater.session.waiting import Budget
from headwater.wire.websocket import BINARY, PING, PONG, FrameReader, masked_frame

from .serving import MASK, Authority, request

_authority: list[Authority] = []

CIPHERS = {
    "1.3": "",
    "1.2 GCM": "ECDHE+AESGCM",
    "1.2 ChaCha20": "ECDHE+CHACHA20",
    "1.2 CCM": "ECDHE+AESCCM:!AESCCM8",
    "1.2 CCM8": "ECDHE+AESCCM8",
}
"""By version and kind: what OpenSSL calls them."""


@pytest.fixture(autouse=True, scope="module")
def _certificates(authority: Authority) -> None:
    _authority.append(authority)


class Wire:
    """Both directions of a connection; `room` is how many bytes the broker's socket takes before it blocks."""

    def __init__(self) -> None:
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.room = 1 << 60

    def recv(self, size: int) -> bytes:
        if not self.to_broker:
            raise BlockingIOError
        data = bytes(self.to_broker[:size])
        del self.to_broker[:size]
        return data

    def send(self, data: bytes) -> int:
        if self.room == 0:
            raise BlockingIOError
        count = min(self.room, len(data))
        self.to_client += data[:count]
        self.room -= count
        return count


class Line:
    """A channel over TLS and perhaps WebSocket, and the client at its other end."""

    def __init__(self, web: bool, version: str = "1.3") -> None:
        authority = _authority[0]
        self.wire = Wire()
        turn = Turn(Counters(), Budget(1 << 30))
        self.channel = Channel(turn, 99, self.wire.recv, self.wire.send)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.server().values())
        if CIPHERS[version]:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(CIPHERS[version])
        self.waits: list[bool] = []
        tls = Tls(self.channel, context, lambda channel, secured: None, self.waits.append)
        self.channel.recv, self.channel.send_bytes = tls.recv, tls.send
        self.transport: Transport = tls
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.trusting()
        if CIPHERS[version]:
            client.set_ciphers(CIPHERS[version])
        self.tls = client.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.reader = FrameReader(masked=False) if web else None
        self._handshake()
        if web:
            answer = b"HTTP/1.1 101 Fine\r\n\r\n"
            above = WebSocket(self.channel, lambda channel, head: (True, answer), tls)
            self.channel.recv, self.channel.send_bytes = above.recv, above.send
            self.say(request())
            assert self.plain() == answer
        self.got = b""

    def _handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            self.wire.to_broker += self.outgoing.read()
            self._turn()
            self.incoming.write(self.wire.to_client)
            self.wire.to_client.clear()
            if done:
                return

    @property
    def agreed(self) -> tuple[str | None, str]:
        """Version and cipher."""
        cipher = self.tls.cipher()
        assert cipher is not None
        return self.tls.version(), cipher[0]

    def _turn(self) -> bytes:
        try:
            return self.channel.recv(65536)
        except BlockingIOError:
            return b""

    def say(self, data: bytes) -> bytes:
        self.tls.write(data)
        self.wire.to_broker += self.outgoing.read()
        return self._turn()

    def plain(self) -> bytes:
        """What the client can decrypt of what has arrived."""
        self.incoming.write(self.wire.to_client)
        self.wire.to_client.clear()
        parts = []
        while True:
            try:
                parts.append(self.tls.read(1 << 20))
            except ssl.SSLWantReadError:
                return b"".join(parts)

    def receive(self) -> bytes:
        data = self.plain()
        self.got += data if self.reader is None else self.reader.feed(data)
        return self.got

    def send(self, waiting: bytes) -> int:
        try:
            return self.channel.send_bytes(waiting)
        except BlockingIOError:
            return 0


@settings(deadline=None, max_examples=60)
@given(
    web=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.integers(0, 200_000), st.sampled_from([0, 1, 5, 100, 16_000, 16_500, 70_000, 1 << 30]), st.booleans()
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_what_is_reported_has_gone_and_nothing_goes_twice(web: bool, steps: list[tuple[int, int, bool]]) -> None:
    line = Line(web)
    everything = b""
    waiting = b""
    reported = 0
    for size, room, ping in [*steps, (1, 1 << 60, False), (1, 1 << 60, False), (1, 1 << 60, False)]:
        if web and ping:
            line.say(masked_frame(PING, b"still there?", MASK))
        new = bytes(number & 0xFF for number in range(len(everything), len(everything) + size))
        everything += new
        waiting += new
        line.wire.room = room
        gone = line.send(waiting)
        reported += gone
        waiting = waiting[gone:]
        got = line.receive()
        assert everything.startswith(got)
        assert len(got) >= reported, "reported as gone, and the client cannot have it"
        if not web:
            assert len(got) == reported, "the client has it, and it would go again to somebody else"
    while waiting:
        gone = line.send(waiting)
        assert gone
        waiting = waiting[gone:]
    assert line.receive() == everything


def test_pings_of_one_who_does_not_read_make_nothing_grow() -> None:
    line = Line(True)
    line.wire.room = 0
    web = cast(WebSocket, line.channel.recv.__self__)  # type: ignore[attr-defined]
    assert line.send(b"x" * 100) == 0
    for number in range(1000):
        line.say(masked_frame(PING, b"%d" % number, MASK))
    assert len(web._front) < 10 and web._pong is not None and len(web._pong) < 10
    line.wire.room = 1 << 60
    assert line.send(b"x" * 100) == 100
    assert line.receive() == b"x" * 100
    assert line.send(b"y") == 1
    data = line.plain()
    assert data[0] == 0x80 | PONG and data.count(bytes([0x80 | PONG])) == 1 and b"999" in data


def test_a_handshake_whose_bytes_wait_goes_on_when_the_socket_takes_them() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_authority[0].server().values())
    wire = Wire()
    channel = Channel(Turn(Counters(), Budget(1 << 30)), 99, wire.recv, wire.send)
    waits: list[bool] = []
    tls = Tls(channel, context, lambda channel, secured: None, waits.append)
    outgoing = ssl.MemoryBIO()
    client = _authority[0].trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    wire.to_broker += outgoing.read()
    wire.room = 100
    with pytest.raises(BlockingIOError):
        tls.recv(65536)
    assert waits == [True] and len(wire.to_client) == 100
    wire.room = 50
    tls.writable()
    assert waits == [True] and len(wire.to_client) == 150
    wire.room = 1 << 60
    tls.writable()
    assert waits == [True, False] and len(wire.to_client) > 500


def test_a_large_record_whose_last_byte_comes_alone() -> None:
    line = Line(False)
    tls = cast(Tls, line.transport)
    reads: list[int] = []
    read = tls._read
    tls._read = lambda size: reads.append(size) or read(size)  # type: ignore[func-returns-value]
    line.tls.write(b"x" * 16_000)
    record = line.outgoing.read()
    for part in (record[:-1], record[-1:]):
        line.wire.to_broker += part
        got = b""
        while line.wire.to_broker:
            got += line._turn()
    assert got == b"x" * 16_000
    assert len(reads) < 20


def test_reads_grow_with_what_comes() -> None:
    wire = Wire()
    sizes: list[int] = []

    def recv(size: int) -> bytes:
        sizes.append(size)
        return wire.recv(size)

    channel = Channel(Turn(Counters(), Budget(1 << 30)), 99, recv, wire.send)
    web = WebSocket(channel, lambda channel, head: (True, b"fine"), None)
    wire.to_broker += request() + masked_frame(BINARY, b"x" * 300_000, MASK)
    got = b""
    while wire.to_broker:
        got += web.recv(960)
    assert got == b"x" * 300_000
    assert max(sizes) == 61_440 and len(sizes) < 15


def test_what_tls_itself_has_to_say_goes_at_once() -> None:
    line = Line(False)
    cast(Tls, line.transport)._outgoing.write(b"an answer")  # as to a request for new keys, which came as a record
    line.tls.write(b"some ")
    assert line.say(b"data") == b"some data"
    assert bytes(line.wire.to_client) == b"an answer"


@settings(deadline=None, max_examples=60)
@given(
    version=st.sampled_from(sorted(CIPHERS)),
    records=st.lists(st.sampled_from([1, 2, 17, 100, 441, 442, 443, 464, 2000, 16_383, 16_384, 40_000]), max_size=8),
    cuts=st.lists(st.integers(0, 200_000), max_size=12),
)
def test_bytes_are_the_same_however_they_are_cut(version: str, records: list[int], cuts: list[int]) -> None:
    line = Line(False, version)
    sizes = [0, *records]
    said = [bytes((start + number) & 0xFF for number in range(size)) for start, size in enumerate(sizes) if size]
    for each in said:
        line.tls.write(each)
    stream = line.outgoing.read()
    got = b""
    for start, end in itertools.pairwise(sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})):
        line.wire.to_broker += stream[start:end]
        while line.wire.to_broker:
            got += line._turn()
    assert got == b"".join(said), "something is still inside, and no event would tell of it"


def test_a_record_behind_one_that_came_in_part_is_not_overlooked() -> None:
    """The length of what came is that of the first record, by chance, and there is a second one in it."""
    line = Line(False)
    line.tls.write(b"x" * 100)
    line.tls.write(b"y" * 50)
    stream = line.outgoing.read()
    second = len(stream) - (100 + overhead_of(*line.agreed))
    line.wire.to_broker += stream[:second]
    assert line._turn() == b""
    line.wire.to_broker += stream[second:]
    assert line._turn() == b"x" * 100 + b"y" * 50


@pytest.mark.parametrize("version", sorted(CIPHERS))
def test_records_are_longer_by_what_the_cipher_says(version: str) -> None:
    line = Line(False, version)
    for size in (1, 100, 16_384):
        line.tls.write(b"x" * size)
        assert len(line.outgoing.read()) == size + overhead_of(*line.agreed)
    assert overhead_of("TLSv1.2", "ECDHE-ECDSA-AES256-SHA384") == 0, "which has no fixed one"


@pytest.mark.parametrize("version", sorted(CIPHERS))
def test_one_record_in_one_read_is_asked_for_once(version: str) -> None:
    line = Line(False, version)
    tls = cast(Tls, line.transport)
    reads: list[int] = []
    read = tls._read
    tls._read = lambda size: reads.append(size) or read(size)  # type: ignore[func-returns-value]
    line.say(b"x")  # what is behind the handshake is not known before
    reads.clear()
    for size in (1, 2, 100, 400):
        assert line.say(b"x" * size) == b"x" * size
    assert len(reads) == 4


def test_who_makes_tls_answer_and_does_not_read_is_cut_off() -> None:
    line = Line(False)
    line.wire.room = 0
    tls = cast(Tls, line.transport)
    own = partial(tls._outgoing.write, b"x" * 1000)  # as the answers to requests for new keys are
    with pytest.raises(ConnectionAbortedError):
        for _ in range(1000):
            own()
            tls._flush_own()


def test_an_end_that_both_have_said_is_an_end() -> None:
    line = Line(web=False)
    line.transport.end()
    line.incoming.write(line.wire.to_client)
    with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
        line.tls.unwrap()
    line.wire.to_broker += line.outgoing.read()
    assert line.channel.recv(65536) == b""
