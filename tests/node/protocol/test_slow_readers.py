"""Readers that are slow or dead: memory stays bounded, nobody else is slowed, and who reads again gets what waited."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.protocol.delivering import BURST
from headwater.node.protocol.server import LINGER
from headwater.wire import encode
from headwater.wire.packets import Disconnect, Packet, Pingreq, Pingresp, Properties, Puback, Publish, Subscribe
from headwater.wire.packets import SubscribeRequest as Request
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed

BUFFER = 100_000
KILO = b"k" * 1000
both_ways = pytest.mark.parametrize("hot", [True, False], ids=["hot", "ordinary"])


def new_broker(hot: bool = True, hooks: Hooks | None = None, **settings: object) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, outbound_buffer=BUFFER, **settings), hooks, hot=hot)  # type: ignore[arg-type]


def publish_many(publisher: Client, count: int, qos: int = 0, per_turn: int = 10) -> None:
    for start in range(0, count, per_turn):
        numbers = range(start, min(count, start + per_turn))
        publisher.send(*(Publish("t", b"%05d" % n + KILO, qos, False, False, n + 1 if qos else 0) for n in numbers))
    publisher.packets()


def numbers(client: Client) -> list[int]:
    return [int(payload[:5]) for payload in payloads(client)]


@both_ways
def test_above_the_buffer_qos_0_is_dropped_and_counted(hot: bool) -> None:
    broker = new_broker(hot)
    slow, quick, publisher = subscribed(broker, "s"), subscribed(broker, "q"), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 1000)
    one_turn = 10 * 1020
    assert BUFFER < slow.channel.backlog_size <= BUFFER + one_turn
    assert broker.server.budget.used == slow.channel.backlog_size
    assert numbers(quick) == list(range(1000)), "a dead reader slows nobody"
    slow.unblock()
    got = numbers(slow)
    assert got == list(range(len(got))), "what is kept is the beginning, in order"
    assert broker.server.stats.publish_dropped == 1000 - len(got)
    assert broker.server.budget.used == 0
    publish_many(publisher, 5)
    assert numbers(slow) == [0, 1, 2, 3, 4], "and all is well again"


@both_ways
def test_a_reader_that_is_behind_is_not_read_from_until_it_has_caught_up(hot: bool) -> None:
    broker = new_broker(hot)
    slow, publisher = subscribed(broker, "s"), broker.client("p")
    assert slow.watched == (True, False)
    slow.socket.room = 0
    publish_many(publisher, 10)
    assert slow.watched == (True, True)
    publish_many(publisher, 200)
    assert slow.watched == (False, True)
    slow.unblock(BUFFER // 4)
    assert slow.watched == (False, True)
    slow.unblock(BUFFER // 2)
    assert slow.watched == (True, True) and not slow.channel.congested
    slow.unblock()
    assert slow.watched == (True, False)


def test_a_reader_far_behind_that_goes_away_is_gone() -> None:
    """Found by the attack `retained`: what is lost while it is written to was to be read from again."""
    broker = new_broker()
    slow, publisher = subscribed(broker, "s"), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 200)
    assert slow.channel.congested

    def reset(data: bytes) -> int:
        raise ConnectionResetError

    slow.channel.send_bytes = reset
    broker.plane._write(slow.channel)
    assert slow.socket.closed
    assert slow.channel not in broker.plane.watched


@both_ways
def test_qos_1_waits_in_the_queue(hot: bool) -> None:
    broker = new_broker(hot)
    slow, publisher = subscribed(broker, "s", qos=1), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 500, qos=1)
    assert slow.channel.backlog_size <= BUFFER + 10 * 1020
    session = broker.server.sessions["s"]
    assert session.outbound.waiting() == 500 - len(session.outbound.flights) > 0
    outbound = session.outbound
    assert broker.server.budget.used == slow.channel.backlog_size + outbound.queued_bytes + outbound.flying_bytes()
    slow.unblock()
    assert numbers(slow) == list(range(500))
    assert broker.server.stats.publish_dropped == 0 and broker.server.budget.used == outbound.flying_bytes()


def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    broker = new_broker(write_timeout=60)
    slow, publisher = subscribed(broker, "s"), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 10)
    broker.later(59)
    slow.unblock(100)
    broker.later(59)
    assert not slow.socket.closed, "a little was taken meanwhile"
    broker.later(2)
    assert slow.socket.closed and broker.server.budget.used == 0
    assert slow.channel not in broker.server.channels


def test_a_reader_that_takes_a_little_is_not_cut_off() -> None:
    broker = new_broker(write_timeout=60)
    slow, publisher = subscribed(broker, "s"), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 10)
    for _ in range(20):
        broker.later(50)
        slow.unblock(10)
    assert not slow.socket.closed


def test_a_reader_that_blocks_again_and_again_costs_one_timer() -> None:
    broker = new_broker()
    slow, publisher = subscribed(broker, "s"), broker.client("p")
    before = len(broker.server.timers)
    for _ in range(200):
        slow.socket.room = 0
        publish_many(publisher, 1)
        slow.unblock()
    assert len(broker.server.timers) <= before + 1
    slow.socket.room = 0
    publish_many(publisher, 1)
    slow.lose()
    broker.later(100)
    assert broker.server.stalls == {}


def test_keep_alive_does_not_count_while_we_do_not_read() -> None:
    """The write time-out decides about a reader that we pause."""
    broker = new_broker(write_timeout=1000)
    slow, publisher = subscribed(broker, "s", keep_alive=10), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 200)
    assert slow.channel.congested
    broker.later(100)
    assert not slow.socket.shut and slow.channel in broker.server.channels
    slow.unblock()
    slow.messages()
    broker.later(16)
    assert slow.packets() != [] and slow.socket.shut, "from then on it counts again"


@pytest.mark.parametrize("version", [4, 5])
def test_small_packets_cannot_ask_for_unbounded_memory(version: int) -> None:
    """A turn's worth of SUBSCRIBEs, each for all retained messages, is answered as far as the client reads; the rest
    waits where it is, and nothing is dropped."""
    broker = new_broker()
    publisher, greedy = broker.client("p"), broker.client("g", version)
    for number in range(100):
        publisher.send(Publish(f"t/{number}", bytes(10_000), 0, True))
    greedy.socket.room = 0
    asked = b"".join(encode(Subscribe(1, [Request("#", 0)]), version) for _ in range(50))
    limit = BUFFER + BURST + 20_000
    peak = 0
    transmit = greedy.socket.send

    def send(data: bytes) -> int:
        nonlocal peak
        peak = max(peak, len(data))
        return transmit(data)

    greedy.channel.send_bytes = send
    greedy.feed(asked)
    assert 0 < peak <= limit and greedy.channel.backlog_size <= limit
    while greedy.channel.backlog_size:
        greedy.unblock(limit)
    assert len(greedy.messages()) == 50 * 100 and peak <= limit
    assert broker.server.stats.publish_dropped == 0


def test_a_long_topic_behind_a_short_alias_is_bounded_too() -> None:
    broker = new_broker()
    slow, publisher = subscribed(broker, "s", "#"), broker.client("p")
    slow.socket.room = 0
    packets: list[Packet] = [Publish("x" * 60_000, properties=Properties(topic_alias=1))]
    packets += [Publish("", properties=Properties(topic_alias=1))] * 1000
    publisher.send(*packets)
    assert slow.channel.backlog_size <= BUFFER + BURST + 60_010
    assert broker.server.stats.publish_dropped > 900


def test_all_readers_together_are_bounded() -> None:
    """Many readers, each below its own buffer, reach half of `max_queue_memory` together; from then on QoS 0 is
    dropped, and QoS 1 for others has the other half."""
    broker = new_broker(max_queue_memory=600_000)
    readers = [subscribed(broker, f"s{number}") for number in range(10)]
    publisher = broker.client("p")
    for reader in readers:
        reader.socket.room = 0
    publish_many(publisher, 200)
    one_turn_each = 10 * 10 * 1020
    assert 300_000 < broker.server.budget.used <= 300_000 + one_turn_each
    assert all(reader.channel.backlog_size < BUFFER for reader in readers)
    subscribed(broker, "q", "q", qos=1)
    publisher.send(Publish("q", b"x", 1, packet_id=1))
    assert publisher.packets() == [Puback(1)]
    for reader in readers:
        reader.unblock()
        got = numbers(reader)
        assert got == list(range(len(got)))
    assert broker.server.budget.used == broker.server.sessions["q"].outbound.flying_bytes()
    publish_many(publisher, 1)
    assert [numbers(reader) for reader in readers] == [[0]] * 10


# ---- queues ----


@both_ways
@pytest.mark.parametrize(("policy", "kept"), [("drop_newest", [0, 1, 2, 3]), ("drop_oldest", [0, 5, 6, 7])])
def test_a_full_queue_drops_by_its_policy(hot: bool, policy: str, kept: list[int]) -> None:
    """Each message that gave way is counted and told."""
    hooks = Hooks()
    told: list[int] = []
    if not hot:
        hooks.add("publish_dropped", lambda client_id, message: told.append(int(message.payload[:5])))
    broker = new_broker(hot, hooks, max_queued_messages=3, queue_full=policy)
    reader = subscribed(broker, "r", qos=1, properties=Properties(receive_maximum=1))
    publish_many(broker.client("p"), 8, qos=1)
    got = []
    while messages := reader.messages():
        got += [int(message.payload[:5]) for message in messages]
        reader.send(*(Puback(message.packet_id) for message in messages))
    assert got == kept
    assert broker.server.stats.publish_dropped == 4
    assert sorted(told) == ([] if hot else sorted(set(range(8)) - set(kept)))


@both_ways
def test_a_full_queue_may_cost_the_connection(hot: bool) -> None:
    broker = new_broker(hot, max_queued_messages=3, queue_full="disconnect")
    reader = subscribed(broker, "r", qos=1, properties=Properties(receive_maximum=1, session_expiry_interval=60))
    publish_many(broker.client("p"), 8, qos=1)
    last = reader.packets()[-1]
    assert isinstance(last, Disconnect) and last.reason == 0x97
    broker.later(LINGER + 1)
    assert reader.socket.closed


def test_what_expires_in_the_queue_is_counted_and_told() -> None:
    hooks = Hooks()
    told: list[bytes] = []
    hooks.add("publish_dropped", lambda client_id, message: told.append(message.payload))
    broker = new_broker(hooks=hooks)
    lasting = Properties(session_expiry_interval=600)
    subscribed(broker, "r", qos=1, properties=lasting).lose()
    publisher = broker.client("p")
    publisher.send(Publish("t", b"short", 1, False, False, 1, Properties(message_expiry_interval=10)))
    publisher.send(Publish("t", b"long", 1, False, False, 2, Properties(message_expiry_interval=100)))
    broker.later(10)
    [message] = broker.client("r", clean_start=False, properties=lasting).messages()
    assert message.payload == b"long"
    assert message.properties == Properties(message_expiry_interval=90)
    assert told == [b"short"] and broker.server.stats.publish_dropped == 1


def test_user_properties_count_in_the_memory_for_queues() -> None:
    broker = new_broker(max_queued_bytes=50_000)
    subscribed(broker, "r", qos=1, properties=Properties(session_expiry_interval=600)).lose()
    carried = Properties(user_properties=[("k" * 1000, "v" * 9000)])
    publisher = broker.client("p")
    for number in range(1, 11):
        publisher.send(Publish("t", b"", 1, False, False, number, carried))
    assert broker.server.sessions["r"].outbound.waiting() == 4
    assert broker.server.stats.publish_dropped == 6


def test_a_slow_reader_is_answered_when_it_reads_again() -> None:
    """What it sent while it was not read from is not lost: it waits in the kernel."""
    broker = new_broker()
    slow, publisher = subscribed(broker, "s"), broker.client("p")
    slow.socket.room = 0
    publish_many(publisher, 200)
    slow.unblock()
    slow.messages()
    slow.send(Pingreq())
    assert slow.packets() == [Pingresp()]


@both_ways
@pytest.mark.parametrize("payload", [b"x" * 1000, b"x", b""])
def test_messages_that_wait_for_many_are_held_once(hot: bool, payload: bytes) -> None:
    """However many readers they wait for; and each reader gets each of them."""
    broker = new_broker(hot, max_inflight=1)
    readers = [subscribed(broker, f"s{number}", qos=1) for number in range(3)]
    publisher = broker.client("p")
    publisher.send(*(Publish("t", payload, 1, False, False, number + 1) for number in range(4)))
    queues = [list(broker.server.sessions[f"s{number}"].outbound.queue or ()) for number in range(3)]
    assert [len(queue) for queue in queues] == [3, 3, 3]
    for deliveries in zip(*queues, strict=True):
        assert len({id(delivery.message) for delivery in deliveries}) == 1
    for reader in readers:
        for _ in range(4):
            (message,) = reader.messages()
            assert (message.topic, message.payload) == ("t", payload)
            reader.send(Puback(message.packet_id))
    assert broker.server.budget.used == 0
