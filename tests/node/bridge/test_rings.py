"""Brokers in rings: messages come to an end, and pass no broker twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from headwater.client import Client, Properties
from headwater.node import Broker
from headwater.node.bridge.path import PATH
from tests.brokers import free_port
from tests.client.scripted import run, until
from tests.node.bridge.scene import bridge, broker, client, said, take, until_up


@asynccontextmanager
async def ring(count: int, direction: str, **settings: object) -> AsyncIterator[list[Broker]]:
    """Each broker has a bridge to the next one, and the last to the first."""
    ports = [free_port() for _ in range(count)]
    entry = {"filter": "#", "direction": direction, "qos": 1}
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(broker(bridge(next_port, entry, **settings), port=port))
            for port, next_port in pairwise([*ports, ports[0]])
        ]
        await until_up(*brokers)
        yield brokers


def forwarded(brokers: list[Broker]) -> int:
    return sum(view.sent.forwarded + view.received.forwarded for each in brokers for view in each.bridges.views())


def dropped(brokers: list[Broker]) -> int:
    return sum(view.sent.dropped + view.received.dropped for each in brokers for view in each.bridges.views())


@asynccontextmanager
async def readers(brokers: list[Broker]) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(client(each.port, "#")) for each in brokers]


@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_one_way_round_every_broker_gets_a_message_once(count: int, direction: str) -> None:
    """In order of the ring; the first gets it no second time, which what follows it the same way shows."""

    async def scenario() -> None:
        async with ring(count, direction) as brokers, readers(brokers) as clients:
            for number in range(3):
                for publisher in clients:
                    await publisher.publish("a", f"{number}", qos=1)
                    assert [said(await take(each, 1)) for each in clients] == [[("a", f"{number}".encode())]] * count
            await until(lambda: dropped(brokers) == 3 * count)  # each message once, where it would close the ring
            assert forwarded(brokers) == 3 * count * (count - 1)
            assert [len(each.messages) for each in clients] == [0] * count

    run(scenario())


def test_both_ways_round_messages_end() -> None:
    """A message goes both ways round a ring of three until it meets itself: the publisher's broker has it once, each
    other one twice, since two ways lead to it. More than that would be a loop."""

    async def scenario() -> None:
        async with ring(3, "both") as brokers, readers(brokers) as clients:
            await clients[0].publish("a", "x", qos=1)
            for reader, copies in zip(clients, (1, 2, 2), strict=True):
                assert said(await take(reader, copies)) == [("a", b"x")] * copies
            await until(lambda: dropped(brokers) == 2 and forwarded(brokers) == 4)
            assert [len(each.messages) for each in clients] == [0, 0, 0]

    run(scenario())


@pytest.mark.parametrize("direction", ["out", "in"])
def test_hops_are_bounded(direction: str) -> None:
    async def scenario() -> None:
        async with ring(4, direction, max_hops=2) as brokers, readers(brokers) as clients:
            await clients[0].publish("a", "x", qos=1)
            reached = [clients[0], clients[1], clients[2]] if direction == "out" else [clients[0], *clients[:1:-1]]
            for each in reached:
                assert said(await take(each, 1)) == [("a", b"x")]
            await until(lambda: dropped(brokers) == 1)
            assert sum(len(each.messages) for each in clients) == 0

    run(scenario())


def test_a_broker_that_is_bridged_with_itself_does_not_loop() -> None:
    port = free_port()
    away = {"filter": "#", "direction": "out", "qos": 1, "local_prefix": "a/", "remote_prefix": "b/"}
    back = {"filter": "#", "direction": "out", "qos": 1, "local_prefix": "b/", "remote_prefix": "a/"}

    async def scenario() -> None:
        async with broker(bridge(port, away, back), port=port) as only, client(only.port, "#") as here:
            await until_up(only)
            await here.publish("a/x", "1", qos=1)
            assert said(await take(here, 2)) == [("a/x", b"1"), ("b/x", b"1")]
            await here.publish("c", "end", qos=1)
            assert said(await take(here, 1)) == [("c", b"end")]

    run(scenario())


def test_ids_are_the_settings_or_random() -> None:
    async def scenario() -> None:
        async with broker(broker_id="one") as one, broker() as two, broker() as three:
            ids = [each.server.broker_id for each in (one, two, three)]
            assert ids[0] == "one" and len(set(ids)) == 3 and all(ids)

    run(scenario())


def test_a_message_that_came_back_over_a_stranger_is_not_sent_again() -> None:
    """Some bridge of another make brought it back, with its path."""

    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port), broker_id="near") as near:
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                path = Properties(user_properties=[(PATH, "near"), (PATH, "?")])
                await here.publish("a", "again", qos=1, properties=path)
                await here.publish("a", "new", qos=1)
                assert said(await take(there, 1)) == [("a", b"new")]
                assert near.bridges.views()[0].sent.dropped == 1

    run(scenario())
