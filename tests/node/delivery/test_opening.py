"""A broker with a store on disk, in this process and in one of its own: stopped, killed, started again, failing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.client import Client, ConnectError, Disconnected
from headwater.disk.errors import StorageError
from headwater.disk.room import disk_size, room_for_messages
from headwater.message import Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.history_settings import HistorySettings
from headwater.node.delivery.opening import open_store, retention_of
from headwater.node.delivery.settings import StoreSettings
from headwater.node.persistence.folder import MESSAGES
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.plane.selector import run
from headwater.store.disk_store import DiskStore
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.store import Store
from tests.brokers import free_port, wait_until_listening

PATIENCE = 20.0


def config(folder: Path | None = None, **settings: Any) -> Config:
    store = StoreSettings(**{"enabled": folder is not None, **settings.pop("store", {})})
    data_dir = "" if folder is None else str(folder)
    fields = {"host": "127.0.0.1", "port": 0, "sys_interval": 0, "data_dir": data_dir, "store": store}
    return Config(**{**fields, **settings})


def summary(store: Store) -> list[tuple[int, str, bytes]]:
    found = [entry for chunk in store.select(Query()) for entry in chunk.entries()]
    return [(entry.position, entry.topic, entry.payload) for entry in found]


async def publish(port: int, *numbers: int) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Client("127.0.0.1", port, client_id="writer", reconnect=None) as client,
    ):
        for number in numbers:
            await client.publish(f"t/{number}", b'{"value": %d}' % number, qos=number % 3)
        await client.publish("t/last", b"", qos=1)  # QoS 0 before it has come, too


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("runner", [asyncio.run, run], ids=["guest", "ours"])
def test_positions_go_on_where_they_ended(tmp_path: Path, runner: Callable[[Any], Any], durability: str) -> None:
    async def main() -> None:
        settings = config(tmp_path / "data", durability=durability, store={"id": "here"})
        async with Broker(settings) as broker:
            await publish(broker.port, 0, 1, 2)
            assert broker.publish(Message("t/own", b"4")) == 5
        async with Broker(settings) as broker:
            await publish(broker.port, 3)
            await broker.committed()
            assert broker.store is not None
            assert broker.store.id == "here"

    runner(main())
    store = DiskStore(tmp_path / "data" / MESSAGES)
    assert summary(store) == [
        *((1, "t/0", b'{"value": 0}'), (2, "t/1", b'{"value": 1}'), (3, "t/2", b'{"value": 2}'), (4, "t/last", b"")),
        *((5, "t/own", b"4"), (6, "t/3", b'{"value": 3}'), (7, "t/last", b"")),
    ]
    store.close()


def test_settings_reach_the_store(tmp_path: Path) -> None:
    tmp_path.joinpath("data").mkdir()
    settings = StoreSettings(
        id="here", time_paths=["a.b"], value_paths=["c"], time_unit="ms", keep_for=1.5, keep_bytes=7, hard_keep_for=3
    )
    store = open_store(tmp_path / "data", settings)
    assert store.id == "here"
    assert store.extraction.time_paths == [["a", "b"]]
    assert store.extraction.value_paths == [["c"]]
    assert store.extraction.factor == 1e3
    assert store.retention == retention_of(settings, tmp_path) == (1_500_000, 7, 3_000_000, None, None)
    store.close()


def test_messages_are_kept_for_a_week_and_on_half_of_the_disk(tmp_path: Path) -> None:
    week = 7 * 86_400 * 1_000_000
    assert retention_of(StoreSettings(), tmp_path) == (week, room_for_messages(disk_size(tmp_path)), None, None, None)
    assert retention_of(StoreSettings(keep_for=0, keep_bytes=0), tmp_path) == (None, None, None, None, None)


def test_what_goes_to_object_storage_goes_into_a_block_in_time(tmp_path: Path) -> None:
    history = HistorySettings(url="file:///history", after=60)
    assert retention_of(StoreSettings(history=history), tmp_path).seal_age == 60_000_000


def test_a_disk_that_is_too_small_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody has said how much of it stays free."""
    monkeypatch.setattr("headwater.disk.room.disk_size", lambda _: 150 << 20)

    async def start(**more: Any) -> None:
        async with Broker(config(tmp_path / "data", **more)):
            pass

    with pytest.raises(StorageError, match=r"has 150 MiB, and storing messages needs 320 MiB.*larger disk.*keep_bytes"):
        run(start())
    run(start(store={"enabled": False}))
    run(start(disk_reserve=1 << 20))


def test_how_long_messages_are_kept_is_said_at_the_start(tmp_path: Path) -> None:
    from headwater.node.run import _kept_for

    broker = Broker(config(tmp_path, store={"enabled": True, "keep_bytes": 5000}))
    assert _kept_for(broker) == (
        "messages are kept for 7 days (store.keep_for), and at most 5,000 bytes of them (store.keep_bytes); what a "
        "named reader has not read, up to store.hard_keep_for and _bytes"
    )
    broker = Broker(config(tmp_path, store={"enabled": True, "keep_for": 0, "keep_bytes": 0}))
    assert _kept_for(broker).startswith("messages are kept for ever; ")
    broker = Broker(config(tmp_path, store={"enabled": True, "keep_bytes": 0, "history": {"url": "file:///history"}}))
    assert _kept_for(broker) == (
        "messages are kept here for 7 days (store.keep_for); older ones are in object storage at file:///history, to "
        "which they go 3600 s after they came; while it is away, up to store.hard_keep_for and _bytes"
    )


