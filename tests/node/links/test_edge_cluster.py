"""Nodes of edges as whole brokers over loopback, with gossip and disks: a split and a join while clients publish."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client
from headwater.edge.status import EdgeStatus, stretches_of
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.store.query import Query
from tests.node.links.nodes import run, until
from tests.node.links.test_cluster import FAST, cluster_of, linked
from tests.node.transports.serving import HOST

FILTER = "plant/2/#"


@contextlib.asynccontextmanager
async def node(folder: Path, name: str, *join: Broker, edge: dict[str, Any]) -> AsyncIterator[Broker]:
    delivers = "delivery" in edge.get("roles", ["delivery"])
    config = Config(
        host=HOST,
        port=0,
        sys_interval=0,
        data_dir=str(folder / name) if delivers else "",
        cluster={**FAST, "node": name, "join": [cluster_of(each).address for each in join]},
        store={"enabled": delivers, "id": f"s-{name}" if delivers else ""},
        edge={"name": "north", **edge},
    )
    async with Broker(config) as broker:
        yield broker
        assert broker.server.stats.failures == 0
        assert broker.server.timers.failures == 0


@contextlib.asynccontextmanager
async def three(folder: Path) -> AsyncIterator[list[Broker]]:
    async with (
        node(folder, "a", edge={"owns": ["plant/#"]}) as a,
        node(folder, "b", a, edge={}) as b,
        node(folder, "r", a, b, edge={"roles": ["receiving"]}) as r,
    ):
        await linked(a, b, r)
        for each in (a, b, r):
            await until(lambda each=each: len(status(each).nodes) == 3 and status(each).owner_of("plant/#") == "a")
        yield [a, b, r]


def status(broker: Broker) -> EdgeStatus:
    found = cluster_of(broker).edge()
    assert found is not None
    return found


def stored(broker: Broker, topic: str) -> list[tuple[int, bytes]]:
    assert broker.store is not None
    rows = [row for chunk in broker.store.select(Query(topic)) for row in chunk.entries()]
    return [(row.position, row.payload) for row in rows]


async def is_settled(*brokers: Broker, owner: str) -> None:
    for each in brokers:
        await until(lambda each=each: not status(each).moves)
        await until(lambda each=each: status(each).owner_of(FILTER) == owner)


def test_a_split_and_a_join_while_a_device_publishes(tmp_path: Path) -> None:
    async def body() -> None:
        async with three(tmp_path) as [a, b, r]:
            stop = asyncio.Event()
            sent: list[bytes] = []
            got: list[bytes] = []

            async def publishes() -> None:
                async with Client(HOST, r.port) as device:
                    while not stop.is_set():
                        sent.append(b"%d" % len(sent))
                        await device.publish("plant/2/x", sent[-1], qos=1)

            async def reads() -> None:
                async with Client(HOST, b.port) as cloud:
                    await cloud.subscribe("plant/#", qos=1)
                    ready.set()
                    async for message in cloud.messages:
                        got.append(message.payload)

            ready = asyncio.Event()
            reading = asyncio.create_task(reads())
            await ready.wait()
            publishing = asyncio.create_task(publishes())
            await until(lambda: len(sent) > 20)
            assert await cluster_of(r).own_filter(FILTER, "b", False) == f"{FILTER} goes from node a to node b"
            await is_settled(a, b, r, owner="b")
            middle = len(sent)
            await until(lambda: len(sent) > middle + 20)
            assert await cluster_of(a).own_filter(FILTER, "", False) == f"{FILTER} goes from node b to node a"
            await is_settled(a, b, r, owner="")
            middle = len(sent)
            await until(lambda: len(sent) > middle + 20)
            stop.set()
            await publishing
            await until(lambda: len(got) == len(sent))
            assert got == sent
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

            await until(lambda: len(stored(a, "plant/2/x")) + len(stored(b, "plant/2/x")) == len(sent))
            stores = {"s-a": stored(a, "plant/2/x"), "s-b": stored(b, "plant/2/x")}
            assert len(stores["s-b"]) >= 20
            stretches = stretches_of(status(r), "plant/2/x")
            assert [each.id for each in stretches] == ["s-a", "s-b", "s-a"]
            found = [
                payload
                for each in stretches
                for position, payload in stores[each.id]
                if each.first <= position and (each.last is None or position <= each.last)
            ]
            assert found == sent

    run(body())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_receiving_node_has_neither_disk_nor_store(tmp_path: Path, qos: int) -> None:
    async def body() -> None:
        async with three(tmp_path) as [a, b, r]:
            async with Client(HOST, r.port) as device:
                await device.publish("plant/1", b"x", qos=qos)
            await until(lambda: len(stored(a, "plant/1")) == 1)
            assert stored(b, "plant/1") == []

    run(body())


def test_nodes_say_where_they_are_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            node(tmp_path, "a", edge={"rest": "https://a.example:8443"}) as a,
            node(tmp_path, "r", a, edge={"roles": ["receiving"]}) as r,
        ):
            await linked(a, r)
            await until(lambda: [each.rest for each in status(r).nodes] == ["https://a.example:8443", ""])
            [stretch] = status(r).stores
            assert (stretch.id, stretch.url, stretch.filters) == ("s-a", "https://a.example:8443", ("#",))
            await until(lambda: all(each.state == "live" and each.ready for each in status(r).nodes))

    run(body())


def test_a_node_takes_clients_when_it_knows_who_owns_what(tmp_path: Path) -> None:
    async def body() -> None:
        async with node(tmp_path, "a", edge={"owns": ["plant/#"]}) as a:
            for number in range(3):
                async with node(tmp_path, "r", a, edge={"roles": ["receiving"]}) as r:
                    async with Client(HOST, r.port) as device:
                        await device.publish("plant/1", b"%d" % number, qos=1)
                    await until(lambda: len(stored(a, "plant/1")) == number + 1)  # noqa: B023
                    assert status(r).unowned.topics == 0

    run(body())


def test_an_owner_does_not_leave_with_its_topics(tmp_path: Path) -> None:
    async def body() -> None:
        async with three(tmp_path) as [a, b, _]:
            with pytest.raises(ValueError, match=r"node a owns plant/#: give that to other nodes first"):
                cluster_of(a).drain("a", False)
            await cluster_of(a).own_filter("plant/#", "b", False)
            await until(lambda: not status(a).moves and status(a).owner_of("plant/#") == "b")
            await until(lambda: not cluster_of(a).owning.owners.claims)  # type: ignore[union-attr]

            def is_drained() -> bool:
                if all(each.ready and each.state == "live" for each in status(a).nodes):
                    cluster_of(a).drain("a", False)
                return cluster_of(a).not_ready != ""

            await until(is_drained)
            await until(lambda: len(status(b).nodes) == 2)

    run(body())
