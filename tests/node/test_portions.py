"""A session that ends with much in it, or gets much at once: that goes in portions, so that others do not wait."""

from __future__ import annotations

from headwater.node.subscribing import BETWEEN, MANY, PORTION
from headwater.wire.packets import (
    Connect,
    Disconnect,
    Properties,
    Publish,
    Subscribe,
    SubscribeRequest,
)
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

COUNT = 3 * MANY


def subscribed(broker: MemoryBroker, client_id: str, count: int) -> Client:
    client = broker.client(client_id)
    requests = [SubscribeRequest(f"t/{number}", 1) for number in range(count)]
    client.send(Subscribe(1, [*requests, SubscribeRequest("$share/g/s", 1)]))
    client.packets()
    return client


def settle(broker: MemoryBroker) -> int:
    """The number of turns until all is gone."""
    turns = 0
    while broker.server.subscribing.count:
        broker.later(BETWEEN * 1.5)
        turns += 1
        assert turns < COUNT
    return turns


def test_many_subscriptions() -> None:
    broker = MemoryBroker()
    server = broker.server
    client = subscribed(broker, "c", COUNT)
    publisher = broker.client("p")
    client.send(Disconnect())
    assert "c" not in server.sessions
    assert server.subscribing.count == COUNT - PORTION, "but none of a shared group"
    publisher.send(*(Publish(f"t/{number}", b"x", 1, packet_id=number + 1) for number in range(10)))
    assert (server.budget.used, server.stats.publish_dropped) == (0, 0)
    assert settle(broker) == COUNT // PORTION - 1
    check(server)


def test_a_few_subscriptions_go_at_once() -> None:
    broker = MemoryBroker()
    subscribed(broker, "c", MANY - 1).send(Disconnect())
    assert broker.server.subscribing.count == 0


def test_the_client_comes_back_meanwhile() -> None:
    broker = MemoryBroker()
    subscribed(broker, "c", COUNT).send(Disconnect())
    again = broker.client("c")
    again.send(Subscribe(1, [SubscribeRequest("t/0", 1), SubscribeRequest("t/1", 1)]))
    again.packets()
    while broker.server.subscribing.count > 2:
        broker.later(BETWEEN * 1.5)
    publisher = broker.client("p")
    publisher.send(Publish("t/0", b"x"), Publish("t/5", b"x"), Publish("t/1", b"y"))
    assert [message.payload for message in again.messages()] == [b"x", b"y"]
    check(broker.server)


def test_many_messages_that_wait() -> None:
    broker = MemoryBroker()
    server = broker.server
    client = Client(broker)
    client.connect(Connect("c", 5, properties=Properties(session_expiry_interval=10)))
    client.send(Subscribe(1, [SubscribeRequest("t", 1)]))
    client.lose()
    publisher = broker.client("p")
    for number in range(COUNT):
        publisher.send(Publish("t", b"x", 1, packet_id=number + 1))
    assert server.budget.used > 0
    broker.later(11)
    assert (len(server.sessions), server.budget.used) == (1, 0)
    assert server.stats.publish_dropped == PORTION
    for _ in range(COUNT // PORTION):
        broker.later(BETWEEN * 1.5)
    assert server.stats.publish_dropped == COUNT


def retaining(broker: MemoryBroker, count: int) -> Client:
    """One who has left that many retained messages."""
    publisher = broker.client("p")
    for number in range(count):
        publisher.send(Publish(f"r/{number}", b"old", 1, True, packet_id=number + 1))
    publisher.packets()
    return publisher
