"""Shared groups that proxies keep, in front of Mosquitto, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.node.broker import Broker
from headwater.node.proxy import members
from headwater.node.proxy.figures import see_proxy
from headwater.wire.encode import encode
from headwater.wire.packets import (
    V5,
    V311,
    Connect,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from tests.node.proxy.fabric import Mosquitto, own_node, proxy, ready
from tests.node.proxy.leading import Client, come, run, until

versions = pytest.mark.parametrize("version", [V311, V5])
GROUP = "$share/g/jobs/#"


@contextlib.asynccontextmanager
async def proxies(folder: Path, count: int, **settings: Any) -> AsyncIterator[tuple[list[Broker], list[Mosquitto]]]:
    async with contextlib.AsyncExitStack() as stack:
        homes = [Mosquitto(folder / name) for name in "abc"[:count]]
        for home in homes:
            stack.callback(home.stop)
        found: list[Broker] = []
        for name, home in zip("abc", homes, strict=False):
            found.append(await stack.enter_async_context(proxy(name, home, *found, groups="proxy", **settings)))
        await ready(*found)
        yield found, homes


def port_of(broker: Broker) -> int:
    return broker.addresses[0][1]


async def join(client: Client, *names: str, qos: int = 1) -> list[int]:
    client.send(Subscribe(7, [SubscribeRequest(each, qos) for each in names]))
    answer = await client.packet()
    assert isinstance(answer, Suback) and answer.packet_id == 7
    return answer.reasons


async def publish(client: Client, count: int, topic: str = "jobs/1", first: int = 0) -> None:
    for number in range(first, first + count):
        client.send(Publish(topic, b"%d" % number, 1, packet_id=number % 60000 + 1))
        assert isinstance(await client.packet(), Puback)


async def work(client: Client, got: list[bytes], acknowledges: bool = True) -> None:
    while True:
        packet = await client.packet()
        if packet is None:
            return
        assert isinstance(packet, Publish)
        got.append(packet.payload)
        if packet.qos and acknowledges:
            client.send(Puback(packet.packet_id))


@versions
def test_each_message_comes_to_one_member(version: int, tmp_path: Path) -> None:
    """And to who subscribes without a group; the home broker knows nothing of the group."""

    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], [home]):
            got: list[list[bytes]] = [[], [], []]
            tasks = []
            for number, mine in enumerate(got):
                client = await come(port_of(a), f"c{number}", version, clean=True, lasts=False)
                names = [GROUP] if number < 2 else ["jobs/#"]
                assert await join(client, *names) == [1]
                tasks.append(asyncio.ensure_future(work(client, mine)))
            publisher = await come(home.port, "p", version, clean=True, lasts=False)  # past the proxy
            await publish(publisher, 40)
            await until(lambda: len(got[0]) + len(got[1]) == 40 and len(got[2]) == 40)
            assert sorted(got[0] + got[1], key=int) == [b"%d" % number for number in range(40)]
            assert got[0] and got[1]
            assert a.proxy is not None and see_proxy(a.proxy).members == 2
            for task in tasks:
                task.cancel()

    run(main())


@versions
def test_names_of_both_kinds_in_one_packet(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], _):
            client = await come(port_of(a), "c", version, clean=True, lasts=False)
            assert await join(client, "own/#", GROUP, "other", qos=2) == [2, 1, 2]
            client.send(Unsubscribe(8, [GROUP, "other"]))
            answer = await client.packet()
            assert answer == Unsuback(8, [0, 0] if version == V5 else [])
            await publish(await come(port_of(a), "p", version, clean=True, lasts=False), 3)
            client.send(Publish("own/1", b"mine", 0))
            packet = await client.packet()
            assert isinstance(packet, Publish) and packet.payload == b"mine"

    run(main())


def test_a_group_spans_proxies_and_nodes(tmp_path: Path) -> None:
    async def main() -> None:
        async with proxies(tmp_path, 2) as ([a, b], _), own_node("n", a) as node:
            await ready(a, b, node)
            got: list[list[bytes]] = [[], [], []]
            tasks = []
            for broker, mine in zip((a, b, node), got, strict=True):
                client = await come(port_of(broker), f"c{len(tasks)}", clean=True, lasts=False)
                assert await join(client, GROUP) == [1]
                tasks.append(asyncio.ensure_future(work(client, mine)))
            first = 0
            for broker in (a, b, node):
                await publish(await come(port_of(broker), f"p{first}", clean=True, lasts=False), 20, first=first)
                first += 20
            await until(lambda: sum(map(len, got)) == 60)
            await asyncio.sleep(0.1)  # nothing comes twice
            assert sorted(itertools.chain(*got), key=int) == [b"%d" % number for number in range(60)]
            assert all(got)
            for task in tasks:
                task.cancel()

    run(main())


def test_what_a_member_has_not_acknowledged_goes_to_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], _):
            got: list[bytes] = []
            stuck = await come(port_of(a), "stuck", clean=True, lasts=False)
            await join(stuck, GROUP)
            await publish(await come(port_of(a), "p", clean=True, lasts=False), 5)
            for _ in range(5):
                assert isinstance(await stuck.packet(), Publish)
            other = await come(port_of(a), "other", clean=True, lasts=False)
            await join(other, GROUP)
            task = asyncio.ensure_future(work(other, got))
            await stuck.drop()
            await until(lambda: len(got) == 5)
            assert sorted(got) == [b"%d" % number for number in range(5)]
            task.cancel()

    run(main())


@versions
def test_a_group_waits_for_a_session_that_lasts(version: int, tmp_path: Path) -> None:
    """What is published while its only member is away comes when that is back, which need not subscribe again."""

    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], _):
            client = await come(port_of(a), "c", version)
            await join(client, "own", GROUP)
            await client.drop()
            await until(lambda: a.server.sessions["$group/c"].connection is None)
            await publish(await come(port_of(a), "p", version, clean=True, lasts=False), 3)
            again = await come(port_of(a), "c", version)
            assert again.connack.session_present
            got: list[bytes] = []
            task = asyncio.ensure_future(work(again, got))
            await until(lambda: len(got) == 3)
            task.cancel()
            await again.drop()
            anew = await come(port_of(a), "c", version, clean=True, lasts=False)
            assert not anew.connack.session_present
            await until(lambda: "$group/c" not in a.server.sessions)

    run(main())


def test_the_receive_maximum_holds_over_both(tmp_path: Path) -> None:
    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], _):
            client = await Client(V5).open(port_of(a), Connect("c", V5, True, properties=Properties(receive_maximum=2)))
            await join(client, "jobs/#", GROUP)
            await publish(await come(port_of(a), "p", clean=True, lasts=False), 20)
            in_flight: list[int] = []
            got = 0
            while got < 40:
                packet = await client.packet()
                assert isinstance(packet, Publish) and packet.packet_id not in in_flight
                in_flight.append(packet.packet_id)
                got += 1
                assert len(in_flight) <= 2
                if len(in_flight) == 2 or got == 40:
                    while in_flight:
                        client.send(Puback(in_flight.pop(0)))

    run(main())


def test_a_member_that_reads_nothing_is_passed_by(tmp_path: Path) -> None:
    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], _):
            deaf = await come(port_of(a), "deaf", clean=True, lasts=False)
            await join(deaf, GROUP, qos=0)
            other = await come(port_of(a), "other", clean=True, lasts=False)
            await join(other, GROUP, qos=0)
            got: list[bytes] = []
            task = asyncio.ensure_future(work(other, got))
            publisher = await come(port_of(a), "p", clean=True, lasts=False)
            for _ in range(60):
                publisher.send(Publish("jobs/1", bytes(100_000), 1, packet_id=1))
                assert isinstance(await publisher.packet(), Puback)
            await until(lambda: len(got) >= 30)
            assert a.proxy is not None and a.proxy.front.relay.used < 8 << 20
            task.cancel()

    run(main())


def test_a_member_that_is_led_home_is_one_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with proxies(tmp_path, 2) as ([a, b], _):
            await (await come(port_of(a), "c")).leave()
            client = await come(port_of(b), "c")
            assert await join(client, GROUP) == [1]
            assert "$group/c" in a.server.sessions and "$group/c" not in b.server.sessions
            got: list[bytes] = []
            task = asyncio.ensure_future(work(client, got))
            await publish(await come(port_of(b), "p", clean=True, lasts=False), 3)
            await until(lambda: len(got) == 3)
            task.cancel()

    run(main())


def test_a_stranger_joins_no_group(tmp_path: Path) -> None:
    """What comes behind CONNECT at once counts when the home broker has accepted it."""

    async def main() -> None:
        home = Mosquitto(tmp_path / "m")
        home.settings = f"password_file {tmp_path / 'passwords'}"
        (tmp_path / "passwords").write_text("")
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(home.stop)
            a = await stack.enter_async_context(proxy("a", home, groups="proxy"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(a))
            ask = Subscribe(7, [SubscribeRequest(GROUP, 1)])
            writer.write(encode(Connect("c", V5, True), V5) + encode(ask, V5))
            assert (await reader.read(4))[3] == 0x87
            writer.close()
            assert not [each for each in a.server.sessions if each.startswith(members.OWN)]

    run(main())


@pytest.mark.parametrize("count", [1, 2])
def test_a_stranger_whose_first_packets_cannot_be_mixed_ends_and_nothing_else(count: int, tmp_path: Path) -> None:
    """Two SUBSCRIBE packets with one packet id, right behind CONNECT; with one proxy, and where another is asked."""

    async def main() -> None:
        async with proxies(tmp_path, count) as (nodes, _):
            parts = [cast(Any, each.proxy) for each in nodes]
            links = [dict(each.leading.links.up) for each in parts]
            asked = encode(Subscribe(7, [SubscribeRequest(GROUP, 1)]), V5)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(nodes[0]))
            writer.write(encode(Connect("c", V5), V5) + asked + asked)
            assert await reader.read() == b""
            writer.close()
            assert [each.leading.links.up for each in parts] == links
            assert [each.front.relay.counters.failures for each in parts] == [0] * count

    run(main())


def test_what_a_stranger_says_to_groups_counts_with_the_bytes_of_strangers() -> None:
    packet = encode(Subscribe(1, [SubscribeRequest(f"$share/g/{'x' * 60_000}", 1)]), V5)
    member = members.MemberOf(cast(Any, SimpleNamespace()), cast(Any, object()), Connect("c", V5))
    assert member.kept == 0
    assert member.before(packet) == b""
    before = member.kept
    assert before >= 60_000
    assert member.before(packet[:1000]) == b""
    assert member.kept == before + 1000


def test_what_a_member_says_to_groups_is_bounded() -> None:
    ended: list[object] = []
    relay = SimpleNamespace(end=ended.append)
    pair = object()
    member = members.MemberOf(cast(Any, SimpleNamespace(relay=relay)), cast(Any, pair), Connect("c", V5))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        member._leg = ours
        member.mixer.to_leg.append(bytes(members.MOST_WAITING + (1 << 22)))
        member._to_leg()
        assert ended == [pair]


@versions
def test_a_clean_start_ends_a_membership_that_lasts(version: int, tmp_path: Path) -> None:
    """Also while the older connection is there."""

    async def main() -> None:
        async with proxies(tmp_path, 1) as ([a], _):
            older = await come(port_of(a), "c", version)
            await join(older, GROUP)
            newer = await come(port_of(a), "c", version, clean=True, lasts=False)
            assert not newer.connack.session_present
            await until(lambda: "$group/c" not in a.server.sessions)
            assert await join(newer, GROUP) == [1]

    run(main())
