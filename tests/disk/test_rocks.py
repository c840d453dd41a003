"""RocksDB as we open and write it: damaged or missing files, families of keys, and a writer faster than the disk."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from headwater.disk import rocks
from headwater.disk.errors import StorageError
from headwater.disk.rocks import Compression, explained, make_checkpoint, new_batch, open_rocks, rocks_options
from tests.disk.killed import copy_as_killed
from tests.disk.stores import KILO, everything, opened, written

# ---- damage ----------------------------------------------------------------------------------------------------


@pytest.fixture
def sorted_file(tmp_path: Path) -> Path:
    """One with a thousand keys, in a closed store."""
    db = opened(tmp_path)
    written(db, {b"%05d" % number: os.urandom(200) for number in range(1000)})
    db.flush()
    db.close()
    [file] = (tmp_path / "store").glob("*.sst")
    return file


def test_a_cut_or_missing_file(sorted_file: Path) -> None:
    folder = sorted_file.parent.parent
    whole = sorted_file.read_bytes()
    sorted_file.write_bytes(whole[:-100])
    with pytest.raises(StorageError, match="it is damaged; restore a backup"):
        opened(folder)
    sorted_file.unlink()
    with pytest.raises(StorageError, match="it is damaged; restore a backup"):
        opened(folder)
    sorted_file.write_bytes(whole)  # nothing was deleted, so this mends it
    db = opened(folder)
    assert len(everything(db)) == 1000
    db.close()


def test_a_store_that_vanished_is_not_begun_anew(tmp_path: Path) -> None:
    opened(tmp_path).close()
    opened(tmp_path, create=False).close()
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StorageError, match="it is not there; restore a backup"):
        opened(tmp_path, create=False)


# ---- families --------------------------------------------------------------------------------------------------


def opened_with(path: Path, *names: str) -> Rdict:
    def options() -> Options:
        return rocks_options(write_buffer=64 * KILO, cache=64 * KILO)

    return open_rocks(path, True, options(), {name: options() for name in names})


def written_to_both(db: Rdict, number: int) -> None:
    batch = new_batch()
    batch.put(b"%04d" % number, b"plain")
    batch.put(b"%04d" % number, b"page", db.get_column_family_handle("pages"))
    db.write(batch)


def keys_of_both(db: Rdict) -> list[int]:
    """Fails if a batch is there in one of them only."""
    pages = db.get_column_family("pages")
    found = [[int(key) for key, _ in everything(each)] for each in (db, pages)]
    pages.close()
    assert found[0] == found[1]
    return found[0]


def test_families_are_made_where_they_are_missing(tmp_path: Path) -> None:
    db = opened_with(tmp_path / "store", "pages")
    written_to_both(db, 1)
    db.close()
    db = opened_with(tmp_path / "store", "pages", "more")
    assert keys_of_both(db) == [1]
    more = db.get_column_family("more")
    assert everything(more) == []
    more.close()
    db.close()
    with pytest.raises(StorageError, match=r"cannot open the store .*not opened: more"):
        opened_with(tmp_path / "store", "pages")


def test_a_batch_over_families_is_whole_however_the_log_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = opened_with(tmp_path / "store", "pages")
    for number in range(3):
        written_to_both(db, number)
    copy_as_killed(tmp_path / "store", tmp_path / "killed")
    db.close()
    [log] = (tmp_path / "killed").glob("*.log")
    for size in range(0, log.stat().st_size + 1, 7):
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        shutil.copytree(tmp_path / "killed", tmp_path / "cut")
        os.truncate(tmp_path / "cut" / log.name, size)
        db = opened_with(tmp_path / "cut", "pages")
        found = keys_of_both(db)
        assert found == list(range(len(found)))
        db.close()
    assert "up to " in caplog.text


# ---- overload --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [False, True])
def test_a_writer_faster_than_the_disk_waits(family: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With buffers so small that they are always full: memory is bounded, and RocksDB holds no write back."""
    waits: list[float] = []
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (waits.append(seconds), sleep(seconds)))
    db = opened_with(tmp_path / "store", "pages")
    pages = db.get_column_family("pages")
    target = pages if family else db
    handle = db.get_column_family_handle("pages") if family else None
    most = 0
    for number in range(300):
        rocks.wait_for_room(db, pages)
        batch = new_batch()
        for part in range(50):
            batch.put(b"%04d.%02d" % (number, part), os.urandom(500), handle)
        db.write(batch)
        most = max(most, target.property_int_value("rocksdb.num-immutable-mem-table") or 0)
    assert waits
    assert most <= rocks.BUFFERS_AT_MOST + 1
    assert len(everything(target)) == 15_000
    pages.close()
    db.close()


# ---- what else is used -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compression(compression: Compression, tmp_path: Path) -> None:
    path = tmp_path / "store"
    db = open_rocks(path, True, rocks_options(write_buffer=KILO * KILO, cache=KILO, compression=compression))
    written(db, {b"%04d" % number: bytes(1000) for number in range(100)})
    db.flush()
    assert (sum(each.stat().st_size for each in path.glob("*.sst")) > 100_000) == (compression == "none")
    assert db.get(b"0050") == bytes(1000)
    db.close()


def test_a_checkpoint_has_what_was_written_until_then(tmp_path: Path) -> None:
    db = opened(tmp_path)
    written(db, {b"a": b"1"})
    make_checkpoint(db, tmp_path / "copy")
    written(db, {b"a": b"2"})
    db.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "copy").rename(tmp_path / "other" / "store")
    db = opened(tmp_path / "other", create=False)
    assert everything(db) == [(b"a", b"1")]
    db.close()


def test_without_rocksdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StorageError, match=r"needs rocksdict .*: pip install 'headwater\[durable\]'"):
        opened(tmp_path)


def test_what_rocksdb_says_is_one_line_with_the_path() -> None:
    said = str(explained("open", Path("/d"), Exception("Strange:\n  never seen")))
    assert said == "cannot open the store /d: Strange: never seen"
