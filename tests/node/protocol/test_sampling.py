"""What the connections of group members tell by themselves, and what is made of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.plane.selector import run
from headwater.node.protocol.sampling import TICK, WAY_INTERVAL, WAY_STEP
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.turns import RoundRobin
from headwater.routing.shared import DISPATCHERS, Group
from headwater.wire import encode
from headwater.wire.packets import Connect, Properties, Puback, Publish, Suback, Subscribe, SubscribeRequest
from headwater.wire.status import StatusReport, consent, encode_status
from tests.node.memory import Client, MemoryBroker
from tests.node.test_broker import Peer, settings

KILO = b"k" * 1000
PACKET = len(encode(Publish("t", KILO), 5))


class Recorder(Dispatcher):
    """Round robin that notes its samples."""

    def __init__(self) -> None:
        self.wants_samples = True
        self.samples: list[tuple[str, int, float]] = []
        self._next = 0

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        self._next += 1
        return members[self._next % len(members)]

    def sampled(self, member: Member, unsent_bytes: int, now: float) -> None:
        self.samples.append((member.key.client_id, unsent_bytes, now))  # type: ignore[attr-defined]

    def taken_samples(self) -> list[tuple[str, int, float]]:
        samples, self.samples = self.samples, []
        return samples


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """The dispatcher of the only group of the broker that a test makes."""
    recorder = Recorder()
    monkeypatch.setitem(DISPATCHERS, "recorder", lambda: recorder)
    return recorder


def new_broker(dispatcher: str = "recorder") -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, shared_dispatcher=dispatcher))


def joined(broker: MemoryBroker, client_id: str, qos: int = 0, **properties: object) -> Client:
    client = broker.client(client_id, properties=Properties(**properties))  # type: ignore[arg-type]
    client.send(Subscribe(1, [SubscribeRequest("$share/g/t", qos)]))
    client.packets()
    return client


def group_of(broker: MemoryBroker) -> Group:
    group = broker.server.router.groups.get("g", "t")
    assert group is not None
    return group


def ticking(broker: MemoryBroker) -> bool:
    return broker.server.sampling.timer is not None


# ---- when ----


def test_a_tick_looks_at_those_that_were_sent_something(recorder: Recorder) -> None:
    broker = new_broker()
    for name in "abcd":
        joined(broker, name)
    publisher = broker.client("p")
    assert not ticking(broker), "nothing was sent"
    publisher.send(*[Publish("t", KILO)] * 6)
    broker.later(TICK - 0.01)
    assert recorder.taken_samples() == []
    broker.later(0.02)
    samples = recorder.taken_samples()
    assert sorted(name for name, _, _ in samples) == ["a", "b", "c", "d"], "each once, however many it was sent"
    assert {unsent for _, unsent, _ in samples} == {0}
    assert not ticking(broker)
    publisher.send(Publish("t", KILO))
    broker.later(TICK)
    assert len(recorder.taken_samples()) == 1, "only one was sent something since"
    broker.later(10.0)
    assert recorder.taken_samples() == [] and not ticking(broker)


def test_as_long_as_bytes_wait_they_are_counted(recorder: Recorder) -> None:
    broker = new_broker()
    slow = joined(broker, "slow")
    slow.socket.room = 500
    broker.client("p").send(*[Publish("t", KILO)] * 3)
    for _ in range(3):
        broker.later(TICK)
        assert [unsent for _, unsent, _ in recorder.taken_samples()] == [3 * PACKET - 500]
    slow.unblock(PACKET)
    broker.later(TICK)
    assert [unsent for _, unsent, _ in recorder.taken_samples()] == [2 * PACKET - 500]
    slow.unblock()
    broker.later(TICK)
    assert [unsent for _, unsent, _ in recorder.taken_samples()] == [0]
    broker.later(TICK)
    assert recorder.taken_samples() == [] and not ticking(broker)


def test_what_is_written_in_this_turn_does_not_wait(recorder: Recorder) -> None:
    broker = new_broker()
    joined(broker, "m")
    publisher = broker.client("p")
    publisher.send(Publish("t", KILO))
    broker.server.hot.now += TICK
    publisher.send(Publish("t", KILO))  # the timers run before this is sent
    assert [unsent for _, unsent, _ in recorder.taken_samples()] == [0]


@pytest.mark.parametrize("dispatcher", sorted(set(DISPATCHERS) - {"adaptive"}))
def test_who_does_not_want_samples_costs_nothing(dispatcher: str) -> None:
    broker = new_broker(dispatcher)
    slow = joined(broker, "slow")
    slow.socket.room = 0
    broker.client("p").send(*[Publish("t", KILO)] * 3)
    assert not ticking(broker) and broker.server.sampling.watched == []


def test_adaptive_wants_samples() -> None:
    broker = new_broker("adaptive")
    joined(broker, "m")
    broker.client("p").send(Publish("t", KILO))
    assert ticking(broker)


def test_who_reports_or_acknowledges_is_not_sampled(recorder: Recorder) -> None:
    broker = new_broker()
    reports = joined(broker, "reports", user_properties=[consent(1000)])
    acknowledges = joined(broker, "acknowledges", 1)
    reports.feed(encode_status(StatusReport(b'{"msgsInQueue": 1}')))
    publisher = broker.client("p")
    publisher.send(*[Publish("t", KILO, 1, packet_id=number) for number in range(1, 5)])
    broker.later(TICK)
    assert recorder.taken_samples() == []
    for packet in acknowledges.messages():
        acknowledges.send(Puback(packet.packet_id))
    publisher.send(*[Publish("t", KILO)] * 4)
    broker.later(TICK)
    assert [name for name, _, _ in recorder.taken_samples()] == ["acknowledges"], "QoS 0 to it is not acknowledged"
    reports.lose()
    joined(broker, "reports")
    publisher.send(*[Publish("t", KILO)] * 2)
    broker.later(TICK)
    assert sorted(name for name, _, _ in recorder.taken_samples()) == ["acknowledges", "reports"]


def test_members_that_go_are_looked_at_no_more(recorder: Recorder) -> None:
    broker = new_broker()
    gone, left, stays = (joined(broker, name, session_expiry_interval=100) for name in ("gone", "left", "stays"))
    for client in (gone, left, stays):
        client.socket.room = 0
    broker.client("p").send(*[Publish("t", KILO)] * 3)
    broker.later(TICK)
    assert len(recorder.taken_samples()) == 3
    gone.lose()
    group_of(broker).leave(broker.server.sessions["left"])
    broker.later(TICK)
    assert [name for name, _, _ in recorder.taken_samples()] == ["stays"]
    stays.lose()
    broker.later(TICK)
    assert not ticking(broker) and broker.server.sampling.watched == []
    back = broker.client("gone", clean_start=False, properties=Properties(session_expiry_interval=100))
    assert back.channel.session is broker.server.sessions["gone"]
    broker.client("p2").send(Publish("t", KILO))
    broker.later(TICK)
    assert [name for name, _, _ in recorder.taken_samples()] == ["gone"], "who comes back is looked at again"


def test_another_dispatcher_at_run_time_is_heeded_at_once(recorder: Recorder) -> None:
    broker = new_broker()
    joined(broker, "slow").socket.room = 0
    publisher = broker.client("p")
    publisher.send(Publish("t", KILO))
    group = group_of(broker)
    group.use(RoundRobin())
    broker.later(TICK)
    assert recorder.taken_samples() == [] and not ticking(broker)
    group.use(recorder)
    publisher.send(Publish("t", KILO))
    group.use(recorder)
    publisher.send(Publish("t", KILO))
    broker.later(TICK)
    assert len(recorder.taken_samples()) == 1, "watched once"


# ---- what for ----


def share_of_slow(dispatcher: str) -> float:
    """The part that a reader gets that takes 10 messages a second, beside two that take all, of 100 a second."""
    broker = new_broker(dispatcher)
    slow, quick, other = (joined(broker, name) for name in ("slow", "quick", "other"))
    slow.socket.room = 0
    publisher = broker.client("p")
    got = {"slow": 0, "quick": 0}
    for number in range(2000):
        publisher.send(Publish("t", KILO))
        broker.later(0.01)
        if number % 10 == 0:
            slow.unblock(PACKET)
        got["quick"] += len(quick.messages()) + len(other.messages())
    return (2000 - got["quick"]) / 2000


def test_adaptive_steers_away_from_a_slow_reader() -> None:
    """It neither reports nor acknowledges: its unsent bytes tell. It can do 10 % and gets no more than a bit above."""
    assert share_of_slow("round_robin") == pytest.approx(1 / 3, abs=0.01)
    assert 0.05 < share_of_slow("adaptive") < 0.15


# ---- the kernel ----


class Told(socket.socket):
    """A socket of which the kernel tells what a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.not_sent = 0
        self.round_trip = 100  # microseconds
        self.size = 232
        self.asked = 0

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        self.asked += 1
        info = struct.pack("=144xII80x", self.not_sent, self.round_trip)
        return info[: min(size, self.size)]


