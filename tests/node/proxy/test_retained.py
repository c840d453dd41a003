"""Retained messages are the same at all home brokers and nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.proxy import retained
from headwater.wire.packets import V311
from tests.node.links.nodes import run, until
from tests.node.proxy.fabric import Mosquitto, home_of, is_up, own_node, proxy, ready
from tests.node.transports.serving import HOST

PROTOCOLS = ["5.0", "3.1.1-bridge", "3.1.1"]


async def retained_at(port: int) -> dict[str, bytes]:
    """What a new subscriber gets, by topic."""
    found: dict[str, bytes] = {}
    async with Client(HOST, port) as client:
        await client.subscribe("#", qos=2)
        await client.publish("test/end", b"end")
        async for message in client.messages:
            if message.topic == "test/end":
                break
            if message.retain:
                found[message.topic] = message.payload
    return found


async def becomes(port: int, wanted: dict[str, bytes]) -> None:
    found: dict[str, bytes] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(8):
            while (found := await retained_at(port)) != wanted:
                await asyncio.sleep(0.02)
    assert found == wanted


def has_read(broker: Broker) -> bool:
    retention = home_of(broker).retention
    assert retention is not None
    return is_up(broker) and retention._away_since == 0 and retention._reader is None and retention.reads > 0


async def write(port: int, topic: str, payload: bytes, qos: int = 1, version: int = V311) -> None:
    async with Client(HOST, port, version=version) as client:
        await client.publish(topic, payload, qos=qos, retain=True)


@contextlib.asynccontextmanager
async def two_and_a_node(homes: list[Mosquitto], protocol: str) -> AsyncIterator[tuple[Broker, Broker, Broker]]:
    async with (
        proxy("a", homes[0], protocol=protocol) as a,
        proxy("b", homes[1], a, protocol=protocol) as b,
        own_node("n", a) as n,
    ):
        await ready(a, b, n)
        await until(lambda: has_read(a) and has_read(b))
        yield a, b, n


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_written_anywhere_is_everywhere(homes: list[Mosquitto], protocol: str) -> None:
    """Nobody has subscribed; clients come by the proxies."""

    async def body() -> None:
        async with two_and_a_node(homes, protocol) as (a, b, n):
            ports = (a.port, b.port, n.port)
            for number, port in enumerate(ports):
                for qos in (0, 1, 2):
                    await write(port, f"t/{number}/{qos}", b"first", qos)
            wanted = {f"t/{number}/{qos}": b"first" for number in range(3) for qos in (0, 1, 2)}
            for port in (*ports, homes[0].port, homes[1].port):
                await becomes(port, wanted)
            await write(ports[1], "t/0/1", b"second")
            await write(ports[2], "t/1/1", b"")
            await write(ports[0], "t/2/1", b"")
            await write(ports[0], "t/2/1", b"third")
            await write(ports[0], "t/0/2", b"")
            wanted |= {"t/0/1": b"second", "t/2/1": b"third"}
            del wanted["t/1/1"], wanted["t/0/2"]
            for port in (*ports, homes[0].port, homes[1].port):
                await becomes(port, wanted)

    run(body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_subscribers_elsewhere_get_each_once(homes: list[Mosquitto], protocol: str) -> None:
    async def body() -> None:
        async with (
            two_and_a_node(homes, protocol) as (a, b, n),
            Client(HOST, a.port) as one,
            Client(HOST, b.port) as two,
            Client(HOST, n.port) as three,
        ):
            for each in (one, two, three):
                await each.subscribe("t/+", qos=1)
            for number, port in enumerate((a.port, b.port, n.port)):
                for _ in range(3):
                    await write(port, f"t/{number}", b"same")
            for each in (one, two, three):
                async with asyncio.timeout(10):
                    found = [await anext(aiter(each.messages)) for _ in range(9)]
                assert sorted(message.topic for message in found) == sorted(["t/0", "t/1", "t/2"] * 3)
                assert not any(message.retain for message in found), "they had subscribed before"
                await each.publish("t/end", b"end", qos=1)
            for each in (one, two, three):
                async with asyncio.timeout(10):
                    found = [await anext(aiter(each.messages)) for _ in range(3)]
                assert [message.topic for message in found] == ["t/end"] * 3

    run(body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_home_brokers_have_at_the_start(homes: list[Mosquitto], protocol: str) -> None:
    """The fabric's wins; of two that the fabric has not, the first that was told."""

    async def body() -> None:
        for number in (0, 1):
            await write(homes[number].port, f"own/{number}", b"%d" % number)
            await write(homes[number].port, "both", b"%d" % number)
        async with own_node("n") as n:
            await write(n.port, "own/1", b"of the fabric")
            await write(n.port, "own/n", b"n")
            async with proxy("a", homes[0], n, protocol=protocol) as a:
                await ready(a, n)
                await until(lambda: has_read(a))
                async with proxy("b", homes[1], n, protocol=protocol) as b:
                    await ready(a, b, n)
                    wanted = {"own/0": b"0", "own/1": b"of the fabric", "own/n": b"n", "both": b"0"}
                    for port in (homes[0].port, homes[1].port, n.port):
                        await becomes(port, wanted)

    run(body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_home_broker_that_begins_anew_gets_them_again(homes: list[Mosquitto], protocol: str) -> None:
    async def body() -> None:
        async with proxy("a", homes[0], protocol=protocol) as a, own_node("n", a) as n:
            await ready(a, n)
            await until(lambda: has_read(a))
            await write(a.port, "t/a", b"1")
            await write(n.port, "t/n", b"1")
            for port in (homes[0].port, n.port):
                await becomes(port, {"t/a": b"1", "t/n": b"1"})
            homes[0].kill()
            await until(lambda: not is_up(a))
            await write(n.port, "t/n", b"2")
            homes[0].start()
            await becomes(homes[0].port, {"t/a": b"1", "t/n": b"2"})

    run(body())


def test_what_clients_wrote_while_the_proxy_was_away_counts(homes: list[Mosquitto], tmp_path: Path) -> None:
    async def body() -> None:
        folder = str(tmp_path / "a")
        async with own_node("n") as n:
            async with proxy("a", homes[0], n, data_dir=folder) as a:
                await ready(a, n)
                await until(lambda: has_read(a))
                for name in "xyz":
                    await write(a.port, f"t/{name}", b"before")
                await becomes(n.port, {f"t/{name}": b"before" for name in "xyz"})
            await write(homes[0].port, "t/x", b"while away")
            await write(homes[0].port, "t/new", b"while away")
            await write(n.port, "t/y", b"of the fabric")
            async with proxy("a", homes[0], n, data_dir=folder):
                wanted = {"t/x": b"while away", "t/new": b"while away", "t/y": b"of the fabric", "t/z": b"before"}
                for port in (n.port, homes[0].port):
                    await becomes(port, wanted)

    run(body())


def test_it_can_be_switched_off(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0], retained=False) as a,
            own_node("n", a) as n,
            Client(HOST, n.port) as reader,
        ):
            await ready(a, n)
            await reader.subscribe("t/#", qos=1)
            await until(lambda: "t/#" in home_of(a).wanting.catches.at_broker)
            await write(a.port, "t/a", b"1")
            async with asyncio.timeout(10):
                assert (await anext(aiter(reader.messages))).payload == b"1"
            assert await retained_at(n.port) == {}

    run(body())


