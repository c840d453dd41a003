"""Backups of sessions and messages together: of a broker that runs, of a folder, restored and gone on with."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.disk.errors import StorageError
from headwater.message import Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.delivery.settings import StoreSettings
from headwater.node.persistence.backup import make_backup, restore, snapshot_offline
from headwater.node.persistence.folder import read_description, tidy, write_description
from headwater.node.persistence.schema import open_folder
from headwater.store.disk_store import DiskStore
from headwater.store.query import Query
from tests.store.messages import Writer, found


def config(folder: Path) -> Config:
    return Config(host="127.0.0.1", port=0, sys_interval=0, data_dir=str(folder), store=StoreSettings(enabled=True))


def folder_with(path: Path, messages: int, id: str = "site-1") -> Path:
    open_folder(path).close()
    store = DiskStore(path / "messages", id=id, block_messages=10, seal_in_background=False)
    for number in range(messages):
        Writer(store).write(f"t/{number}")
    store.seal()
    store.commit("reader", messages // 2)
    store.close()
    return path


def backed_up(folder: Path, to: Path, based: Path | None = None) -> Path:
    with snapshot_offline(folder) as taken:
        make_backup(taken, to, based)
    return to


def test_a_running_broker_is_copied_between_two_commits(tmp_path: Path) -> None:
    """Each message is in the store and waits for a session; in every copy both have the same ones, and all that was
    acknowledged before."""

    async def publish(client: Client, acknowledged: list[int], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await client.publish("t", b"%d" % len(acknowledged), qos=1)
            acknowledged.append(0)

    async def main() -> list[int]:
        floors = []
        async with Broker(config(tmp_path / "data")) as broker:
            async with Client(
                "127.0.0.1", broker.port, client_id="reader", clean_start=False, session_expiry=1000, reconnect=None
            ) as client:
                await client.subscribe("t", qos=1)
            async with Client("127.0.0.1", broker.port, client_id="writer", reconnect=None) as writer:
                stop = asyncio.Event()
                acknowledged: list[int] = []
                going = asyncio.create_task(publish(writer, acknowledged, stop))
                for number in range(3):
                    while len(acknowledged) < 30 * (number + 1):
                        await asyncio.sleep(0)
                    floors.append(len(acknowledged))
                    taken = await broker.snapshot()
                    await asyncio.to_thread(make_backup, taken, tmp_path / f"backup{number}")
                    shutil.rmtree(taken.path)
                stop.set()
                await going
        return floors

    async def restored(folder: Path) -> tuple[list[bytes], int]:
        async with Broker(config(folder)) as broker:
            assert broker.store is not None
            stored = [entry.payload for entry in found(broker.store, Query())]
            assert broker.publish(Message("t", b"next", 1)) == len(stored) + 1  # no gap, and none is used again
            await broker.committed()
            return stored, broker.server.sessions["reader"].outbound.waiting() - 1

    for number, floor in enumerate(asyncio.run(main())):
        restore(tmp_path / f"backup{number}", tmp_path / f"new{number}")
        stored, waiting = asyncio.run(restored(tmp_path / f"new{number}"))
        assert stored == [b"%d" % each for each in range(len(stored))]
        assert len(stored) >= floor
        assert waiting == len(stored)


def test_positions_id_and_readers_are_kept_and_go_on(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "data", 25)
    with snapshot_offline(folder) as taken:
        assert str(make_backup(taken, tmp_path / "backup")).endswith("with the messages of store site-1")
    Writer(store := DiskStore(folder / "messages")).write("later")
    store.close()
    restore(tmp_path / "backup", folder, force=True)
    store = DiskStore(folder / "messages", create=False)
    assert (store.id, store.first, store.next, store.reader("reader").position) == ("site-1", 1, 26, 12)
    Writer(store).write("t/25")
    assert [(entry.position, entry.topic) for entry in found(store)] == [(n + 1, f"t/{n}") for n in range(26)]
    store.close()
    [aside] = folder.glob("replaced-messages-*")
    store = DiskStore(aside, create=False)
    assert found(store)[-1].topic == "later"
    store.close()


def test_a_second_backup_shares_what_has_not_changed(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "data", 25)
    first = backed_up(folder, tmp_path / "first")
    Writer(store := DiskStore(folder / "messages")).write("later")
    store.close()
    second = backed_up(folder, tmp_path / "second", first)
    files = {each.name for each in (first / "messages" / "db").glob("*.sst")}
    shared = {name for name in files if os.path.samefile(first / "messages/db" / name, second / "messages/db" / name)}
    assert shared == files != set()
    shutil.rmtree(first)
    restore(second, tmp_path / "new")
    store = DiskStore(tmp_path / "new" / "messages", create=False)
    assert store.next == 27
    store.close()


def test_files_with_the_same_name_and_another_content_are_copied(tmp_path: Path) -> None:
    one = backed_up(folder_with(tmp_path / "one", 25), tmp_path / "backup1")
    two = backed_up(folder_with(tmp_path / "two", 25, "site-2"), tmp_path / "backup2", one)
    restore(two, tmp_path / "new")
    store = DiskStore(tmp_path / "new" / "messages", id="site-2", create=False)
    assert store.next == 26
    store.close()


def test_damage_in_the_messages_of_a_backup_changes_nothing(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "data", 25)
    backup = backed_up(folder, tmp_path / "backup")
    file = max((backup / "messages" / "db").iterdir(), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = sorted(os.listdir(folder))
    with pytest.raises(StorageError, match="another checksum"):
        restore(backup, folder, force=True)
    assert sorted(os.listdir(folder)) == before
    shutil.rmtree(backup / "messages")
    with pytest.raises(StorageError, match="messages is missing"):
        restore(backup, folder, force=True)


def test_messages_without_a_description_are_not_written_over(tmp_path: Path) -> None:
    backup = backed_up(folder_with(tmp_path / "data", 5), tmp_path / "backup")
    (tmp_path / "new").mkdir()
    DiskStore(tmp_path / "new" / "messages").close()
    with pytest.raises(StorageError, match="is not empty; with --force"):
        restore(backup, tmp_path / "new")


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_restore_that_is_cut_off_is_finished_by_the_next(tmp_path: Path, steps: int) -> None:
    """The description names what is to be `messages`, and renaming was cut off after so many steps."""
    folder = folder_with(tmp_path / "data", 5)
    restored = folder_with(tmp_path / "other", 8, "site-2") / "messages"
    os.replace(restored, folder / "messages-20300101T000000Z")
    write_description(folder, read_description(folder)._replace(messages="messages-20300101T000000Z"))
    if steps > 0:
        os.replace(folder / "messages", folder / "replaced-messages-20300101T000000Z")
    if steps > 1:
        os.replace(folder / "messages-20300101T000000Z", folder / "messages")
    tidy(folder)
    assert read_description(folder).messages is None
    assert len(list(folder.glob("replaced-messages-*"))) == 1
    store = DiskStore(folder / "messages", id="site-2", create=False)
    assert store.next == 9
    store.close()
