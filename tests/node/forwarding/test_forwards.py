"""A node's store, forwarded to another node: what arrives, in which order, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client, Properties
from headwater.node import Broker, Config
from headwater.node.operations.metrics import registry_of_broker
from headwater.store.retention import Retention
from headwater.wire.packets import Connack, Disconnect
from tests.brokers import free_port
from tests.client.scripted import Peer, Scripted, run
from tests.node.forwarding.scene import (
    HOST,
    Disk,
    disk,
    entries,
    forward,
    node,
    payloads,
    publish,
    reload,
    sources,
    until,
    until_done,
    view,
)


@pytest.fixture
def near_disk(tmp_path: Path) -> Disk:
    return disk(tmp_path, "near")


@pytest.fixture
def far_disk(tmp_path: Path) -> Disk:
    return disk(tmp_path, "far")


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
def test_all_that_is_stored_arrives_in_order_and_once(near_disk: Disk, far_disk: Disk, qos: int, protocol: str) -> None:
    """Whatever QoS it was published with."""

    async def scenario() -> None:
        async with (
            node(far_disk) as far,
            node(near_disk, forward(far.port, qos=qos, protocol=protocol)) as near,
        ):
            for kind in (0, 1, 2):
                await publish(near, *range(kind * 100, kind * 100 + 100), qos=kind)
            await until_done(near)
            assert payloads(far_disk.store) == [str(number) for number in range(300)]
            assert {each.qos for each in entries(far_disk.store)} == {qos}
            if protocol == "5.0":
                assert sources(far_disk.store) == [f"near:{position}" for position in range(1, 301)]
            assert (view(near).forwarded, view(near).sent_again, view(near).behind) == (300, 0, 0)

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_stored_before_and_while_the_remote_is_away_arrives(near_disk: Disk, far_disk: Disk, qos: int) -> None:
    port = free_port()

    async def scenario() -> None:
        async with node(near_disk) as near:
            await publish(near, *range(50))
        async with node(near_disk, forward(port, qos=qos)) as near:
            await publish(near, *range(50, 100))
            assert not view(near).up
            await until(lambda: "nobody listens there" in view(near).error)
            assert view(near).behind == 100
            async with node(far_disk, port=port):
                await until_done(near)
            await until(lambda: not view(near).up)
            await publish(near, *range(100, 150))
        async with node(far_disk, port=port), node(near_disk, forward(port, qos=qos)) as near:
            await until_done(near)
        assert payloads(far_disk.store) == [str(number) for number in range(150)]

    run(scenario())


def test_an_orderly_stop_waits_for_what_is_under_way(near_disk: Disk, far_disk: Disk) -> None:
    """So with QoS 1 nothing comes twice by it."""

    async def scenario() -> None:
        async with node(far_disk) as far:
            for begin in range(0, 500, 100):
                async with node(near_disk, forward(far.port)) as near:
                    await publish(near, *range(begin, begin + 100))
                    await until(lambda: view(near).forwarded > 0)
            async with node(near_disk, forward(far.port)) as near:
                await until_done(near)
                assert view(near).sent_again == 0
        assert payloads(far_disk.store) == [str(number) for number in range(500)]

    run(scenario())


def test_a_remote_that_takes_no_qos_above_0_gets_nothing(near_disk: Disk) -> None:
    """It could not say that it has it."""

    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(maximum_qos=0)))
        assert isinstance(await peer.next_packet(), Disconnect)

    async def scenario() -> None:
        async with Scripted(script) as port, node(near_disk, forward(port)) as near:
            await publish(near, "waits")
            await until(lambda: view(near).refused == 1)
            assert (view(near).parked, view(near).given_up, view(near).position) == (1, 0, 0)

    run(scenario())


def test_a_new_forward_may_begin_with_what_comes(near_disk: Disk, far_disk: Disk) -> None:
    async def scenario() -> None:
        async with node(near_disk) as near:
            await publish(near, "before")
        async with node(far_disk) as far, node(near_disk, forward(far.port, start="next")) as near:
            await publish(near, "after")
            await until_done(near)
        assert payloads(far_disk.store) == ["after"]

    run(scenario())


def test_filters_and_prefixes(near_disk: Disk, far_disk: Disk) -> None:
    settings = {"filters": ["site/+/t", "alarms/#"], "local_prefix": "site/", "remote_prefix": "plants/7/"}

    async def scenario() -> None:
        async with node(far_disk) as far, node(near_disk, forward(far.port, **settings)) as near:
            for topic in ("site/1/t", "site/1/u", "alarms", "others"):
                await publish(near, topic, topic=topic)
            await until_done(near)
        assert [each.topic for each in entries(far_disk.store)] == ["plants/7/1/t", "plants/7/alarms"]

    run(scenario())


def test_properties_go_along_and_what_has_expired_does_not(near_disk: Disk, far_disk: Disk) -> None:
    everything = Properties(
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x00\xff",
        payload_format_indicator=1,
        message_expiry_interval=600,
        user_properties=[("colour", "red"), ("colour", "blue")],
    )

    async def scenario() -> None:
        async with node(near_disk) as near:
            await publish(near, "short", properties=Properties(message_expiry_interval=1))
            await publish(near, "all", properties=everything)
        await asyncio.sleep(1.1)
        async with node(far_disk) as far, node(near_disk, forward(far.port)) as near:
            await until_done(near)
            assert view(near).skipped == {"expired": 1}
            [found] = entries(far_disk.store)
            fields = json.loads(found.properties)
            assert 590 <= fields.pop("expiry") <= 599
            user = dict(fields.pop("user"))
            assert user.pop("headwater-path") == near.server.broker_id
            assert user == {"colour": "blue", "headwater-source": "near:2"}
            assert fields == {
                "content_type": "text/plain",
                "response_topic": "answers",
                "correlation_data": "AP8=",
                "payload_format": 1,
            }

    run(scenario())


# ---- order -----------------------------------------------------------------------------------------------------------


def test_what_is_new_goes_before_a_backlog(near_disk: Disk, far_disk: Disk) -> None:
    """Which goes at its rate."""
    port = free_port()
    settings = forward(port, live_within=0.2, rate=50)

    async def scenario() -> None:
        async with node(near_disk, settings) as near:
            await publish(near, *range(300))
            await asyncio.sleep(0.3)
            async with node(far_disk, port=port):
                await until(lambda: view(near).forwarded > 0)
                await publish(near, "new")
                await until(lambda: "new" in payloads(far_disk.store))
                assert len(payloads(far_disk.store)) < 200
                assert view(near).ranges >= 1
                await until_done(near)
        found = payloads(far_disk.store)
        found.remove("new")
        assert found == [str(number) for number in range(300)]

    run(scenario())


def test_in_strict_order_what_is_new_waits(near_disk: Disk, far_disk: Disk) -> None:
    port = free_port()
    settings = forward(port, live_within=0.2, rate=200, order="strict")

    async def scenario() -> None:
        async with node(near_disk, settings) as near:
            await publish(near, *range(300))
            await asyncio.sleep(0.3)
            async with node(far_disk, port=port):
                await until(lambda: view(near).forwarded > 0)
                await publish(near, "new")
                await until_done(near)
        assert payloads(far_disk.store) == [*map(str, range(300)), "new"]

    run(scenario())


def test_a_backlog_goes_by_priorities(near_disk: Disk, far_disk: Disk) -> None:
    port = free_port()
    settings = forward(port, live_within=0.1, priorities=["alarms/#", "meters/+"])

    async def scenario() -> None:
        async with node(near_disk, settings) as near:
            for number in range(30):
                await publish(near, number, topic=("logs", "meters/1", "alarms")[number % 3])
            await asyncio.sleep(0.2)
            async with node(far_disk, port=port):
                await until_done(near)
        topics = [each.topic for each in entries(far_disk.store)]
        assert topics == ["alarms"] * 10 + ["meters/1"] * 10 + ["logs"] * 10
        assert sorted(map(int, payloads(far_disk.store))) == list(range(30))

    run(scenario())


def test_changed_priorities_lose_nothing(near_disk: Disk, far_disk: Disk) -> None:
    port = free_port()

    async def scenario() -> None:
        async with node(near_disk, forward(port, priorities=["b"], live_within=0.05)) as near:
            await publish(near, *range(20), topic="a")
            await publish(near, *range(20, 40), topic="b")
            await asyncio.sleep(0.1)
        async with (
            node(far_disk, port=port),
            node(near_disk, forward(port, priorities=["c", "a"], live_within=0.05)) as near,
        ):
            await until_done(near)
        assert payloads(far_disk.store) == [str(number) for number in range(40)]

    run(scenario())


# ---- retained messages -----------------------------------------------------------------------------------------------


async def retained(far: Broker, *topics: str) -> list[tuple[str, bytes]]:
    async with Client(HOST, far.port) as client:
        await client.subscribe(list(topics))
        return sorted([(each.topic, each.payload) for each in [await anext(client.messages) for _ in topics]])


def test_retained_messages_are_retained_there(near_disk: Disk, far_disk: Disk) -> None:
    async def scenario() -> None:
        async with node(far_disk) as far, node(near_disk, forward(far.port)) as near:
            await publish(near, "v", topic="kept", retain=True)
            await until_done(near)
            assert await retained(far, "kept") == [("kept", b"v")]

    run(scenario())


def test_an_older_message_of_a_backlog_does_not_become_the_retained_one(near_disk: Disk, far_disk: Disk) -> None:
    port = free_port()

    async def scenario() -> None:
        async with node(near_disk, forward(port, live_within=0.1, rate=20)) as near:
            await publish(near, *range(40), topic="filler")
            for value in ("old", "older"):
                await publish(near, value, topic="kept", retain=True)
            await publish(near, "last", topic="quiet", retain=True)
            await publish(near, "not retained", topic="quiet")
            await asyncio.sleep(0.2)
            async with node(far_disk, port=port) as far:
                await until(lambda: view(near).forwarded > 0)
                await publish(near, "new", topic="kept", retain=True)
                await until_done(near)
                found = payloads(far_disk.store)
                assert found.index("new") < found.index("old")
                assert await retained(far, "kept", "quiet") == [("kept", b"new"), ("quiet", b"last")]

    run(scenario())


# ---- loops -----------------------------------------------------------------------------------------------------------


def test_two_nodes_that_forward_to_each_other_do_not_go_round(near_disk: Disk, far_disk: Disk) -> None:
    ports = free_port(), free_port()

    async def scenario() -> None:
        async with (
            node(near_disk, forward(ports[1]), port=ports[0]) as near,
            node(far_disk, forward(ports[0]), port=ports[1]) as far,
        ):
            await publish(near, "from near")
            await publish(far, "from far")
            await until(lambda: len(entries(near_disk.store)) == len(entries(far_disk.store)) == 2)
            await until_done(near)
            await until_done(far)
            assert view(near).skipped == view(far).skipped == {"looped": 1}

    run(scenario())


# ---- retention -------------------------------------------------------------------------------------------------------


def test_retention_waits_for_a_forward(near_disk: Disk, far_disk: Disk) -> None:
    port = free_port()
    near_disk.store.retention = Retention(age=1)

    async def scenario() -> None:
        async with node(near_disk, forward(port)) as near:
            await publish(near, *range(10))
            await until(near_disk.store.readers)
            near_disk.store.trim(2**62)
            assert near_disk.store.first == 1
            async with node(far_disk, port=port):
                await until_done(near)
                await until(lambda: near_disk.store.reader("forward:cloud").position == 10)
            near_disk.store.trim(2**62)
            assert near_disk.store.first == 11
        assert len(payloads(far_disk.store)) == 10

    run(scenario())


def test_what_retention_removes_by_a_hard_limit_is_counted_as_lost(
    near_disk: Disk, far_disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    near_disk.store.retention = Retention(age=1, hard_age=1)

    async def scenario() -> None:
        async with node(near_disk, forward(port)) as near:
            await publish(near, *range(10))
            await until(near_disk.store.readers)
            near_disk.store.trim(2**62)
            await publish(near, *range(10, 15))
            async with node(far_disk, port=port):
                await until_done(near)
                assert view(near).lost == 10
            assert "retention has removed 10 positions that were not forwarded: 1 to 10" in caplog.text
        assert payloads(far_disk.store) == [str(number) for number in range(10, 15)]

    run(scenario())


# ---- refusals --------------------------------------------------------------------------------------------------------


def letters(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_too_large_there_is_given_up_at_once(
    near_disk: Disk, far_disk: Disk, tmp_path: Path, qos: int
) -> None:
    path = tmp_path / "dead" / "letters.ndjson"

    async def scenario() -> None:
        async with (
            node(far_disk, max_packet_size=2000) as far,
            node(near_disk, forward(far.port, qos=qos, dead_letters=str(path))) as near,
        ):
            await publish(near, "first", "x" * 3000, "last")
            await until_done(near)
            assert (view(near).given_up, view(near).refused, view(near).parked) == (1, 1, 0)
        assert payloads(far_disk.store) == ["first", "last"]
        [letter] = letters(path)
        assert (letter["position"], letter["topic"], letter["reason"]) == ("near:2", "a", 0x95)
        assert letter["payload"] == "x" * 3000

    run(scenario())


def test_dead_letters_that_cannot_be_written_keep_what_was_given_up(
    near_disk: Disk, far_disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            node(far_disk, max_packet_size=2000) as far,
            node(near_disk, forward(far.port, dead_letters=str(tmp_path))) as near,
        ):
            await publish(near, "first", "x" * 3000, "last")
            await until(lambda: payloads(far_disk.store) == ["first", "last"] and view(near).parked == 1)
            await until(lambda: view(near).position == 1)  # the acknowledgement may come later than the message
            assert view(near).given_up == 0
            assert "what was given up is kept, and tried again" in caplog.text

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_refused_for_now_is_sent_again_and_holds_nobody_up(
    near_disk: Disk, far_disk: Disk, qos: int
) -> None:
    stored = {"enabled": True, "id": "far", "max_topics": 1}

    async def scenario() -> None:
        async with node(far_disk, store=stored) as far, node(near_disk, forward(far.port, qos=qos)) as near:
            await publish(near, "one", topic="one")
            await publish(near, "two", topic="two")  # a topic too many: 0x97
            await publish(near, "again", topic="one")
            await until(lambda: view(near).parked == 1 and payloads(far_disk.store) == ["one", "again"])
            assert view(near).position == 1
            assert far.server.coordinator is not None
            far.server.coordinator.max_topics = 2
            await until_done(near)
            assert view(near).given_up == 0
        assert payloads(far_disk.store) == ["one", "again", "two"]

    run(scenario())


def test_what_is_refused_for_too_long_is_given_up(near_disk: Disk, far_disk: Disk, tmp_path: Path) -> None:
    stored = {"enabled": True, "id": "far", "max_topics": 1}
    path = tmp_path / "letters.ndjson"

    async def scenario() -> None:
        async with (
            node(far_disk, store=stored) as far,
            node(near_disk, forward(far.port, retry_for=0.5, dead_letters=str(path))) as near,
        ):
            await publish(near, "one", topic="one")
            await publish(near, "two", topic="two")
            await until_done(near)
            assert (view(near).given_up, view(near).refused) == (1, 2)
        assert [each["reason"] for each in letters(path)] == [0x97]

    run(scenario())


# ---- what is seen, and changed ---------------------------------------------------------------------------------------


def test_metrics(near_disk: Disk, far_disk: Disk) -> None:
    async def scenario() -> None:
        async with node(far_disk) as far, node(near_disk, forward(far.port)) as near:
            await publish(near, *range(10))
            await until_done(near)
            registry = registry_of_broker(near)
            for name, value in (
                ("headwater_forward_up", 1),
                ("headwater_forward_behind_positions", 0),
                ("headwater_forward_lost_positions_total", 0),
                ("headwater_forward_forwarded_bytes_total", 10),
            ):
                assert registry.get_sample_value(name, {"forward": "cloud"}) == value
            labels = {"forward": "cloud", "outcome": "forwarded"}
            assert registry.get_sample_value("headwater_forward_messages_total", labels) == 10

    run(scenario())


def test_how_late_it_is(near_disk: Disk) -> None:
    async def scenario() -> None:
        async with node(near_disk, forward(free_port())) as near:
            await publish(near, "waits")
            await until(lambda: view(near).seconds_behind > 0)
            assert view(near).behind == 1

    run(scenario())


def test_forwards_come_and_go_with_the_settings(
    near_disk: Disk, far_disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with node(far_disk) as far, node(near_disk) as near:
            await publish(near, "before")
            assert near.forwards.views() == []
            reload(near, forward(far.port, filters=["a"]))
            await until(near.forwards.views)
            await until_done(near)
            reload(near)
            await until(lambda: not near.forwards.views())
            await publish(near, "without")
            assert "messages from 2 on are held back for forward:cloud" in caplog.text
            reload(near, forward(far.port))
            await until(near.forwards.views)
            await until_done(near)
        assert payloads(far_disk.store) == ["before", "without"]

    run(scenario())


def test_another_remote_gets_what_is_owed(near_disk: Disk, far_disk: Disk, tmp_path: Path) -> None:
    other_disk = disk(tmp_path, "other")

    async def scenario() -> None:
        async with (
            node(far_disk) as far,
            node(other_disk) as other,
            node(near_disk, forward(far.port, qos=2)) as near,
        ):
            await publish(near, "one")
            await until_done(near)
            reload(near, forward(other.port, qos=2))
            await publish(near, "two")
            await until_done(near)
        assert (payloads(far_disk.store), payloads(other_disk.store)) == (["one"], ["two"])

    run(scenario())


def test_a_store_that_has_gone_back(near_disk: Disk, far_disk: Disk, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node(far_disk) as far:
            async with node(near_disk, forward(far.port)) as near:
                await publish(near, *range(5))
                await until_done(near)
            older = Disk(near_disk.folder, disk(tmp_path).store, disk(tmp_path).backend)
            async with node(older, forward(far.port)) as near:
                await publish(near, "new")
                await until_done(near)
        assert payloads(far_disk.store) == ["0", "1", "2", "3", "4", "new"]

    run(scenario())


def test_a_file_that_is_none_says_what_to_do(near_disk: Disk, far_disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with node(far_disk) as far:
            async with node(near_disk, forward(far.port)) as near:
                await publish(near, *range(5))
                await until_done(near)
                await until(lambda: near_disk.store.reader("forward:cloud").position == 5)
            (near_disk.folder / "forward" / "cloud.json").write_text("{}")
            async with node(near_disk, forward(far.port)) as near:
                await until(lambda: "does not say how far the forward has come" in caplog.text)
                (near_disk.folder / "forward" / "cloud.json").unlink()
                await publish(near, "more")
                await until_done(near)
        assert payloads(far_disk.store) == ["0", "1", "2", "3", "4", "more"]

    run(scenario())


def test_a_forward_needs_a_store() -> None:
    with pytest.raises(ValueError, match="needs a store"):
        Config(forward=[forward(1883)])
