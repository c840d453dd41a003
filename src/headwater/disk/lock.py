"""The right to use a folder: one process at a time has it, and it ends with the process.

DIR/lock    held while a process uses the folder; holds its process id
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError, storage_error

LOCK: Final = "lock"


class InUse(StorageError):
    """Another process uses the folder."""


class FolderLock:
    """The right to use a folder, until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Raises InUse if another has it."""
        path = folder / LOCK
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                raise StorageError(f"cannot lock the data folder {folder}: {error.strerror or error}") from None
            raise InUse(
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


@contextmanager
def locked(path: Path) -> Iterator[FolderLock]:
    """For the time of the block; what goes wrong with files in it is a StorageError."""
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise cannot_use(path, error) from None
    try:
        yield lock
    except OSError as error:
        raise cannot_use(path, error) from None
    finally:
        lock.release()


def make_folder(path: Path) -> None:
    """The folder, if it is not there; its parent has to be."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if path.parent.is_dir():  # but of a kind in which nobody makes anything
            raise StorageError(f"nothing can be made in {path.parent}; name another folder") from None
        raise StorageError(
            f"cannot make the data folder {path}: there is no {path.parent}; make that one first"
        ) from None
    except FileExistsError:
        raise StorageError(f"the data folder {path} is not a folder; name another one") from None
    except OSError as error:
        raise cannot_use(path, error) from None


def cannot_use(path: Path, error: OSError) -> StorageError:
    return storage_error(f"use the data folder {path}", str(error))
