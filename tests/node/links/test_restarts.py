"""Nodes that are restarted, some or all, in any order, or at another's address: the cluster recovers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import permutations
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from tests.brokers import free_port
from tests.node.links.nodes import run, until
from tests.node.links.test_cluster import cluster_of, linked, links, node, nodes, up
from tests.node.transports.serving import HOST

NAMES = ("a", "b", "c")


class Machines:
    """Where nodes are, with a folder and a port each; all know all addresses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in NAMES}

    @asynccontextmanager
    async def running(self, names: Iterable[str], **ports: int) -> AsyncIterator[dict[str, Broker]]:
        """Started in this order, and stopped together; `ports`, where not the usual ones."""
        join = [f"{HOST}:{port}" for port in self.ports.values()]
        async with AsyncExitStack() as stack:
            found = {}
            for name in names:
                folder = str(self.folder / name)
                port = ports.get(name, self.ports[name])
                found[name] = await stack.enter_async_context(node(name, *join, data_dir=folder, port=port))
            yield found
            await asyncio.gather(*(each.stop() for each in found.values()))


def reader(broker: Broker, name: str = "reader") -> Client:
    return Client(HOST, broker.port, client_id=name, clean_start=False, session_expiry=1000)


async def is_subscribed(broker: Broker, name: str = "reader") -> None:
    async with reader(broker, name) as client:
        await client.subscribe("jobs/#", qos=1)


async def publish(broker: Broker, *payloads: bytes) -> None:
    async with Client(HOST, broker.port) as client:
        for payload in payloads:
            await client.publish("jobs/1", payload, qos=1)
            await client.publish(f"last/{payload.decode()}", payload, qos=1, retain=True)


async def gets(broker: Broker, *payloads: bytes, name: str = "reader") -> None:
    async with asyncio.timeout(10), reader(broker, name) as client:
        messages = aiter(client.messages)
        assert [(await anext(messages)).payload for _ in payloads] == [*payloads]


async def whole(found: dict[str, Broker]) -> None:
    """All are linked and take clients."""
    await linked(*found.values())
    for broker in found.values():
        await until(broker.is_ready)


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="".join)
def test_all_nodes_are_restarted_in_any_order(order: tuple[str, ...], tmp_path: Path) -> None:
    async def body() -> None:
        machines = Machines(tmp_path)
        async with machines.running(NAMES) as found:
            await whole(found)
            await is_subscribed(found["b"])
            await publish(found["c"], b"1", b"2")
        async with machines.running(order) as found:
            await whole(found)
            await publish(found["a"], b"3")
            await gets(found[order[-1]], b"1", b"2", b"3")
            for broker in found.values():
                await until(lambda broker=broker: len(broker.server.router.retained) == 3)

    run(body())


def test_a_majority_is_restarted_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        machines = Machines(tmp_path)
        async with machines.running("a") as first:
            async with machines.running("bc") as found:
                await whole(first | found)
                await is_subscribed(found["b"])
                await is_subscribed(found["c"], "other")
            await until(lambda: up(first["a"]) == set())
            await publish(first["a"], b"1", b"2")
            assert [link.spool_messages for link in links(first["a"]).values()] == [4, 4]
            async with machines.running("cb") as found:
                await whole(first | found)
                await gets(found["b"], b"1", b"2")
                await gets(first["a"], b"1", b"2", name="other")
                await until(lambda: not any(each.spool_messages for each in links(first["a"]).values()))

    run(body())


def test_an_address_is_reused_by_another_node(tmp_path: Path) -> None:
    """What is owed to the former one is not given to it, and waits until that is back, wherever."""

    async def body() -> None:
        machines = Machines(tmp_path)
        async with machines.running("a") as first:
            async with machines.running("b") as found:
                await whole(first | found)
                await is_subscribed(found["b"])
            await until(lambda: up(first["a"]) == set())
            await publish(first["a"], b"1", b"2")
            async with machines.running("c", c=machines.ports["b"]) as found:
                await until(lambda: up(first["a"]) == {"c"})
                await until(found["c"].is_ready)
                assert links(first["a"])["b"].spool_messages == 4 and links(first["a"])["c"].spool_messages == 0
                async with machines.running("b", b=free_port()) as back:
                    await whole(first | found | back)
                    await gets(back["b"], b"1", b"2")
                    at = {each.node: each.address for each in nodes(first["a"]).values()}
                    assert at["b"] == cluster_of(back["b"]).address != at["c"] == cluster_of(found["c"]).address

    run(body())
