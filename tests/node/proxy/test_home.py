"""Connections of the own client that end at a bad moment, where echoes are counted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.proxy.tap import TappedClient
from headwater.wire.packets import V311
from tests.node.links.nodes import run, until
from tests.node.proxy.echoing import Echoing, echoing
from tests.node.proxy.fabric import home_of, interest_of, is_up, own_node, proxy, ready, received, tell
from tests.node.proxy.picky import SETTINGS, as_home
from tests.node.transports.serving import HOST

SAID = ("t/1", b"the same")
END = ("t/end", b"")


@contextlib.asynccontextmanager
async def fabric(folder: Path, **settings: Any) -> AsyncIterator[tuple[Echoing, Broker, Client, Client]]:
    """The home broker, its proxy, a subscriber and a publisher at another node."""
    async with (
        echoing() as home,
        own_node("n") as node,
        Client(HOST, node.port) as reader,
        Client(HOST, node.port) as publisher,
        behind(home, node, folder, **settings) as a,
    ):
        await reader.subscribe("t/#", qos=2)
        await catches(a)
        yield home, a, reader, publisher


@contextlib.asynccontextmanager
async def behind(home: Echoing, node: Broker, folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    async with proxy("a", as_home(home), node, data_dir=str(folder), **SETTINGS, **settings) as a:
        await ready(a, node)
        seen = TappedClient("reader", V311, False, False)
        interest_of(a).opened(seen)
        await tell(a, seen, "t/#")
        yield a


async def catches(a: Broker) -> None:
    await until(lambda: is_up(a) and home_of(a).wanting.catches.at_broker == {"t/#"})
    await until(lambda: not home_of(a).wanting.catches.is_busy)


async def come_back(home: Echoing, a: Broker) -> None:
    connections = home.connections
    home.cut()
    await until(lambda: home.connections > connections and is_up(a))


def test_an_echo_that_waited_for_a_new_connection(tmp_path: Path) -> None:
    """It is in the session's queue and comes right behind CONNACK; the message was not acknowledged, so it goes again
    and comes back again. Whoever subscribed to it elsewhere has it already."""

    async def body() -> None:
        async with fabric(tmp_path) as (home, a, reader, publisher):
            home.holds = home.is_silent = True
            await publisher.publish(*SAID, qos=2)
            await until(lambda: len(home.taken) == 1)
            home.holds = home.is_silent = False
            await come_back(home, a)
            await until(lambda: len(home.taken) == 2)
            home.publish(*END)
            assert await received(reader, 2) == [SAID, END]
            assert home_of(a).swallowed == 2

    run(body())


def test_an_echo_that_comes_again(tmp_path: Path) -> None:
    """The home broker has not noted that it was acknowledged: it says DUP."""

    async def body() -> None:
        async with fabric(tmp_path) as (home, a, reader, publisher):
            home.forgets = True
            await publisher.publish(*SAID, qos=2)
            await until(lambda: home_of(a).swallowed == 1)
            await come_back(home, a)
            home.publish(*END)
            assert await received(reader, 2) == [SAID, END]
            assert home_of(a).swallowed == 2

    run(body())


def test_a_message_that_is_like_an_echo_that_came(tmp_path: Path) -> None:
    """Published while the own client was away, by a client of the home broker: it has no DUP."""

    async def body() -> None:
        async with fabric(tmp_path) as (home, a, reader, publisher):
            home.forgets = True
            await publisher.publish(*SAID, qos=2)
            await until(lambda: home_of(a).swallowed == 1)
            home.cut()
            home.publish(*SAID)
            home.publish(*END)
            assert await received(reader, 3) == [SAID, SAID, END]

    run(body())


def test_a_home_broker_that_has_forgotten_the_session_sends_nothing_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with fabric(tmp_path, fence_interval=60.0) as (home, a, reader, publisher):
            home.holds = True
            await publisher.publish(*SAID, qos=2)
            await until(lambda: len(home.taken) == 1 and not home_of(a).session.outbound.flights)
            home.holds = home.is_present = False
            await come_back(home, a)
            await catches(a)
            home.publish(*SAID)
            home.publish(*END)
            assert await received(reader, 3) == [SAID, SAID, END], "the second one is of its own client"

    run(body())


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_a_proxy_that_starts_again_knows_what_it_handed_over(tmp_path: Path, is_acknowledged: bool) -> None:
    async def body() -> None:
        async with (
            echoing() as home,
            own_node("n") as node,
            Client(HOST, node.port) as reader,
            Client(HOST, node.port) as publisher,
        ):
            await reader.subscribe("t/#", qos=2)
            async with behind(home, node, tmp_path) as a:
                await catches(a)
                home.holds, home.is_silent = True, not is_acknowledged
                await publisher.publish(*SAID, qos=2)
                await until(lambda: len(home.taken) == 1)
                if is_acknowledged:
                    await until(lambda: not home_of(a).session.outbound.flights)
            home.holds = home.is_silent = False
            async with behind(home, node, tmp_path):
                await until(lambda: len(home.taken) == 2 - is_acknowledged)
                home.publish(*END)
                assert await received(reader, 2) == [SAID, END]

    run(body())
