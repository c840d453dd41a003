"""Clients that connect through proxies: they see their own broker, and the messages of all."""

from __future__ import annotations

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.operations.metrics import registry_of
from headwater.node.operations.seen import see
from headwater.node.proxy.figures import ProxySeen, see_proxy
from headwater.wire.packets import V5, V311
from tests.node.links.nodes import run, until
from tests.node.proxy.fabric import Mosquitto, home_of, interest_of, own_node, proxy, ready, received
from tests.node.transports.serving import HOST


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_two_home_brokers_and_a_node_are_one_broker(homes: list[Mosquitto], version: int, qos: int) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            proxy("b", homes[1], a, protocol="3.1.1-bridge") as b,
            own_node("n", a) as n,
            Client(HOST, a.port, version=version) as one,
            Client(HOST, b.port, version=version) as two,
            Client(HOST, n.port, version=version) as three,
        ):
            await ready(a, b, n)
            clients = (one, two, three)
            for each in clients:
                await each.subscribe("t/+", qos=qos)
            for number, each in enumerate(clients):
                await each.publish(f"t/{number}", b"same", qos=qos)
                await each.publish(f"t/{number}", b"same", qos=qos)
            for each in clients:
                found = await received(each, 6)
                assert sorted(found) == sorted([(f"t/{number}", b"same") for number in (0, 1, 2)] * 2)

    run(body())


def test_what_a_client_wants_ends_with_it(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with proxy("a", homes[0]) as a:
            await ready(a)
            async with Client(HOST, a.port) as client:
                await client.subscribe("t/+")
                await client.subscribe("u")
                await client.unsubscribe("u")
                await until(lambda: set(home_of(a).session.subscriptions) == {"t/+"})
            await until(lambda: not home_of(a).session.subscriptions)
            assert not interest_of(a)._clients

    run(body())


def test_figures(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            own_node("n", a) as n,
            Client(HOST, a.port) as client,
            Client(HOST, n.port) as reader,
        ):
            await ready(a, n)
            await reader.subscribe("t/+", qos=1)
            await client.subscribe("u", qos=1)
            await until(lambda: "t/+" in home_of(a).wanting.catches.at_broker)
            for _ in range(3):
                await client.publish("t/1", b"said", qos=1)
            await received(reader, 3)
            said = {
                (sample.name, *sample.labels.values()): sample.value
                for family in registry_of(lambda: see(a, [])).collect()
                for sample in family.samples
            }
            assert said["headwater_proxy_home_up",] == 1
            assert said["headwater_proxy_messages_caught_total",] >= 3
            assert said["headwater_proxy_filters_caught",] == said["headwater_proxy_filters_wanted",] == 1
            assert said["headwater_proxy_connections",] == 1
            assert said["headwater_proxy_relayed_bytes_total", "in"] > 60
            assert said["headwater_proxy_relayed_bytes_total", "out"] > 10
            homes[0].kill()
            await until(lambda: not see_proxy_of(a).home_up)

    run(body())


def see_proxy_of(broker: Broker) -> ProxySeen:
    assert broker.proxy is not None
    return see_proxy(broker.proxy)
