"""A copy of a folder that is in use, as it would be found if its process had been killed now."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path


def copy_as_killed(folder: Path, to: Path) -> Path:
    """RocksDB works in the background, and files of different moments do not go together: the copy is made again if
    anything has changed meanwhile. Whoever writes has to let it come to rest."""
    while True:
        before = _state(folder)
        shutil.copytree(folder, to, copy_function=_copy)
        if _state(folder) == before:
            return to
        shutil.rmtree(to)


def _copy(source: str, target: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)
    return target


def _state(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Of all files but the log in which RocksDB tells what it does."""
    found: dict[Path, tuple[int, int, int]] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if not path.is_dir() and not path.name.startswith("LOG"):
                found[path] = status.st_ino, status.st_size, status.st_mtime_ns
    return found
