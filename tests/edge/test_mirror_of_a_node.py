"""A mirror of a real node: connections are cut, the mirror is killed, the node is killed. Nothing is missing, nothing
is there twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import Client, Properties, Reconnect
from headwater.edge.copies import Copy, from_batch
from headwater.edge.mirror import Mirror, Wishes
from headwater.edge.outputs import FileOutput, FunctionOutput
from headwater.edge.rendering import as_ndjson
from headwater.fleet.devices import Fleet, Publisher
from headwater.fleet.node import RunningNode
from headwater.store.reader import StoreReader
from tests.client.scripted import SOON
from tests.client.test_cuts import Cutter

PATIENCE = 60.0
QUICK = 0.05


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node")) as node:
        yield node


def stored(node: RunningNode, filter: str) -> list[Copy]:
    return [copy for batch in StoreReader(node.url).read(0, topic=filter) for copy in from_batch(batch)]


async def publish(node: RunningNode, name: str, count: int, rate: float = 2000.0) -> None:
    async with Client("127.0.0.1", node.port) as client:
        done = await Publisher(client, qos=1).publish(Fleet((f"{name}/{{n}}",), 7, rate), most=count)
        assert done.messages == count


def run_mirror(node: RunningNode, out: Path, filter: str, *options: str) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "headwater",
        "edge",
        "mirror",
        "-p",
        str(node.port),
        "--rest",
        node.url,
        "-t",
        filter,
    ]
    return subprocess.Popen([*words, "-o", str(out), "--interval", str(QUICK), *options], stderr=subprocess.PIPE)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_cut_connections(node: RunningNode, qos: int) -> None:
    chance = random.Random(qos)
    cuts = [(chance.randrange(300, 3000), chance.randrange(1000, 9000)) for _ in range(6)]
    name = f"cut{qos}"
    copies: list[Copy] = []

    async def scenario() -> None:
        async with Cutter(node.port, cuts) as way:
            patient = Reconnect(SOON.first, SOON.longest, from_start=True)
            client = Client("127.0.0.1", way.port, reconnect=patient)
            wishes = Wishes((f"{name}/#",), qos=qos, interval=QUICK)
            watched = Mirror(client, StoreReader(node.url), FunctionOutput(copies.extend), wishes)
            running = asyncio.ensure_future(watched.run())
            made = 0
            while made < 800 or way.cuts_left >= len(cuts) - 1:  # on a busy machine a connection takes its time
                await publish(node, name, 200, rate=1000.0)
                made += 200
            watched.stop()
            report = await running
            assert report.made == report.live + report.recovered == made
            assert report.live > 0

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert copies == stored(node, f"{name}/#")


def test_killed_again_and_again(node: RunningNode, tmp_path: Path) -> None:
    """kill -9 at any moment, while messages come."""
    out = tmp_path / "out.ndjson"
    chance = random.Random(7)

    async def scenario() -> int:
        publishing = asyncio.ensure_future(publish(node, "killed", 3000, rate=700.0))
        kills = 0
        while not publishing.done():
            process = run_mirror(node, out, "killed/#")
            size = out.stat().st_size if out.exists() else 0
            # Somewhere behind the first thing that it writes.
            while not publishing.done() and process.poll() is None and (not out.exists() or out.stat().st_size <= size):
                await asyncio.sleep(0.002)
            await asyncio.sleep(chance.uniform(0.0, 2 * QUICK))
            process.send_signal(signal.SIGKILL)
            _, said = process.communicate()
            assert said == b""
            kills += 1
        await publishing
        return kills

    kills = asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert kills > 2
    process = run_mirror(node, out, "killed/#", "--until-complete", "--json")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.read_bytes() == as_ndjson(stored(node, "killed/#"))
    assert out.read_bytes().count(b"\n") == 3000
    kept = json.loads(out.with_name("out.ndjson.state").read_text())["state"]
    assert kept["live"] + kept["recovered"] == 3000
    assert kept["live"] > 0
    assert kept["lost"] == 0


def test_a_node_that_is_killed(tmp_path: Path) -> None:
    """What was acknowledged is there afterwards, at the same position, and the mirror goes on."""
    out = tmp_path / "out"
    ports = {}

    async def acknowledged(client: Client, count: int) -> None:
        for number in range(count):
            await client.publish("a", str(number).encode(), qos=1)

    async def scenario() -> None:
        first = RunningNode(tmp_path / "node")
        ports.update(port=first.port, rest_port=first.rest_port)
        second: RunningNode | None = None
        client = Client("127.0.0.1", first.port, reconnect=SOON)
        reader = StoreReader(first.url, retries=2)
        news = asyncio.Event()
        watched = Mirror(client, reader, FileOutput(out), Wishes(interval=QUICK), lambda report: news.set())
        running = asyncio.ensure_future(watched.run())
        try:
            await news.wait()
            async with Client("127.0.0.1", first.port, reconnect=SOON) as device:
                await acknowledged(device, 50)
                os.kill(first.pids()[0], signal.SIGKILL)
                first.stop()
                second = await asyncio.to_thread(lambda: RunningNode(tmp_path / "node", **ports))
                await acknowledged(device, 50)
            watched.stop()
            report = await running
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            assert [row["position"] for row in rows] == list(range(1, report.position + 1))
            payloads = [row["payload"] for row in rows]
            for each in map(str, range(50)):
                assert payloads.count(each) >= 2
            assert out.read_bytes() == as_ndjson(stored(second, "#"))
        finally:
            first.stop()
            if second is not None:
                second.stop()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_properties_travel_the_same_both_ways(node: RunningNode) -> None:
    async def scenario() -> tuple[list[Copy], list[Copy]]:
        found: list[list[Copy]] = []
        properties = Properties(
            content_type="text/plain", correlation_data=b"\x00\xff", response_topic="r", payload_format_indicator=1
        )
        properties.user_properties = [("a", "1"), ("a", "2"), ("headwater-position", "fake:1")]
        for live in (True, False):
            copies: list[Copy] = []
            news = asyncio.Event()
            wishes = Wishes(("properties/#",), interval=QUICK)
            watched = Mirror(
                Client("127.0.0.1", node.port),
                StoreReader(node.url),
                FunctionOutput(copies.extend),
                wishes,
                lambda report, news=news: news.set(),  # type: ignore[misc]
            )
            running = asyncio.ensure_future(watched.run())
            await news.wait()
            if live:
                async with Client("127.0.0.1", node.port) as device:
                    await device.publish("properties/a", b"text", qos=1, properties=properties)
            watched.stop()
            report = await running
            assert (report.live, report.recovered) == ((1, 0) if live else (0, 1))
            found.append(copies)
        return found[0], found[1]

    by_mqtt, by_rest = asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert by_mqtt == by_rest
    assert json.loads(by_mqtt[0].properties)["user"] == [["a", "1"], ["a", "2"]]
