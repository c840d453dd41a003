"""Two Mosquittos become one broker."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from tests.node.links.nodes import run, until
from tests.node.proxy.fabric import Mosquitto, Tapped, home_of, own_node, proxy, ready, received, tell
from tests.node.transports.serving import HOST


@contextlib.asynccontextmanager
async def fabric(
    homes: list[Mosquitto], settings: list[dict[str, Any]], is_line: bool = False
) -> AsyncIterator[list[Broker]]:
    """One proxy for each home broker, linked."""
    async with contextlib.AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for home, name, own in zip(homes, "abc", settings, strict=False):
            brokers.append(await stack.enter_async_context(proxy(name, home, *brokers[-1:], **own)))
        if is_line:
            await ready(*brokers[:2])
            await ready(*brokers[1:])
        else:
            await ready(*brokers)
        yield brokers


@contextlib.asynccontextmanager
async def everywhere(
    brokers: list[Broker], homes: list[Mosquitto], *filters: str
) -> AsyncIterator[tuple[list[Tapped], list[Client]]]:
    """A subscriber and a publisher at each home broker; each subscriber has the next of the filters."""
    async with contextlib.AsyncExitStack() as stack:
        readers, publishers = [], []
        for broker, home, filter in zip(brokers, homes, itertools.cycle(filters), strict=False):
            readers.append(Tapped(broker, await stack.enter_async_context(Client(HOST, home.port))))
            await readers[-1].subscribe(filter)
            publishers.append(await stack.enter_async_context(Client(HOST, home.port)))
        yield readers, publishers


async def nothing_more(brokers: list[Broker], readers: list[Tapped], publishers: list[Client]) -> None:
    """A message that comes behind all others is the next that everybody gets."""
    await publishers[0].publish("t/1/x", b"end", qos=1)
    for reader in readers:
        assert await received(reader.client, 1) == [("t/1/x", b"end")]
    for each in brokers:
        assert not any(each.server.stats.drops.values())


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("protocol", ["5.0", "3.1.1-bridge", "3.1.1"])
def test_a_message_goes_from_one_home_broker_to_another(homes: list[Mosquitto], qos: int, protocol: str) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0], protocol=protocol) as a,
            proxy("b", homes[1], a, protocol=protocol) as b,
            Client(HOST, homes[0].port) as publisher,
            Client(HOST, homes[1].port) as reader,
        ):
            await ready(a, b)
            subscriber = Tapped(b, reader)
            await subscriber.subscribe("t/#", qos=qos)
            sent = [("t/1", b"same"), ("t/1", b"same"), ("t/2", b"other"), ("t/1", b"")]
            for topic, payload in sent:
                await publisher.publish(topic, payload, qos=qos)
            assert await received(reader, len(sent)) == sent

    run(body())


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1-bridge", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_everywhere_is_told_once_and_nothing_loops(
    homes: list[Mosquitto], protocol: str, qos: int
) -> None:
    """Subscribers of the same at all brokers; each publisher says the same thing again and again."""

    async def body() -> None:
        async with (
            fabric(homes, [{"protocol": protocol}] * 3) as brokers,
            everywhere(brokers, homes, "t/#") as (readers, publishers),
        ):
            for _ in range(20):
                for publisher in publishers:
                    await publisher.publish("t/same", b"same", qos=qos)
            for reader in readers:
                assert await received(reader.client, 60) == [("t/same", b"same")] * 60
            await nothing_more(brokers, readers, publishers)

    run(body())


@pytest.mark.parametrize(
    ("echo", "protocol"), [("property", "5.0"), ("count", "5.0"), ("count", "3.1.1"), ("auto", "3.1.1")]
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_echoes_are_known(homes: list[Mosquitto], echo: str, protocol: str, qos: int) -> None:
    """Brokers that send back what is handed over, without an end of the property that marks it."""

    async def body() -> None:
        async with (
            fabric(homes[:2], [{"protocol": protocol, "echo": echo, "fence_interval": 0.05}] * 2) as brokers,
            everywhere(brokers, homes, "t/#") as (readers, publishers),
        ):
            for _ in range(25):
                for publisher in publishers:
                    await publisher.publish("t/same", b"same", qos=qos)
            for reader in readers:
                assert await received(reader.client, 50) == [("t/same", b"same")] * 50
            await nothing_more(brokers, readers, publishers)
            await until(lambda: [home_of(each).swallowed for each in brokers] == [25, 26])
            for each in brokers:
                await until(lambda each=each: home_of(each).echoes.count == 0)

    run(body())


def test_the_paper_s_memory_loses_what_is_said_twice(homes: list[Mosquitto]) -> None:
    """The same as above by its own means: a client's message that is like one handed over shortly before is lost."""

    async def body() -> None:
        async with (
            fabric(homes[:2], [{"protocol": "3.1.1", "echo": "paper"}] * 2) as brokers,
            everywhere(brokers, homes, "t/#") as (readers, publishers),
        ):
            await publishers[0].publish("t/same", b"same", qos=1)
            assert await received(readers[1].client, 1) == [("t/same", b"same")]
            await publishers[1].publish("t/same", b"same", qos=1)  # a sensor there reads the same
            await publishers[1].publish("t/end", b"end", qos=1)
            assert await received(readers[0].client, 2) == [("t/same", b"same"), ("t/end", b"end")]

    run(body())


