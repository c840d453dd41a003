"""Backups of a data folder, sessions and messages: made, checked and restored.

    BACKUP/manifest.json    {"format": "headwater-backup", "schema": 1, "made_by": "0.1.0",
                             "time": "2030-12-31T23:59:59Z", "messages": "4f1c0d2ab9e7",
                             "files": [{"name": "store/000012.sst", "size": 4711, "sha256": "…"}, …]}
    BACKUP/store/…          a store, as RocksDB's checkpoint leaves it
    BACKUP/messages/…       the delivery store, if there is one, with its id

Theory. A commit goes to the delivery store first and to the sessions' store then. The copy of a running broker is made
between two commits, so both copies are of the same one: what a session was given is among the messages, and what was
acknowledged is in both. Sorted files are flushed before, so that commits wait for hard links only.

A backup has another name until all of it is on disk. One that is `based` on an earlier one shares those of its files
that have the same content. A restore checks every byte before the data folder has changed, and that both stores can be
opened; then they take the place of the old ones in one step (folder.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder, write_whole
from headwater.disk.lock import locked, make_folder
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.folder import (
    DESCRIPTION,
    MESSAGES,
    NOT_A_COPY,
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

if TYPE_CHECKING:
    from headwater.store.disk_store import DiskStore
    from headwater.store.store import Store

MANIFEST: Final = "manifest.json"
FORMAT: Final = "headwater-backup"
LONGEST_COPYING: Final = 24 * 3600.0
"""Seconds after which a snapshot is taken for a forgotten one; it holds files that the store has done with."""

_CHUNK: Final = 1024 * 1024
_NAME: Final = re.compile(rf"({STORE}|{MESSAGES}|{MESSAGES}/db)/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_FOLDERS: Final = (STORE, MESSAGES, f"{MESSAGES}/db")
_IMMUTABLE: Final = ".sst"


class File(NamedTuple):
    name: str
    size: int
    sha256: str


class Manifest(NamedTuple):
    schema: int
    made_by: str
    time: str
    files: list[File]
    messages: str | None = None
    """The id of the delivery store, if there is one."""

    def __str__(self) -> str:
        size = sum(each.size for each in self.files)
        messages = "" if self.messages is None else f", with the messages of store {self.messages}"
        return f"{len(self.files)} files with {size:,} bytes, schema {self.schema}{messages}"


# ---- making ----------------------------------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """Copies of the stores that are deleted when they have served; they share files with them."""

    folder: Path
    name: str
    schema: int

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def store(self) -> Path:
        return self.path / STORE


def take_snapshot(
    folder: Path,
    backend: Backend | None,
    *,
    store: Store | None = None,
    between: Lock | None = None,
    messages: bool = True,
) -> Snapshot:
    """Of the stores that are open in the data folder; a delivery store that is there and not open is opened. `between`
    is to be held for having both as of the same commit. Raises StorageError."""
    if not isinstance(backend, RocksBackend):
        raise StorageError("this broker keeps nothing on disk (data_dir)")
    for each in folder.glob("snapshot-*"):
        if time.time() - each.stat().st_mtime > LONGEST_COPYING:
            shutil.rmtree(each, ignore_errors=True)
    taken = Snapshot(folder, unused_name(folder, "snapshot"), read_description(folder).schema)
    with _messages(folder, store) if messages else nullcontext() as opened:
        try:
            taken.path.mkdir(mode=0o700)
            backend.prepare_checkpoint()
            if opened is not None:
                opened.prepare_checkpoint()
            with between or nullcontext():
                backend.checkpoint(taken.store)
                if opened is not None:
                    opened.checkpoint(taken.path / MESSAGES)
        except BaseException as error:
            shutil.rmtree(taken.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise StorageError(f"cannot copy {folder}: {error.strerror or error}") from None
            raise
    return taken


@contextmanager
def _messages(folder: Path, store: Store | None) -> Iterator[DiskStore | None]:
    """The delivery store of the folder, for the time of the block; None if there is none."""
    path = folder / MESSAGES
    if store is None and not any((path / name).exists() for name in ("messages.json", "db")):
        yield None
        return
    disk_store = _disk_store()
    if store is not None:
        if not isinstance(store, disk_store):
            raise StorageError("the delivery store of this broker is not on disk")
        yield store
        return
    opened = disk_store(path, create=False, seal_in_background=False)
    try:
        opened.check_readable()  # what is damaged is found now, and not when the backup is needed
        yield opened
    finally:
        opened.close()


def _disk_store() -> type[DiskStore]:
    try:
        from headwater.store.disk_store import DiskStore
    except ImportError as error:
        raise StorageError(
            f"the folder has a delivery store, which needs {error.name}: pip install 'headwater[store]'"
        ) from None
    return DiskStore


@contextmanager
def snapshot_offline(folder: Path, *, messages: bool = True) -> Iterator[Snapshot]:
    """Of a folder that nobody uses, for the time of the block, with the delivery store if `messages`. Raises
    StorageError, InUse if somebody does."""
    if not (folder / DESCRIPTION).exists():
        raise StorageError(f"{folder} is not a data folder: it has no {DESCRIPTION}")
    with locked(folder):
        tidy(folder)
        described = read_description(folder)
        backend = RocksBackend(folder / described.store, create=False)
        try:
            for _ in backend.scan(b""):
                pass  # a block that cannot be read is found now, and not when the backup is needed
            taken = take_snapshot(folder, backend, messages=messages)
            try:
                yield taken
            finally:
                shutil.rmtree(taken.path, ignore_errors=True)
        finally:
            backend.close()


def make_backup(taken: Snapshot, to: Path, based: Path | None = None) -> Manifest:
    """A backup from copies of the stores; nothing is left of one that fails. `based`: an earlier backup, with which it
    shares the files that have not changed. Raises StorageError."""
    if to.exists():
        raise StorageError(f"{to} exists already; name a new folder")
    known = {} if based is None else {each: based / each.name for each in read_manifest(based).files}
    unfinished = to.with_name(f"{to.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        files: list[File] = []
        for folder in [each for each in _FOLDERS if (taken.path / each).is_dir()]:
            (unfinished / folder).mkdir(mode=0o700)
            for source in sorted(each for each in (taken.path / folder).iterdir() if each.is_file()):
                files.append(_backed_up(source, unfinished / folder / source.name, f"{folder}/{source.name}", known))
            sync_folder(unfinished / folder)
        manifest = _describe(taken.schema, files, _id_of(taken.path / MESSAGES))
        write_whole(unfinished / MANIFEST, _as_json(manifest))
        sync_folder(unfinished)
        os.replace(unfinished, to)
        sync_folder(to.absolute().parent)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StorageError(f"cannot write the backup {to}: {error.strerror or error}") from None
    return manifest


def _backed_up(source: Path, to: Path, name: str, known: dict[File, Path]) -> File:
    """Sorted files never change, and an earlier backup may have the same one; its name alone would not say so."""
    size = source.stat().st_size
    if source.suffix == _IMMUTABLE and any(each.name == name and each.size == size for each in known):
        with open(source, "rb") as opened:
            found = File(name, size, hashlib.file_digest(opened, "sha256").hexdigest())
        if found in known:
            try:
                os.link(known[found], to)
            except OSError:  # on another file system, say
                return _copied(source, to, name)
            return found
    return _copied(source, to, name)


def _id_of(messages: Path) -> str | None:
    if not messages.is_dir():
        return None
    found: str = json.loads((messages / "messages.json").read_bytes())["id"]
    return found


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


def _describe(schema: int, files: list[File], messages: str | None) -> Manifest:
    from headwater import __version__

    return Manifest(schema, __version__, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), files, messages)


def _as_json(manifest: Manifest) -> bytes:
    files = [each._asdict() for each in manifest.files]
    return json.dumps({"format": FORMAT, **manifest._asdict(), "files": files}, indent=1).encode() + b"\n"


# ---- restoring -------------------------------------------------------------------------------------------------


def read_manifest(backup: Path) -> Manifest:
    file = backup / MANIFEST
    try:
        found = json.loads(file.read_bytes())
        files = [File(str(each["name"]), int(each["size"]), str(each["sha256"])) for each in found["files"]]
        messages = found.get("messages")
        manifest = Manifest(int(found["schema"]), str(found["made_by"]), str(found["time"]), files, messages)
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
    there is put aside, not deleted. A delivery store that is there stays if the backup has none. Raises StorageError:
    then nothing has changed."""
    manifest = read_manifest(backup)
    make_folder(path)
    with locked(path):
        new = is_new(path)
        has_messages = manifest.messages is not None and (path / MESSAGES).exists()
        if (not new or has_messages) and not force:
            raise StorageError(f"the data folder {path} is not empty; with --force, what is there is put aside")
        if not new:
            _tidy_if_described(path)
        old = None if new else _old_store(path)
        store, messages = unused_name(path, STORE), unused_name(path, MESSAGES)
        if new:
            begin_folder(path)
        try:
            _copy_checked(backup, manifest, {STORE: path / store, MESSAGES: path / messages})
            RocksBackend(path / store, create=False).close()
            sync_folder(path / store)
            if manifest.messages is not None:
                _disk_store()(path / messages, id=manifest.messages, create=False, seal_in_background=False).close()
                sync_folder(path / messages)
        except BaseException:
            shutil.rmtree(path / store, ignore_errors=True)
            shutil.rmtree(path / messages, ignore_errors=True)
            if new:
                (path / UNFINISHED).unlink(missing_ok=True)
            raise
        restored = None if manifest.messages is None else messages
        (path / NOT_A_COPY).unlink(missing_ok=True)
        write_description(path, Description(manifest.schema, store, old, restored))
        tidy(path)
    return manifest