@pytest.fixture
def told() -> Iterator[Told]:
    with Told() as connection:
        yield connection


def test_bytes_in_the_kernel_wait_too(recorder: Recorder, told: Told) -> None:
    broker = new_broker()
    slow = joined(broker, "slow")
    slow.channel.socket = told
    slow.socket.room = 500
    told.not_sent = 7000
    broker.client("p").send(Publish("t", KILO))
    broker.later(TICK)
    assert [unsent for _, unsent, _ in recorder.taken_samples()] == [PACKET - 500 + 7000]
    told.size = 104  # an old kernel
    broker.later(TICK)
    assert [unsent for _, unsent, _ in recorder.taken_samples()] == [PACKET - 500]


@pytest.mark.parametrize(
    ("microseconds", "way"), [(4, WAY_STEP), (290, WAY_STEP), (310, 2 * WAY_STEP), (100_000, 0.05), (0xFFFFFFFF, 0.0)]
)
def test_the_way_is_half_of_the_round_trip_in_steps(
    recorder: Recorder, told: Told, microseconds: int, way: float
) -> None:
    broker = new_broker()
    joined(broker, "m").channel.socket = told
    told.round_trip = microseconds
    broker.client("p").send(Publish("t", KILO))
    broker.later(TICK)
    assert [member.way for member in group_of(broker).members()] == [pytest.approx(way)]


