"""How much room a disk has, and how much of it is kept back.

Theory. RocksDB does not bear a full disk well: a write that fails in the middle stops it until there is room, and what
makes room (removing old messages) has to be written as well. So a part of the disk is reserved:

    free < reserve        who publishes is not read from; the reserve is for sessions, acknowledgements and retention
    free < reserve / 4    nothing is written at all
    free > 9/8 reserve    publishers are read from again

The default is a twentieth of the disk, but at least 128 MiB, since RocksDB writes some 16 MB at a time and merges more
than that; and at most 1 GiB, or a quarter of a small disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

SHARE: Final = 20
LEAST: Final = 128 << 20
MOST: Final = 1 << 30
SMALL: Final = 4
"""No more than this part of a small disk."""


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


def disk_size(path: Path) -> int:
    """Bytes of the whole file system of a folder."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize
