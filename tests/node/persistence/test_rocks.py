"""The store on disk when the disk, or what is on it, is not as it should be."""

from __future__ import annotations

import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.node.persistence import rocks
from headwater.node.persistence.backend import Backend, StorageError
from headwater.node.persistence.rocks import RocksBackend, explained
from headwater.node.persistence.schema import open_folder
from tests.node.persistence.killed import copy_as_killed

BATCH = 3


def batch(number: int) -> list[tuple[bytes, bytes]]:
    return [(b"%04d.%d" % (number, part), b"value %d" % number) for part in range(BATCH)]


def whole_batches(backend: Backend) -> int:
    """How many are there. Fails if one is there in part, or without those before it."""
    found = list(backend.scan(b""))
    count, rest = divmod(len(found), BATCH)
    assert rest == 0
    assert found == [item for number in range(count) for item in batch(number)]
    return count


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[int]]:
    """A copy of a folder with a log of 20 batches, as a crash leaves it, and where in the log each batch ends."""
    folder = tmp_path / "made"
    backend = open_folder(folder)
    log = the_log(folder)
    ends = []
    for number in range(20):
        backend.write(batch(number), [])
        ends.append(log.stat().st_size)
    backend.sync()
    copy = copy_as_killed(folder, tmp_path / "copy")
    backend.close()
    return copy, ends


def the_log(folder: Path) -> Path:
    [log] = folder.glob("store/*.log")
    return log


