"""What cannot be kept is not acknowledged: the publisher is refused (5.0), or waits (3.1.1)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headwater.node.config import Config
from headwater.node.protocol.statistics import statistics_of
from headwater.wire import encode
from headwater.wire.packets import (
    V5,
    V311,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Will,
)
from headwater.wire.packets import SubscribeRequest as Request
from headwater.wire.reasons import QUOTA_EXCEEDED, SUCCESS
from tests.node.memory import Client, MemoryBroker

KILO = b"k" * 1000
both_ways = pytest.mark.parametrize("hot", [True, False], ids=["hot", "ordinary"])


def new_broker(hot: bool = True, **settings: Any) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, **settings), hot=hot)


def member(broker: MemoryBroker, client_id: str = "away", name: str = "t", qos: int = 1) -> Client:
    client = broker.client(client_id, V5, properties=Properties(session_expiry_interval=1000))
    client.send(Subscribe(1, [Request(name, qos)]))
    client.packets()
    return client


def away(broker: MemoryBroker, name: str = "t") -> None:
    """A session without a client that is owed what is published."""
    member(broker, name=name).lose()


def back(broker: MemoryBroker, client_id: str = "away") -> Client:
    return broker.client(client_id, V5, clean_start=False, properties=Properties(session_expiry_interval=1000))


def got(client: Client) -> list[int]:
    """The numbers of what came; all of it is acknowledged."""
    numbers: list[int] = []
    while messages := client.messages():
        numbers += [int(message.payload[:4]) for message in messages]
        client.send(*(Puback(message.packet_id) for message in messages if message.qos == 1))
    return numbers


def message(number: int, qos: int = 1, topic: str = "t") -> Publish:
    return Publish(topic, b"%04d" % number + KILO, qos, packet_id=number + 1 if qos else 0)


def acknowledged(client: Client) -> dict[int, int]:
    """Reason codes by the numbers of the messages."""
    return {each.packet_id - 1: each.reason for each in client.packets() if isinstance(each, (Puback, Pubrec))}


@both_ways
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("name", ["t", "$share/g/t"])
@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest", "disconnect", "refuse"])
def test_what_memory_cannot_hold_is_refused(hot: bool, qos: int, name: str, policy: str) -> None:
    """Success for what is kept, 0x97 for the rest: what was acknowledged arrives, and nothing else."""
    broker = new_broker(hot, max_queue_memory=50_000, queue_full=policy)
    away(broker, name)
    publisher = broker.client("p", V5)
    publisher.send(*(message(number, qos) for number in range(100)))
    answers = acknowledged(publisher)
    kept = [number for number, reason in answers.items() if reason < 0x80]
    assert len(answers) == 100 and 30 < len(kept) < 50
    assert {answers[number] for number in range(len(kept), 100)} == {QUOTA_EXCEEDED}
    assert got(back(broker)) == kept
    assert broker.server.stats.publish_dropped == 0
    assert statistics_of(broker.server, 1.0).no_room == 100 - len(kept)
    publisher.send(message(100, qos))
    assert acknowledged(publisher)[100] < 0x80, "there is room again"


@both_ways
@pytest.mark.parametrize("qos", [1, 2])
def test_a_3_1_1_publisher_waits_for_room(hot: bool, qos: int) -> None:
    broker = new_broker(hot, max_queue_memory=50_000)
    away(broker)
    publisher = broker.client("p", V311)
    publisher.send(*(message(number, qos) for number in range(60)))
    before = list(acknowledged(publisher))
    assert 30 < len(before) < 50
    assert publisher.watched[0] is False, "it is not read from"
    reader = back(broker)
    assert got(reader) == before
    broker.later(0.1)
    assert list(acknowledged(publisher)) == list(range(len(before), 60)), "each of them, and once"
    assert publisher.watched[0] is True
    assert got(reader) == list(range(len(before), 60))
    assert (broker.server.stats.publish_dropped, broker.server.publisher_waits.waiting) == (0, {})
    assert broker.server.stats.messages_received == 60


def test_a_bridge_waits_too() -> None:
    """It speaks 5.0, but would count what is refused as lost."""
    broker = new_broker(max_queue_memory=5_000)
    away(broker)
    bridge = broker.client("p", V5)
    bridge.channel.client_id = "$bridge/p"
    bridge.send(*(message(number) for number in range(6)))
    assert set(acknowledged(bridge).values()) == {SUCCESS}
    got(back(broker))
    broker.later(0.1)
    assert acknowledged(bridge)[5] == SUCCESS


def test_who_waits_too_long_is_cut_off_and_sends_it_again() -> None:
    broker = new_broker(max_queue_memory=50_000, publisher_wait=30)
    away(broker)
    publisher = broker.client("p", V311, clean_start=False)
    publisher.send(*(message(number) for number in range(60)))
    before = list(acknowledged(publisher))
    for _ in range(28):
        broker.later(1)
    assert not publisher.socket.shut
    broker.later(3)
    broker.later(3)
    assert publisher.socket.shut
    assert list(acknowledged(publisher)) == [], "what was not acknowledged is still the publisher's"
    assert got(back(broker)) == before


@both_ways
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("halves", [False, True])
def test_who_waits_for_itself_is_heard_when_it_acknowledges(hot: bool, qos: int, halves: bool) -> None:
    """It subscribes to what it publishes, over one connection: its acknowledgements are behind the message that waits,
    and free the memory for it. They may come in pieces."""
    broker = new_broker(hot, max_queue_memory=20_000, publisher_wait=30)
    client = broker.client("p", V311)
    client.send(Subscribe(1, [Request("t", qos)]))
    client.send(*(message(number, qos) for number in range(60)))
    got: set[int] = set()
    answered: set[int] = set()
    for _ in range(200):
        answers: list[Packet] = []
        for packet in client.packets():
            if isinstance(packet, Publish):
                got.add(int(packet.payload[:4]))
                answers.append(Puback(packet.packet_id) if qos == 1 else Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                answers.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, (Puback, Pubrec)):
                answered.add(packet.packet_id - 1)
        data = b"".join(encode(answer, V311) for answer in answers)
        for piece in (data[:-1], data[-1:]) if halves else (data,):
            if piece:
                client.feed(piece)
        broker.later(0.06)
    assert got == answered == set(range(60)) and not client.socket.shut
    assert broker.server.publisher_waits.waiting == {} and broker.server.stats.publish_dropped == 0


def test_who_goes_while_it_waits_leaves_nothing_behind() -> None:
    broker = new_broker(max_queue_memory=50_000)
    away(broker)
    publisher = broker.client("p", V311)
    publisher.send(*(message(number) for number in range(60)))
    publisher.lose()
    broker.later(1)
    assert broker.server.publisher_waits.waiting == {}
    assert broker.server.stats.failures + broker.server.timers.failures + broker.server.background.failures == 0


@both_ways
def test_who_owes_nobody_anything_is_not_refused(hot: bool) -> None:
    """Memory is used up by others: what needs none, QoS 0 and what nobody keeps, goes on."""
    broker = new_broker(hot, max_queue_memory=50_000)
    away(broker)
    publisher, reader = broker.client("p", V5), broker.client("r", V5)
    reader.send(Subscribe(1, [Request("other", 0)]))
    reader.packets()
    publisher.send(*(message(number) for number in range(60)))
    acknowledged(publisher)
    publisher.send(message(60, topic="other"), message(61, topic="nobody"), message(62, 0, "other"))
    assert acknowledged(publisher) == {60: SUCCESS, 61: 0x10}
    assert got(reader) == [60, 62]


@both_ways
@pytest.mark.parametrize("name", ["t", "$share/g/t"])
def test_a_full_queue_can_refuse_publishers(hot: bool, name: str) -> None:
    """Chosen: nothing is lost, and who publishes to a slow subscriber waits for it. Others do not."""
    broker = new_broker(hot, max_queued_messages=5, queue_full="refuse")
    away(broker, name)
    old, new = broker.client("old", V311), broker.client("new", V5)
    new.send(*(message(number) for number in range(6)))
    assert acknowledged(new) == dict.fromkeys(range(5), 0) | {5: QUOTA_EXCEEDED}
    old.send(message(7))
    assert acknowledged(old) == {}
    new.send(message(8, topic="other"))
    assert acknowledged(new) == {8: 0x10}, "other topics are open"
    assert got(back(broker)) == [0, 1, 2, 3, 4]
    broker.later(0.1)
    assert acknowledged(old) == {7: 0}
    new.send(message(9))
    assert acknowledged(new) == {9: 0}
    assert broker.server.stats.publish_dropped == 0
    assert broker.server.budget.full_queues == 0


@both_ways
def test_a_slow_subscriber_stalls_nobody_unless_that_was_chosen(hot: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The policy that was chosen costs messages: each is counted, and the log says so, once a minute and session."""
    broker = new_broker(hot, max_queued_messages=5)
    away(broker)
    publisher = broker.client("p", V5)
    with caplog.at_level(logging.WARNING):
        publisher.send(*(message(number) for number in range(20)))
        assert set(acknowledged(publisher).values()) == {SUCCESS}
        assert [record.getMessage() for record in caplog.records] == [
            "the queue of 'away' is full (5 messages, 6710 bytes); dropped: 1 (queue_full = drop_newest)"
        ]
        broker.later(61)
        publisher.send(message(20))
    assert "dropped: 15 (" in caplog.records[-1].getMessage() and len(caplog.records) == 2
    assert broker.server.stats.publish_dropped == 16


