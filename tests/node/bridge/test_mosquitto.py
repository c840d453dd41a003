"""Mosquitto as the remote broker, and Mosquitto's own bridge to ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.message import Message
from headwater.node import Broker
from tests.brokers import free_port, running
from tests.client.scripted import run, until
from tests.node.bridge.scene import HOST, bridge, broker, client, said, take, until_up
from tests.node.bridge.test_bridge import BOTH, held

PROTOCOLS = pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[int]:
    with running("mosquitto", tmp_path) as port:
        yield port


@PROTOCOLS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_both_ways_under_new_names_and_nothing_comes_back(mosquitto: int, protocol: str, qos: int) -> None:
    async def scenario() -> None:
        async with broker(bridge(mosquitto, BOTH, protocol=protocol)) as near:
            await until_up(near)
            async with client(mosquitto, "#") as there, client(near.port, "#") as here:
                await here.publish("here/a", "out", qos=qos)
                [came] = await take(there, 1)
                assert (came.topic, came.payload, came.qos) == ("there/a", b"out", qos)
                await there.publish("there/b", "in", qos=qos)
                own, came = await take(here, 2)
                assert (came.topic, came.payload, came.qos) == ("here/b", b"in", qos)
                await here.publish("here/c", "end", qos=qos)
                assert said(await take(there, 2)) == [("there/b", b"in"), ("there/c", b"end")]
                assert said([own, *await take(here, 1)]) == [("here/a", b"out"), ("here/c", b"end")]
                await until(lambda: near.bridges.views()[0].waiting == 0)

    run(scenario())


@PROTOCOLS
def test_retained_messages_both_ways(mosquitto: int, protocol: str) -> None:
    async def scenario() -> None:
        async with client(mosquitto) as there, broker(bridge(mosquitto, protocol=protocol)) as near:
            await there.publish("old/far", "1", retain=True, qos=1)
            near.publish(Message("old/near", b"2", 0, True))
            await until_up(near)
            await there.publish("new/far", "3", retain=True, qos=1)
            near.publish(Message("new/near", b"4", 1, True))
            await until(lambda: held(near, "old/far") and held(near, "new/far"))
            await until(lambda: near.bridges.views()[0].waiting == 0)
            async with client(mosquitto, "old/near", "new/near") as later:
                assert sorted(said(await take(later, 2))) == [("new/near", b"4"), ("old/near", b"2")]
            await there.publish("old/far", "", retain=True, qos=1)
            await until(lambda: held(near, "old/far") is None)

    run(scenario())


@PROTOCOLS
def test_the_state_is_published_at_the_remote(mosquitto: int, protocol: str) -> None:
    """As by a bridge of Mosquitto itself; also when the bridge dies without a word."""
    topic = "$SYS/broker/connection/me/state"

    async def scenario() -> None:
        async with client(mosquitto, topic) as there:
            async with broker(bridge(mosquitto, protocol=protocol, client_id="me")) as near:
                assert (await anext(there.messages)).payload == b"1"
            while (await anext(there.messages)).payload != b"0":
                pass
            async with broker(bridge(mosquitto, protocol=protocol, client_id="me")):
                assert (await anext(there.messages)).payload == b"1"
                async with client(mosquitto, client_id="me"):  # takes our connection away
                    assert (await anext(there.messages)).payload == b"0"
            assert near.server.stopping

    run(scenario())


def test_without_the_mark_of_bridges_what_we_send_comes_back_once(tmp_path: Path) -> None:
    """3.1.1 has no other word for that; but here it ends."""

    async def scenario() -> None:
        with running("mosquitto", tmp_path) as port:
            async with broker(bridge(port, BOTH, protocol="3.1.1", announce=False)) as near:
                await until_up(near)
                async with client(port, "#") as there, client(near.port, "#") as here:
                    await here.publish("here/a", "x", qos=1)
                    assert said(await take(here, 2)) == [("here/a", b"x")] * 2
                    await here.publish("here/b", "end", qos=1)
                    assert said(await take(there, 2)) == [("there/a", b"x"), ("there/b", b"end")]

    run(scenario())


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
def test_a_bridge_of_mosquitto_to_us(tmp_path: Path, version: str) -> None:
    """In both directions, and nothing comes back to it."""
    port = free_port()
    settings = (
        f"allow_anonymous true\nconnection up\naddress {HOST}:{port}\ntopic # both 1\n"
        f"bridge_protocol_version {version}\nrestart_timeout 1\n"
    )

    async def scenario() -> None:
        async with broker(port=port) as ours:
            with running("mosquitto", tmp_path, settings) as theirs:
                await bridged(ours, theirs)

    async def bridged(ours: Broker, theirs: int) -> None:
        async with client(theirs, "#") as there, client(port, "#") as here:
            await until(
                lambda: any(each.subscriptions for each in ours.server.sessions.values() if "up" in each.client_id)
            )
            await there.publish("a", "1", qos=1)
            assert said(await take(here, 1)) == [("a", b"1")]
            await here.publish("b", "2", qos=1)
            assert said(await take(there, 2)) == [("a", b"1"), ("b", b"2")]
            await there.publish("c", "end", qos=1)
            assert said(await take(here, 2)) == [("b", b"2"), ("c", b"end")]

    run(scenario())


def test_mosquitto_in_a_ring(tmp_path: Path) -> None:
    """Mosquitto keeps user properties, so a ring through it ends: ours to Mosquitto to ours again by its own bridge."""
    port, theirs = free_port(), free_port()
    settings = (
        f"allow_anonymous true\nlistener {theirs} {HOST}\nconnection up\naddress {HOST}:{port}\ntopic # out 1\n"
        "bridge_protocol_version mqttv50\nrestart_timeout 1\n"
    )

    async def scenario() -> None:
        entry = bridge(theirs, {"filter": "#", "direction": "out", "qos": 1})
        async with broker(entry, port=port) as ours, client(port, "#") as here:
            with running("mosquitto", tmp_path, settings):
                await until_up(ours)
                await until(lambda: any("up" in each for each in ours.server.sessions))
                await here.publish("a", "x", qos=1)
                assert said(await take(here, 2)) == [("a", b"x")] * 2
                await until(lambda: ours.bridges.views()[0].sent.dropped == 1)
                assert len(here.messages) == 0

    run(scenario())
