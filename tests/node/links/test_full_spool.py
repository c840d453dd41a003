"""A node is away, and what others keep for it reaches `cluster.max_spool`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.plane.selector import run
from headwater.wire.packets import V5, V311
from tests.broker.build import connect, publish
from tests.node.links.test_waiting import come, is_forgotten, is_linked, node, subscriber, until
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


@pytest.mark.parametrize("version", [V311, V5])
def test_who_is_paused_is_not_closed_for_its_silence_and_is_when_it_may_speak(tmp_path: Path, version: int) -> None:
    """Its keep alive does not count while this node does not read from it."""

    async def main() -> None:
        async with node("a", tmp_path, max_spool=MIB) as a:
            async with node("b", tmp_path, a) as b:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                async with subscriber(b) as client:
                    await client.subscribe("wanted/#", qos=1)
            await until(lambda: is_linked(a))
            paused = Silent(await asyncio.open_connection(HOST, a.port), "paused", version)
            for number in range(80):
                paused.writer.write(publish("wanted/t", bytes(SIZE), qos=1, pid=number + 1, version=version))
            await until(lambda: spooled(a) >= MIB and is_paused(a, "paused"))
            for number in range(2):  # both came later, and are silent for a shorter time
                other = Silent(await asyncio.open_connection(HOST, a.port), f"other {number}", version)
                assert await other.ending() == KEEP_ALIVE_TIMEOUT[version]
            assert is_paused(a, "paused")
            await until(lambda: is_forgotten(a, "b"))  # what it was owed is void
            assert acknowledged(await paused.ending()) == (list(range(1, 81)), KEEP_ALIVE_TIMEOUT[version])

    run(main())


KEEP_ALIVE_TIMEOUT = {V311: b"", V5: b"\xe0\x01\x8d"}


def acknowledged(data: bytes) -> tuple[list[int], bytes]:
    """The packet ids of the PUBACKs, long or short, and what comes behind them."""
    found: list[int] = []
    while data.startswith(b"\x40"):
        found.append(int.from_bytes(data[2:4], "big"))
        data = data[2 + data[1] :]
    return found, data


class Silent:
    """A client with a keep alive of a second that sends nothing by itself."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], name: str, version: int) -> None:
        self.reader, self.writer = streams
        self.writer.write(connect(name, version=version, keep_alive=1))

    async def ending(self) -> bytes:
        """What it gets behind CONNACK, when its connection has been closed."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readexactly(2)
            await self.reader.readexactly(head[1])
            found = await self.reader.read()
        self.writer.close()
        return found


def is_paused(broker: Broker, name: str) -> bool:
    found = [each for each in broker.server.channels if each.session is not None and each.session.client_id == name]
    return len(found) == 1 and found[0].paused != 0
