"""However a broker with a disk ends, or fails to begin: nothing of it is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from headwater.client import Client, ConnectError, Disconnected
from headwater.disk.errors import StorageError
from headwater.message import Message
from headwater.node.broker import Broker
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.plane.selector import HotEventLoop, run
from tests.node.persistence.test_persistence import FailingBackend, config, device

PATIENCE = 20.0
RUNNERS = pytest.mark.parametrize("runner", [asyncio.run, run], ids=["guest", "ours"])


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def run_and_leave_nothing(runner: Any, main: Coroutine[Any, Any, None]) -> None:
    runner(asyncio.sleep(0))  # what is made once is there now
    threads = threading.active_count()
    open_before = descriptors()
    runner(main)
    assert threading.active_count() == threads
    assert descriptors() == open_before


async def _fail(broker: Broker, backend: FailingBackend) -> None:
    """Make the disk fail under a broker that serves."""
    failed = asyncio.Event()
    broker.on_failure = failed.set
    with contextlib.suppress(ConnectError, Disconnected):
        async with device(broker, "writer") as client, asyncio.timeout(PATIENCE):
            backend.failing = True
            await client.subscribe("t", qos=1)
            await failed.wait()
    async with asyncio.timeout(PATIENCE):
        await failed.wait()


@RUNNERS
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_after_a_failure(runner: Any, durability: str) -> None:
    async def main() -> None:
        backend = FailingBackend()
        async with Broker(config(durability=durability, commit_interval=0.01), backend=backend) as broker:
            await _fail(broker, backend)
            with pytest.raises(OSError):  # nobody is let in to whom nothing could be promised
                await asyncio.open_connection("127.0.0.1", broker.port)
        with pytest.raises(StorageError, match="closed"):
            backend.get(b"")

    run_and_leave_nothing(runner, main())


@RUNNERS
def test_a_failure_at_the_end(runner: Any) -> None:
    async def main() -> None:
        backend = FailingBackend()
        failures: list[int] = []
        broker = Broker(config(), backend=backend)
        broker.on_failure = lambda: failures.append(1)
        async with broker, device(broker, "reader"):
            backend.failing = True
        assert failures == [1]
        assert broker.failure is not None
        with pytest.raises(StorageError, match="closed"):
            backend.get(b"")

    run_and_leave_nothing(runner, main())


@RUNNERS
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_change_that_cannot_be_written_is_a_failure(runner: Any, durability: str) -> None:
    """A program's own message that is none. Half of a batch may count as written: nothing can be promised any more."""

    async def main() -> None:
        backend = MemoryBackend()
        broker = Broker(config(durability=durability, commit_interval=0.01), backend=backend)
        failed = asyncio.Event()
        broker.on_failure = failed.set
        async with broker:
            async with device(broker, "reader") as client:
                await client.subscribe("t", qos=1)
            broker.publish(Message("t", b"whole", 1))
            broker.publish(Message("t", b"x", 1, content_type="no \0 is allowed"))
            async with asyncio.timeout(PATIENCE):
                await failed.wait()
        assert "cannot be written" in str(broker.failure)

    run_and_leave_nothing(runner, main())


@RUNNERS
def test_a_store_that_cannot_be_understood(runner: Any) -> None:
    async def main() -> None:
        backend = MemoryBackend()
        backend.write([(b"s", b"{}")], [])
        with pytest.raises(StorageError, match="cannot be understood"):
            await Broker(config(), backend=backend).start()
        with pytest.raises(StorageError, match="closed"):
            backend.get(b"")
        loop = asyncio.get_running_loop()
        assert not isinstance(loop, HotEventLoop) or loop.hot_selector.plane is None

    run_and_leave_nothing(runner, main())


@RUNNERS
def test_a_start_that_is_called_off(runner: Any) -> None:
    async def main() -> None:
        backend = MemoryBackend()
        broker = Broker(config(), backend=backend)

        async def never(wanted: object) -> None:
            await asyncio.Event().wait()

        broker.bridges.use = never  # type: ignore[assignment, method-assign]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.start(), 0.05)
        with pytest.raises(StorageError, match="closed"):
            backend.get(b"")

    run_and_leave_nothing(runner, main())


@RUNNERS
def test_an_end_while_a_commit_runs(runner: Any) -> None:
    """All that was acknowledged or waited for it is there."""
    kept: list[MemoryBackend] = []

    class SlowBackend(MemoryBackend):
        def sync(self) -> None:
            threading.Event().wait(0.05)
            super().sync()

        def close(self) -> None:
            if not kept:
                kept.append(self.crashed())
            super().close()

    async def main() -> None:
        async with Broker(config(), backend=SlowBackend()) as broker:
            async with device(broker, "reader") as client:
                await client.subscribe("t", qos=1)
            client = Client("127.0.0.1", broker.port, client_id="writer", reconnect=None)
            async with client:
                publishing = [asyncio.create_task(client.publish("t", b"x", qos=1)) for _ in range(10)]
                await asyncio.sleep(0.02)
                await broker.stop()
                done = await asyncio.gather(*publishing, return_exceptions=True)
        acknowledged = [each for each in done if not isinstance(each, BaseException)]
        async with Broker(config(), backend=kept[0]) as broker:
            assert broker.server.sessions["reader"].outbound.waiting() >= len(acknowledged)

    run_and_leave_nothing(runner, main())
