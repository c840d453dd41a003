"""Packets that are long in bytes: dealt with in pieces that others need not wait for, and counted as long as that."""

from __future__ import annotations

import pytest

from headwater.message import NEVER
from headwater.node.plane.turn import LITTLE
from headwater.node.protocol.subscribing import SOME_TEXT
from headwater.wire import encode
from headwater.wire.packets import (
    Packet,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from headwater.wire.reasons import QUOTA_EXCEEDED
from tests.fuzz.invariants import check
from tests.node.memory import Client
from tests.node.protocol.test_portions import BusyBroker

LONG = "t" * 60_000
SMALL = 2_000
"""Bytes of small things that may count."""


@pytest.fixture
def broker() -> BusyBroker:
    return BusyBroker()


# ---- SUBSCRIBE and UNSUBSCRIBE with long filters -----------------------------------------------------------------


def long_filters(count: int, begin: str = "") -> list[str]:
    return [f"{begin}{number}/{LONG}" for number in range(count)]


def texts_of_pieces(broker: BusyBroker, client: Client) -> int:
    """The number of pieces until the client is answered."""
    pieces = 0
    while client.channel.busy:
        broker.work()
        pieces += 1
    return pieces


@pytest.mark.parametrize("count", [1, 50])
def test_long_filters_are_dealt_with_a_few_at_a_time(broker: BusyBroker, count: int) -> None:
    """A packet of 16 MB has some hundred of them: to decode 32 was one piece of a millisecond."""
    client = broker.client("c")
    client.send(Subscribe(1, [SubscribeRequest(name) for name in long_filters(count)]))
    assert len(LONG) > SOME_TEXT
    assert texts_of_pieces(broker, client) >= 3 * count - 2, "decoded, looked at and subscribed to one by one"
    (suback,) = client.packets()
    assert isinstance(suback, Suback) and suback.reasons == [0] * count
    client.send(Unsubscribe(2, long_filters(count)))
    assert texts_of_pieces(broker, client) >= 3 * count - 2
    (unsuback,) = client.packets()
    assert isinstance(unsuback, Unsuback) and unsuback.reasons == [0] * count
    check(broker.server)


@pytest.mark.parametrize("wide", ["", "\U0001d11e"])
def test_a_packet_with_long_filters_counts_until_it_is_dealt_with(broker: BusyBroker, wide: str) -> None:
    """One character beyond ASCII makes all of a text four bytes wide."""
    client = broker.client("c")
    packet: Packet = Subscribe(1, [SubscribeRequest(name) for name in long_filters(20, wide)])
    client.send(packet)
    assert broker.server.budget.used >= 20 * len(LONG), "what came of it"
    most = 0
    while client.channel.busy:
        most = max(most, broker.server.budget.used)
        broker.work()
    assert most >= 20 * len(LONG) * (5 if wide else 2), "and what was made of it"
    assert broker.server.budget.used < SMALL
    client.send(packet)
    client.lose()
    broker.settle()
    assert broker.server.budget.used == 0
    check(broker.server)


def test_where_queues_are_full_of_such_packets_publishers_are_told(broker: BusyBroker) -> None:
    client, reader, publisher = broker.client("c"), broker.client("r"), broker.client("p")
    reader.send(Subscribe(1, [SubscribeRequest("q", 1)]))
    reader.packets()
    broker.server.budget.limit = 1_000_000
    client.send(Subscribe(1, [SubscribeRequest(name) for name in long_filters(20)]))
    publisher.send(Publish("q", b"x", 1, packet_id=1))
    assert [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)] == [QUOTA_EXCEEDED]
    broker.settle()
    publisher.send(Publish("q", b"x", 1, packet_id=1))
    broker.settle()
    assert [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)] == [0]


# ---- answers to many packets -------------------------------------------------------------------------------------


def test_answers_to_packets_of_one_read_wait_for_each_other_but_not_for_long(broker: BusyBroker) -> None:
    """Sent slice by slice, they took more time than the packets."""
    client, hot = broker.client("c"), broker.server.hot
    data = b"".join(encode(Publish("q", b"x", 2, packet_id=number + 1), 5) for number in range(1000))
    hot.until = 0.0
    hot.feed(client.channel, data)
    sent: list[int] = []
    while hot.background.waiting or hot.dirty:
        hot.flush_later()
        hot.send_some(NEVER)
        sent.append(len(client.packets()))
        hot.background.run(0.0)
    hot.flush_later()
    hot.send_some(NEVER)
    sent.append(len(client.packets()))
    assert sum(sent) == 1000
    assert max(sent) * 4 <= LITTLE + 4 and 1000 * 4 // LITTLE <= len([each for each in sent if each]) <= 10
    check(broker.server)


def test_what_others_send_it_takes_them_along(broker: BusyBroker) -> None:
    client, publisher, hot = broker.client("c"), broker.client("p"), broker.server.hot
    client.send(Subscribe(1, [SubscribeRequest("t", 0)]))
    client.packets()
    hot.until = 0.0
    hot.feed(client.channel, encode(Pingreq(), 5).join([encode(Publish("q", b"x", 2, packet_id=9), 5)] * 9))
    hot.flush_later()
    assert client.packets() == []
    publisher.send(Publish("t", b"x"))
    assert [type(packet).__name__ for packet in client.packets()][-1:] == ["Publish"]
    broker.settle()
    check(broker.server)
