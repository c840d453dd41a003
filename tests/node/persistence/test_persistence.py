"""A broker with a disk, in this process and in one of its own: stopped, started again, failing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client, ConnectError, Disconnected
from headwater.disk.errors import StorageError
from headwater.message import Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.plane.selector import run
from tests.brokers import free_port, wait_until_listening

PATIENCE = 20.0


def config(folder: Path | None = None, **settings: Any) -> Config:
    data_dir = "" if folder is None else str(folder)
    return Config(**{"host": "127.0.0.1", "port": 0, "sys_interval": 0, "data_dir": data_dir, **settings})


@contextlib.asynccontextmanager
async def device(broker: Broker, client_id: str) -> AsyncIterator[Client]:
    async with Client(
        "127.0.0.1", broker.port, client_id=client_id, reconnect=None, clean_start=False, session_expiry=1000
    ) as client:
        yield client


async def _leave_messages(broker: Broker) -> None:
    async with device(broker, "reader") as client:
        await client.subscribe("t/#", qos=2)
    async with device(broker, "writer") as client:
        await client.publish("t/1", b"one", qos=1)
        await client.publish("t/2", b"two", qos=2)
        await client.publish("t/3", b"kept", qos=1, retain=True)


async def _take_messages(broker: Broker) -> list[bytes]:
    async with device(broker, "reader") as client, asyncio.timeout(PATIENCE):
        return [(await anext(client.messages)).payload for _ in range(3)]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("runner", [asyncio.run, run], ids=["guest", "ours"])
def test_a_broker_goes_on_where_it_ended(tmp_path: Path, runner: Any, durability: str) -> None:
    async def main() -> None:
        settings = config(tmp_path / "data", durability=durability)
        async with Broker(settings) as broker:
            await _leave_messages(broker)
        async with Broker(settings) as broker:
            assert sorted(await _take_messages(broker)) == [b"kept", b"one", b"two"]
            assert broker.server.router.retained.get("t/3") is not None
            assert broker.statistics().commits > 0 or durability == "async"
        async with Broker(settings) as broker:
            assert broker.server.sessions["reader"].outbound.waiting() == 0

    runner(main())


def test_without_durability_nothing_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(config(tmp_path / "data", durability="none")) as broker:
            await _leave_messages(broker)

    run(main())
    assert list(tmp_path.iterdir()) == []


class FailingBackend(MemoryBackend):
    failing = False

    def sync(self) -> None:
        if self.failing:
            raise StorageError("cannot sync: the disk is full; make room and start again")
        super().sync()


def test_a_disk_that_fails_ends_the_broker_and_promises_nothing() -> None:
    async def main() -> None:
        backend = FailingBackend()
        broker = Broker(config(), backend=backend)
        failed = asyncio.Event()
        broker.on_failure = failed.set
        async with broker:
            async with device(broker, "reader") as client:
                await client.subscribe("t", qos=1)
            writer = Client("127.0.0.1", broker.port, client_id="writer", reconnect=None)
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectError, Disconnected):
                    async with writer:
                        backend.failing = True
                        with pytest.raises((Disconnected, ConnectError)):
                            await writer.publish("t", b"x", qos=1)
                await failed.wait()
            assert "make room" in str(broker.failure)

    run(main())


@contextlib.contextmanager
def process(folder: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--data-dir", str(folder), *options]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, **environment}) as started:
        try:
            yield started, port
        finally:
            started.kill()


def test_a_killed_broker_goes_on_where_it_ended(tmp_path: Path) -> None:
    async def leave(port: int) -> None:
        async with Client("127.0.0.1", port, client_id="reader", clean_start=False, session_expiry=1000) as client:
            await client.subscribe("t", qos=1)
        async with Client("127.0.0.1", port, client_id="writer", reconnect=None) as client:
            for number in range(100):
                await client.publish("t", b"%d" % number, qos=1)

    async def take(port: int) -> list[bytes]:
        async with (
            Client("127.0.0.1", port, client_id="reader", clean_start=False, session_expiry=1000) as client,
            asyncio.timeout(PATIENCE),
        ):
            return [(await anext(client.messages)).payload for _ in range(100)]

    with process(tmp_path / "data") as (started, port):
        wait_until_listening(started, port)
        asyncio.run(leave(port))
        started.send_signal(signal.SIGKILL)
    with process(tmp_path / "data") as (started, port):
        wait_until_listening(started, port)
        assert asyncio.run(take(port)) == [b"%d" % number for number in range(100)]


def test_a_folder_that_cannot_be_used_is_said_with_advice(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with process(tmp_path / "data") as (started, _):
        _, said = started.communicate(timeout=PATIENCE)
    assert started.returncode == 1
    assert b"data" in said
    assert b"Traceback" not in said


def test_a_folder_in_use_is_not_shared(tmp_path: Path) -> None:
    with process(tmp_path / "data") as (first, port):
        wait_until_listening(first, port)
        with process(tmp_path / "data") as (second, _):
            _, said = second.communicate(timeout=PATIENCE)
        assert second.returncode == 1
        assert b"another" in said
        assert b"Traceback" not in said


def test_a_disk_that_refuses_ends_the_process_with_advice_and_keeps_what_was_promised(tmp_path: Path) -> None:
    """Files may not grow beyond a size; no room would help. A full disk is waited for: test_full_disk.py."""

    async def fill(port: int) -> int:
        acknowledged = 0
        async with Client("127.0.0.1", port, client_id="reader", clean_start=False, session_expiry=1000) as client:
            await client.subscribe("t", qos=1)
        with contextlib.suppress(Disconnected, ConnectError):
            async with (
                Client("127.0.0.1", port, client_id="writer", reconnect=None) as client,
                asyncio.timeout(PATIENCE),
            ):
                while True:
                    await client.publish("t", os.urandom(50_000), qos=1)
                    acknowledged += 1
        return acknowledged

    with process(tmp_path / "data") as (started, port):
        wait_until_listening(started, port)
        subprocess.run(["prlimit", "--fsize=3000000", "--pid", str(started.pid)], check=True)
        acknowledged = asyncio.run(fill(port))
        _, said = started.communicate(timeout=PATIENCE)
        assert started.returncode == 1
        assert b"Traceback" not in said
        assert b"stopped serving" in said
    assert acknowledged > 10

    async def recovered() -> int:
        async with Broker(config(tmp_path / "data")) as broker:
            return broker.server.sessions["reader"].outbound.waiting()

    assert acknowledged <= asyncio.run(recovered()) <= acknowledged + 1


def test_admin_messages_are_kept_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(config(tmp_path / "data")) as broker:
            async with device(broker, "reader") as client:
                await client.subscribe("t", qos=1)
            broker.publish(Message("t", b"x", 1))
        async with Broker(config(tmp_path / "data")) as broker:
            assert broker.server.sessions["reader"].outbound.waiting() == 1

    run(main())
