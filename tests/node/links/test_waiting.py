"""What waits for a node that is away."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client, Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.links.identity import FILE
from headwater.node.links.settings import ClusterSettings
from headwater.node.links.spooling import MOST_FORGOTTEN
from headwater.node.persistence.backup import make_backup, restore, snapshot_offline
from headwater.node.persistence.folder import NOT_A_COPY
from headwater.node.plane.selector import run
from headwater.peering.frames.frame import Spool
from headwater.wire.packets import Properties
from tests.node.transports.serving import HOST, PATIENCE


def node(name: str, folder: Path, *others: Broker, **cluster: Any) -> Broker:
    joined = [each.cluster.address for each in others if each.cluster is not None]
    given: dict[str, Any] = {"name": "test", "node": name, "host": HOST, "port": 0, "join": joined, "heartbeat": 0.1}
    settings = ClusterSettings(**{**given, "patience": 1.0, "catch_up_wait": 0, **cluster})
    return Broker(Config(host=HOST, port=0, data_dir=str(folder / name), durability="sync", cluster=settings))


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def is_linked(broker: Broker, *peers: str) -> bool:
    assert broker.cluster is not None
    up = {each.peer for each in broker.cluster.view().links if each.state == "up"}
    return up == set(peers)


def subscriber(broker: Broker, name: str = "subscriber") -> Client:
    return Client(HOST, broker.port, client_id=name, clean_start=False, session_expiry=1000, reconnect=None)


async def come(client: Client, last: bytes) -> list[Message]:
    """What comes up to this payload."""
    found = []
    async with asyncio.timeout(PATIENCE):
        async for message in client.messages:
            found.append(message)
            if message.payload == last:
                break
    return found


def test_time_in_a_spool_counts_for_messages_that_expire(tmp_path: Path) -> None:
    async def main() -> list[tuple[bytes, int | None]]:
        async with node("a", tmp_path) as a:
            async with node("b", tmp_path, a) as b:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                async with subscriber(b) as client:
                    await client.subscribe("#", qos=1)
            await until(lambda: is_linked(a))
            async with Client(HOST, a.port) as publisher:
                await publisher.publish("t", b"short", qos=1, properties=Properties(message_expiry_interval=1))
                await publisher.publish("t", b"long", qos=2, properties=Properties(message_expiry_interval=100))
                await publisher.publish("t", b"last", qos=1)
            await asyncio.sleep(1.5)  # the time that is to count
            async with node("b", tmp_path, a) as b, subscriber(b) as client:
                return [(each.payload, each.properties.message_expiry_interval) for each in await come(client, b"last")]

    [(first, left), (last, _)] = run(main())
    assert (first, last) == (b"long", b"last")
    assert left is not None and 90 < left < 100


def test_a_node_that_was_forgotten_gets_what_is_published_when_it_is_back(tmp_path: Path) -> None:
    """The others owed it nothing more, and count anew."""

    async def main() -> list[bytes]:
        async with node("a", tmp_path) as a:
            async with node("b", tmp_path, a) as b:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                async with subscriber(b) as client, Client(HOST, a.port) as publisher:
                    await client.subscribe("#", qos=1)
                    for number in range(10):
                        await publisher.publish("t", b"before %d" % number, qos=1)
                    await come(client, b"before 9")
            await until(lambda: is_forgotten(a, "b"))
            async with node("b", tmp_path, a) as b, subscriber(b) as client, Client(HOST, a.port) as publisher:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                for number in range(20):
                    await publisher.publish("t", b"after %d" % number, qos=1)
                return [message.payload for message in await come(client, b"after 19")]

    assert run(main()) == [b"after %d" % number for number in range(20)]


def is_forgotten(broker: Broker, name: str) -> bool:
    """Ask for it as soon as the node is held for dead."""
    cluster = broker.cluster
    assert cluster is not None
    for each in cluster.view().nodes:
        if each.node == name:
            if each.state == "dead":
                cluster.forget(name)
            return False
    return True


def test_a_node_that_left_and_joins_again_gets_what_is_published_then(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b:
            assert a.cluster is not None and b.cluster is not None
            await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
            async with subscriber(b) as client, Client(HOST, a.port) as publisher:
                await client.subscribe("#", qos=1)
                for number in range(10):
                    await publisher.publish("t", b"before %d" % number, qos=1)
                await come(client, b"before 9")
                b.cluster.leave()
                await until(lambda: is_linked(a) and is_linked(b))
                await publisher.publish("t", b"without", qos=1)
                b.cluster.join([a.cluster.address])
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                for number in range(20):
                    await publisher.publish("t", b"after %d" % number, qos=1)
                return [message.payload for message in await come(client, b"after 19")]

    assert run(main()) == [b"after %d" % number for number in range(20)]


def test_a_node_that_was_away_hears_that_another_one_has_left(tmp_path: Path) -> None:
    """From the one that left, which it dials: else it would keep messages for it."""

    async def main() -> None:
        async with node("b", tmp_path) as b:
            assert b.cluster is not None
            async with node("a", tmp_path, b) as a:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                await until(lambda: kept_by(a) == {"b": address_of(b)})
                async with subscriber(b) as client:
                    await client.subscribe("#", qos=1)
            await until(lambda: is_linked(b))
            b.cluster.leave()
            async with node("a", tmp_path) as a:
                cluster = a.cluster
                assert cluster is not None
                assert cluster.routes("t").links == ["b"]
                await until(lambda: not cluster.view().links)
                assert cluster.routes("t").links == []

    run(main())


def test_a_node_that_leaves_remembers_how_far_it_was(tmp_path: Path) -> None:
    """The others may not have heard that it had left, and send what it has not acknowledged."""

    async def main() -> None:
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b:
            assert b.cluster is not None
            await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
            async with subscriber(b) as client, Client(HOST, a.port) as publisher:
                await client.subscribe("#", qos=1)
                await publisher.publish("t", b"before", qos=1)
                await come(client, b"before")
            links = b.cluster._links
            assert links is not None
            before = links.spooling.ends["a"].applied
            b.cluster.leave()
            after = links.spooling.end_of("a").applied
            assert (after.spool, after.received) == (before.spool, before.received) != (0, 0)

    run(main())


def test_a_node_that_was_restored_from_an_older_copy_is_linked_again(tmp_path: Path) -> None:
    """Positions mean other messages since: it sends what it has under another name, so that nothing new is lost."""

    async def main() -> None:
        async with node("b", tmp_path) as b, node("a", tmp_path, b) as a:
            await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
            async with subscriber(b) as client:
                await client.subscribe("#", qos=1)
        async with node("a", tmp_path) as a, Client(HOST, a.port) as publisher:
            for number in range(5):
                await publisher.publish("t", b"%d" % number, qos=1)
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b, subscriber(b) as client:
            async with Client(HOST, a.port) as publisher:
                for number in range(5, 10):
                    await publisher.publish("t", b"%d" % number, qos=1)
            await come(client, b"9")
        shutil.rmtree(tmp_path / "a")
        shutil.move(tmp_path / "copy", tmp_path / "a")
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b:
            await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
            async with Client(HOST, a.port) as publisher, subscriber(b) as client:
                await publisher.publish("t", b"new", qos=1)
                found = [each.payload for each in await come(client, b"new")]
                assert found == [b"0", b"1", b"2", b"3", b"4", b"new"]

    run(main())


@pytest.mark.parametrize("way", ["copied", "restored", "rolled back"])
def test_nothing_new_of_a_node_whose_disk_went_back_is_taken_for_something_old(tmp_path: Path, way: str) -> None:
    """Though it has published more since than the others had of it before: positions and names would repeat. As by a
    snapshot of a file system, `rolled back` leaves all files as they were."""

    async def main() -> None:
        async with node("b", tmp_path) as b, node("a", tmp_path, b) as a:
            await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
            async with subscriber(b) as client:
                await client.subscribe("#", qos=1)
        await publish_alone(tmp_path, b"early", 2)
        keep_copy(tmp_path, way)
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b, subscriber(b) as client:
            async with Client(HOST, a.port) as publisher:
                for number in range(5):
                    await publisher.publish("t", b"later %d" % number, qos=1)
            await come(client, b"later 4")
        go_back(tmp_path, way)
        wanted: list[bytes] = []
        if way != "rolled back":  # which is only noticed if the other node comes in this life
            wanted += await publish_alone(tmp_path, b"new", 8)
        async with node("a", tmp_path) as a:
            wanted += await publish_some(a, b"newer", 8)
            async with node("b", tmp_path, a) as b:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                async with Client(HOST, a.port) as publisher, subscriber(b) as client:
                    await publisher.publish("t", b"last", qos=1)
                    found = [each.payload for each in await come(client, b"last")]
                    assert found[2:] == [*wanted, b"last"]

    run(main())


async def publish_alone(folder: Path, text: bytes, count: int) -> list[bytes]:
    async with node("a", folder) as a:
        return await publish_some(a, text, count)


async def publish_some(broker: Broker, text: bytes, count: int) -> list[bytes]:
    payloads = [b"%s %d" % (text, number) for number in range(count)]
    async with Client(HOST, broker.port) as publisher:
        for payload in payloads:
            await publisher.publish("t", payload, qos=1)
    return payloads


def keep_copy(folder: Path, way: str) -> None:
    if way == "restored":
        with snapshot_offline(folder / "a") as taken:
            make_backup(taken, folder / "copy")
    else:
        shutil.copytree(folder / "a", folder / "copy")


def go_back(folder: Path, way: str) -> None:
    if way == "restored":
        restore(folder / "copy", folder / "a", force=True)
        return
    shutil.rmtree(folder / "a")
    shutil.move(folder / "copy", folder / "a")
    if way == "rolled back":  # then nothing tells that it is a copy
        known = json.loads((folder / "a" / FILE).read_text())
        seen = (folder / "a" / NOT_A_COPY).stat()
        (folder / "a" / FILE).write_text(json.dumps({**known, "here": [seen.st_ino, seen.st_ctime_ns]}))


def test_how_many_nodes_that_are_no_members_are_remembered(tmp_path: Path) -> None:
    async def main() -> int:
        async with node("a", tmp_path) as a:
            assert a.cluster is not None and a.cluster._links is not None
            spooling = a.cluster._links.spooling
            for number in range(MOST_FORGOTTEN + 10):
                spooling.end_of(f"node-{number}").applied.begin(Spool(7, number + 1))
                spooling.forget(f"node-{number}")
            oldest = spooling.end_of(f"node-{10}").applied
            assert (oldest.spool, oldest.received) == (7, 10)
            return spooling.end_of("node-9").applied.spool

    assert run(main()) == 0


def test_members_are_known_by_their_addresses_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with node("b", tmp_path) as b:
            async with node("a", tmp_path, b) as a:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
                await until(lambda: kept_by(a) == {"b": address_of(b)})
            async with node("a", tmp_path) as a:
                await until(lambda: is_linked(a, "b") and is_linked(b, "a"))

    run(main())


def test_a_member_that_was_not_heard_of_since_a_start_is_one_after_the_next_start(tmp_path: Path) -> None:
    """It is owed what is published, until it is forgotten."""

    async def main() -> None:
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b, node("c", tmp_path, a) as c:
            await until(lambda: is_linked(a, "b", "c") and is_linked(b, "a", "c") and is_linked(c, "a", "b"))
            async with subscriber(c) as client:
                await client.subscribe("#", qos=1)
        async with node("a", tmp_path) as a, node("b", tmp_path, a) as b:
            await until(lambda: is_linked(a, "b") and is_linked(b, "a"))
            await until(lambda: set(kept_by(a)) == {"b", "c"} and kept_by(a)["b"] == address_of(b))
        async with node("a", tmp_path) as a, Client(HOST, a.port) as publisher:
            assert a.cluster is not None
            await publisher.publish("t", b"for c", qos=1)
            async with node("c", tmp_path, a) as c, subscriber(c) as client:
                assert [each.payload for each in await come(client, b"for c")] == [b"for c"]
            a.cluster.forget("b")
            assert set(kept_by(a)) == {"c"}

    run(main())


def kept_by(broker: Broker) -> dict[str, str]:
    """The members that it will know at its next start."""
    assert broker.cluster is not None and broker.cluster._links is not None
    return broker.cluster._links.spooling.members


def address_of(broker: Broker) -> str:
    assert broker.cluster is not None
    return broker.cluster.address
