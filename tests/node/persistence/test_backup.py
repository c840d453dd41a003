"""Backups that are whole, damaged, of others, or put where something is."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.disk.lock import InUse
from headwater.node.persistence.backup import (
    MANIFEST,
    make_backup,
    read_manifest,
    restore,
    snapshot_offline,
    take_snapshot,
)
from headwater.node.persistence.folder import DESCRIPTION
from headwater.node.persistence.schema import SCHEMA, open_folder


def filled(folder: Path, value: bytes = b"old", count: int = 50) -> Path:
    backend = open_folder(folder)
    backend.write([(b"%03d" % number, value) for number in range(count)], [])
    backend.close()
    return folder


def content(folder: Path) -> list[tuple[bytes, bytes]]:
    backend = open_folder(folder)
    try:
        return list(backend.scan(b""))
    finally:
        backend.close()


def backed_up(folder: Path, to: Path) -> Path:
    with snapshot_offline(folder) as taken:
        make_backup(taken, to)
    return to


def refused(backup: Path, folder: Path, **options: bool) -> str:
    with pytest.raises(StorageError) as error:
        restore(backup, folder, **options)
    return str(error.value)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return backed_up(filled(tmp_path / "data"), tmp_path / "backup")


def test_there_and_back(backup: Path, tmp_path: Path) -> None:
    assert read_manifest(backup).schema == SCHEMA
    assert sorted(os.listdir(tmp_path / "data")) == ["headwater.json", "lock", "store"]
    restore(backup, tmp_path / "new")
    assert content(tmp_path / "new") == content(tmp_path / "data")
    assert backup.stat().st_mode & 0o777 == 0o700


def test_of_a_store_that_is_in_use(tmp_path: Path) -> None:
    """All that was written before is in it, and nothing in part, while another thread goes on writing."""
    backend = open_folder(tmp_path / "data")
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            backend.write([(b"a%06d" % written, b"x"), (b"b%06d" % written, b"x")], [])
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            while written < 100 * (number + 1):
                assert writer.is_alive()
            before = written
            make_backup(take_snapshot(tmp_path / "data", backend), tmp_path / f"backup{number}")
            restore(tmp_path / f"backup{number}", tmp_path / f"new{number}")
            found = [key for key, _ in content(tmp_path / f"new{number}")]
            count = len(found) // 2
            assert count >= before
            assert found == [b"%c%06d" % (letter, each) for letter in b"ab" for each in range(count)]
    finally:
        stop.set()
        writer.join()
        backend.close()
    assert [name for name in os.listdir(tmp_path / "data") if name.startswith("snapshot-")] != []
    open_folder(tmp_path / "data").close()
    assert [name for name in os.listdir(tmp_path / "data") if name.startswith("snapshot-")] == []


def test_a_forgotten_snapshot_goes_with_the_next(tmp_path: Path) -> None:
    backend = open_folder(tmp_path / "data")
    first, second = (take_snapshot(tmp_path / "data", backend) for _ in range(2))
    os.utime(first.path, (0, 0))
    third = take_snapshot(tmp_path / "data", backend)
    assert sorted((tmp_path / "data").glob("snapshot-*")) == sorted([second.path, third.path])
    backend.close()


def test_a_folder_in_use_is_not_copied_behind_the_back(tmp_path: Path) -> None:
    backend = open_folder(tmp_path / "data")
    with pytest.raises(InUse), snapshot_offline(tmp_path / "data"):
        pass
    backend.close()


def test_what_is_not_a_data_folder_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a data folder"), snapshot_offline(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_damaged_store_makes_no_backup(tmp_path: Path) -> None:
    folder = filled(tmp_path / "data", os.urandom(100), 1000)
    open_folder(folder).close()
    [file] = (folder / "store").glob("*.sst")
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(StorageError, match="it is damaged"):
        backed_up(folder, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_is_never_written_over(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="exists already"):
        backed_up(tmp_path / "data", backup)
    with pytest.raises(StorageError, match="cannot write the backup"):
        backed_up(tmp_path / "data", tmp_path / "no" / "parent")


# ---- restoring -------------------------------------------------------------------------------------------------


def cut(backup: Path) -> None:
    file = largest(backup)
    file.write_bytes(file.read_bytes()[:-1])


def garble(backup: Path) -> None:
    file = largest(backup)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def largest(backup: Path) -> Path:
    return max((backup / "store").iterdir(), key=lambda file: file.stat().st_size)


def change_manifest(**fields: object) -> Callable[[Path], None]:
    def change(backup: Path) -> None:
        manifest = json.loads((backup / MANIFEST).read_text())
        (backup / MANIFEST).write_text(json.dumps(manifest | fields))

    return change


OUTSIDE = [{"name": "store/../../evil", "size": 0, "sha256": ""}]
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (cut, "bytes, not"),
    "garbled": (garble, "has another checksum; take another one"),
    "no files": (lambda backup: shutil.rmtree(backup / "store"), "is damaged: store is missing; take another one"),
    "missing": (lambda backup: largest(backup).unlink(), "is missing; take another one"),
    "too much": (lambda backup: (backup / "store" / "strange").write_text(""), "does not know: store/strange"),
    "no manifest": (lambda backup: (backup / MANIFEST).unlink(), "it has no manifest.json"),
    "half a manifest": (lambda backup: (backup / MANIFEST).write_text('{"files": ['), "is damaged"),
    "another format": (change_manifest(format="tar"), "does not describe a backup of headwater"),
    "a newer schema": (change_manifest(schema=SCHEMA + 1), "was written by a newer headwater"),
    "a name that leads outside": (change_manifest(files=OUTSIDE), "does not describe a backup of headwater"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_backup_changes_nothing(
    damage: Callable[[Path], object], said: str, backup: Path, tmp_path: Path
) -> None:
    folder = filled(tmp_path / "target", b"precious")
    before = content(folder)
    damage(backup)
    assert said in refused(backup, folder, force=True)
    assert content(folder) == before
    assert said in refused(backup, tmp_path / "new")
    assert not (tmp_path / "new" / DESCRIPTION).exists()


def test_what_is_there_is_put_aside_only_if_told_to(backup: Path, tmp_path: Path) -> None:
    folder = filled(tmp_path / "target", b"precious")
    before = content(folder)
    assert "is not empty; with --force, what is there is put aside" in refused(backup, folder)
    assert content(folder) == before
    restore(backup, folder, force=True)
    assert content(folder) == content(tmp_path / "data")
    [aside] = folder.glob("replaced-*")
    shutil.rmtree(tmp_path / "data" / "store")
    aside.rename(tmp_path / "data" / "store")  # it is a store, and all is in it
    assert content(tmp_path / "data") == before


def test_a_damaged_folder_can_be_restored_over(backup: Path, tmp_path: Path) -> None:
    folder = filled(tmp_path / "target", b"precious")
    (folder / DESCRIPTION).write_text("{")
    restore(backup, folder, force=True)
    assert content(folder) == content(tmp_path / "data")
    assert len(list(folder.glob("replaced-*"))) == 1


def test_not_over_a_running_broker_nor_over_others(backup: Path, tmp_path: Path) -> None:
    backend = open_folder(tmp_path / "target")
    assert "is used by another running process" in refused(backup, tmp_path / "target", force=True)
    backend.close()
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").write_text("precious")
    assert "is not a data folder and not empty" in refused(backup, tmp_path / "others", force=True)
    assert (tmp_path / "others" / "file").read_text() == "precious"