@pytest.mark.parametrize("method", ["flood", "subscribe", "bloom"])
@pytest.mark.parametrize("shape", ["mesh", "line"])
def test_methods_and_shapes(homes: list[Mosquitto], method: str, shape: str) -> None:
    async def body() -> None:
        names = ["a", "b", "c"]
        neighbours = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
        clusters = [
            {"method": method, **({"neighbours": neighbours[each]} if shape == "line" else {})} for each in names
        ]
        protocols = ["5.0", "3.1.1-bridge", "3.1.1"]
        settings = [{"cluster": each, "protocol": how} for each, how in zip(clusters, protocols, strict=True)]
        async with (
            fabric(homes, settings, is_line=shape == "line") as brokers,
            everywhere(brokers, homes, "t/+/x", "t/#", "+/+/x") as (readers, publishers),
        ):
            for number in range(10):
                for publisher in publishers:
                    await publisher.publish(f"t/{number % 2}/x", b"same", qos=1)
            for reader in readers:
                found = sorted(await received(reader.client, 30))
                assert found == [("t/0/x", b"same")] * 15 + [("t/1/x", b"same")] * 15
            await nothing_more(brokers, readers, publishers)

    run(body())


def test_our_own_node_is_one_of_them(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            own_node("n", a) as node,
            Client(HOST, homes[0].port) as at_home,
            Client(HOST, node.port) as at_node,
        ):
            await ready(a, node)
            await Tapped(a, at_home).subscribe("t/#")
            await at_node.subscribe("t/#", qos=2)
            for qos in (0, 1, 2):
                await at_home.publish("t/home", b"%d" % qos, qos=qos)
                await at_node.publish("t/node", b"%d" % qos, qos=qos)
            wanted = sorted([(f"t/{where}", b"%d" % qos) for where in ("home", "node") for qos in (0, 1, 2)])
            assert sorted(await received(at_home, 6)) == wanted
            assert sorted(await received(at_node, 6)) == wanted

    run(body())


def test_wider_filters_take_the_place_of_narrower_ones_without_a_copy(homes: list[Mosquitto]) -> None:
    """Mosquitto sends one copy for each subscription: while both are there, one is left out."""

    async def body() -> None:
        async with (
            fabric(homes[:2], [{}, {}]) as brokers,
            Client(HOST, homes[0].port) as publisher,
            Client(HOST, homes[1].port) as reader,
        ):
            home = home_of(brokers[0])
            subscriber = Tapped(brokers[1], reader)
            await subscriber.subscribe("t/a")
            assert home.abilities is not None and home.abilities.copies
            later: list[list[str]] = []
            home.wanting.catches.unsubscribe = later.append
            await tell(brokers[1], subscriber.as_seen, "t/#")
            await until(lambda: bool(later))
            assert later == [["t/a"]]
            sent = [b"%d" % (number // 2) for number in range(60)]  # each is said twice
            for number, payload in enumerate(sent):
                await publisher.publish("t/a", payload, qos=number % 3)
            assert sorted(await received(reader, 60)) == sorted(("t/a", payload) for payload in sent)
            assert home.copied == 60
            with brokers[0].server.turn():
                home.wanting._unsubscribe(later[0])
            await until(lambda: home.wanting.catches.at_broker == {"t/#"})
            await until(lambda: home.copies is None)
            for payload in sent:
                await publisher.publish("t/a", payload, qos=0)
            assert await received(reader, 60) == [("t/a", payload) for payload in sent]

    run(body())