def test_the_way_is_renewed_from_time_to_time_for_everybody(recorder: Recorder, told: Told) -> None:
    """Also for those that are not sampled, which are asked about no more often than that."""
    broker = new_broker()
    client = joined(broker, "m", 1)
    client.channel.socket = told
    publisher = broker.client("p")
    [member] = group_of(broker).members()
    ways = []
    for number in range(1, int(3 * WAY_INTERVAL / TICK) + 1):
        told.round_trip = number * 1000
        publisher.send(Publish("t", KILO, 1, packet_id=number))
        broker.later(TICK)
        ways.append(round(member.way, 6))
    assert recorder.taken_samples() == [] and told.asked == len(set(ways)) <= 4
    assert ways[0] == 0.0005 and ways[-1] > 0.01


# ---- real sockets ----


class Slow:
    """A member with a small receive buffer, that reads only when it is told to."""

    def __init__(self) -> None:
        self.peer = socket.socket()
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.peer.setblocking(False)

    async def join(self, broker: Broker) -> None:
        peer = self.peer
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", broker.port))
        joining = encode(Connect("slow", 5), 5) + encode(Subscribe(1, [SubscribeRequest("$share/g/t", 0)]), 5)
        await loop.sock_sendall(peer, joining)
        missing = len(encode(Suback(1, [0]), 5)) + 16  # and CONNACK
        while missing:
            missing -= len(await loop.sock_recv(peer, missing))

    def read(self, size: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self.peer.recv(size)


async def drain(peer: Peer) -> None:
    while await peer.packet() is not None:
        pass


async def members_after(dispatcher: str, messages: int) -> dict[str, Member]:
    """Two quick members and a slow one, which reads a tenth of what is published: how they are in the end."""
    async with Broker(settings(shared_dispatcher=dispatcher)) as broker:
        quick = [await (await Peer.connect(broker, name)).subscribe("$share/g/t") for name in ("a", "b")]
        slow = Slow()
        await slow.join(broker)
        readers = [asyncio.create_task(drain(peer)) for peer in quick]
        publisher = await Peer.connect(broker, "p")
        group = broker.server.router.groups.get("g", "t")
        assert group is not None
        for _ in range(messages // 10):
            publisher.send(*[Publish("t", KILO)] * 10)
            slow.read(PACKET)
            await asyncio.sleep(TICK / 10)  # ten rounds for each tick
        members = {member.key.client_id: member for member in group.members()}  # type: ignore[attr-defined]
        slow.peer.close()
        for task in readers:
            task.cancel()
        for peer in (*quick, publisher):
            peer.writer.close()
        return members


@pytest.mark.parametrize("dispatcher", ["round_robin", "adaptive"])
def test_a_slow_reader_on_a_real_socket(dispatcher: str) -> None:
    """Most of what waits for it waits in the kernel."""
    found: dict[str, Member] = {}

    async def main() -> None:
        found.update(await members_after(dispatcher, 1500))

    run(main())
    slow = found["slow"]
    share = slow.sent_bytes / sum(member.sent_bytes for member in found.values())
    if dispatcher == "round_robin":
        assert share == pytest.approx(1 / 3, abs=0.01)
        assert slow.unsent_bytes == 0 and slow.way == 0.0, "nobody has looked"
    else:
        assert share < 0.2
        assert all(WAY_STEP <= member.way < 0.005 for member in found.values())


def test_processing_is_not_taken_for_a_long_way() -> None:
    """TCP's mean round trip time of a member that processes first and acknowledges then is its processing time."""
    ways: list[float] = []

    async def main() -> None:
        async with Broker(settings(shared_dispatcher="adaptive")) as broker:
            worker = await (await Peer.connect(broker, "w")).subscribe("$share/g/t", 1)
            publisher = await Peer.connect(broker, "p")
            for number in range(20):
                if number == 15:
                    [channel] = [each for each in broker.server.channels if each.client_id == "w"]
                    channel.way_until = 0.0  # look again, now that the mean tells of its work
                publisher.send(Publish("t", KILO, 1, packet_id=1))
                message = await worker.packet()
                assert isinstance(message, Publish)
                await asyncio.sleep(0.03)  # its work
                worker.send(Puback(message.packet_id))
                assert await publisher.packet() == Puback(1)
            group = broker.server.router.groups.get("g", "t")
            assert group is not None
            ways.extend(member.way for member in group.members())
            worker.writer.close()
            publisher.writer.close()

    run(main())
    assert len(ways) == 1 and WAY_STEP <= ways[0] < 0.005
