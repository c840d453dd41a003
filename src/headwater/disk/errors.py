"""What the system and RocksDB say when a folder cannot be used, and the way out of it."""

from __future__ import annotations

from typing import Final

REASONS: Final = (
    ("No space left on device", "the disk is full", "make room"),
    ("Disk quota exceeded", "the quota of the disk is used up", "make room"),
    ("File too large", "a file would be larger than is allowed", "raise the limit for the size of files"),
    ("Read-only file system", "the file system is read-only", "mount it for writing, or choose another folder"),
    ("Permission denied", "this user may not", "give the folder to the user that runs the broker"),
    ("Operation not permitted", "this user may not", "give the folder to the user that runs the broker"),
    ("Too many open files", "too many files are open", "raise the limit for open files"),
    ("lock hold by current process", "it is open already", "close it there first"),
    ("Resource temporarily unavailable", "another process has it open", "stop that one first"),
    ("create_if_missing is false", "it is not there", "restore a backup; an empty folder begins anew"),
    ("Input/output error", "the disk does not work as it should", "look into the kernel's log, and keep a copy"),
    ("Corruption", "it is damaged", "restore a backup; nothing was deleted"),
    ("No such file or directory", "a part of it is missing", "restore a backup; nothing was deleted"),
)


NO_ROOM: Final = ("No space left on device", "Disk quota exceeded")


class StorageError(Exception):
    """The folder cannot be used, or no longer; the text says why and what to do."""


class DiskFull(StorageError):
    """There is no room, and nothing else is wrong: when there is, the same can be tried again."""


def storage_error(what: str, text: str) -> StorageError:
    """That we cannot do this, with the reason and the way out in front of the text if we know them."""
    for sign, reason, way_out in REASONS:
        if sign in text:
            kind = DiskFull if sign in NO_ROOM else StorageError
            return kind(f"cannot {what}: {reason}; {way_out} ({text})")
    return StorageError(f"cannot {what}: {text}")
