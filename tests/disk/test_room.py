"""How much room there is, and from when on that is too little."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.disk.errors import DiskFull, StorageError, storage_error
from headwater.disk.room import LEAST_DISK, Room, check_size, default_reserve, disk_size, room_for_messages


def test_it_is_low_below_the_reserve_until_there_is_somewhat_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, 800)
    assert room.floor == 200
    for free, low in ((801, False), (800, False), (799, True), (850, True), (899, True), (900, False), (850, False)):
        monkeypatch.setattr(room, "free", lambda free=free: free)
        assert room.look() == free
        assert (room.is_low, room.seen) == (low, free)


def test_the_default_is_a_twentieth_of_the_disk_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mega = 1 << 20
    assert Room(tmp_path).reserve == default_reserve(disk_size(tmp_path))
    for size, expected in ((100, 25), (2048, 128), (10 * 1024, 512), (1 << 20, 1024)):
        assert default_reserve(size * mega) == expected * mega
    found = os.statvfs_result((4096, 4096, 1000, 0, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert (Room(tmp_path).reserve, Room(tmp_path).free(), Room(tmp_path, 0).floor) == (250 * 4096, 40960, 0)


def test_messages_get_half_of_the_disk_and_leave_room_to_work_in() -> None:
    mega = 1 << 20
    for size, expected in ((100, 0), (320, 48), (512, 192), (640, 320), (4096, 2048), (1 << 20, 1 << 19)):
        assert room_for_messages(size * mega) == expected * mega


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (LEAST_DISK - 4096, LEAST_DISK):
        blocks = size // 4096
        found = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda path, found=found: found)
        if size < LEAST_DISK:
            with pytest.raises(StorageError, match=r"has 319 MiB, and storing messages needs 320 MiB"):
                check_size(tmp_path)
        else:
            check_size(tmp_path)


def test_a_full_disk_is_not_one_that_fails() -> None:
    assert isinstance(storage_error("write", "IO error: No space left on device: While appending"), DiskFull)
    assert isinstance(storage_error("write", "Disk quota exceeded"), DiskFull)
    failing = storage_error("write", "Input/output error")
    assert isinstance(failing, StorageError)
    assert not isinstance(failing, DiskFull)
