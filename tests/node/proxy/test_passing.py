"""The short way from socket to socket (passing.c) does what the relay's own way does."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.proxy import short_way
from headwater.node.proxy.pacing import BURST, ENOUGH, MOST_EVENTS
from headwater.node.proxy.passages import FAILED, READ, REST, UNTOUCHED
from headwater.node.proxy.scanner import Scanner
from headwater.wire.packets import DISCONNECT, SUBSCRIBE
from tests.node.proxy.relaying import reset
from tests.node.proxy.test_scanner import PACKETS, packet

TYPES = 1 << SUBSCRIBE | 1 << DISCONNECT
SIZE = 1 << 16
ROOM = 1 << 30
SMALL = 1024
"""A read while too much waits."""
MOST_READS = 32
"""Before what they brought is sent."""
MESSAGE = packet(0x30, bytes(50))


class Lane:
    """What is sent to `near` goes from `source` to `target`, and can be read at `far`."""

    def __init__(self, passages: Any, epoll: select.epoll) -> None:
        self.passages = passages
        self.near, self.source = pair_of_sockets()
        self.target, self.far = pair_of_sockets()
        self.fd = self.source.fileno()
        epoll.register(self.fd, select.EPOLLIN)

    def open(self, skip: int = 0, size: int = SIZE, is_client: bool = True, types: int = TYPES) -> None:
        self.passages.open(self.fd, self.target.fileno(), size, skip, types, is_client)

    def sockets(self) -> list[socket.socket]:
        return [self.near, self.source, self.target, self.far]


def pair_of_sockets() -> tuple[socket.socket, socket.socket]:
    """By TCP, which has a RST."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname())
        second, _ = server.accept()
    for each in (first, second):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
    return first, second


class Bench:
    """Passages, and lanes for them."""

    def __init__(self, passing: ModuleType, count: int) -> None:
        self.epoll = select.epoll()
        self.passages = passing.Passages(self.epoll, ENOUGH, BURST)
        self.lanes = [Lane(self.passages, self.epoll) for _ in range(count)]

    def serve(self, most: int = MOST_EVENTS, room: int = ROOM) -> Any:
        assert select.select([self.epoll], [], [], 5)[0]
        return self.passages.serve(most, room)

    def close(self) -> None:
        for lane in self.lanes:
            for each in lane.sockets():
                each.close()
        self.epoll.close()


@pytest.fixture
def bench(passing: ModuleType) -> Iterator[Bench]:
    made = Bench(passing, 3)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(passing: ModuleType) -> Iterator[Bench]:
    made = Bench(passing, 2)
    yield made
    made.close()


def taken(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 20)
    except BlockingIOError:
        return b""


BYTES = st.one_of(PACKETS.map(lambda packets: b"".join(packet(*each) for each in packets)), st.binary())


@given(st.lists(st.tuples(BYTES, st.integers(0, 9), st.booleans()), min_size=1, max_size=2))
def test_what_passes_is_what_the_scanner_would_have_let_pass(
    shared: Bench, given: list[tuple[bytes, int, bool]]
) -> None:
    """The same count of packets and the same rest to skip; what matters is given back, unsent."""
    scanners = []
    reads = small = bursts = 0
    passed = {True: 0, False: 0}
    left = []
    for lane, (some, skip, is_client) in zip(shared.lanes, given, strict=False):
        data = some[:30_000] or b"\xc0\x00"
        scanner = Scanner(TYPES, is_client, 300)
        scanner.skipped(0, skip)
        is_simple = scanner.scan(data) is None and scanner.simple_skip >= 0
        scanners.append((lane, scanner, data, is_simple, skip))
        if is_simple:
            reads += 1
            small += scanner.packets < ENOUGH
            bursts += scanner.packets >= BURST
            passed[is_client] += len(data)
        else:
            left.append((lane.fd, select.EPOLLIN, READ, data))
        lane.open(skip, is_client=is_client)
        lane.near.sendall(data)
        until_there(lane.source, len(data))
    served = shared.serve()
    assert served[:6] == (len(scanners), reads, small, bursts, passed[True], passed[False])
    assert sorted(served[6] or []) == sorted(left)
    for lane, scanner, data, is_simple, skip in scanners:
        if is_simple:
            assert shared.passages.close(lane.fd) == (SIZE, scanner.simple_skip, scanner.packets)
            until_there(lane.far, len(data))
            assert taken(lane.far) == data
        else:
            assert shared.passages.close(lane.fd) == (SIZE, skip, 0)
        assert taken(lane.far) == b""


