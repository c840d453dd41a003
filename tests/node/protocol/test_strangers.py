"""Who has not connected yet: bounded in number, by address and in memory, and never at the cost of clients."""

from __future__ import annotations

from typing import Any, cast

from headwater.node.config import Config
from headwater.node.hooks import Challenge, Hooks
from headwater.node.plane.channel import Channel, Entrance
from headwater.wire import encode
from headwater.wire.packets import V5, Connect, Properties, Puback, Publish, Subscribe, Will
from headwater.wire.packets import SubscribeRequest as Request
from tests.node.memory import Client, MemoryBroker, MemorySocket
from tests.node.protocol.test_admission import acknowledged, away, back, got, message

HALF = encode(Connect("half", V5, password=bytes(60_000), username="u"), V5)[:50_000]
TINY = b"\x10\xff\xff"
"""A CONNECT of which three bytes have come."""


def new_broker(**settings: Any) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, **settings))


def stranger(broker: MemoryBroker, data: bytes = TINY) -> Client:
    client = Client(broker)
    client.feed(data)
    return client


def test_half_sent_connects_take_nothing_from_clients() -> None:
    """They drew on `max_queue_memory`, and QoS 1 messages for sessions that were away were dropped."""
    broker = new_broker(max_queue_memory=200_000)
    away(broker)
    crowd = [stranger(broker, HALF) for _ in range(40)]
    assert broker.server.budget.used == 0
    assert broker.server.strangers.used > 40 * 50_000
    publisher = broker.client("p", V5)
    publisher.send(*(message(number) for number in range(100)))
    assert set(acknowledged(publisher).values()) == {0}
    assert got(back(broker)) == list(range(100))
    for each in crowd:
        each.lose()
    assert (broker.server.strangers.used, broker.server.budget.used) == (0, 0)


def test_for_memory_the_oldest_stranger_gives_way() -> None:
    broker = new_broker(max_unauthenticated_memory=300_000)
    crowd = [stranger(broker, HALF) for _ in range(10)]
    assert [each.socket.closed for each in crowd] == [True] * 5 + [False] * 5
    assert broker.server.strangers.used <= 300_000
    assert broker.client("client", V5).channel.known, "clients come in all the while"
    assert broker.server.strangers.cut_off == 5


def test_one_that_alone_needs_too_much_is_cut_off() -> None:
    broker = new_broker(max_unauthenticated_memory=65_536, max_connect_size=200_000)
    one = stranger(broker, encode(Connect("c", V5, username="u", password=bytes(65_000)), V5)[:60_000])
    assert not one.socket.closed
    two = stranger(broker, b"\x10\xff\xff\x07" + bytes(66_000))
    assert one.socket.closed and two.socket.closed
    assert broker.server.strangers.used == 0


def test_strangers_are_bounded_in_number_and_the_oldest_gives_way() -> None:
    broker = new_broker(max_unauthenticated=3)
    client = broker.client("c", V5)
    crowd = [stranger(broker) for _ in range(5)]
    assert [each.socket.closed for each in crowd] == [True, True, False, False, False]
    assert not client.socket.closed, "who has connected is no stranger"
    crowd[2].feed(b"")
    late = broker.client("late", V5)
    assert crowd[2].socket.closed and not late.socket.closed, "nobody is kept out"


def accept(broker: MemoryBroker, address: str, entrance: Entrance | None = None) -> Channel:
    broker.server.accept(cast(Any, MemorySocket(broker.new_descriptor())), address, False, entrance)
    return broker.plane.newest


def test_strangers_of_one_address_are_bounded() -> None:
    broker = new_broker(max_unauthenticated_per_address=2)
    first = [accept(broker, f"10.0.0.1:{port}") for port in range(3)]
    other = [accept(broker, f"10.0.0.2:{port}") for port in range(2)]
    six = [accept(broker, f"[2001:db8::{port}]:5") for port in range(1, 4)]
    assert [each.fd < 0 for each in first + other] == [True, False, False, False, False]
    assert [each.fd < 0 for each in six] == [True, False, False], "64 bits of IPv6 are one address"
    for each in first + other + six:
        broker.server.lost(each)
    assert broker.server.strangers.by_address == {}


class Door(Entrance):
    def admit(self, channel: Channel) -> bool:
        return True


def test_behind_a_proxy_its_clients_addresses_count() -> None:
    broker = new_broker(max_unauthenticated_per_address=2)
    door = Door()
    door.behind_proxy = True
    come = [accept(broker, f"10.0.0.1:{port}", door) for port in range(4)]
    assert all(each.fd >= 0 for each in come), "the proxy's own address does not count"
    for each in come:
        each.address = "10.9.9.9:1"
        broker.server.strangers.moved(each)
    assert [each.fd < 0 for each in come] == [True, True, False, False]


def test_what_layers_take_counts() -> None:
    broker = new_broker(max_unauthenticated_memory=200_000)
    door = Door()
    door.weight = 50_000
    come = [accept(broker, f"10.0.0.{port}:1", door) for port in range(6)]
    assert [each.fd < 0 for each in come] == [True] * 3 + [False] * 3


def test_a_connect_that_is_decided_on_counts() -> None:
    """An exchange with AUTH may go on for `connect_timeout`, and its CONNECT is kept meanwhile."""
    hooks = Hooks()
    hooks.add("auth_packet", lambda method, client, data, again: Challenge(b"more"))
    broker = MemoryBroker(Config(sys_interval=0, max_unauthenticated_memory=450_000), hooks)
    pairs = [(str(number), "") for number in range(900)]
    packet = Connect(
        "c", V5, will=Will("w", bytes(50_000)), properties=Properties(authentication_method="m", user_properties=pairs)
    )
    crowd = []
    for _ in range(4):
        client = Client(broker)
        client.version = V5
        client.send(packet)
        crowd.append(client)
    assert [each.socket.closed for each in crowd] == [True, True, False, False]
    assert broker.server.budget.used == 0


def test_who_connects_is_counted_no_more() -> None:
    broker = new_broker()
    client = Client(broker)
    data = encode(Connect("c", V5, username="u", password=bytes(60_000)), V5)
    client.feed(data[:30_000])
    assert broker.server.strangers.used > 30_000
    client.feed(data[30_000:])
    assert (broker.server.strangers.used, broker.server.budget.used) == (0, 0)
    client.version = V5
    client.send(Subscribe(1, [Request("t", 1)]))
    large = encode(Publish("t", bytes(100_000), 1, packet_id=1), V5)
    client.feed(large[:70_000])
    assert broker.server.budget.used == 70_000, "a client's large packet counts as what waits"
    client.feed(large[70_000:])
    client.send(Puback(1))
    assert broker.server.budget.used == 0
