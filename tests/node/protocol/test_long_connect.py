"""A CONNECT with 64 KiB of client id and of user name is dealt with in pieces, and means what a short one does."""

from __future__ import annotations

import asyncio

import pytest

from headwater.node.config import Config
from headwater.wire import encode
from headwater.wire.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Properties
from headwater.wire.reasons import QUOTA_EXCEEDED, SESSION_TAKEN_OVER
from tests.fuzz.invariants import check
from tests.node.memory import Client
from tests.node.protocol.test_portions import BusyBroker

LONG = "x" * 65_000
CONNECT = encode(Connect(LONG, 5, username=LONG, properties=Properties(session_expiry_interval=60)), 5)
PING = encode(Pingreq(), 5)


@pytest.fixture
def broker() -> BusyBroker:
    return BusyBroker()


def begun(broker: BusyBroker, data: bytes = CONNECT) -> Client:
    client = Client(broker)
    client.version = 5
    broker.server.hot.until = 0.0
    client.feed(data)
    assert client.packets() == [], "the rest of it may wait"
    return client


def test_others_go_first(broker: BusyBroker) -> None:
    other = broker.client("other")
    client = begun(broker, CONNECT + PING)
    assert client.watched == (False, False)
    other.send(Pingreq())
    assert other.packets() == [Pingresp()]
    assert broker.settle() >= 2
    assert [type(packet) for packet in client.packets()] == [Connack, Pingresp]
    assert client.watched == (True, False) and broker.server.strangers.used == 0
    check(broker.server)


def test_with_time_left_it_is_done_at_once(broker: BusyBroker) -> None:
    broker.all_of_it = True
    client = Client(broker)
    broker.server.hot.until = 1e18
    broker.server.hot.feed(client.channel, CONNECT)
    assert LONG in broker.server.sessions


def test_who_goes_meanwhile_leaves_nothing(broker: BusyBroker) -> None:
    client = begun(broker)
    assert broker.server.strangers.used > 2 * len(LONG), "what is decided on counts"
    client.lose()
    broker.settle()
    assert not broker.server.sessions and broker.server.strangers.used == 0
    check(broker.server)


def test_two_with_one_id(broker: BusyBroker) -> None:
    first, second = begun(broker), begun(broker)
    broker.settle()
    answer, end = first.packets()
    assert isinstance(answer, Connack) and answer.reason == 0
    assert isinstance(end, Disconnect) and end.reason == SESSION_TAKEN_OVER
    (answer,) = second.packets()
    assert isinstance(answer, Connack) and answer.reason == 0
    check(broker.server)


def test_where_there_is_no_room_it_is_refused(broker: BusyBroker) -> None:
    broker.server.access.quotas.limit = 1000
    client = begun(broker, CONNECT + PING)
    broker.settle()
    (answer,) = client.packets()
    assert isinstance(answer, Connack) and answer.reason == QUOTA_EXCEEDED
    check(broker.server)


def test_strangers_are_bounded_together() -> None:
    broker = BusyBroker()
    broker.server.config = Config(sys_interval=0, max_unauthenticated_memory=1 << 20)
    clients = [begun(broker) for _ in range(20)]
    assert broker.server.strangers.used <= 1 << 20
    broker.settle()
    assert 1 <= sum(len(client.packets()) > 0 for client in clients) < 20
    assert broker.server.strangers.used == 0


@pytest.mark.parametrize("lets_in", [True, False])
def test_a_guard_that_takes_its_time(broker: BusyBroker, lets_in: bool) -> None:
    """What came behind it waits for the guard, too."""

    async def main() -> Client:
        asked = asyncio.Event()
        answer = asyncio.Event()

        async def decide(client: object, packet: Connect) -> bool:
            asked.set()
            await answer.wait()
            return lets_in

        broker.hooks.add("connect_authenticate", decide)
        client = Client(broker)
        client.version = 5
        broker.server.hot.until = 0.0
        client.feed(CONNECT + PING)
        broker.settle()
        await asked.wait()
        assert client.packets() == [] and client.watched == (False, False)
        answer.set()
        while not client.socket.sent:
            await asyncio.sleep(0)
            broker.turn()
        broker.settle()
        return client

    client = asyncio.run(main())
    kinds = [type(packet) for packet in client.packets()]
    assert kinds == ([Connack, Pingresp] if lets_in else [Connack])
    check(broker.server)
