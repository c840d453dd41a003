"""Messages at which the home broker ends the connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.proxy.figures import see_proxy
from headwater.node.proxy.home import FIRST_PAUSE
from headwater.node.proxy.proxy import Proxy
from headwater.node.proxy.suspects import MOST_ENDS
from headwater.node.proxy.tap import TappedClient
from headwater.wire.packets import V311
from tests.node.links.nodes import run, until
from tests.node.proxy.fabric import home_of, interest_of, is_up, own_node, proxy, ready, tell
from tests.node.proxy.picky import SETTINGS, Picky, as_home, picky
from tests.node.transports.serving import HOST


@contextlib.asynccontextmanager
async def behind() -> AsyncIterator[tuple[Picky, Broker, Client]]:
    """A picky home broker whose clients want everything, its proxy, and a publisher at another node."""
    async with (
        picky() as home,
        proxy("a", as_home(home), **SETTINGS) as a,
        own_node("n", a) as node,
        Client(HOST, node.port) as publisher,
    ):
        await ready(a, node)
        seen = TappedClient("reader", V311, False, False)
        interest_of(a).opened(seen)
        await tell(a, seen, "#")
        yield home, a, publisher


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_ends_each_connection_is_given_up(qos: int, caplog: pytest.LogCaptureFixture) -> None:
    """And no other one: they come in their order."""

    async def body() -> None:
        async with behind() as (home, a, publisher):
            topics = [*(f"before/{number}" for number in range(5)), "a.b", *(f"after/{number}" for number in range(20))]
            await asyncio.gather(*(publisher.publish(each, b"", qos=qos) for each in topics))
            await until(lambda: home.taken[-1:] == ["after/19"])
            innocent = [each for each in topics if each != "a.b"]
            assert list(dict.fromkeys(home.taken)) == innocent
            ends = sum("a.b" in each for each in home.published)
            assert ends in (MOST_ENDS, MOST_ENDS + 1), "at the first one, it need not have been the oldest in flight"
            assert home_of(a).suspects.given_up == 1
            await publisher.publish("later", b"", qos=qos)
            await until(lambda: home.taken[-1] == "later")
            assert is_up(a)

    with caplog.at_level(logging.WARNING, "headwater.proxy"):
        run(body())
    told = [each.getMessage() for each in caplog.records if "given up" in each.getMessage()]
    assert len(told) == 1
    assert "'a.b'" in told[0]


def test_each_of_many_is_given_up() -> None:
    async def body() -> None:
        async with behind() as (home, a, publisher):
            topics = ["a.b", "c", "c.d", "e.f", "g"]
            await asyncio.gather(*(publisher.publish(each, b"", qos=1) for each in topics))
            await until(lambda: home.taken[-1:] == ["g"])
            assert home.taken == ["c", "g"]
            assert home_of(a).suspects.given_up == 3

    run(body())


def test_of_qos_0_nothing_is_repeated() -> None:
    async def body() -> None:
        async with behind() as (home, a, publisher):
            await publisher.publish("a.b", b"", qos=0)
            await until(lambda: len(home.accepted) == 2 and is_up(a))
            await publisher.publish("after", b"", qos=0)
            await until(lambda: home.taken == ["after"])
            assert sum("a.b" in each for each in home.published) == 1
            assert home_of(a).suspects.given_up == 0

    run(body())


def test_in_a_trial_one_goes_at_a_time_and_who_does_not_answer_holds_back_nothing() -> None:
    async def body() -> None:
        async with behind() as (home, a, publisher):
            home.is_silent = True
            topics = [f"t/{number}" for number in range(5)]
            await asyncio.gather(*(publisher.publish(each, b"", qos=1) for each in topics))
            await until(lambda: home.published[-1] == topics)
            home.cut()
            await until(lambda: is_up(a) and len(home.accepted) == 2)
            await publisher.publish("new", b"", qos=1)
            await publisher.publish("new0", b"", qos=0)
            await until(lambda: bool(home.published[-1]))
            assert home.published[-1] == topics[:1]
            await until(lambda: home.published[-1] == [*topics, "new", "new0"])
            assert home_of(a).suspects.given_up == 0

    run(body())


def test_a_home_broker_that_was_away_in_between_is_not_blamed_on_a_message() -> None:
    async def body() -> None:
        async with behind() as (home, a, publisher):
            home.is_silent = True
            await publisher.publish("t", b"", qos=1)
            for number in range(1, MOST_ENDS + 2):
                await until(lambda number=number: len(home.published) == number and home.published[-1] == ["t"])  # type: ignore[misc]
                home.go()
                await until(lambda: "refused" in home_of(a).why)
                await home.come()
            await until(lambda: home.published[-1] == ["t"] and len(home.published) == MOST_ENDS + 2)
            assert home_of(a).suspects.given_up == 0

    run(body())


def test_pauses_grow_where_connections_are_accepted_and_ended_at_once() -> None:
    async def body() -> None:
        async with picky() as home:
            home.ends_at_once = True
            async with proxy("a", as_home(home), **SETTINGS):
                await until(lambda: len(home.accepted) == 6)
            pauses = [later - sooner for sooner, later in pairwise(home.accepted)]
            for number, pause in enumerate(pauses):
                assert pause >= 0.75 * FIRST_PAUSE * 2**number

    run(body())


def test_the_metric() -> None:
    async def body() -> None:
        async with behind() as (_, a, _):
            assert isinstance(a.proxy, Proxy)
            home_of(a).suspects.given_up = 3
            assert see_proxy(a.proxy).given_up == 3

    run(body())
