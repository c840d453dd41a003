"""The store of sessions and retained messages in RocksDB (headwater/disk/rocks.py)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

from headwater.disk.rocks import MEGA, RocksKeys, make_checkpoint, new_batch, open_rocks, rocks_options
from headwater.node.persistence.backend import Backend

WRITE_BUFFER: Final = 16 * MEGA
"""What is written collects in memory up to here, then it goes to a sorted file. Most deliveries are deleted before."""
CACHE: Final = 32 * MEGA


class RocksBackend(RocksKeys, Backend):
    """The store in `path`, which is made unless `create` is false; `release` is called when it has been closed."""

    def __init__(
        self, path: Path, *, create: bool = True, release: Callable[[], None] | None = None, repaired: bool = False
    ) -> None:
        options = rocks_options(write_buffer=WRITE_BUFFER, cache=CACHE)
        super().__init__(path, open_rocks(path, create, options, repaired=repaired))
        self._release = release
        self._scans: weakref.WeakSet[Generator[tuple[bytes, bytes], None, None]] = weakref.WeakSet()
        self._copying = threading.Lock()

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        batch = new_batch()
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        self._write(batch)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        scan = self._items(self._db.iter(), prefix, prefix)  # from here on, it does not see what is written
        self._scans.add(scan)
        return scan

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for scan in list(self._scans):
            scan.close()  # one that lives would keep the folder locked
        failed_before = self._error is not None
        try:
            if not failed_before:
                self._db.flush_wal(True)
            with self._copying:
                self._db.close()
        except Exception as error:
            if not failed_before:
                raise self._failed("sync", error) from None
        finally:
            if self._release is not None:
                self._release()

    def prepare_checkpoint(self) -> None:
        """Leave little to do for one that follows: what was written goes to sorted files."""
        self._check()
        with self._explaining("copy"):
            self._db.flush()

    def checkpoint(self, path: Path) -> None:
        """Make `path`, which does not exist, a store with all that has been written; it shares files where it can.

        Other threads may go on meanwhile.
        """
        self._check()
        with self._explaining("copy"), self._copying:
            make_checkpoint(self._db, path)
