"""Home brokers that go, come back, hang and begin anew; proxies that do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.config import Config
from tests.brokers import free_port
from tests.node.links.nodes import run, until
from tests.node.proxy.fabric import (
    FAST,
    Mosquitto,
    Tapped,
    home_of,
    is_up,
    own_node,
    proxy,
    ready,
    received,
)
from tests.node.transports.serving import HOST


def test_a_home_broker_that_comes_back_is_found(homes: list[Mosquitto]) -> None:
    """Killed and started without anything: subscribed to again, and served again."""

    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            own_node("n", a) as node,
            Client(HOST, node.port) as at_node,
        ):
            await ready(a, node)
            await at_node.subscribe("t/#", qos=1)
            await until(lambda: home_of(a).wanting.catches.at_broker == {"t/#"})
            for number in range(3):
                homes[0].kill()
                await until(lambda: not is_up(a))
                homes[0].start()
                await until(lambda: is_up(a) and not home_of(a).wanting.catches.is_busy)
                async with Client(HOST, homes[0].port) as client:
                    await Tapped(a, client).subscribe("u")
                    await client.publish("t/1", b"%d" % number, qos=1)
                    assert await received(at_node, 1) == [("t/1", b"%d" % number)]
                    await at_node.publish("u", b"%d" % number, qos=1)
                    assert await received(client, 1) == [("u", b"%d" % number)]
            assert home_of(a).reconnects == 3

    run(body())


def test_a_home_broker_that_is_not_there_at_the_start(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        homes[0]._port = free_port()
        async with proxy("a", homes[0]) as a:
            await until(lambda: "refused" in home_of(a).why)
            homes[0].start()
            await until(lambda: is_up(a))

    run(body())


def test_a_home_broker_that_says_nothing_is_given_up() -> None:
    async def body() -> None:
        calls = 0

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            calls += 1
            while await reader.read(1000):
                pass
            writer.close()

        server = await asyncio.start_server(silent, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        settings = {"broker": f"{HOST}:{port}", "listen": [f"{HOST}:0"]}
        config = Config(sys_interval=0, connect_timeout=0.1, cluster={**FAST, "node": "a"}, proxy=settings)
        async with Broker(config) as broker:
            await until(lambda: calls >= 3)
            assert home_of(broker).why == "it does not answer CONNECT"
        server.close()

    run(body())


def test_a_home_broker_that_refuses_the_own_client(homes: list[Mosquitto], tmp_path: Path) -> None:
    async def body() -> None:
        homes[0].settings = "allow_anonymous false"
        async with proxy("a", homes[0]) as a:
            await until(lambda: "refused with 0x87" in home_of(a).why)
            assert home_of(a)._ways[home_of(a)._way][0] == 5, "another version would change nothing"

    run(body())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_for_a_home_broker_that_is_away_waits_and_then_links_hold_back(
    homes: list[Mosquitto], qos: int
) -> None:
    """It hangs: the window is full, then the queue, then the other node's spool; then its publisher is paused."""

    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            own_node("n", a, max_spool=1 << 20) as node,
            Client(HOST, homes[0].port) as reader,
            Client(HOST, node.port) as publisher,
        ):
            home_of(a).session.outbound.max_messages = 20
            await ready(a, node)
            await Tapped(a, reader).subscribe("t", qos=qos)
            homes[0].pause()
            payload = bytes(8000)

            async def publish() -> None:
                for number in range(600):
                    await publisher.publish("t", b"%04d" % number + payload, qos=qos)

            task = asyncio.create_task(publish())
            await until(lambda: bool(node.server.outrunners))
            assert not task.done()
            homes[0].go_on()
            found = await received(reader, 600, 60)
            assert [int(payload[:4]) for _, payload in found] == list(range(600))
            await task

    run(body())


def test_a_full_spool_holds_back_the_home_broker_and_nobody_waits_in_a_ring(homes: list[Mosquitto]) -> None:
    """Both ways are full all the time."""

    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            proxy("b", homes[1], a) as b,
            Client(HOST, homes[0].port) as one,
            Client(HOST, homes[1].port) as two,
            Client(HOST, homes[0].port) as from_one,
            Client(HOST, homes[1].port) as from_two,
        ):
            await ready(a, b)
            await Tapped(a, one).subscribe("to/a", qos=1)
            await Tapped(b, two).subscribe("to/b", qos=1)
            for each in (a, b):
                assert each.cluster is not None
                for end in each.cluster.links.spooling.ends.values():
                    end.spool.max_bytes = 3000
                home_of(each).session.outbound.max_messages = 3

            async def publish(client: Client, topic: str) -> None:
                for number in range(500):
                    await client.publish(topic, b"%04d" % number + bytes(1000), qos=1)

            def holds(broker: Broker) -> bool:
                connection = home_of(broker).connection
                return connection is not None and bool(connection.held)

            homes[1].pause()
            to_b = asyncio.create_task(publish(from_one, "to/b"))
            await until(lambda: holds(a))
            homes[1].go_on()
            homes[0].pause()
            to_a = asyncio.create_task(publish(from_two, "to/a"))
            await until(lambda: holds(b))
            homes[0].go_on()
            found = await asyncio.gather(received(one, 500, 60), received(two, 500, 60))
            await asyncio.gather(to_a, to_b)
            for messages in found:
                assert [int(payload[:4]) for _, payload in messages] == list(range(500))

    run(body())


def test_a_link_that_is_cut_loses_nothing_of_qos_1(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            proxy("b", homes[1], a) as b,
            Client(HOST, homes[1].port) as reader,
            Client(HOST, homes[0].port) as publisher,
        ):
            await ready(a, b)
            await Tapped(b, reader).subscribe("t", qos=1)
            assert b.cluster is not None
            for number in range(200):
                await publisher.publish("t", b"%d" % number, qos=1)
                if number % 50 == 25:
                    for link in list(b.cluster.links.up.values()):
                        with b.server.turn():
                            link.close("the test cuts it")
            found = await received(reader, 200, 30)
            assert [int(payload) for _, payload in found] == list(range(200))

    run(body())