def changed(folder: Path, change: Callable[[bytes], bytes], to: Path) -> Path:
    """A copy of the folder with another log."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    log = the_log(to)
    log.write_bytes(change(log.read_bytes()))
    return to


# ---- the end of the log ----------------------------------------------------------------------------------------


def test_a_log_cut_at_every_byte_of_its_last_batch(made: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, ends = made
    for size in range(ends[-2] - 2, ends[-1] + 1):
        expected = sum(1 for end in ends if end <= size)
        cut = changed(folder, lambda log, size=size: log[:size], tmp_path / "cut")
        backend = open_folder(cut)
        assert whole_batches(backend) == expected, size
        backend.write(batch(expected), [])
        backend.close()
    backend = open_folder(cut)  # and life goes on
    assert whole_batches(backend) == expected + 1
    backend.close()


@pytest.mark.parametrize("at", [-1, -20, -60, -100], ids=str)
def test_a_garbled_end(at: int, made: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, ends = made

    def garble(log: bytes) -> bytes:
        place = ends[-1] + at
        return log[:place] + bytes([log[place] ^ 0xFF]) + log[place + 1 :]

    backend = open_folder(changed(folder, garble, tmp_path / "garbled"))
    assert whole_batches(backend) == sum(1 for end in ends if end <= ends[-1] + at)
    backend.close()


RUBBISH = {
    "short": b"\xff" * 7,
    "long": b"\xff" * 5000,
    "every byte": bytes(range(256)) * 20,
    # Kinds of records of recycled logs: RocksDB would not come back.
    **{f"kind {kind}": bytes([1, 2, 3, 4, 100, 0, kind]) + b"\x09\0\0\0" + bytes(300) for kind in (5, 6, 7, 8, 11)},
    "after zeros": bytes(100_000) + bytes([1, 2, 3, 4, 100, 0, 6]) + bytes(300),
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())
def test_rubbish_after_the_end(
    rubbish: bytes, made: tuple[Path, list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, ends = made
    damaged = changed(folder, lambda log: log + rubbish, tmp_path / "rubbish")
    backend = open_folder(damaged)
    assert whole_batches(backend) == len(ends)
    backend.write(batch(len(ends)), [])
    backend.close()
    backend = open_folder(damaged)
    assert whole_batches(backend) == len(ends) + 1
    backend.close()
    assert f"up to {len(rubbish)} bytes of changes are not" in caplog.text
    [kept] = (damaged / "damaged").iterdir()
    assert kept.read_bytes().endswith(rubbish)


def test_what_is_missing_is_said_and_the_damaged_log_is_kept(
    made: tuple[Path, list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, ends = made
    cut = changed(folder, lambda log: log[: ends[-1] - 10], tmp_path / "cut")
    name, size = the_log(cut).name, ends[-1] - 10 - ends[-2]
    with caplog.at_level(logging.WARNING):
        open_folder(cut).close()
    [line] = caplog.messages
    assert re.search(rf"{name} was damaged .* up to {size} bytes of changes are not", line), line
    assert (cut / "damaged" / name).stat().st_size == ends[-1] - 10

    caplog.clear()
    open_folder(cut).close()
    assert caplog.messages == []


def test_zeros_after_the_end_are_no_damage(
    made: tuple[Path, list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """File systems leave them when the size of a file is on disk before its content."""
    folder, ends = made
    backend = open_folder(changed(folder, lambda log: log + bytes(40_000), tmp_path / "zeros"))
    assert whole_batches(backend) == len(ends)
    backend.close()
    assert caplog.messages == []


# ---- damage elsewhere ------------------------------------------------------------------------------------------


@pytest.fixture
def sorted_file(tmp_path: Path) -> Path:
    """One with a thousand keys, in a closed folder."""
    backend = open_folder(tmp_path / "data")
    backend.write([(b"%05d" % number, os.urandom(200)) for number in range(1000)], [])
    backend.close()
    open_folder(tmp_path / "data").close()  # recovery brings the log to a file
    [file] = (tmp_path / "data" / "store").glob("*.sst")
    return file


def test_a_damaged_block_is_not_taken_for_the_end(sorted_file: Path) -> None:
    content = bytearray(sorted_file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    sorted_file.write_bytes(content)
    backend = open_folder(sorted_file.parent.parent)
    with pytest.raises(StorageError, match="it is damaged; restore a backup; nothing was deleted"):
        list(backend.scan(b""))
    backend.close()


def test_a_cut_or_missing_file(sorted_file: Path) -> None:
    folder = sorted_file.parent.parent
    whole = sorted_file.read_bytes()
    sorted_file.write_bytes(whole[:-100])
    with pytest.raises(StorageError, match="it is damaged; restore a backup"):
        open_folder(folder)
    sorted_file.unlink()
    with pytest.raises(StorageError, match="it is damaged; restore a backup"):
        open_folder(folder)
    sorted_file.write_bytes(whole)  # nothing was deleted, so this mends it
    backend = open_folder(folder)
    assert len(list(backend.scan(b""))) == 1000
    backend.close()


def test_a_store_that_vanished_is_not_begun_anew(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    shutil.rmtree(tmp_path / "data" / "store")
    with pytest.raises(StorageError, match="it is not there; restore a backup"):
        open_folder(tmp_path / "data")


# ---- a disk that is full ---------------------------------------------------------------------------------------

FILL = """
import sys
from pathlib import Path
from headwater.node.persistence.backend import StorageError
from headwater.node.persistence.schema import open_folder
backend = open_folder(Path({folder!r}))
for number in range(100_000):
    try:
        backend.write([(b"%06d" % number, bytes(1000))], [])
        backend.sync()
        print(number, flush=True)
    except StorageError as error:
        print(error, file=sys.stderr)
        for use in (lambda: backend.write([(b"later", b"")], []), backend.sync):
            try:
                use()
            except StorageError as again:
                assert "has failed before" in str(again), again
            else:
                raise AssertionError("nothing may come after a batch that is not there") from None
        assert backend.get(b"000000") == bytes(1000)  # reading goes on
        backend.close()
        sys.exit(7)
