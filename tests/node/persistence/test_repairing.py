"""A data folder with a flipped byte in the middle of a log: refused with figures, then repaired."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.disk.errors import StorageError
from headwater.disk.lock import FolderLock, InUse
from headwater.disk.repair import DamagedLog
from headwater.disk.wal import Batch, changes_of, read_log
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.settings import StoreSettings
from headwater.node.persistence.repairing import look_at, repair
from headwater.store.query import Query
from tests.disk.killed import copy_as_killed
from tests.store.messages import found
from tests.test_cli_data import done, headwater

MESSAGES = 30


def config(folder: Path) -> Config:
    return Config(host="127.0.0.1", port=0, sys_interval=0, data_dir=str(folder), store=StoreSettings(enabled=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a kill leaves it: a session that is away, and 30 messages for it, each acknowledged before the next came."""
    folder = tmp_path_factory.mktemp("made")

    async def main() -> Path:
        async with Broker(config(folder / "data")) as broker:
            async with Client(
                "127.0.0.1", broker.port, client_id="reader", clean_start=False, session_expiry=1000, reconnect=None
            ) as client:
                await client.subscribe("t", qos=1)
            async with Client("127.0.0.1", broker.port, client_id="writer", reconnect=None) as client:
                for number in range(MESSAGES):
                    await client.publish("t", b"%d" % number, qos=1)
            return copy_as_killed(folder / "data", folder / "copy")

    return asyncio.run(main())


def puts(batch: Batch, kind: bytes) -> bool:
    return any(change.value is not None and change.key.startswith(kind) for change in changes_of(batch))


def damaged(made: Path, to: Path, log_of: str, kind: bytes, number: int) -> Path:
    """A copy in which a byte of the batch that puts the key so many of its kind is flipped."""
    shutil.copytree(made, to)
    [log] = (to / log_of).glob("*.log")
    batches = [
        each
        for each in read_log(log)
        if isinstance(each, Batch)
        and any(change.value is not None and change.key[:1] == kind for change in changes_of(each))
    ]
    content = bytearray(log.read_bytes())
    content[batches[number].begin + 30] ^= 4
    log.write_bytes(content)
    return to


def started(folder: Path) -> tuple[int, list[bytes]]:
    """What waits for the session, and what the store has."""

    async def main() -> tuple[int, list[bytes]]:
        async with Broker(config(folder)) as broker:
            assert broker.store is not None
            stored = [entry.payload for entry in found(broker.store, Query())]
            return broker.server.sessions["reader"].outbound.waiting(), stored

    return asyncio.run(main())


def test_the_journal_of_sessions(made: Path, tmp_path: Path) -> None:
    folder = damaged(made, tmp_path / "data", "store", b"q", 10)
    with pytest.raises(DamagedLog, match="whole batches"):
        started(folder)
    told = look_at(folder)
    assert len(told.damages) == 1
    assert told.damages[0].startswith("sessions: ")
    assert told.lines == []
    outcome = repair(folder)
    assert outcome.damages == told.damages
    assert outcome.kept is not None
    assert [each.name for each in outcome.kept.iterdir()] == ["sessions"]
    waiting, stored = started(folder)
    assert waiting == MESSAGES - 1
    assert stored == [b"%d" % number for number in range(MESSAGES)]


def test_what_depends_on_a_lost_message_goes_with_it(made: Path, tmp_path: Path) -> None:
    """As if a later batch had changed the delivery: it is whole, and its message is not."""
    from headwater.node.persistence.records import MESSAGE
    from headwater.node.persistence.schema import open_folder

    folder = shutil.copytree(made, tmp_path / "data")
    backend = open_folder(folder)
    [first, *_] = [key for key, _ in backend.scan(MESSAGE)]
    backend.write([(b"i" + bytes(8) + b"\0\1", b"")], [first])
    backend.close()
    with pytest.raises(StorageError):
        started(folder)
    assert repair(folder).lines[0] == (
        "sessions: removed 1 deliveries whose messages are lost, 1 packet ids of lost sessions"
    )
    assert started(folder)[0] == MESSAGES - 1


def test_the_delivery_store_by_command(made: Path, tmp_path: Path) -> None:
    folder = damaged(made, tmp_path / "data", "messages/db", b"l", 10)
    with pytest.raises(DamagedLog, match="lost: messages 11 to 11; nothing was changed"):
        started(folder)
    said = headwater("repair", folder, "--dry-run")
    assert said.returncode == 1
    assert "messages: lost would be messages 11 to 11\n" in said.stdout
    assert not list(folder.glob("damaged*"))
    said = headwater("repair", folder)
    assert said.returncode == 0
    assert "messages: positions lost: 11 to 11; topics whose names are lost: 0; blocks made again: 0\n" in said.stdout
    assert "the damaged files are kept in" in said.stdout
    waiting, stored = started(folder)
    assert waiting == MESSAGES
    assert stored == [b"%d" % number for number in range(MESSAGES) if number != 10]
    assert "no log is damaged" in done("repair", folder, "--dry-run")


def test_a_folder_that_is_used_or_none(made: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    lock = FolderLock(folder)
    with pytest.raises(InUse):
        repair(folder)
    lock.release()
    assert "is not a data folder" in headwater("repair", tmp_path).stderr
