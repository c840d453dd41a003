"""Logs that are cut, garbled or gone: a torn end is cut off, all else is refused with figures and can be salvaged."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from headwater.disk.errors import StorageError
from headwater.disk.repair import DamagedLog, examine, salvage
from headwater.disk.rocks import MEGA, open_rocks, rocks_options
from headwater.disk.wal import BLOCK, Batch, Hole, changes_of, crc32c, read_log, walk, write_log
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


@pytest.mark.parametrize("at", [-1, -20, -60], ids=str)
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
    assert re.search(rf"{name} was damaged.* up to {size} bytes of changes are not", line), line
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


# ---- damage with whole batches behind it -----------------------------------------------------------------------


def several_blocks(folder: Path) -> tuple[Path, list[int]]:
    """A log of 30 batches over four blocks of 32 KB, some of which a batch spans, and where each batch ends."""
    db = opened(folder, write_buffer=MEGA)
    log = the_log(folder)
    ends = []
    for number in range(30):
        written(db, {b"%04d.%d" % (number, part): bytes([number]) * (number * 90) for part in range(BATCH)})
        ends.append(log.stat().st_size)
    db.flush_wal(True)
    copy = copy_as_killed(folder, folder.parent / "copy")
    db.close()
    assert ends[-1] > 3 * BLOCK
    return copy, ends


def numbers_in(db: Rdict) -> list[int]:
    """Of the batches that are there; fails if one is there in part."""
    found = [int(key[:4]) for key, _ in everything(db)]
    assert found == [number for number in sorted(set(found)) for _ in range(BATCH)]
    return sorted(set(found))


def repaired(folder: Path) -> Rdict:
    shutil.rmtree(folder / "aside", ignore_errors=True)
    salvage(folder / "store", folder / "aside")
    return open_rocks(folder / "store", False, rocks_options(write_buffer=MEGA, cache=MEGA), repaired=True)


def flipped(log: bytes, at: int, mask: int = 0x40) -> bytes:
    return log[:at] + bytes([log[at] ^ mask]) + log[at + 1 :]


def check_flip(folder: Path, ends: list[int], at: int, mask: int, to: Path) -> None:
    """Nothing is lost in silence: the last batch may be a torn end, any other is told of with its figures, and salvage
    brings back all but that one."""
    damaged = changed(folder, lambda log: flipped(log, at, mask), to)
    hit = sum(1 for end in ends if end <= at)
    batch = next(each for each in read_log(the_log(folder)) if each.end > at)
    is_used = batch.begin <= at  # and not one of the few bytes at the end of a block in which no header has room
    try:
        db = opened(damaged)
    except DamagedLog as error:
        assert hit < len(ends) - 1
        [damage] = error.damages
        assert damage.log == the_log(damaged)
        assert damage.begin <= at < damage.end
        assert damage.lost == (BATCH if hit else None)  # before the first batch, nobody knows
        assert damage.batches == len(ends) - 1 - hit
        assert damage.changes == BATCH * damage.batches
        before = the_log(damaged).read_bytes()
        db = repaired(damaged)
        assert numbers_in(db) == [number for number in range(len(ends)) if number != hit]
        assert next(each for each in (damaged / "aside").iterdir()).read_bytes() == before
    else:
        expected = len(ends) - 1 if is_used else len(ends)
        assert not is_used or hit == len(ends) - 1, f"batch {hit} was lost in silence"
        assert numbers_in(db) == list(range(expected))
    db.close()


def test_a_flipped_byte_is_told_of_or_is_the_torn_end(tmp_path: Path) -> None:
    """Sampled: the headers of records, the borders of blocks, and some of the bytes between."""
    folder, ends = several_blocks(tmp_path / "made")
    starts = [0, *ends[:-1]]
    places = {start + offset for start in starts[::6] for offset in (0, 3, 4, 5, 6, 8, 18, 40)}
    places |= {block * BLOCK + offset for block in (1, 2, 3) for offset in (-8, -1, 0, 4, 5, 6, 7)}
    places |= {ends[-2] - 1, ends[-2], ends[-1] - 1}
    for number, at in enumerate(sorted(places)):
        check_flip(folder, ends, at, (0x01, 0x40, 0xFF)[number % 3], tmp_path / "flipped")


def test_the_figures_are_in_the_text(made: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, ends = made
    damaged = changed(folder, lambda log: flipped(log, ends[4] + 30), tmp_path / "flipped")
    before = the_log(damaged).read_bytes()
    with pytest.raises(DamagedLog) as error:
        opened(damaged)
    assert (
        f"{ends[5] - ends[4]} bytes of {the_log(damaged)} at byte {ends[4]} cannot be read: 3 changes are lost; "
        f"14 whole batches with 42 changes ({ends[-1] - ends[5]} bytes) follow; nothing was changed: restore a backup, "
        "or let `headwater repair`"
    ) in str(error.value)
    assert the_log(damaged).read_bytes() == before
    assert not (damaged / "damaged").exists()


def test_a_sector_of_zeros_in_the_middle(tmp_path: Path) -> None:
    """RocksDB takes zeros for the end of a block, and says nothing of what was there."""
    folder, ends = several_blocks(tmp_path / "made")
    begin, end = BLOCK + 512, BLOCK + 1024
    damaged = changed(folder, lambda log: log[:begin] + bytes(512) + log[end:], tmp_path / "zeros")
    with pytest.raises(DamagedLog):
        opened(damaged)
    db = repaired(damaged)
    lost = {sum(1 for each in ends if each <= at) for at in range(begin, end)}
    assert numbers_in(db) == [number for number in range(len(ends)) if number not in lost]
    db.close()


def test_two_places_and_a_torn_end(tmp_path: Path) -> None:
    folder, ends = several_blocks(tmp_path / "made")
    damaged = changed(
        folder, lambda log: flipped(flipped(log, ends[3] + 9), ends[20] + 9)[: ends[-1] - 5], tmp_path / "damaged"
    )
    with pytest.raises(DamagedLog, match="and 1 more places are damaged") as error:
        opened(damaged)
    assert [each.lost for each in error.value.damages] == [BATCH, BATCH]
    db = repaired(damaged)
    assert numbers_in(db) == [number for number in range(29) if number not in (4, 21)]
    db.close()


@pytest.fixture
def three_logs(tmp_path: Path) -> Path:
    """A store of two families: one was written to files, so that there are several logs; the other needs them all."""
    folder = tmp_path / "logs"
    folder.mkdir()
    options = [rocks_options(write_buffer=MEGA, cache=MEGA) for _ in range(2)]
    db = open_rocks(folder / "store", True, options[0], {"other": options[1]})
    other = db.get_column_family("other")
    for number in range(9):
        written(db, {b"%04d.%d" % (number, part): b"x" for part in range(BATCH)})
        other.put(b"k%d" % number, b"v")
        if number in (2, 5):
            other.flush()
    db.flush_wal(True)
    copy = copy_as_killed(folder, tmp_path / "copy")
    other.close()
    db.close()
    assert len(list(copy.glob("store/*.log"))) == 3
    return copy


def test_a_log_that_is_missing_in_the_middle(three_logs: Path) -> None:
    first, second, third = sorted(three_logs.glob("store/*.log"))
    whole = len(list(read_log(third)))
    second.unlink()
    with pytest.raises(DamagedLog, match=f"changes before byte 0 of {third} are missing: 12 changes are lost") as error:
        opened(three_logs)
    assert error.value.damages[0].batches == whole
    assert first.exists()


def test_a_log_cut_between_two_batches_with_another_behind_it(three_logs: Path) -> None:
    _, second, _ = sorted(three_logs.glob("store/*.log"))
    *_, before_last, _ = read_log(second)
    second.write_bytes(second.read_bytes()[: before_last.end])
    with pytest.raises(DamagedLog, match="1 changes are lost"):
        opened(three_logs)


def test_logs_that_nobody_needs_any_more_do_not_count(tmp_path: Path) -> None:
    """A crash came before they were deleted."""
    db = opened(tmp_path)
    written(db, {b"a": b"1"})
    old = the_log(tmp_path)
    content = old.read_bytes()
    db.flush()
    written(db, {b"b": b"2"})
    db.flush_wal(True)
    copy = copy_as_killed(tmp_path / "store", tmp_path / "copy" / "store").parent
    db.close()
    (copy / "store" / old.name).write_bytes(content[:-4] + b"\0\0\0\x09" + bytes(20) + b"\x0b" * 30)
    assert examine(copy / "store") == []
    db = opened(copy)
    assert everything(db) == [(b"a", b"1"), (b"b", b"2")]
    db.close()


def test_what_a_payload_pretends_to_be_is_not_taken_for_a_record(tmp_path: Path) -> None:
    """A payload has a whole record with the right checksum in it; the batch around it is damaged."""
    forged = tmp_path / "forged"
    write_log(forged, [Batch(0, 0, 7, 1, (7).to_bytes(8, "little") + b"\1\0\0\0\1\1k\1v")])
    folder = tmp_path / "made"
    db = opened(folder)
    log = the_log(folder)
    written(db, {b"a": b"1"})
    begin = log.stat().st_size
    written(db, {b"b": forged.read_bytes() + b"rest"})
    db.flush_wal(True)
    copy = copy_as_killed(folder, tmp_path / "copy")
    db.close()
    damaged = changed(copy, lambda content: flipped(content, begin + 4), tmp_path / "damaged")
    db = opened(damaged)  # nothing whole follows: a torn end
    assert everything(db) == [(b"a", b"1")]
    db.close()


def test_the_form_of_a_log(tmp_path: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283
    folder, ends = several_blocks(tmp_path / "made")
    log = the_log(folder)
    batches = [each for each in read_log(log) if isinstance(each, Batch)]
    assert [each.end for each in batches] == ends
    assert walk(log) == (None, None, batches[-1].sequence + BATCH)
    again = tmp_path / "again"
    write_log(again, batches)
    assert again.read_bytes() == log.read_bytes()
    assert [change.key for change in changes_of(batches[3])] == [b"0003.0", b"0003.1", b"0003.2"]
    again.write_bytes(log.read_bytes()[: ends[5] - 3])
    assert list(read_log(again))[-1] == Hole(ends[4], ends[5] - 3)


def test_a_damaged_manifest_is_not_for_us_to_mend(made: tuple[Path, list[int]]) -> None:
    folder, _ = made
    [manifest] = folder.glob("store/MANIFEST-*")
    manifest.write_bytes(flipped(manifest.read_bytes(), 60))
    with pytest.raises(StorageError, match="it is damaged; restore a backup"):
        opened(folder)