"""


def run(script: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]  # noqa: PLW1510
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, **options
    )


def test_a_full_disk_is_said_and_what_was_synced_is_there(tmp_path: Path) -> None:
    """A limit for the size of files is what a test without a small disk can have; both fail in the same places."""
    folder = tmp_path / "data"
    script = FILL.format(folder=str(folder))
    done = run(script, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)))
    assert done.returncode == 7, done.stderr
    assert re.search(r"cannot (write to|sync) the store .*: a file would be larger than is allowed", done.stderr)
    synced = [int(line) for line in done.stdout.split()]
    assert len(synced) > 100

    backend = open_folder(folder)
    found = [key for key, _ in backend.scan(b"")]
    assert found == [b"%06d" % number for number in range(len(found))]
    assert len(found) >= len(synced)
    backend.close()


# ---- kill -9 ---------------------------------------------------------------------------------------------------

KILLED = """
import os, signal
from pathlib import Path
from headwater.node.persistence.schema import open_folder
from tests.node.persistence.test_rocks import batch
backend = open_folder(Path({folder!r}))
for number in range({count}):
    backend.write(batch(number), [])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_loses_nothing_that_was_written(tmp_path: Path) -> None:
    done = run(KILLED.format(folder=str(tmp_path / "data"), count=57))
    assert done.returncode == -signal.SIGKILL
    backend = open_folder(tmp_path / "data")
    assert whole_batches(backend) == 57
    backend.close()


# ---- overload --------------------------------------------------------------------------------------------------


def test_a_writer_faster_than_the_disk_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With buffers so small that they are always full: memory is bounded, and RocksDB holds no write back."""
    monkeypatch.setattr(rocks, "WRITE_BUFFER", 64 * 1024)
    waits: list[float] = []
    sleep = rocks.time.sleep
    monkeypatch.setattr(rocks.time, "sleep", lambda seconds: (waits.append(seconds), sleep(seconds)))
    backend = RocksBackend(tmp_path / "store")
    most = 0
    for number in range(300):
        backend.write([(b"%04d.%02d" % (number, part), os.urandom(500)) for part in range(50)], [])
        most = max(most, backend._db.property_int_value("rocksdb.num-immutable-mem-table") or 0)
    assert waits
    assert most <= rocks.BUFFERS_AT_MOST + 1
    assert sum(1 for _ in backend.scan(b"")) == 15_000
    backend.close()


def test_deletions_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is filled and emptied again and again does not grow on disk."""
    monkeypatch.setattr(rocks, "WRITE_BUFFER", 256 * 1024)
    monkeypatch.setattr(rocks, "LOG_AT_MOST", 1024 * 1024)
    backend = RocksBackend(tmp_path / "store")
    for turn in range(100):
        keys = [b"%04d.%04d" % (turn, number) for number in range(200)]
        backend.write([(key, os.urandom(500)) for key in keys], [])
        backend.write([], keys)
    assert list(backend.scan(b"")) == []
    backend.close()
    assert sum(file.stat().st_size for file in (tmp_path / "store").iterdir()) < 5_000_000  # 10 MB went through


# ---- what is said ----------------------------------------------------------------------------------------------


def test_without_rocksdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StorageError, match=r"needs rocksdict .*: pip install 'headwater\[durable\]'"):
        open_folder(tmp_path / "data")
    monkeypatch.undo()
    open_folder(tmp_path / "data").close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("IO error: No space left on device: While appending to file: /d/1.log: No space left on device", "full"),
        ("IO error: While open a file for appending: /d/LOG: Read-only file system", "the file system is read-only"),
        ("IO error: While pwrite to file: /d/1.log: Input/output error", "the disk does not work as it should"),
        ("IO error: While lock file: /d/LOCK: Resource temporarily unavailable", "another process has it open"),
        ("IO error: While mkdir: /d: Permission denied", "this user may not"),
        ("Strange: never seen", "cannot open the store /d: Strange: never seen"),
    ],
)
def test_reasons(text: str, said: str) -> None:
    assert said in str(explained("open", Path("/d"), Exception(text)))
    assert text in str(explained("open", Path("/d"), Exception(text)))