def _tidy_if_described(path: Path) -> None:
    """What an earlier restore has not finished is not to be mixed with this one."""
    try:
        read_description(path)
    except StorageError:
        return
    tidy(path)


def _old_store(path: Path) -> str | None:
    """The store that is there, even if the description of the folder is damaged."""
    try:
        name = read_description(path).store
    except StorageError:
        name = STORE
    return name if (path / name).exists() else None


def _copy_checked(backup: Path, manifest: Manifest, to: dict[str, Path]) -> None:
    """Each folder of the backup has its place; of the delivery store only if there is one."""
    wanted = (STORE,) if manifest.messages is None else _FOLDERS
    for folder in wanted:
        if not (backup / folder).is_dir():
            raise StorageError(f"the backup {backup} is damaged: {folder} is missing; take another one")
        top, _, rest = folder.partition("/")
        (to[top] / rest).mkdir(mode=0o700)
    known = {each.name for each in manifest.files}
    there = [each for folder in _FOLDERS if (backup / folder).is_dir() for each in (backup / folder).iterdir()]
    names = {str(each.relative_to(backup)) for each in there if each.is_file()}
    if strange := sorted(names - known):
        raise StorageError(f"the backup {backup} has a file that its manifest does not know: {strange[0]}")
    for expected in manifest.files:
        top, _, rest = expected.name.partition("/")
        try:
            found = _copied(backup / expected.name, to[top] / rest, expected.name)
        except FileNotFoundError:
            raise StorageError(
                f"the backup {backup} is damaged: {expected.name} is missing; take another one"
            ) from None
        if found != expected:
            what = f"{found.size} bytes, not {expected.size}" if found.size != expected.size else "another checksum"
            raise StorageError(f"the backup {backup} is damaged: {expected.name} has {what}; take another one")
