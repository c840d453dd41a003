"""The end of a log that is cut, garbled, or followed by rubbish: all batches before it are there, whole."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from tests.disk.killed import copy_as_killed
from tests.disk.stores import everything, opened, written

BATCH = 3


def batch(number: int) -> dict[bytes, bytes]:
    return {b"%04d.%d" % (number, part): b"value %d" % number for part in range(BATCH)}


def whole_batches(db: Rdict) -> int:
    """How many are there. Fails if one is there in part, or without those before it."""
    found = everything(db)
    count, rest = divmod(len(found), BATCH)
    assert rest == 0
    assert found == [item for number in range(count) for item in batch(number).items()]
    return count


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[int]]:
    """A copy of a folder with a log of 20 batches, as a crash leaves it, and where in the log each batch ends."""
    folder = tmp_path / "made"
    db = opened(folder)
    log = the_log(folder)
    ends = []
    for number in range(20):
        written(db, batch(number))
        ends.append(log.stat().st_size)
    db.flush_wal(True)
    copy = copy_as_killed(folder, tmp_path / "copy")
    db.close()
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


def test_a_log_cut_at_every_byte_of_its_last_batch(made: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, ends = made
    for size in range(ends[-2] - 2, ends[-1] + 1):
        expected = sum(1 for end in ends if end <= size)
        cut = changed(folder, lambda log, size=size: log[:size], tmp_path / "cut")
        db = opened(cut)
        assert whole_batches(db) == expected, size
        written(db, batch(expected))
        db.close()
    db = opened(cut)  # and life goes on
    assert whole_batches(db) == expected + 1
    db.close()


@pytest.mark.parametrize("at", [-1, -20, -60, -100], ids=str)
def test_a_garbled_end(at: int, made: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, ends = made

    def garble(log: bytes) -> bytes:
        place = ends[-1] + at
        return log[:place] + bytes([log[place] ^ 0xFF]) + log[place + 1 :]

    db = opened(changed(folder, garble, tmp_path / "garbled"))
    assert whole_batches(db) == sum(1 for end in ends if end <= ends[-1] + at)
    db.close()


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
    db = opened(damaged)
    assert whole_batches(db) == len(ends)
    written(db, batch(len(ends)))
    db.close()
    db = opened(damaged)
    assert whole_batches(db) == len(ends) + 1
    db.close()
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
        opened(cut).close()
    [line] = caplog.messages
    assert re.search(rf"{name} was damaged .* up to {size} bytes of changes are not", line), line
    assert (cut / "damaged" / name).stat().st_size == ends[-1] - 10

    caplog.clear()
    opened(cut).close()
    assert caplog.messages == []


def test_zeros_after_the_end_are_no_damage(
    made: tuple[Path, list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """File systems leave them when the size of a file is on disk before its content."""
    folder, ends = made
    db = opened(changed(folder, lambda log: log + bytes(40_000), tmp_path / "zeros"))
    assert whole_batches(db) == len(ends)
    db.close()
    assert caplog.messages == []