def test_without_a_store_nothing_of_it_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(config(tmp_path / "data", store={"enabled": False})) as broker:
            assert broker.store is None
            assert broker.publish(Message("t", b"x")) == 0

    run(main())
    assert not (tmp_path / "data" / MESSAGES).exists()


class BlockedStore(MemoryStore):
    """Its disk is ready when it is told so."""

    def __init__(self) -> None:
        super().__init__("s")
        self.ready = threading.Event()
        self.asked = threading.Event()

    def sync(self) -> None:
        self.asked.set()
        assert self.ready.wait(PATIENCE)
        super().sync()


def test_acknowledgement_and_message_come_after_the_sync() -> None:
    async def main() -> None:
        store = BlockedStore()
        async with (
            asyncio.timeout(PATIENCE),
            Broker(config(), backend=MemoryBackend(), store=store) as broker,
            Client("127.0.0.1", broker.port, client_id="reader", reconnect=None) as reader,
            Client("127.0.0.1", broker.port, client_id="writer", reconnect=None) as writer,
            Client("127.0.0.1", broker.port, client_id="other", reconnect=None) as other,
        ):
            await reader.subscribe("t", qos=0)
            publication = asyncio.create_task(writer.publish("t", b"x", qos=1))
            reading = asyncio.create_task(anext(reader.messages))
            assert await asyncio.to_thread(store.asked.wait, PATIENCE)
            await other.publish("$not/stored", b"", qos=1)  # the loop has had all the time it needs
            assert not publication.done()
            assert not reading.done()
            assert summary(store) == []
            store.ready.set()
            await publication
            assert (await reading).payload == b"x"
            assert summary(store) == [(1, "t", b"x")]

    run(main())


class FailingStore(MemoryStore):
    def sync(self) -> None:
        raise StorageError("cannot sync: the disk is full; make room and start again")


def test_a_store_that_fails_ends_the_broker_and_promises_nothing() -> None:
    async def main() -> None:
        broker = Broker(config(), backend=MemoryBackend(), store=FailingStore())
        failed = asyncio.Event()
        broker.on_failure = failed.set
        async with broker, asyncio.timeout(PATIENCE):
            writer = Client("127.0.0.1", broker.port, client_id="writer", reconnect=None)
            with contextlib.suppress(ConnectError, Disconnected):
                async with writer:
                    with pytest.raises((Disconnected, ConnectError)):
                        await writer.publish("t", b"x", qos=1)
            await failed.wait()
            assert "make room" in str(broker.failure)

    run(main())


def test_a_store_of_another_id_is_not_used(tmp_path: Path) -> None:
    async def main(id: str) -> None:
        async with Broker(config(tmp_path / "data", store={"id": id})):
            pass

    run(main("one"))
    with pytest.raises(StorageError, match="for ever"):
        run(main("two"))
    run(main("one"))  # nothing is locked any more


# ---- headwater node --------------------------------------------------------------------------------------------


def node(folder: Path, port: int, *options: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "headwater", "node", "--port", str(port), *options]
    here = {"PYTHONPATH": str(Path(headwater.__file__).parent.parent)}
    return subprocess.Popen(words, stderr=subprocess.PIPE, cwd=folder, env={**os.environ, **here})


def ask(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def wait_until_ready(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            if ask(port, "/ready"):
                return
        time.sleep(0.05)
    pytest.fail("REST does not answer")


def test_a_killed_node_goes_on_where_it_ended(tmp_path: Path) -> None:
    port, rest = free_port(), free_port()
    with node(tmp_path, port, "--rest-port", str(rest)) as started:
        wait_until_listening(started, port)
        asyncio.run(publish(port, 0, 1, 2))
        wait_until_ready(rest)
        before = ask(rest, "/v1/messages")["messages"]
        started.send_signal(signal.SIGKILL)
    assert [each["payload"] for each in before] == ['{"value": 0}', '{"value": 1}', '{"value": 2}', ""]
    with node(tmp_path, port, "--rest-port", str(rest)) as started:
        wait_until_listening(started, port)
        asyncio.run(publish(port, 4))
        wait_until_ready(rest)
        after = ask(rest, "/v1/messages")["messages"]
        started.send_signal(signal.SIGTERM)
        _, said = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0
    assert b"Traceback" not in said
    assert after[:4] == before
    assert len(after) == 6
    assert (tmp_path / "headwater-data" / MESSAGES).is_dir()


def test_what_a_node_has_by_default_can_be_set(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data_dir = "elsewhere"\n[rest]\nenabled = false\n[store]\nfilters = ["a/#"]\n')
    port = free_port()
    with node(tmp_path, port, "--config", str(file)) as started:
        wait_until_listening(started, port)
        started.send_signal(signal.SIGTERM)
        _, said = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0
    assert b"REST is at" not in said
    assert (tmp_path / "elsewhere" / MESSAGES).is_dir()
