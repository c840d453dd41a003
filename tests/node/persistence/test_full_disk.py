"""A disk without room: publishers wait, nothing is lost or promised, and all goes on when there is room again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.client import Client
from headwater.disk.errors import DiskFull
from headwater.disk.room import Room
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.settings import StoreSettings
from headwater.node.persistence import committing
from headwater.node.persistence.batch import Batch
from headwater.node.persistence.committing import ThreadCommitter
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.plane.selector import run
from headwater.store.disk_store import DiskStore
from headwater.store.intake import Intake, Taken
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from tests.store.messages import Writer, found

PATIENCE = 30.0
MEGA = 1 << 20


def wait_until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end
        time.sleep(0.005)


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not met():
            await asyncio.sleep(0.01)


# ---- the thread that commits -------------------------------------------------------------------------------------


class Steps:
    """Backend and store whose steps find the disk full when they are told to."""

    def __init__(self) -> None:
        self.full: set[str] = set()
        self.done: list[str] = []

    def step(self, name: str) -> None:
        if name in self.full:
            raise DiskFull("cannot write: the disk is full; make room")
        self.done.append(name)


class SteppedBackend(MemoryBackend):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        self.steps.step("write")
        super().write(puts, deletes)

    def sync(self) -> None:
        self.steps.step("sync")
        super().sync()


class SteppedStore(MemoryStore):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps

    def append(self, taken: Taken, note: bytes = b"") -> None:
        self.steps.step("append")
        super().append(taken, note)

    def sync(self) -> None:
        self.steps.step("sync store")
        super().sync()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "AGAIN", 0.01)


def batch() -> Batch:
    made = Batch(1)
    made.puts, made.promises = [(b"k", b"v")], True
    intake = Intake(1)
    intake.take(b"a", b"x", 1, "", 1)
    made.taken = intake.hand_over()
    return made


def committer_of(steps: Steps, room: Room | None = None) -> ThreadCommitter:
    server: Any = SimpleNamespace(coordinator=None)
    return ThreadCommitter(server, SteppedBackend(steps), lambda error: None, SteppedStore(steps), room)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("step", ["append", "sync store", "write", "sync"])
def test_a_commit_goes_on_with_the_step_that_found_no_room(step: str) -> None:
    steps = Steps()
    steps.full = {step}
    committer = committer_of(steps)
    committer.start(batch())
    wait_until(lambda: committer.full is not None)
    assert committer.is_paused
    assert committer.read(b"k") == b"v"  # the loop does not wait for room
    assert committer.read(b"other") is None
    steps.full = set()
    wait_until(lambda: not committer.is_paused)
    committer.close()
    assert steps.done[:4] == ["append", "sync store", "write", "sync"]
    assert committer.error is None


@pytest.mark.usefixtures("quick")
def test_nothing_is_written_below_the_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    room = Room(tmp_path, 800)
    monkeypatch.setattr(room, "free", lambda: 100)
    committer = committer_of(steps, room)
    committer.start(batch())
    wait_until(lambda: committer.full is not None)
    assert steps.done == []
    monkeypatch.setattr(room, "free", lambda: 300)  # still too little for publishers
    wait_until(lambda: committer.full is None)
    assert committer.is_paused
    monkeypatch.setattr(room, "free", lambda: 3000)
    committer.look()
    wait_until(lambda: not committer.is_paused)
    committer.close()
    assert steps.done[:4] == ["append", "sync store", "write", "sync"]


@pytest.mark.usefixtures("quick")
def test_with_room_and_without_success_it_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "MOST_ATTEMPTS", 3)
    steps = Steps()
    steps.full = {"write"}
    committer = committer_of(steps)
    committer.start(batch())
    wait_until(lambda: committer.error is not None)
    assert "start again" in str(committer.error)
    committer.close()


# ---- the store -----------------------------------------------------------------------------------------------------


def test_a_store_writes_the_names_of_topics_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(tmp_path / "messages", seal_in_background=False)
    writer = Writer(store)
    writer.take("new/topic")
    taken = writer.intake.hand_over()
    assert taken is not None
    with monkeypatch.context() as patched:
        patched.setattr(store._shelf, "_write", lambda *_: (_ for _ in ()).throw(DiskFull("full")))
        with pytest.raises(DiskFull):
            store.append(taken)
    store.append(taken)
    store.sync()
    store.close()
    store = DiskStore(tmp_path / "messages", create=False)
    assert [entry.topic for entry in found(store)] == ["new/topic"]
    store.close()


def test_blocks_wait_for_room_and_commits_do_not_wait_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.store.disk_store.AGAIN", 0.01)
    store = DiskStore(tmp_path / "messages", block_messages=2)
    write = store._shelf.write
    full = threading.Event()
    full.set()

    def no_pages(puts: Any, deletes: Any = (), pages: Any = None) -> None:
        if pages and full.is_set():
            raise DiskFull("full")
        write(puts, deletes, pages)

    monkeypatch.setattr(store._shelf, "write", no_pages)
    for _ in range(10):
        Writer(store).write("a")
    assert store.statistics().blocks == 0
    full.clear()
    wait_until(lambda: store.statistics().blocks > 0)
    assert [entry.position for entry in found(store)] == list(range(1, 11))
    store.close()


# ---- brokers -------------------------------------------------------------------------------------------------------


def config(folder: Path, **settings: Any) -> Config:
    return Config(**{"host": "127.0.0.1", "port": 0, "sys_interval": 0, "data_dir": str(folder), **settings})


@pytest.mark.parametrize("stored", [False, True], ids=["sessions", "store"])
def test_who_publishes_is_not_read_from_while_the_reserve_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stored: bool
) -> None:
    """Those who only listen are served on, and a publisher goes on by itself."""
    free = 10_000
    monkeypatch.setattr(Room, "free", lambda self: free)
    monkeypatch.setattr("headwater.node.persistence.persistence.LOOK_AGAIN", 0.02)

    async def main() -> None:
        nonlocal free
        settings = config(tmp_path / "data", disk_reserve=1000, store=StoreSettings(enabled=stored))
        async with Broker(settings) as broker, asyncio.timeout(PATIENCE):
            async with Client(
                "127.0.0.1", broker.port, client_id="reader", clean_start=False, session_expiry=99, reconnect=None
            ) as reader:
                await reader.subscribe("t", qos=1)
            async with (
                Client("127.0.0.1", broker.port, client_id="writer", reconnect=None) as writer,
                Client("127.0.0.1", broker.port, client_id="other", reconnect=None) as other,
            ):
                await writer.publish("t", b"1", qos=1)
                free = 500
                await until(lambda: broker.statistics().disk_paused)
                await writer.publish("t", b"2", qos=1)  # it was on its way; from now on it is not read from
                await until(lambda: broker.statistics().publishers_paused == 1)
                third = asyncio.create_task(writer.publish("t", b"3", qos=1))
                await other.subscribe("x", qos=1)
                assert not third.done()
                assert (broker.statistics().disk_free, broker.statistics().disk_reserve) == (500, 1000)
                free = 10_000
                await third
                await until(lambda: not broker.statistics().disk_paused)
                assert broker.statistics().publishers_paused == 0
            assert broker.server.sessions["reader"].outbound.waiting() == 3

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "the disk has too little room: 500 bytes are free, disk_reserve is 1,000" in caplog.text
    assert "there is room on the disk again" in caplog.text


@contextlib.contextmanager
def small_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """A disk of 96 MB; without the right to mount one, a folder (False)."""
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_disk_that_others_fill_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last byte, in the middle of traffic: each message is there once and in order. Without the right to mount a
    disk, the figures are made up."""
    monkeypatch.setattr("headwater.node.persistence.persistence.LOOK_AGAIN", 0.05)
    made_up: list[int] = []
    measure = Room.free
    monkeypatch.setattr(Room, "free", lambda self: made_up[0] if made_up else measure(self))

    async def main(folder: Path, real: bool) -> None:
        ballast = folder / "ballast"
        async with Broker(config(folder / "data", store=StoreSettings(enabled=True), disk_reserve=24 * MEGA)) as broker:
            assert broker.store is not None
            async with Client("127.0.0.1", broker.port, client_id="writer", reconnect=None) as writer:
                for number in range(20):
                    await writer.publish("t", b"%d" % number, qos=1)
                if real:
                    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                        while file.write(bytes(MEGA)) == MEGA:
                            pass
                else:
                    made_up.append(0)
                going = asyncio.create_task(_publish(writer, 20, 60))
                await until(lambda: broker.statistics().disk_paused)
                assert not going.done()
                assert broker.failure is None
                if real:
                    ballast.unlink()
                else:
                    made_up[0] = 1 << 40
                async with asyncio.timeout(2 * PATIENCE):
                    await going
            stored = [entry.payload for entry in found(broker.store, Query())]
            assert stored == [b"%d" % number for number in range(60)]
            assert broker.failure is None

    with small_disk(tmp_path / "disk", monkeypatch) as real:
        run(main(tmp_path / "disk", real))


async def _publish(client: Client, first: int, end: int) -> None:
    for number in range(first, end):
        await client.publish("t", b"%d" % number, qos=1)