def test_many_retained_topics_are_everything(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with proxy("a", homes[0], max_filters=10) as a, own_node("n", a) as n:
            await ready(a, n)
            await until(lambda: has_read(a))
            for number in range(15):
                await write(a.port, f"t/{number}", b"1")
            await until(lambda: home_of(a).wanting.catches.at_broker == {"#"})
            await becomes(n.port, {f"t/{number}": b"1" for number in range(15)})
            retention = home_of(a).retention
            assert retention is not None and len(retention.topics) == 11

    run(body())


@pytest.mark.parametrize(("protocol", "max_filters"), [("5.0", 3), ("3.1.1-bridge", 3), ("3.1.1", 1000)])
def test_who_may_not_delete_deletes_nothing(
    homes: list[Mosquitto], protocol: str, max_filters: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tap sees the packet; whether it counts is the home broker's to say."""
    monkeypatch.setattr(retained, "FRESH", 0.2)
    rules = tmp_path / "rules"
    rules.write_text("topic read #\ntopic readwrite test/#\nuser own\ntopic readwrite #\n")
    homes[0].settings = f"allow_anonymous true\nacl_file {rules}"

    async def body() -> None:
        made = proxy("a", homes[0], protocol=protocol, username="own", max_filters=max_filters)
        async with made as a, own_node("n", a) as n:
            await ready(a, n)
            await until(lambda: has_read(a))
            there = {f"t/{number}": b"1" for number in range(6)}
            for topic in there:
                await write(n.port, topic, b"1")
            await becomes(a.port, there)
            retention = home_of(a).retention
            assert retention is not None
            async with Client(HOST, a.port, version=V311) as client:
                for topic in there:
                    await client.publish(topic, b"", retain=True)
                await until(lambda: "t/0" in retention.topics)
            await until(lambda: not retention.fresh and not retention.doubts and has_read(a))
            await becomes(n.port, there)
            await becomes(a.port, there)

    run(body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_home_broker_has_not_answered_is_not_deleted(
    homes: list[Mosquitto], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "FRESH", 0.05)

    async def body() -> None:
        async with proxy("a", homes[0], protocol=protocol) as a, own_node("n", a) as n:
            await ready(a, n)
            await until(lambda: has_read(a))
            await write(n.port, "t/0", b"1")
            await becomes(homes[0].port, {"t/0": b"1"})
            retention = home_of(a).retention
            assert retention is not None
            homes[0].pause()
            with a.server.turn():
                retention.tapped("t/0", b"", 0)
                begun = a.server.hot.now
            await until(lambda: a.server.hot.now > begun + 0.3)
            assert n.server.router.retained.alive("t/0", n.server.hot.now) is not None
            homes[0].go_on()
            await until(lambda: not retention.fresh and not retention.doubts and has_read(a))
            await becomes(n.port, {"t/0": b"1"})

    run(body())