def until_there(connection: socket.socket, size: int) -> None:
    """So many bytes can be read."""
    connection.settimeout(5)
    while len(connection.recv(size, socket.MSG_PEEK)) < size:
        pass
    connection.setblocking(False)


def test_more_in_a_turn_than_the_buffer_holds(bench: Bench) -> None:
    data = [bytes([0x30, 0xF8, 0xD2, 0x03]) + bytes([number]) * 59_768 for number in range(3)]
    for lane, each in zip(bench.lanes, data, strict=True):
        lane.open()
        lane.source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        lane.near.sendall(each)
        until_there(lane.source, len(each))
    assert bench.serve() == (3, 3, 3, 0, sum(map(len, data)), 0, None)
    for lane, each in zip(bench.lanes, data, strict=True):
        until_there(lane.far, len(each))
        assert taken(lane.far) == each


def test_without_a_scanner_nothing_is_looked_at(bench: Bench) -> None:
    lane = bench.lanes[0]
    lane.open(skip=-1)
    data = b"\x82\x00\xff\xff\xff\xff\xff"
    lane.near.sendall(data)
    assert bench.serve() == (1, 0, 0, 0, len(data), 0, None)
    until_there(lane.far, len(data))
    assert bench.passages.close(lane.fd) == (SIZE, -1, 0)


def test_nothing_to_read(bench: Bench) -> None:
    assert bench.passages.serve(MOST_EVENTS, ROOM) == (0, 0, 0, 0, 0, 0, None)


def test_what_has_no_passage_is_left_to_the_caller(bench: Bench) -> None:
    never, closed, _ = bench.lanes
    closed.open()
    assert bench.passages.close(closed.fd) == (SIZE, 0, 0)
    assert bench.passages.close(closed.fd) is None
    for lane in (never, closed):
        lane.near.sendall(MESSAGE)
        until_there(lane.source, len(MESSAGE))
    served = bench.serve()
    assert sorted(served[6]) == sorted((lane.fd, select.EPOLLIN, UNTOUCHED, b"") for lane in (never, closed))
    assert all(taken(lane.source) == MESSAGE for lane in (never, closed))


def test_the_end(bench: Bench) -> None:
    lane = bench.lanes[0]
    lane.open()
    lane.near.shutdown(socket.SHUT_WR)
    assert bench.serve()[6] == [(lane.fd, select.EPOLLIN, READ, b"")]


def test_a_connection_that_breaks_is_left_to_the_caller_who_finds_out(bench: Bench) -> None:
    lane = bench.lanes[0]
    lane.open()
    reset(lane.near)
    ((fd, mask, kind, data),) = bench.serve()[6]
    assert (fd, kind, data) == (lane.fd, UNTOUCHED, b"")
    assert mask & select.EPOLLERR
    with pytest.raises(ConnectionResetError):
        lane.source.recv(1)


def test_a_descriptor_that_cannot_be_read_from(bench: Bench) -> None:
    """The error is told, since the system tells it once."""
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pipe_out, pipe_in = open_pipe()
    with reading, writing, pipe_out, pipe_in:
        bench.epoll.register(pipe_out.fileno(), select.EPOLLIN)
        bench.passages.open(pipe_out.fileno(), writing.fileno(), SIZE, 0, TYPES, True)
        pipe_in.write(b"x")
        pipe_in.flush()
        assert bench.serve()[6] == [(pipe_out.fileno(), select.EPOLLIN, FAILED, b"")]
        bench.epoll.unregister(pipe_out.fileno())


def open_pipe() -> tuple[Any, Any]:
    out, in_ = os.pipe()
    return os.fdopen(out, "rb"), os.fdopen(in_, "wb")


