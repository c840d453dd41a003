"""Broker processes that are ended and come back while a client publishes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.client import V5, V311, Client, Reconnect
from tests.brokers import PATIENCE, find_mosquitto, free_port, wait_until_listening
from tests.client.scripted import run

AGAIN = Reconnect(first=0.05, longest=0.1)
MESSAGES = 600


class Process:
    """A broker on one port that can be ended and started again."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command = command
        self.port = port
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_listening(self.process, self.port)

    async def restart(self, *, gently: bool) -> None:
        await asyncio.to_thread(self.stop, gently=gently)
        await asyncio.to_thread(self.start)

    def stop(self, *, gently: bool) -> None:
        if gently:
            self.process.terminate()
        else:
            self.process.kill()
        self.process.wait(PATIENCE)


@pytest.mark.parametrize("version", [V311, V5], ids=["v311", "v5"])
def test_what_was_acknowledged_arrives_though_the_broker_was_restarted(tmp_path: Path, version: int) -> None:
    """Mosquitto keeps sessions and messages on disk when it is told to leave."""
    port = free_port()
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nuser root\nallow_anonymous true\npersistence true\n"
        f"persistence_location {tmp_path}/\nmax_queued_messages 0\n"
    )
    broker = Process([find_mosquitto(), "-c", str(settings)], port)

    def client(name: str) -> Client:
        expiry = 600 if version == V5 else None
        return Client(
            *("127.0.0.1", port),
            client_id=name,
            version=version,
            clean_start=False,
            session_expiry=expiry,
            reconnect=AGAIN,
        )

    async def scenario() -> None:
        async with client("subscriber") as subscriber, client("publisher") as publisher:
            await subscriber.subscribe("a/#", qos=1)
            arrived: set[bytes] = set()

            async def receive() -> None:
                async for message in subscriber.messages:
                    arrived.add(message.payload)
                    if len(arrived) == MESSAGES:
                        return

            async def publish() -> None:
                for number in range(MESSAGES):
                    await publisher.publish("a/b", str(number), qos=1)
                    if number in (MESSAGES // 4, MESSAGES // 2):
                        under_way.set()

            async def restart() -> None:
                for _ in range(2):
                    await under_way.wait()
                    under_way.clear()
                    await broker.restart(gently=True)

            under_way = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for work in (receive(), publish(), restart()):
                    group.create_task(work)
            assert arrived == {str(number).encode() for number in range(MESSAGES)}

    try:
        run(scenario())
    finally:
        broker.stop(gently=False)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_broker_that_forgot_everything_is_told_again(qos: int) -> None:
    """Our own keeps everything in memory, and is killed: publications come to an end all the same, and subscriptions
    are there again."""
    port = free_port()
    broker = Process([sys.executable, "-m", "headwater", "broker", "--port", str(port)], port)

    async def scenario() -> None:
        async with (
            Client("127.0.0.1", port, reconnect=AGAIN) as subscriber,
            Client("127.0.0.1", port, reconnect=AGAIN) as publisher,
        ):
            await subscriber.subscribe("a", qos=qos)
            publishing = asyncio.create_task(_publish_many(publisher, qos))
            await anext(subscriber.messages)
            await broker.restart(gently=False)
            await publishing
            await asyncio.gather(subscriber.wait_connected(), publisher.wait_connected())
            await publisher.publish("a", b"last", qos=qos)
            async for message in subscriber.messages:
                if message.payload == b"last":
                    break

    try:
        run(scenario())
    finally:
        broker.stop(gently=False)


async def _publish_many(client: Client, qos: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(MESSAGES):
            group.create_task(client.publish("a", str(number), qos=qos))
            await asyncio.sleep(0.001)
