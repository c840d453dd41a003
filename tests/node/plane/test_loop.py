"""Who has how much of a turn."""

from __future__ import annotations

import asyncio
import itertools
import select
import socket
import time
from collections.abc import Iterator

import pytest

from headwater.message import NEVER, Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import FIRST_READ, RESTING
from headwater.node.plane.loop import LARGEST_READ, LONG_READ, SMALLEST_POSTPONED_READ, SMALLEST_READ, WORK, EpollPlane
from headwater.node.plane.selector import run
from headwater.node.protocol.server import Server
from headwater.session.connection import CONNECTED, NEW
from headwater.wire import encode
from headwater.wire.packets import Connect, Pingresp, Publish, Subscribe, SubscribeRequest
from tests.node.memory import MemoryBroker

CONNECT = encode(Connect("", 5), 5)
PINGREQ = b"\xc0\x00"
PUBLISH = b"\x30\x0a\x00\x01tpayload"
PINGS = b"\xc0\x00" * 30


class Peers:
    """Sockets to a server that waits on epoll."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ours: list[socket.socket] = []

    def new(self) -> socket.socket:
        theirs, ours = socket.socketpair()
        theirs.setblocking(False)
        ours.setblocking(False)
        self.server.accept(theirs, "peer", True)
        self.ours.append(ours)
        return ours

    def answers(self) -> list[socket.socket]:
        """Those who were sent something since the last time."""
        found = []
        for each in self.ours:
            try:
                each.recv(1000)
                found.append(each)
            except BlockingIOError:
                continue
        return found


@pytest.fixture
def peers() -> Iterator[Peers]:
    server = Server(Config(sys_interval=0), Hooks())
    with select.epoll() as epoll:
        server.plane = EpollPlane(server.hot, server.timers, epoll)
        peers = Peers(server)
        yield peers
        for each in peers.ours:
            each.close()
        for channel in list(server.channels):
            server.lost(channel)


def turn(peers: Peers) -> None:
    assert isinstance(peers.server.plane, EpollPlane)
    peers.server.plane.run(0.0)


def test_those_who_are_connected_come_before_those_who_are_not(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    """In turns that take long; here all do."""
    assert isinstance(peers.server.plane, EpollPlane)
    ticks = itertools.count()
    peers.server.plane.clock = lambda: float(next(ticks))
    newcomers = [peers.new() for _ in range(5)]
    connected = [peers.new() for _ in range(3)]
    for each in connected:
        each.sendall(CONNECT)
        turn(peers)
    assert peers.answers() == connected
    for each in newcomers:
        each.sendall(CONNECT)
    for number in range(5):
        for each in connected:
            each.sendall(PINGREQ)
        turn(peers)
        answered = peers.answers()
        assert [each for each in answered if each in connected] == connected
        assert len(answered) == len(connected) + 1, f"newcomers in turn {number}"
    turn(peers)
    assert peers.answers() == [], "everybody had a turn"


def test_who_sends_much_is_read_from_in_larger_pieces_unless_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker(Config(sys_interval=0))
    client = broker.client("c", 4)
    client.channel.recv = lambda size: PUBLISH * (size // len(PUBLISH))
    took = [0.0]
    clock = [0.0]

    def monotonic() -> float:
        """As much as `took` passes from one look to the next."""
        clock[0] += took[0]
        return clock[0]

    monkeypatch.setattr(time, "monotonic", monotonic)

    def read() -> int:
        broker.plane._read(client.channel)
        return client.channel.read_size

    sizes = [read() for _ in range(10)]
    assert sizes[:3] == [FIRST_READ * 2, FIRST_READ * 4, FIRST_READ * 8] and sizes[-1] == LARGEST_READ
    took[0] = LONG_READ * 1.1
    assert [read(), read()] == [LARGEST_READ // 2, LARGEST_READ // 4]
    took[0] = LONG_READ * 0.9
    assert read() == LARGEST_READ // 4, "neither long nor short"
    took[0] = LONG_READ * 1.1
    assert [read() for _ in range(10)][-1] == SMALLEST_READ
    assert client.channel.heavy
    took[0] = 0.0
    client.channel.recv = lambda size: PUBLISH
    assert read() == SMALLEST_READ, "what does not fill its buffer needs no larger one"
    client.channel.recv = lambda size: PUBLISH * (size // len(PUBLISH))
    assert read() == 2 * SMALLEST_READ and not client.channel.heavy


def test_of_who_is_postponed_no_less_is_read_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is no time for waits in slices; small reads would not make it shorter."""
    broker = MemoryBroker(Config(sys_interval=0))
    client = broker.client("c", 4)
    client.channel.recv = lambda size: PINGS * (size // len(PINGS))
    took = LONG_READ * 1.1
    clock = [0.0]

    def monotonic() -> float:
        clock[0] += took
        return clock[0]

    monkeypatch.setattr(time, "monotonic", monotonic)
    client.channel.fast = False
    for _ in range(10):
        broker.server.hot.until = clock[0]
        broker.plane._read(client.channel)
        assert client.channel.postponed and client.channel.read_size >= FIRST_READ
        broker.server.hot.until = NEVER
        broker.server.background.finish()
        assert not client.channel.postponed and not client.channel.busy
    assert client.channel.read_size == SMALLEST_POSTPONED_READ


def test_what_a_turn_leaves_for_asyncio_is_not_kept_waiting_for_the_next_event() -> None:
    """A turn that only ends what asyncio has begun, before anything is waited for."""
    later: list[str] = []

    async def main() -> None:
        async with Broker(Config(host="127.0.0.1", port=0, sys_interval=0)) as broker:
            done = asyncio.Event()
            timers, now = broker.server.timers, broker.server.hot.now
            timers.at(now, done.set)
            timers.at(now + 1.0, lambda: later.append("the next event"))
            await done.wait()
            assert later == []

    run(main())


def test_of_those_who_send_much_a_turn_reads_from_some_and_the_next_from_others(peers: Peers) -> None:
    assert isinstance(peers.server.plane, EpollPlane)
    plane = peers.server.plane
    ticks = itertools.count()
    plane.clock = lambda: float(next(ticks))  # a turn has time for one of them
    senders = [peers.new() for _ in range(3)]
    quiet = peers.new()
    for each in (*senders, quiet):
        each.sendall(CONNECT)
        while not peers.answers():
            turn(peers)
    for channel in sorted(peers.server.channels, key=lambda channel: channel.fd)[:3]:
        channel.heavy = True
    for each in (*senders, quiet):
        each.sendall(PINGREQ)
    served = []
    for number in range(3):
        if number:
            quiet.sendall(PINGREQ)
        turn(peers)
        answered = peers.answers()
        assert quiet in answered, "who sends little is read from in every turn"
        served += [each for each in answered if each is not quiet]
        assert len(served) == number + 1
    assert set(served) == set(senders)


def test_a_client_that_has_gone_is_seen_while_it_is_not_read_from(peers: Peers) -> None:
    """Also one that sends much, and whose last packet takes long."""
    client = peers.new()
    client.send(CONNECT)
    turn(peers)
    (channel,) = peers.server.channels
    channel.heavy = True
    peers.server.be_busy(channel)
    turn(peers)
    assert peers.server.channels == {channel} and channel.paused
    client.close()
    turn(peers)
    assert peers.server.channels == set()


class Watch:
    """A clock that goes on by what is done. It is behind that of the system, which counts from its start: background
    tasks ask that one, and do one piece for each slice."""

    def __init__(self) -> None:
        self.now = 1.0
        self.worked = 0.0


class Endless(BackgroundTask):
    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def piece(self) -> bool:
        self.watch.now += 0.00002
        self.watch.worked += 0.00002
        return True


@pytest.mark.parametrize(("has_priority", "share"), [(True, 0.75), (False, 1.0)])
def test_background_tasks_leave_some_of_the_processor_to_others(peers: Peers, has_priority: bool, share: float) -> None:
    """Somebody wants something every 0.1 ms. With a real-time priority background tasks pause all the same, and for
    good measure: a process that is never idle would lose its processor for a while."""
    plane = peers.server.plane
    assert isinstance(plane, EpollPlane)
    plane.rests = has_priority
    watch = Watch()
    end = watch.now + 0.2

    def poll(timeout: float, most: int) -> list[tuple[int, int]]:
        watch.now += min(timeout, 0.0001)
        plane.interrupted = watch.now >= end
        return []

    plane.poll = poll
    plane.clock = lambda: watch.now
    peers.server.background.add(Endless(watch))
    plane.run(-1.0)
    assert share - 0.1 < watch.worked / 0.2 <= share + 0.01
    peers.server.background.waiting.clear()


def test_who_sends_little_is_answered_before_what_may_wait(peers: Peers) -> None:
    plane = peers.server.plane
    assert isinstance(plane, EpollPlane)
    quick = peers.new()
    quick.sendall(CONNECT)
    turn(peers)
    peers.answers()
    answered: list[bool] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"somebody knocks")
        plane.listen(theirs.fileno(), lambda: answered.append(peers.answers() == [quick]))
        quick.sendall(PINGREQ)
        turn(peers)
        assert answered == [True]
        plane.unlisten(theirs.fileno())
        plane.listen(theirs.fileno(), lambda: answered.append(peers.answers() == []), urgent=True)
        quick.sendall(PINGREQ)
        turn(peers)
        assert answered == [True, True], "a commit that is on disk does not wait for anybody"
        plane.unlisten(theirs.fileno())


