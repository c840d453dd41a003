"""The store on disk when the disk, or what is on it, is not as it should be."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.disk import rocks
from headwater.disk.errors import StorageError
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.rocks import RocksBackend
from headwater.node.persistence.schema import open_folder

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


# ---- damage ----------------------------------------------------------------------------------------------------


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


# ---- a disk that is full ---------------------------------------------------------------------------------------

FILL = """
import sys
from pathlib import Path
from headwater.disk.errors import StorageError
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
    monkeypatch.setattr("headwater.node.persistence.rocks.WRITE_BUFFER", 64 * 1024)
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
    monkeypatch.setattr("headwater.node.persistence.rocks.WRITE_BUFFER", 256 * 1024)
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
