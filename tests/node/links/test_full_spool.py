"""A node is away, and what others keep for it reaches `cluster.max_spool`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.plane.selector import run
from headwater.wire.packets import V5, V311
from tests.node.links.test_waiting import come, is_linked, node, subscriber, until
from tests.node.transports.serving import HOST, PATIENCE

MIB = 1 << 20
SIZE = 16 * 1024
MESSAGES = 150
VERSIONS = {"old": V311, "new": V5}


class Publishing:
    """A client that publishes one message after the other, and how many were acknowledged."""

    def __init__(self, broker: Broker, name: str, qos: int) -> None:
        self.acknowledged = 0
        self._task = asyncio.ensure_future(self._publish(broker.port, name, qos))

    async def _publish(self, port: int, name: str, qos: int) -> None:
        async with Client(HOST, port, client_id=name, version=VERSIONS[name], reconnect=None) as client:
            for number in range(MESSAGES):
                reason = await client.publish(
                    f"wanted/{name}", b"%s %d " % (name.encode(), number) + bytes(SIZE), qos=qos
                )
                assert reason == 0
                self.acknowledged += 1

    async def end(self) -> None:
        """Raises what ended its connection."""
        await self._task

    @property
    def is_over(self) -> bool:
        return self._task.done()


def spooled(broker: Broker) -> int:
    assert broker.cluster is not None
    [link] = broker.cluster.view().links
    return link.spool_bytes


@pytest.mark.parametrize("qos", [1, 2])
def test_publishers_for_a_node_that_is_away_pause_and_nothing_is_lost(tmp_path: Path, qos: int) -> None:
    async def main() -> None:
        async with node("a", tmp_path, max_spool=MIB) as a:
            async with node("b", tmp_path, a) as b:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                async with subscriber(b) as client:
                    await client.subscribe("wanted/#", qos=qos)
            publishers = [Publishing(a, name, qos) for name in VERSIONS]
            await until(lambda: spooled(a) >= MIB)
            await others_go_on(a)
            before = [each.acknowledged for each in publishers]
            await others_go_on(a)  # several round trips, in which nobody else is acknowledged
            assert [each.acknowledged for each in publishers] == before
            assert 0 < sum(before) < 2 * MESSAGES and not any(each.is_over for each in publishers)
            assert spooled(a) < 1.25 * MIB
            async with node("b", tmp_path, a) as b, subscriber(b) as client:
                found = []
                async with asyncio.timeout(PATIENCE):
                    async for message in client.messages:
                        found.append(message.payload[:-SIZE].split())
                        if len(found) == 2 * MESSAGES:
                            break
                    for each in publishers:
                        await each.end()
            for name in VERSIONS:
                assert [int(number) for who, number in found if who == name.encode()] == list(range(MESSAGES))

    run(main())


async def others_go_on(broker: Broker) -> None:
    """What nobody wants at the node that is away is acknowledged, and arrives."""
    async with Client(HOST, broker.port) as client:
        await client.subscribe("here/#", qos=1)
        for number in range(20):
            await client.publish("here/t", b"%d" % number, qos=1)
        found = [message.payload for message in await come(client, b"19")]
        assert found == [b"%d" % number for number in range(20)]
