"""Clients that others have written, through the relay to a Mosquitto: they see their broker."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest

from tests.brokers import find_mosquitto, running
from tests.interop.test_paho import Paho, both_versions, every_qos
from tests.node.proxy.relaying import PATIENCE, Running, relaying


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    find_mosquitto()  # or skip
    with running("mosquitto", tmp_path_factory.mktemp("mosquitto")) as port, relaying(port) as relay:
        yield relay


@both_versions
@every_qos
def test_paho(through: Running, version: int, qos: int) -> None:
    topic = f"paho/{version}/{qos}/x"
    subscriber = Paho(through.port, version, f"paho-sub-{version}-{qos}")
    subscriber.subscribe(topic, qos)
    publisher = Paho(through.port, version, f"paho-pub-{version}-{qos}")
    for number in range(200):
        publisher.client.publish(topic, str(number), qos)
    assert [subscriber.next().payload for _ in range(200)] == [str(number).encode() for number in range(200)]
    publisher.close()
    subscriber.close()


@both_versions
def test_a_session_goes_on_and_a_will_is_published(through: Running, version: int) -> None:
    first = Paho(through.port, version, f"durable-{version}", keep=True)
    first.subscribe(f"wills/{version}", 1)
    first.close()
    dying = Paho(through.port, version, f"dying-{version}", topic=f"wills/{version}", payload=b"gone", qos=1)
    dying.drop()
    again = Paho(through.port, version, f"durable-{version}", keep=True)
    assert again.next().payload == b"gone"
    again.close()


def test_aiomqtt(through: Running) -> None:
    async def main() -> None:
        async with aiomqtt.Client("127.0.0.1", through.port, identifier="aio") as client:
            await client.publish("aio/kept", b"kept", qos=1, retain=True)
            await client.subscribe("aio/#", qos=1)
            async with asyncio.timeout(PATIENCE):
                message = await anext(client.messages)
            assert (message.topic.value, message.payload, message.retain) == ("aio/kept", b"kept", True)

    asyncio.run(main())
    assert ("retained", "aio", "aio/kept", b"kept", 1) in through.notes.told


def test_mosquittos_own_clients(through: Running, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(bytes(range(256)) * 4000)
    words = [
        find_mosquitto("mosquitto_sub"),
        "-p",
        str(through.port),
        "-t",
        "own/+",
        "-C",
        "1",
        "-i",
        "own-sub",
        "-q",
        "2",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as subscriber:
        through.wait_until(lambda: ("subscribing", "own-sub", 1, [("own/+", 2)]) in through.notes.told)
        words = [find_mosquitto("mosquitto_pub"), "-p", str(through.port), "-t", "own/x", "-f", str(payload), "-q", "2"]
        subprocess.run(words, check=True, timeout=PATIENCE)
        out, _ = subscriber.communicate(timeout=PATIENCE)
    assert out.removesuffix(b"\n") == payload.read_bytes()
