"""Backups of a data folder: made, checked and restored.

    BACKUP/manifest.json    {"format": "headwater-backup", "schema": 1, "made_by": "0.1.0",
                             "time": "2030-12-31T23:59:59Z",
                             "files": [{"name": "store/000012.sst", "size": 4711, "sha256": "…"}, …]}
    BACKUP/store/…          a store, as RocksDB's checkpoint leaves it

A backup has another name until all of it is on disk. A restore checks every byte before the data folder has changed,
and that the store can be opened; then it takes the place of the old one in one step (folder.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder, write_whole
from headwater.disk.lock import locked, make_folder
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.folder import (
    DESCRIPTION,
    STORE,
    UNFINISHED,
    Description,
    begin_folder,
    is_new,
    read_description,
    tidy,
    unused_name,
    write_description,
)
from headwater.node.persistence.rocks import RocksBackend
from headwater.node.persistence.schema import check_schema

MANIFEST: Final = "manifest.json"
FORMAT: Final = "headwater-backup"
LONGEST_COPYING: Final = 24 * 3600.0
"""Seconds after which a snapshot is taken for a forgotten one; it holds files that the store has done with."""

_CHUNK: Final = 1024 * 1024
_NAME: Final = re.compile(rf"{STORE}/[A-Za-z0-9_-][A-Za-z0-9._-]*")


class File(NamedTuple):
    name: str
    size: int
    sha256: str


class Manifest(NamedTuple):
    schema: int
    made_by: str
    time: str
    files: list[File]

    def __str__(self) -> str:
        size = sum(each.size for each in self.files)
        return f"{len(self.files)} files with {size:,} bytes, schema {self.schema}"


# ---- making ----------------------------------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """A copy of a store that is deleted when it has served; it shares files with it."""

    folder: Path
    name: str
    schema: int

    @property
    def path(self) -> Path:
        return self.folder / self.name


def take_snapshot(folder: Path, backend: Backend | None) -> Snapshot:
    """Of the store that is open in the data folder. Raises StorageError."""
    if not isinstance(backend, RocksBackend):
        raise StorageError("this broker keeps nothing on disk (data_dir)")
    for each in folder.glob("snapshot-*"):
        if time.time() - each.stat().st_mtime > LONGEST_COPYING:
            shutil.rmtree(each, ignore_errors=True)
    name = unused_name(folder, "snapshot")
    backend.checkpoint(folder / name)
    return Snapshot(folder, name, read_description(folder).schema)


@contextmanager
def snapshot_offline(folder: Path) -> Iterator[Snapshot]:
    """Of a folder that nobody uses, for the time of the block. Raises StorageError, InUse if somebody does."""
    if not (folder / DESCRIPTION).exists():
        raise StorageError(f"{folder} is not a data folder: it has no {DESCRIPTION}")
    with locked(folder):
        described = read_description(folder)
        tidy(folder)
        backend = RocksBackend(folder / described.store, create=False)
        try:
            for _ in backend.scan(b""):
                pass  # a block that cannot be read is found now, and not when the backup is needed
            taken = take_snapshot(folder, backend)
            try:
                yield taken
            finally:
                shutil.rmtree(taken.path, ignore_errors=True)
        finally:
            backend.close()


def make_backup(taken: Snapshot, to: Path) -> Manifest:
    """A backup from a copy of the store; nothing is left of one that fails. Raises StorageError."""
    if to.exists():
        raise StorageError(f"{to} exists already; name a new folder")
    unfinished = to.with_name(f"{to.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        (unfinished / STORE).mkdir(mode=0o700)
        files = [
            _copied(source, unfinished / STORE / source.name, f"{STORE}/{source.name}")
            for source in sorted(taken.path.iterdir())
        ]
        manifest = _describe(taken.schema, files)
        sync_folder(unfinished / STORE)
        write_whole(unfinished / MANIFEST, _as_json(manifest))
        sync_folder(unfinished)
        os.replace(unfinished, to)
        sync_folder(to.absolute().parent)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StorageError(f"cannot write the backup {to}: {error.strerror or error}") from None
    return manifest


def _copied(source: Path, to: Path, name: str) -> File:
    sha256 = hashlib.sha256()
    size = 0
    with open(source, "rb") as opened, open(to, "wb") as target:
        while chunk := opened.read(_CHUNK):
            sha256.update(chunk)
            target.write(chunk)
            size += len(chunk)
        target.flush()
        os.fsync(target.fileno())
    return File(name, size, sha256.hexdigest())


def _describe(schema: int, files: list[File]) -> Manifest:
    from headwater import __version__

    return Manifest(schema, __version__, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), files)


def _as_json(manifest: Manifest) -> bytes:
    files = [each._asdict() for each in manifest.files]
    return json.dumps({"format": FORMAT, **manifest._asdict(), "files": files}, indent=1).encode() + b"\n"


# ---- restoring -------------------------------------------------------------------------------------------------


def read_manifest(backup: Path) -> Manifest:
    file = backup / MANIFEST
    try:
        found = json.loads(file.read_bytes())
        files = [File(str(each["name"]), int(each["size"]), str(each["sha256"])) for each in found["files"]]
        manifest = Manifest(int(found["schema"]), str(found["made_by"]), str(found["time"]), files)
        fine = found["format"] == FORMAT and all(_NAME.fullmatch(each.name) for each in files)
    except FileNotFoundError:
        raise StorageError(f"{backup} is not a backup: it has no {MANIFEST}") from None
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{file} is damaged ({error!r}); take another backup") from None
    if not fine:
        raise StorageError(f"{file} does not describe a backup of headwater")
    check_schema(backup, manifest.schema)
    return manifest


def restore(backup: Path, path: Path, *, force: bool = False) -> Manifest:
    """Make what is in the backup the content of the data folder `path`, which is made if need be. `force`: what is
    there is put aside, not deleted. Raises StorageError: then nothing has changed."""
    manifest = read_manifest(backup)
    make_folder(path)
    with locked(path):
        new = is_new(path)
        if not new and not force:
            raise StorageError(f"the data folder {path} is not empty; with --force, what is there is put aside")
        old = None if new else _old_store(path)
        name = unused_name(path, "store")
        if new:
            begin_folder(path)
        try:
            _copy_checked(backup, manifest, path / name)
            RocksBackend(path / name, create=False).close()
            sync_folder(path / name)
        except BaseException:
            shutil.rmtree(path / name, ignore_errors=True)
            if new:
                (path / UNFINISHED).unlink(missing_ok=True)
            raise
        write_description(path, Description(manifest.schema, name, old))
        tidy(path)
    return manifest


def _old_store(path: Path) -> str | None:
    """The store that is there, even if the description of the folder is damaged."""
    try:
        name = read_description(path).store
    except StorageError:
        name = STORE
    return name if (path / name).exists() else None


def _copy_checked(backup: Path, manifest: Manifest, to: Path) -> None:
    to.mkdir(mode=0o700)
    if not (backup / STORE).is_dir():
        raise StorageError(f"the backup {backup} is damaged: {STORE} is missing; take another one")
    there = {f"{STORE}/{each.name}" for each in (backup / STORE).iterdir()}
    if strange := sorted(there - {each.name for each in manifest.files}):
        raise StorageError(f"the backup {backup} has a file that its manifest does not know: {strange[0]}")
    for expected in manifest.files:
        source = backup / expected.name
        try:
            found = _copied(source, to / source.name, expected.name)
        except FileNotFoundError:
            raise StorageError(
                f"the backup {backup} is damaged: {expected.name} is missing; take another one"
            ) from None
        if found != expected:
            what = f"{found.size} bytes, not {expected.size}" if found.size != expected.size else "another checksum"
            raise StorageError(f"the backup {backup} is damaged: {expected.name} has {what}; take another one")