def test_a_will_is_kept_whatever_there_is() -> None:
    """Nobody could be told that it was not."""
    broker = new_broker(max_queue_memory=5_000)
    away(broker)
    broker.client("p", V5).send(*(message(number) for number in range(10)))
    broker.client("dying", V5, will=Will("t", b"9999", 1)).lose()
    assert got(back(broker))[-1] == 9999


def test_the_log_says_that_memory_is_used_up(caplog: pytest.LogCaptureFixture) -> None:
    broker = new_broker(max_queue_memory=5_000)
    away(broker)
    with caplog.at_level(logging.WARNING):
        broker.client("p", V5).send(*(message(number) for number in range(10)))
    (record,) = caplog.records
    assert "max_queue_memory (5000 bytes) is used up" in record.getMessage()


def test_a_qos_2_message_that_waits_is_taken_once() -> None:
    """Its PUBREL may come right behind it."""
    broker = new_broker(max_queue_memory=3_000)
    away(broker)
    publisher = broker.client("p", V311)
    publisher.send(*(message(number, 2) for number in range(5)))
    done = list(acknowledged(publisher))
    reader = back(broker)
    got(reader)
    broker.later(0.1)
    done += list(acknowledged(publisher))
    publisher.send(*(Pubrel(number + 1) for number in range(5)))
    assert done == list(range(5)) and broker.server.sessions["p"].received == set()
