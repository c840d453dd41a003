"""Opening a data folder, whichever version of headwater made it.

A folder of an older schema is migrated step by step before anything else reads it. A step turns schema n into n + 1;
the new number is written after it, so a step that was cut off is done again from its beginning, and has to bear that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError
from headwater.disk.lock import FolderLock, cannot_use, make_folder
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.folder import (
    Description,
    begin_folder,
    is_new,
    read_description,
    tidy,
    write_description,
)
from headwater.node.persistence.rocks import RocksBackend

log = logging.getLogger("headwater.persistence")

SCHEMA: Final = 1
"""What records.py describes."""

Migrations = Mapping[int, Callable[[Backend], None]]

MIGRATIONS: Final[Migrations] = {}
"""The steps, each under the schema that it begins with."""


def open_folder(path: Path, *, schema: int = SCHEMA, migrations: Migrations = MIGRATIONS) -> RocksBackend:
    """The store of a data folder, which is made if it is not there. Raises StorageError, which says what to do."""
    make_folder(path)
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise cannot_use(path, error) from None
    try:
        return _open_locked(path, lock, schema, migrations)
    except OSError as error:
        lock.release()
        raise cannot_use(path, error) from None
    except BaseException:
        lock.release()
        raise


def check_schema(path: Path, found: int, known: int = SCHEMA) -> None:
    """Raise StorageError if this headwater is too old for what is in `path`."""
    if found > known:
        raise StorageError(
            f"{path} has schema {found} and was written by a newer headwater (this one knows schema {known}); upgrade "
            "headwater, or restore a backup made with this version"
        )


def check_is_current(path: Path, found: int) -> None:
    """Raise StorageError if what is in `path` is not for this headwater to read as it is."""
    check_schema(path, found)
    if found < SCHEMA:
        raise StorageError(
            f"{path} has schema {found}; start a broker with it once, which brings it to schema {SCHEMA}"
        )


def _open_locked(path: Path, lock: FolderLock, schema: int, migrations: Migrations) -> RocksBackend:
    new = is_new(path)
    described = Description(schema) if new else read_description(path)
    found = described.schema
    check_schema(path, found, schema)
    if any(step not in migrations for step in range(found, schema)):
        raise StorageError(
            f"the data folder {path} has schema {found}, which this headwater cannot bring to schema {schema}; use a "
            "version in between, or restore a newer backup"
        )
    if new:
        begin_folder(path)
    else:
        tidy(path)
    backend = RocksBackend(path / described.store, create=new, release=lock.release)
    try:
        if new:
            write_description(path, described)
        for step in range(found, schema):
            log.info("migrating %s from schema %d to %d", path, step, step + 1)
            migrations[step](backend)
            backend.sync()
            write_description(path, described._replace(schema=step + 1, replaced=None))
    except BaseException:
        backend.close()
        raise
    return backend
