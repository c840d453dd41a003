"""What the clients of a home broker want, and who hears of it when."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.node.broker import Broker
from headwater.node.proxy.tap import TappedClient
from headwater.wire.packets import V5
from tests.node.links.nodes import run, until
from tests.node.proxy.fabric import (
    Mosquitto,
    Tapped,
    home_of,
    interest_of,
    is_up,
    own_node,
    proxy,
    ready,
    received,
    tell,
)
from tests.node.transports.serving import HOST


def wanted(broker: Broker) -> set[str]:
    return set(home_of(broker).session.subscriptions)


async def opened(broker: Broker, name: str, is_persistent: bool = False, present: bool = False) -> TappedClient:
    client = TappedClient(name, V5, is_persistent, present)
    with broker.server.turn():
        interest_of(broker).opened(client)
    return client


def test_a_filter_is_wanted_as_long_as_a_client_has_it(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with proxy("a", homes[0]) as a:
            await ready(a)
            interest = interest_of(a)
            before = a.server.access.quotas.used
            one, two = await opened(a, "one"), await opened(a, "two")
            await tell(a, one, "t/#", "$share/g/u", "$SYS/broker")
            await tell(a, two, "t/#")
            await tell(a, two, "refused", qos=0x80)
            assert wanted(a) == {"t/#", "u"}
            with a.server.turn():
                interest.unsubscribed(one, ["t/#", "never"])
                assert wanted(a) == {"t/#", "u"}
                interest.closed(two, True)
                assert wanted(a) == {"u"}
                interest.closed(one, True)
            assert wanted(a) == set()
            assert a.server.access.quotas.used == before

    run(body())


def test_a_client_that_comes_back_before_its_old_connection_has_gone(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with proxy("a", homes[0]) as a:
            await ready(a)
            old = await opened(a, "x")
            await tell(a, old, "t/old")
            new = await opened(a, "x")
            assert wanted(a) == set(), "it began a new session"
            await tell(a, new, "t/new")
            with a.server.turn():
                interest_of(a).unsubscribed(old, ["t/new"])
                interest_of(a).closed(old, True)
            assert wanted(a) == {"t/new"}

    run(body())


def test_persistent_sessions_are_known_after_a_restart(homes: list[Mosquitto], tmp_path: Path) -> None:
    async def body() -> None:
        folder = str(tmp_path / "a")
        async with proxy("a", homes[0], data_dir=folder) as a:
            await ready(a)
            stays, goes = await opened(a, "stays", True), await opened(a, "goes")
            ended = await opened(a, "ended", True)
            await tell(a, stays, "t/stays")
            await tell(a, goes, "t/goes")
            await tell(a, ended, "t/ended")
            with a.server.turn():
                interest_of(a).closed(stays, False)
                interest_of(a).closed(ended, True)
            await a.committed()
        async with proxy("a", homes[0], data_dir=folder) as a:
            await ready(a)
            assert wanted(a) == {"t/stays"}
            back = await opened(a, "stays", True, present=True)
            assert wanted(a) == {"t/stays"}
            with a.server.turn():
                interest_of(a).closed(back, False)
            await opened(a, "stays", True)
            assert wanted(a) == set(), "the broker has forgotten the session"

    run(body())


def test_a_session_that_is_not_kept_any_more_is_not_known_after_a_restart(
    homes: list[Mosquitto], tmp_path: Path
) -> None:
    async def body() -> None:
        folder = str(tmp_path / "a")
        async with proxy("a", homes[0], data_dir=folder) as a:
            await ready(a)
            for name in ("x", "y"):
                await tell(a, await opened(a, name, name == "x"), f"t/{name}")
            await opened(a, "x", False, present=True)
            await opened(a, "y", True, present=True)
            await a.committed()
        async with proxy("a", homes[0], data_dir=folder) as a:
            await ready(a)
            assert wanted(a) == {"t/y"}

    run(body())


def test_a_subscription_writes_what_it_adds(homes: list[Mosquitto], tmp_path: Path) -> None:
    """Whatever the session has already."""

    async def body() -> None:
        async with proxy("a", homes[0], data_dir=str(tmp_path / "a")) as a:
            await ready(a)
            keep, sizes = home_of(a).links.spooling.keep, []

            def kept(key: bytes, record: bytes | None) -> None:
                sizes.append(len(key) + len(record or b""))
                keep(key, record)

            with contextlib.suppress(AttributeError):  # compiled, nothing can be put in its place: the keys tell enough
                home_of(a).links.spooling.keep = kept  # type: ignore[method-assign]
            client = await opened(a, "greedy", True)
            for number in range(100):
                await tell(a, client, f"t/{number}")
            assert sum(sizes) < 100 * 20
            interest_of(a).unsubscribed(client, ["t/1"])
            assert sum(sizes) < 101 * 20
            await a.committed()
            keys = {key for key, _ in home_of(a).links.spooling.kept(b"y")}
            assert keys == {b"ygreedy\0t/%d" % number for number in range(100) if number != 1}

    run(body())


def test_clients_for_whom_there_is_no_room_are_not_kept(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with proxy("a", homes[0]) as a:
            await ready(a)
            quotas = a.server.access.quotas
            quotas.limit = quotas.used + 20_000
            for number in range(100):
                await opened(a, f"client {number}", True)
            assert wanted(a) == {"#"} and interest_of(a).is_everything
            assert quotas.used <= quotas.limit

    run(body())


def test_without_room_everything_is_wanted(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with proxy("a", homes[0]) as a:
            await ready(a)
            quotas = a.server.access.quotas
            quotas.limit = quotas.used + 20_000
            client = await opened(a, "greedy")
            await tell(a, client, *(f"t/{number}" for number in range(100)))
            assert wanted(a) == {"#"} and interest_of(a).is_everything
            assert quotas.used <= quotas.limit
            await tell(a, client, "another")
            assert wanted(a) == {"#"}
            with a.server.turn():
                interest_of(a).closed(client, True)
            assert wanted(a) == {"#"}

    run(body())


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1-bridge", "3.1.1"])
def test_after_suback_nothing_is_missed(homes: list[Mosquitto], protocol: str) -> None:
    """SUBACK waits until the other proxy has subscribed at its broker: what is published there from then on arrives."""

    async def body() -> None:
        async with (
            proxy("a", homes[0], protocol=protocol, cluster={"subscribe_wait": 10}) as a,
            proxy("b", homes[1], a, protocol=protocol, cluster={"subscribe_wait": 10}) as b,
            Client(HOST, homes[0].port) as publisher,
            Client(HOST, homes[1].port) as reader,
        ):
            await ready(a, b)
            subscriber = Tapped(b, reader)
            for number in range(20):
                await subscriber.subscribe(f"t/{number}")
                await publisher.publish(f"t/{number}", b"now", qos=0)
                assert await received(reader, 1) == [(f"t/{number}", b"now")]

    run(body())


def test_a_suback_waits_no_longer_than_is_said(homes: list[Mosquitto]) -> None:
    """The other home broker does not answer."""

    async def body() -> None:
        async with (
            proxy("a", homes[0], cluster={"subscribe_wait": 0.3}) as a,
            proxy("b", homes[1], a, cluster={"subscribe_wait": 0.3}) as b,
        ):
            await ready(a, b)
            client = await opened(b, "x")
            homes[0].pause()
            before = b.server.hot.now
            await tell(b, client, "t/1")
            assert 0.25 <= b.server.hot.now - before < 2.0
            homes[0].go_on()
            await until(lambda: "t/1" in home_of(a).wanting.catches.at_broker)

    run(body())


def test_groups_of_our_own_nodes_get_what_is_published_at_a_home_broker(homes: list[Mosquitto]) -> None:
    async def body() -> None:
        async with (
            proxy("a", homes[0]) as a,
            own_node("n", a) as node,
            Client(HOST, homes[0].port) as publisher,
            Client(HOST, node.port) as one,
            Client(HOST, node.port) as two,
        ):
            await ready(a, node)
            await one.subscribe("$share/g/t/#", qos=1)
            await two.subscribe("$share/g/t/#", qos=1)
            await until(lambda: "t/#" in home_of(a).wanting.catches.at_broker)
            for number in range(20):
                await publisher.publish("t/x", b"%d" % number, qos=1)
            await until(lambda: node.server.stats.messages_sent == 20)
            found = await received(one, 1) + await received(two, 1)
            assert len(found) == 2

    run(body())


def test_a_proxy_is_not_drained(homes: list[Mosquitto]) -> None:
    """It would hand over the session in which messages for its home broker wait."""

    async def body() -> None:
        async with proxy("a", homes[0]) as a, proxy("b", homes[1], a) as b:
            await ready(a, b)
            assert a.cluster is not None
            with pytest.raises(ValueError, match="is a proxy"):
                a.cluster.drain("a", False)
            assert is_up(a)

    run(body())
