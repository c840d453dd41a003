"""The end of RocksDB's log when it is damaged: kept for those who want to look, told of, and made harmless.

RocksDB's modes of recovery, tried with logs cut and garbled (rocksdict 0.3.29): `absolute` refuses them all,
`tolerate_corrupted_tail` drops a cut record silently and refuses a garbled one, `point_in_time` keeps all that is
before the damage and says in its own log how many bytes it dropped. So a store is opened with `absolute` first, to
know, and with `point_in_time` if that fails. Zeros at the end, as file systems leave them, are no damage. A log cut
exactly between two batches cannot be told from one that ended there.

One kind of rubbish RocksDB does not survive: a record whose kind belongs to recycled logs, which we never have, makes
it loop for ever. Logs are therefore walked through before it sees them, from header to header, and cut in such a
header, so that RocksDB finds a record that is not whole.

    a log is a row of blocks of 32 KB, a block a row of records, and a record:
    checksum (4 bytes) | length (2 bytes, little-endian) | kind (1 byte: whole, first, middle or last part) | data
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import shutil
import struct
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder

log = logging.getLogger("headwater.disk")

KEPT: Final = "damaged"

_BLOCK: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
_KINDS: Final = (1, 2, 3, 4)
_CUT_AFTER: Final = 3
"""Bytes of a header: too few to be one, enough to be seen."""
_DROPPED: Final = re.compile(r"(\d+\.log): dropping (\d+) bytes; (?:Corruption: )?(.*)")


def strange_record(file: Path) -> int | None:
    """Where in a log the first record begins that is of no known kind; None if there is none."""
    size = file.stat().st_size
    if size < _HEADER.size:
        return None
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = 0
        while at + _HEADER.size <= size:
            room = _BLOCK - at % _BLOCK
            if room < _HEADER.size:
                at += room
                continue
            _, length, kind = _HEADER.unpack_from(content, at)
            if kind not in _KINDS:
                return None if not any(content[at:]) else at
            if _HEADER.size + length > room:
                return None  # RocksDB sees that by itself, and stops there
            at += _HEADER.size + length
    return None


class LogRepair:
    """Of the logs of a store that is not open; `kept` is a folder beside it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.kept = store.parent / KEPT
        self.sizes = {each.name: each.stat().st_size for each in sorted(store.glob("*.log"))}
        self._cut_off: dict[str, int] = {}

    def prepare(self) -> bool:
        """Make RocksDB stop at records that it would not survive. Says whether there are some."""
        for each in self.store.glob("MANIFEST-*"):
            if strange_record(each) is not None:
                raise StorageError(f"{each} is damaged; restore a backup; nothing was deleted")
        strange = [(name, at) for name in self.sizes if (at := strange_record(self.store / name)) is not None]
        if strange:
            self.keep()
            for name, at in strange:
                self._cut(name, at + _CUT_AFTER)
            sync_folder(self.store)
        return bool(strange)

    def keep(self) -> None:
        """Give the logs a second name, in place of earlier ones: recovery deletes the first."""
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir(mode=0o700)
        for name in self.sizes:
            os.link(self.store / name, self.kept / name)

    def tell(self) -> None:
        """Log how much is missing, as far as RocksDB said it when the store was opened."""
        found = _DROPPED.search((self.store / "LOG").read_text(errors="replace"))
        if found is None:
            log.warning("the log of %s was damaged, the files are kept in %s", self.store, self.kept)
            return
        name, dropped, why = found.groups()
        missing = (
            int(dropped) + self._cut_off.get(name, 0) + sum(self.sizes[each] for each in self.sizes if each > name)
        )
        log.warning(
            "the end of the log %s was damaged (%s): what is before it is there, up to %d bytes of changes are not; "
            "the damaged files are kept in %s",
            *(self.store / name, why, missing, self.kept),
        )

    def _cut(self, name: str, size: int) -> None:
        self._cut_off[name] = self.sizes[name] - size
        shorter = self.kept / "shorter"
        with open(self.store / name, "rb") as source, open(shorter, "wb") as target:
            shutil.copyfileobj(source, target)
            target.truncate(size)
            target.flush()
            os.fsync(target.fileno())
        os.replace(shorter, self.store / name)