def test_who_cannot_be_sent_to(bench: Bench) -> None:
    """The caller has the bytes, and no other lane is concerned."""
    lane, other, _ = bench.lanes
    for each in (lane, other):
        each.open()
        each.near.sendall(MESSAGE)
        until_there(each.source, len(MESSAGE))
    lane.target.shutdown(socket.SHUT_WR)
    assert bench.serve() == (2, 1, 1, 0, len(MESSAGE), 0, [(lane.fd, select.EPOLLIN, READ, MESSAGE)])
    assert bench.passages.close(lane.fd) == (SIZE, 0, 0)


def test_a_socket_that_takes_a_part(bench: Bench) -> None:
    """What it did not take is given back; or all, if it took nothing."""
    lane = bench.lanes[0]
    lane.target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    lane.open()
    data = packet(0x30, bytes(60_000))
    counted = sent = 0
    left = None
    while left is None:
        lane.near.sendall(data)
        until_there(lane.source, len(data))
        served = bench.serve()
        left = served[6]
        counted += served[4]
        sent += len(data)
    ((fd, _, kind, rest),) = left
    assert fd == lane.fd
    assert (kind, counted) in ((REST, sent), (READ, sent - len(data)))
    assert rest == data[-len(rest) :]
    lane.far.settimeout(5)
    got = b""
    while len(got) < sent - len(rest):
        got += lane.far.recv(1 << 16)
    assert len(got) + len(rest) == sent


def test_reads_are_small_while_too_much_is_left_to_the_caller(bench: Bench) -> None:
    data = packet(0x82, bytes(3000))
    for lane in bench.lanes:
        lane.open()
        lane.near.sendall(data)
        until_there(lane.source, len(data))
    left = bench.serve(room=len(data) - 1)[6]
    assert [len(each[3]) for each in left] == [len(data), SMALL, SMALL]


def test_a_full_read_makes_the_next_one_larger(bench: Bench) -> None:
    lane = bench.lanes[0]
    lane.open(size=len(MESSAGE))
    lane.near.sendall(MESSAGE)
    until_there(lane.source, len(MESSAGE))
    bench.serve()
    assert bench.passages.close(lane.fd) == (2 * len(MESSAGE), 0, 1)


def test_no_more_than_was_asked_for(bench: Bench) -> None:
    for lane in bench.lanes:
        lane.open()
        lane.near.sendall(MESSAGE)
        until_there(lane.source, len(MESSAGE))
    assert [bench.serve(most=2)[0], bench.serve(most=2)[0]] == [2, 1]


@pytest.mark.parametrize("others", [MOST_READS - 1, MOST_READS])
def test_so_many_are_read_from_before_what_they_brought_is_sent(passing: ModuleType, others: int) -> None:
    """The last one that is read from is who the first one leads to: by then it has that, too, or not yet."""
    pairs = [socket.socketpair() for _ in range(others + 1)]
    with contextlib.ExitStack() as stack, select.epoll() as epoll:
        for each in pairs:
            stack.enter_context(each[0])
            stack.enter_context(each[1])
        target, far = (stack.enter_context(each) for each in socket.socketpair())
        passages = passing.Passages(epoll, ENOUGH, BURST)
        last = pairs[-1]
        for near, source in pairs:
            to = last[0] if source is pairs[0][1] else target
            passages.open(source.fileno(), to.fileno(), 2048, 0, TYPES, True)
            epoll.register(source.fileno(), select.EPOLLIN)
            near.send(MESSAGE)
        assert passages.serve(MOST_EVENTS, ROOM)[0] == others + 1
        early = others == MOST_READS
        assert len(far.recv(1 << 16)) == len(MESSAGE) * (others + early)
        last[1].setblocking(False)
        assert len(taken(last[1])) == (0 if early else len(MESSAGE))


@pytest.mark.parametrize("wrong", [(-1, 1, SIZE), (1, -1, SIZE), (1, 1, 0), (1, 1, SIZE + 1)])
def test_what_is_no_passage(bench: Bench, wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no such passage"):
        bench.passages.open(*wrong, 0, TYPES, True)


def test_which_way_a_relay_has(monkeypatch: pytest.MonkeyPatch, passing: ModuleType) -> None:
    monkeypatch.setattr(short_way, "passing", None)
    assert short_way.short_way() is None
    monkeypatch.setattr(short_way, "passing", passing)
    assert short_way.short_way() is passing.Passages
