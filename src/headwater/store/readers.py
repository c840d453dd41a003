"""Named readers and how far they have come: what retention must not overtake. And who is told that there is more."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from headwater.disk.errors import StorageError
from headwater.store.store import PositionGone, Reader, Store, UnknownReader

GOOD_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
MOST: Final = 1000
"""Readers of a store."""


class Readers:
    """`keep` brings a reader's record to disk, None removes it; it returns when that has happened."""

    def __init__(self, keep: Callable[[str, bytes | None], None]) -> None:
        self._keep = keep
        self._readers: dict[str, Reader] = {}
        self.lock = threading.Lock()
        """Held while commits and retention decide, so that neither acts on what the other has changed."""

    def restore(self, record: bytes) -> None:
        """Raises StorageError if that is not one."""
        try:
            reader = Reader(**json.loads(record))
        except (ValueError, TypeError) as error:
            raise StorageError(f"the record of a reader is damaged ({error}); restore a backup") from None
        self._readers[reader.name] = reader

    def learn(self, reader: Reader) -> None:
        """What somebody else has brought to disk."""
        self._readers[reader.name] = reader

    def unlearn(self, name: str | None = None) -> None:
        """One, or all."""
        if name is None:
            self._readers = {}
        else:
            self._readers.pop(name, None)

    def all(self) -> list[Reader]:
        return sorted(self._readers.copy().values())

    def get(self, name: str) -> Reader:
        reader = self._readers.get(name)
        if reader is None:
            raise UnknownReader(name)
        return reader

    def commit(self, name: str, position: int, first: int, next: int) -> Reader:
        """As `Store.commit`, in a store that has [first, next); the caller holds the lock."""
        if not GOOD_NAME.fullmatch(name):
            raise ValueError(
                "a reader's name has 1 to 128 letters, digits and . _ : @ -, and begins with a letter or digit"
            )
        if position >= next:
            raise ValueError(f"position {position} has not been given yet; the last one is {next - 1}")
        if position < first - 1:
            raise PositionGone(position + 1, first)
        known = self._readers.get(name)
        if known is None and len(self._readers) >= MOST:
            raise ValueError(f"there are {MOST} readers already; forget one that is not needed")
        now = time.time_ns() // 1000
        if known is None:
            known = Reader(name, 0, 0, now, now)
        return self._changed(known._replace(position=position, committed=now))

    def overtaken(self, readers: list[Reader]) -> None:
        for reader in readers:
            self._changed(reader)

    def forget(self, name: str) -> None:
        self.get(name)
        self._keep(name, None)
        del self._readers[name]

    def _changed(self, reader: Reader) -> Reader:
        self._keep(reader.name, json.dumps(reader._asdict()).encode())
        self._readers[reader.name] = reader
        return reader


class ReadStore(Store):
    """A store with readers that have names, and watchers that have none; `keep` is as in Readers."""

    def __init__(self, keep: Callable[[str, bytes | None], None]) -> None:
        super().__init__()
        self._readers = Readers(keep)
        self._watchers: list[Callable[[], None]] = []

    def watch(self, tell: Callable[[], None]) -> None:
        self._watchers.append(tell)

    def unwatch(self, tell: Callable[[], None]) -> None:
        self._watchers.remove(tell)

    def tell_watchers(self) -> None:
        for tell in list(self._watchers):
            tell()

    def readers(self) -> list[Reader]:
        return self._readers.all()

    def reader(self, name: str) -> Reader:
        return self._readers.get(name)

    def commit(self, name: str, position: int) -> Reader:
        with self._readers.lock:
            return self._readers.commit(name, position, self.reachable, self.next)

    @property
    def reachable(self) -> int:
        """The first position that can be read, here or in object storage."""
        return self.first

    def forget(self, name: str) -> None:
        with self._readers.lock:
            self._readers.forget(name)
