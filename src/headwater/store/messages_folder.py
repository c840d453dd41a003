"""The folder of a store: who uses it, which schema it has, and the store's id.

`messages.json` comes into being last: a folder without it, but with an empty database, is one whose making was cut off.
If there are messages, it is a copy that was cut off, or somebody has removed the file; that is not ours to decide.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder, write_whole
from headwater.disk.lock import FolderLock, cannot_use, make_folder
from headwater.store.hand_over import check_own

DESCRIPTION: Final = "messages.json"
UNFINISHED: Final = "messages.json.new"
DATABASE: Final = "db"
FORMAT: Final = "headwater-messages"
SCHEMA: Final = 1
GOOD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class MessagesFolder:
    def __init__(self, path: Path, id: str | None, create: bool, is_taker: bool = False) -> None:
        """Lock the folder, and make it if `create`. Raises StorageError, also if the store has another id, or is not
        this node's (hand_over.py), unless it `is_taker` who asks.

        `is_new`: it has to be `made`, when there is a database in it."""
        self.path = path
        if id is not None and not GOOD_ID.fullmatch(id):
            raise StorageError(f"{id!r} is no id for a store: 1 to 64 letters, digits and . _ -")
        if not create and not (path / DESCRIPTION).exists():
            raise StorageError(f"there is no store of messages in {path}")
        make_folder(path)
        try:
            self._lock = FolderLock(path)
        except OSError as error:
            raise cannot_use(path, error) from None
        self.is_new = not (path / DESCRIPTION).exists()
        try:
            check_own(path, is_taker)
            self.id = id or uuid.uuid4().hex[:12] if self.is_new else self._described(id)
        except OSError as error:
            self.release()
            raise cannot_use(path, error) from None
        except BaseException:
            self.release()
            raise

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    def made(self, empty: bool) -> None:
        """From now on it is a store, if its database is empty."""
        if not empty:
            raise StorageError(
                f"there are messages in {self.database}, but no {self.path / DESCRIPTION}, which says whose; restore a "
                "backup, or name another folder; nothing was deleted"
            )
        try:
            describe(self.path, self.id)
            sync_folder(self.path.parent)
        except OSError as error:
            raise cannot_use(self.path, error) from None
        self.is_new = False

    def _described(self, id: str | None) -> str:
        file = self.path / DESCRIPTION
        try:
            found = json.loads(file.read_bytes())
            schema, known = found["schema"], found["id"]
            if found["format"] != FORMAT or not isinstance(known, str) or not isinstance(schema, int):
                raise ValueError("not ours")
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{file} does not describe a store of messages ({error}); restore a backup") from None
        if schema != SCHEMA:
            raise StorageError(
                f"the store {self.path} has schema {schema}, this version of Headwater knows {SCHEMA}; "
                "use the version that wrote it, or a newer one"
            )
        if id is not None and id != known:
            raise StorageError(f"the store {self.path} has the id {known!r}, not {id!r}: an id is for ever")
        return known

    def copy(self, path: Path, copy_database: Callable[[Path], None]) -> None:
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise cannot_use(path, error) from None
        copy_database(path / DATABASE)
        describe(path, self.id)

    def release(self) -> None:
        self._lock.release()


def describe(path: Path, id: str) -> None:
    from headwater import __version__

    content = {"format": FORMAT, "schema": SCHEMA, "id": id, "made_by": __version__}
    write_whole(path / UNFINISHED, f"{json.dumps(content)}\n".encode())
    os.replace(path / UNFINISHED, path / DESCRIPTION)
    sync_folder(path)
