"""The data folder: who uses it, and which schema it has.

    DIR/headwater.json      {"format": "headwater-data", "schema": 1, "made_by": "0.1.0"}
    DIR/lock                held while a process uses the folder; holds its process id
    DIR/store/              RocksDB
    DIR/damaged/            log files as they were found, if their end was damaged; nobody reads them

`headwater.json` comes into being last, so a folder that has it has a store. `headwater.json.new` alone is a folder
whose making was cut off: nothing in it was ever promised to anybody.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Final

from headwater.node.persistence.backend import StorageError

DESCRIPTION: Final = "headwater.json"
UNFINISHED: Final = "headwater.json.new"
LOCK: Final = "lock"
STORE: Final = "store"
FORMAT: Final = "headwater-data"

_NOT_OURS_AND_FINE: Final = frozenset({"lost+found", LOCK})


class FolderLock:
    """The right to use a folder, until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Raises StorageError if another has it."""
        path = folder / LOCK
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                raise StorageError(f"cannot lock the data folder {folder}: {error.strerror or error}") from None
            raise StorageError(
                f"the data folder {folder} is used by another running process"
                + (f" (process {owner})" if owner else "")
                + "; stop that one first, or give this one a folder of its own"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def make_folder(path: Path) -> None:
    """The folder, if it is not there; its parent has to be."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        raise StorageError(
            f"cannot make the data folder {path}: there is no {path.parent}; make that one first"
        ) from None
    except FileExistsError:
        raise StorageError(f"the data folder {path} is not a folder; name another one") from None
    except OSError as error:
        raise StorageError(f"cannot use the data folder {path}: {error.strerror or error}") from None


def is_new(path: Path) -> bool:
    """Whether there is nothing of ours yet. Raises StorageError if there is something of others."""
    if (path / DESCRIPTION).exists():
        return False
    if (path / UNFINISHED).exists():
        return True
    strange = sorted(each.name for each in path.iterdir() if each.name not in _NOT_OURS_AND_FINE)
    if strange:
        raise StorageError(
            f"the folder {path} is not a data folder and not empty: it has {', '.join(strange[:3])}"
            + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
            + f", but no {DESCRIPTION}; name an empty folder, or restore a backup"
        )
    return True


def read_schema(path: Path) -> int:
    """The schema of a folder that is not new."""
    file = path / DESCRIPTION
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise StorageError(f"{file} is damaged ({error}); restore a backup; nothing was deleted") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or type(found.get("schema")) is not int:
        raise StorageError(f"{file} does not describe a data folder; name another folder, or restore a backup")
    schema: int = found["schema"]
    return schema


def write_schema(path: Path, schema: int) -> None:
    """All of it is there after a crash, or what was there before."""
    from headwater import __version__

    content = json.dumps({"format": FORMAT, "schema": schema, "made_by": __version__})
    try:
        write_whole(path / UNFINISHED, f"{content}\n".encode())
        os.replace(path / UNFINISHED, path / DESCRIPTION)
        sync_folder(path)
    except OSError as error:
        raise StorageError(f"cannot write {path / DESCRIPTION}: {error.strerror or error}") from None


def begin_folder(path: Path) -> None:
    """Mark the folder as ours before anything is in it."""
    try:
        write_whole(path / UNFINISHED, b"")
        sync_folder(path)
    except OSError as error:
        raise StorageError(f"cannot write to the data folder {path}: {error.strerror or error}") from None


def write_whole(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Names of new, renamed and deleted files are on disk too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
