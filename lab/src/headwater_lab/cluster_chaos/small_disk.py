"""Small disks that can be full: a tmpfs for the data folder of each node, in a mount namespace of this process.

The mounts go with the process. It needs root; without, no disk is ever full.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

NEW_MOUNTS: Final = 0x20000
SIZE: Final = "64m"
BALLAST: Final = "ballast"
PIECE: Final = 1 << 12


def can_mount() -> bool:
    """Enters a mount namespace of its own, if it may."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS):
        return False
    return _run("mount", "--make-rprivate", "/")


def mount(folder: Path) -> None:
    if not _run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)):
        raise OSError(f"no tmpfs at {folder}")


def unmount(folder: Path) -> None:
    """What is on it is kept, below."""
    kept = folder.with_name(f"{folder.name}-kept")
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(BALLAST))
    _run("umount", "--lazy", str(folder))
    folder.rmdir()
    kept.rename(folder)


def fill(folder: Path) -> None:
    """To the last block; raises OSError if it is not one of these small disks."""
    if not folder.is_mount():
        raise OSError(f"{folder} is not a disk of its own")
    with (folder / BALLAST).open("wb") as file:
        free = os.statvfs(folder)
        size = free.f_bavail * free.f_frsize
        while size >= PIECE:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2


def make_room(folder: Path) -> None:
    (folder / BALLAST).unlink(missing_ok=True)


def _run(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