def test_kinds_of_work_that_may_wait_take_turns(peers: Peers) -> None:
    """As long as somebody who sends little does so, and each piece takes longer than a slice."""
    plane = peers.server.plane
    assert isinstance(plane, EpollPlane)
    ticks = itertools.count()
    plane.clock = lambda: next(ticks) / 1000
    quick = peers.new()
    quick.sendall(CONNECT)
    turn(peers)
    newcomers = [peers.new() for _ in range(3)]
    for each in newcomers:
        each.sendall(CONNECT)
    done: list[str] = []

    class Endless(BackgroundTask):
        def piece(self) -> bool:
            done.append("background")
            return True

    peers.server.background.add(Endless())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"somebody knocks")
        plane.listen(theirs.fileno(), lambda: done.append("entrance"))
        peers.answers()
        for _ in range(9):
            before = len(done)
            quick.sendall(PINGREQ)
            turn(peers)
            answered = peers.answers()
            assert quick in answered
            done += ["newcomer" for each in answered if each in newcomers]
            assert len(done) == before + 1, "one kind in each turn"
        plane.unlisten(theirs.fileno())
    assert {kind: done.count(kind) for kind in done} == {"entrance": 3, "newcomer": 3, "background": 3}


def slow_plane(peers: Peers) -> EpollPlane:
    """Each look at the clock takes longer than a slice: a turn does as little as it can of what may wait."""
    plane = peers.server.plane
    assert isinstance(plane, EpollPlane)
    ticks = itertools.count()
    plane.clock = lambda: next(ticks) / 1000
    return plane


def received(client: socket.socket) -> bytes:
    client.setblocking(False)
    try:
        return client.recv(65536)
    except BlockingIOError:
        return b""


def test_sends_that_came_of_patient_work_are_spread_over_turns(peers: Peers) -> None:
    """A message for many is many sends: who sends little is served between them, and each client gets all in order."""
    plane = peers.server.plane
    assert isinstance(plane, EpollPlane)
    readers = [peers.new() for _ in range(20)]
    for number, each in enumerate(readers):
        each.sendall(encode(Connect(f"r{number}", 5), 5) + encode(Subscribe(1, [SubscribeRequest("t", 0)]), 5))
    quick, busy = peers.new(), peers.new()
    quick.sendall(CONNECT)
    busy.sendall(encode(Connect("busy", 5), 5))
    while len([each for each in peers.server.channels if each.state == CONNECTED]) < 22:
        turn(peers)
    turn(peers)
    peers.answers()
    next(each for each in peers.server.channels if each.client_id == "busy").heavy = True
    slow_plane(peers)
    plane.light_at = 1e9  # somebody sends little all the time
    message = encode(Publish("t", b"for all"), 5)
    busy.sendall(message)
    turn(peers)
    assert len(peers.server.hot.unsent) > 10
    with peers.server.turn():
        peers.server.publishing.route(Message("t", b"the next"), None)  # goes out behind the first
    waited = 0
    while peers.server.hot.unsent:
        quick.sendall(PINGREQ)
        turn(peers)
        assert received(quick) == encode(Pingresp(), 5)
        waited += 1
    assert waited > 5
    assert [received(each) for each in readers] == [message + encode(Publish("t", b"the next"), 5)] * 20


def test_who_has_hung_up_is_parted_from_behind_others_and_before_it_comes_back(peers: Peers) -> None:
    plane = slow_plane(peers)
    quick = peers.new()
    quick.sendall(CONNECT)
    turn(peers)
    gone = []
    for number in range(5):
        each = peers.new()
        each.sendall(encode(Connect(f"gone{number}", 5), 5))
        turn(peers)
        gone.append(each)
    while any(channel.state == NEW for channel in peers.server.channels):
        turn(peers)
    peers.answers()
    for each in gone:
        each.close()
    quick.sendall(PINGREQ)
    turn(peers)
    assert received(quick) == encode(Pingresp(), 5)
    assert len(plane.departed) >= 3
    again = peers.new()
    again.sendall(encode(Connect("gone4", 5), 5))
    while not (answer := received(again)):
        turn(peers)
    assert answer[0] == 0x20 and not plane.departed
    assert {channel.client_id for channel in peers.server.channels} >= {"gone4"}


def test_a_process_of_real_time_priority_rests_from_those_who_send_much(peers: Peers) -> None:
    plane = peers.server.plane
    assert isinstance(plane, EpollPlane)
    busy = peers.new()
    busy.sendall(CONNECT)
    turn(peers)
    peers.answers()
    channel = next(each for each in peers.server.channels if each.client_id)
    channel.heavy = True
    plane.rests = True
    plane.worked = WORK
    busy.sendall(PINGREQ)
    turn(peers)
    assert plane.resting == [channel] and channel.paused & RESTING
    peers.answers()
    busy.sendall(PINGREQ)
    plane.rest_until = 0.0
    turn(peers)
    turn(peers)
    assert not plane.resting and not channel.paused & RESTING
    assert received(busy) == encode(Pingresp(), 5)
