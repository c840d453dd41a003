"""How much room a disk has, and how much of it is kept back.

Theory. RocksDB does not bear a full disk well: a write that fails in the middle stops it until there is room, and what
makes room (removing old messages) has to be written as well. So a part of the disk is reserved:

    free < reserve        who publishes is not read from; the reserve is for sessions, acknowledgements and retention
    free < reserve / 4    nothing is written at all
    free > 9/8 reserve    publishers are read from again

The default is a twentieth of the disk, but at least 128 MiB, since RocksDB writes some 16 MB at a time and merges more
than that; and at most 1 GiB, or a quarter of a small disk.

Beside it, RocksDB needs room to work in: its log has up to 128 MiB, and files that are merged or waited for are there
twice. Messages get what is left of that, and no more than a half of the disk. On a disk of 150 MB nothing was left: the
log and the messages took all before there were so many of these that retention began, and publishers waited for ever.
So a disk has a lowest size.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError

SHARE: Final = 20
LEAST: Final = 128 << 20
MOST: Final = 1 << 30
SMALL: Final = 4
"""No more than this part of a small disk."""
WORKING: Final = 192 << 20
"""For the log, and for files that are merged."""
LEAST_DISK: Final = 320 << 20
"""With less, there is no room for messages."""
HALF: Final = 2


class Room:
    """Of the file system of a folder; any thread may look."""

    def __init__(self, path: Path, reserve: int | None = None) -> None:
        """`reserve` None: the default."""
        self.path = path
        self.reserve = default_reserve(disk_size(path)) if reserve is None else reserve
        self.floor = self.reserve // 4
        self.is_low = False
        self.seen = self.free()
        """Free bytes when somebody looked last."""

    def free(self) -> int:
        """Bytes that this user may still write."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def look(self) -> int:
        """The same, and `is_low` is as it should be then. If the folder is gone, who writes will say so."""
        with suppress(OSError):
            self.seen = self.free()
        free = self.seen
        self.is_low = free < (self.reserve + self.reserve // 8 if self.is_low else self.reserve)
        return free


def default_reserve(size: int) -> int:
    """Of a disk of this size."""
    return min(max(size // SHARE, LEAST), size // SMALL, MOST)


def room_for_messages(size: int) -> int:
    """Bytes of a disk of this size that messages may take."""
    return max(0, min(size // HALF, size - default_reserve(size) - WORKING))


def check_size(path: Path) -> None:
    """Raises StorageError if the disk of a folder is too small for messages to be stored on it."""
    size = disk_size(path)
    if size < LEAST_DISK:
        raise StorageError(
            f"the disk of {path} has {size >> 20} MiB, and storing messages needs {LEAST_DISK >> 20} MiB: logs and "
            f"merged files take up to {WORKING >> 20} MiB, and a quarter stays free. Use a larger disk; or set "
            "disk_reserve and store.keep_bytes, if few messages come"
        )


def disk_size(path: Path) -> int:
    """Bytes of the whole file system of a folder."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize
