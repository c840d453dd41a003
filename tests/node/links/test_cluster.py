"""Nodes in one process over loopback: they find each other, part, come back, and know who was there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.links import listening
from headwater.node.links.cluster import Cluster
from headwater.node.links.view import LinkView, NodeView
from headwater.node.settings import ConfigError
from tests.node.links.nodes import run, until
from tests.node.transports.serving import HOST

SECRET = "a secret of the test"
FAST: dict[str, Any] = {"name": "test", "host": HOST, "port": 0, "heartbeat": 0.05, "patience": 0.5}


def config_of(node: str, *join: str, data_dir: str = "", **settings: Any) -> Config:
    cluster = {**FAST, "node": node, "join": list(join), **settings}
    return Config(host=HOST, port=0, sys_interval=0, data_dir=data_dir, cluster=cluster)


@contextlib.asynccontextmanager
async def node(node_id: str, *join: Broker | str, **settings: Any) -> AsyncIterator[Broker]:
    addresses = [each if isinstance(each, str) else cluster_of(each).address for each in join]
    async with Broker(config_of(node_id, *addresses, **settings)) as broker:
        yield broker
        assert broker.server.stats.failures == 0
        assert broker.server.timers.failures == 0


def cluster_of(broker: Broker) -> Cluster:
    assert broker.cluster is not None
    return broker.cluster


def links(broker: Broker) -> dict[str, LinkView]:
    return {each.peer: each for each in cluster_of(broker).view().links}


def nodes(broker: Broker) -> dict[str, NodeView]:
    return {each.node: each for each in cluster_of(broker).view().nodes}


def up(broker: Broker) -> set[str]:
    return {each.peer for each in links(broker).values() if each.state == "up"}


def states(broker: Broker) -> dict[str, str]:
    return {name: each.state for name, each in nodes(broker).items()}


def owed(broker: Broker) -> set[str]:
    """The nodes for which messages of QoS 1 wait."""
    links = cluster_of(broker)._links
    assert links is not None
    return set(links.spooling.ends)


async def linked(*brokers: Broker) -> None:
    names = {cluster_of(each).node for each in brokers}
    for each in brokers:
        await until(lambda each=each: up(each) == names - {cluster_of(each).node})


# ---- joining ---------------------------------------------------------------------------------------------------------


def test_two_nodes_find_each_other_and_carry_messages() -> None:
    async def body() -> None:
        async with node("a") as a, node("b", a) as b:
            await linked(a, b)
            await until(lambda: states(a) == states(b) == {"a": "live", "b": "live"})
            got: list[bytes] = []
            await deliver(a, b, got)
            assert got == [b"hello"]

    run(body())


async def deliver(a: Broker, b: Broker, got: list[bytes]) -> None:
    """A client of `b` gets what one of `a` publishes."""
    async with Client(HOST, b.addresses[0][1]) as subscriber, Client(HOST, a.addresses[0][1]) as publisher:
        await subscriber.subscribe("t/#", qos=1)
        await publisher.publish("t/1", b"hello", qos=1)
        async with asyncio.timeout(10):
            got.append((await anext(aiter(subscriber.messages))).payload)


def test_a_third_node_is_told_of_the_others_by_the_one_that_it_knows() -> None:
    async def body() -> None:
        async with node("a") as a, node("b", a) as b, node("c", b) as c:
            await linked(a, b, c)
            await until(lambda: all(states(each) == dict.fromkeys("abc", "live") for each in (a, b, c)))

    run(body())


def test_seeds_may_be_names_and_the_node_itself_may_be_among_them() -> None:
    async def body() -> None:
        async with node("a", host="localhost") as a:
            port = cluster_of(a).address.rpartition(":")[2]
            async with node("b", f"localhost:{port}", host="localhost") as b:
                await linked(a, b)
                cluster_of(b).join([cluster_of(b).address.replace("127.0.0.1", "localhost")])
                await linked(a, b)

    run(body())


def test_seeds_in_a_file_may_come_later(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "seeds"
        async with node("a") as a:
            file.write_text(f"# nodes\n{cluster_of(a).address}\n")
            async with node("b", join_file=str(file)) as b:
                await linked(a, b)

    run(body())


def test_a_running_node_joins() -> None:
    async def body() -> None:
        async with node("a") as a, node("b") as b:
            cluster_of(b).join([cluster_of(a).address])
            await linked(a, b)
            with pytest.raises(ValueError):
                cluster_of(b).join(["not an address:x"])

    run(body())


def test_a_node_with_another_secret_is_refused_and_says_why() -> None:
    async def body() -> None:
        async with node("a", secret=SECRET) as a, node("b", a, secret="another secret, as long") as b:
            cluster = cluster_of(b)
            address = cluster_of(a).address
            await until(lambda: "secret" in cluster._redialing.why_not(address))
            assert up(a) == up(b) == set()
            assert owed(a) == owed(b) == set()

    run(body())


def test_nodes_with_one_secret_are_linked() -> None:
    async def body() -> None:
        async with node("a", secret=SECRET) as a, node("b", a, secret=SECRET) as b:
            await linked(a, b)

    run(body())


def test_a_node_of_another_cluster_is_refused() -> None:
    async def body() -> None:
        async with node("a") as a, node("b", a, name="other") as b:
            cluster, address = cluster_of(b), cluster_of(a).address
            await until(lambda: "cluster" in cluster._redialing.why_not(address))
            assert up(a) == set()

    run(body())


@pytest.mark.parametrize("same_address", [False, True], ids=["other addresses", "its address"])
def test_a_node_is_linked_while_strangers_hold_all_slots(same_address: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HELLO_TIMEOUT", 1000.0)

    async def body() -> None:
        async with node("a", secret=SECRET, patience=600) as a:
            port = int(cluster_of(a).address.rpartition(":")[2])
            sources = [HOST] * 12 if same_address else [f"127.0.1.{number // 8 + 1}" for number in range(80)]
            strangers = [asyncio.create_task(hold_a_slot(port, source)) for source in sources]
            await until(lambda: cluster_of(a)._door.unproven == (8 if same_address else 64))
            async with node("b", a, secret=SECRET) as b:
                await linked(a, b)
                assert not any(each.done() for each in strangers)
            for each in strangers:
                each.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)

    run(body())


async def hold_a_slot(port: int, source: str) -> None:
    """Say nothing, and come again a little after being cut off."""
    while True:
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
            try:
                await reader.read()
            finally:
                writer.close()
        await asyncio.sleep(0.05)


# ---- parting ---------------------------------------------------------------------------------------------------------


def test_a_node_that_leaves_is_owed_nothing_and_owes_nothing() -> None:
    async def body() -> None:
        async with node("a") as a, node("b", a) as b:
            await linked(a, b)
            await until(lambda: states(a) == states(b) == {"a": "live", "b": "live"})
            cluster_of(b).leave()
            await until(lambda: states(a)["b"] == "left")
            assert owed(a) == owed(b) == set()
            gossiping = cluster_of(b)._gossiping
            rounds = gossiping._rounds
            await until(lambda: gossiping._rounds > rounds + 40)  # by then the others would have been suspected
            assert owed(a) == owed(b) == set()
            assert up(a) == up(b) == set()
            cluster_of(b).join([cluster_of(a).address])
            await linked(a, b)
            await until(lambda: states(a)["b"] == "live")

    run(body())


def test_a_node_that_stops_is_suspected_then_dead_and_may_be_forgotten(tmp_path: Path) -> None:
    async def body() -> None:
        async with node("a") as a:
            async with node("b", a, data_dir=str(tmp_path)) as b:
                await linked(a, b)
                await until(lambda: states(a) == {"a": "live", "b": "live"})
                with pytest.raises(ValueError, match="only a dead node"):
                    cluster_of(a).forget("b")
            await until(lambda: states(a)["b"] == "dead")
            assert owed(a) == {"b"}
            cluster_of(a).forget("b")
            assert owed(a) == set()
            with pytest.raises(ValueError, match="not known"):
                cluster_of(a).forget("b")

    run(body())


def test_a_member_that_was_known_before_a_restart_may_be_forgotten(tmp_path: Path) -> None:
    """Nobody is left who could tell of it."""

    async def body() -> None:
        folder = str(tmp_path / "a")
        async with node("a", data_dir=folder) as a, node("b", a, data_dir=str(tmp_path / "b")) as b:
            await linked(a, b)
            await until(lambda: states(a) == {"a": "live", "b": "live"})
        async with node("a", data_dir=folder) as a:
            assert owed(a) == {"b"}
            assert "b" not in states(a)
            cluster_of(a).forget("b")
            assert owed(a) == set()
        async with node("a", data_dir=folder) as a:
            assert owed(a) == set()

    run(body())


def test_members_of_whom_nothing_was_heard_yet_are_known_at_the_next_start(tmp_path: Path) -> None:
    async def body() -> None:
        folder = {each: str(tmp_path / each) for each in "abcd"}
        async with (
            node("a", data_dir=folder["a"]) as a,
            node("b", a, data_dir=folder["b"]) as b,
            node("c", a, data_dir=folder["c"]) as c,
        ):
            await linked(a, b, c)
            await until(lambda: states(a) == dict.fromkeys("abc", "live"))
        async with node("a", data_dir=folder["a"]) as a, node("d", a, data_dir=folder["d"]) as d:
            await linked(a, d)
            await until(lambda: states(a) == dict.fromkeys("ad", "live"))
            assert owed(a) == {"b", "c", "d"}
        async with node("a", data_dir=folder["a"]) as a:
            assert owed(a) == {"b", "c", "d"}

    run(body())


# ---- coming back -----------------------------------------------------------------------------------------------------


def test_a_node_keeps_its_id_and_comes_back_at_another_port(tmp_path: Path) -> None:
    async def body() -> None:
        async with node("a") as a:
            async with node("", a, data_dir=str(tmp_path)) as b:
                name = cluster_of(b).node
                boot = cluster_of(b).view().boot
                await until(lambda: up(a) == {name})
            await until(lambda: up(a) == set())
            async with node("", a, data_dir=str(tmp_path)) as b:
                assert cluster_of(b).node == name
                assert cluster_of(b).view().boot > boot
                await until(lambda: up(a) == {name})
                await until(lambda: nodes(a)[name].address == cluster_of(b).address)
                assert links(a)[name].reconnects == 1

    run(body())


def test_what_is_owed_to_a_node_that_is_away_is_there_when_it_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        folder = str(tmp_path / "b")
        async with node("a", data_dir=str(tmp_path / "a")) as a:
            async with node("b", a, data_dir=folder) as b:
                await linked(a, b)
                port = b.addresses[0][1]
                async with Client(HOST, port, client_id="s", clean_start=False, session_expiry=1000) as subscriber:
                    await subscriber.subscribe("t", qos=1)
            await until(lambda: up(a) == set())
            async with Client(HOST, a.addresses[0][1]) as publisher:
                for number in range(3):
                    await publisher.publish("t", b"%d" % number, qos=1)
            assert links(a)["b"].spool_messages == 3
            async with node("b", a, data_dir=folder) as b:
                port = b.addresses[0][1]
                async with Client(HOST, port, client_id="s", clean_start=False, session_expiry=1000) as subscriber:
                    async with asyncio.timeout(10):
                        messages = aiter(subscriber.messages)
                        assert [(await anext(messages)).payload for _ in range(3)] == [b"0", b"1", b"2"]

    run(body())


def test_a_folder_of_another_node_is_not_used(tmp_path: Path) -> None:
    async def body() -> None:
        async with node("z", data_dir=str(tmp_path)):
            pass
        with pytest.raises(ConfigError, match="is the data folder of node 'z'"):
            async with Broker(config_of("b", data_dir=str(tmp_path))):
                pass

    run(body())


# ---- what is shown ---------------------------------------------------------------------------------------------------


def test_a_view_shows_links_and_why_they_are_down() -> None:
    async def body() -> None:
        async with node("a") as a:
            async with node("b", a) as b:
                await linked(a, b)
                await until(lambda: links(a)["b"].round_trip is not None)
                shown = links(a)["b"]
                assert (shown.method, shown.version, shown.reason) == ("subscribe", 1, "")
                assert shown.bytes_received > 0
                assert shown.bytes_sent > 0
                assert shown.states == 1
                await until(lambda: nodes(a)["b"].mqtt == f"{HOST}:{b.addresses[0][1]}")
                assert nodes(a)["b"].software.startswith("headwater")
                assert cluster_of(a).routes("t").links == []
                cluster_of(b).use_method("flood")
                await until(lambda: cluster_of(a).routes("t").links == ["b"])
                assert not cluster_of(a).routes("t").is_exact
                with pytest.raises(ValueError, match="there is no method"):
                    cluster_of(b).use_method("telepathy")
            await until(lambda: links(a)["b"].state == "down")
            assert links(a)["b"].reason

    run(body())
