"""Where a store of messages keeps its records: RocksDB, with two families of keys.

    m + name           what the store knows of itself
    t + number         a topic
    l + position       messages of one commit that are in no block yet
    b, i, x + position a block: its summary, the index of its pages, the extents of its topics
    e + position       positions of a block that were erased
    r + name           a reader
    pages: position + number of the page

Pages are a family of their own because they come in the order of their keys and go from the front: RocksDB then moves
their files from level to level without reading them. They are compressed already.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.disk.rocks import (
    RocksKeys,
    follow_rocks,
    make_checkpoint,
    new_batch,
    open_rocks,
    rocks_options,
)

if TYPE_CHECKING:
    from rocksdict import ColumnFamily, Rdict, RdictIter

MEGA: Final = 1024 * 1024
BUFFER: Final = 16 * MEGA
PAGES: Final = "pages"

META: Final = b"m"
TOPIC: Final = b"t"
LOG: Final = b"l"
BLOCK: Final = b"b"
INDEX: Final = b"i"
EXTENT: Final = b"x"
READER: Final = b"r"
ERASED: Final = b"e"

NEXT: Final = META + b"next"
LOST: Final = META + b"lost"
"""Positions that damage has taken: JSON, a list of the first and the one behind the last of each range (mending.py)."""

ERASURES: Final = META + b"erasures"
"""How often a block was changed (disk_erasing.py)."""

_POSITION: Final = struct.Struct(">Q")
_TOPIC: Final = struct.Struct(">I")
_PAGE: Final = struct.Struct(">QI")

Records = list[tuple[bytes, bytes]]


def lost_ranges(record: bytes | None) -> list[tuple[int, int]]:
    """What a record of LOST says."""
    return [] if record is None else [(int(first), int(end)) for first, end in json.loads(record)]


def position_key(kind: bytes, position: int) -> bytes:
    return kind + _POSITION.pack(position)


def position_in(key: bytes) -> int:
    position: int = _POSITION.unpack_from(key, 1)[0]
    return position


def topic_key(number: int) -> bytes:
    return TOPIC + _TOPIC.pack(number)


def topic_in(key: bytes) -> int:
    number: int = _TOPIC.unpack_from(key, 1)[0]
    return number


def page_key(first: int, page: int) -> bytes:
    return _PAGE.pack(first, page)


def page_place(key: bytes) -> tuple[int, int]:
    """The first position of the block, and the number of the page."""
    first, page = _PAGE.unpack(key)
    return first, page


class Shelf(RocksKeys):
    """`cache` bytes of pages and records are kept in memory."""

    def __init__(self, path: Path, cache: int, create: bool, *, repaired: bool = False) -> None:
        options = rocks_options(write_buffer=BUFFER, cache=cache // 4)
        pages = rocks_options(write_buffer=BUFFER, cache=cache - cache // 4, compression="none")
        super().__init__(path, open_rocks(path, create, options, {PAGES: pages}, repaired=repaired))
        self._pages = self._db.get_column_family(PAGES)
        self._handle: ColumnFamily | None = self._db.get_column_family_handle(PAGES)

    def write(self, puts: Records, deletes: Iterable[bytes] = (), pages: Records | None = None) -> None:
        """All of it is there after a crash, or nothing."""
        batch = new_batch()
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        for key, value in pages or ():
            batch.put(key, value, self._handle)
        self._write(batch, self._pages)

    def remove(self, deletes: Iterable[bytes], puts: Records, pages_before: int) -> None:
        """Also all pages of blocks that begin before a position."""
        batch = new_batch()
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        batch.delete_range(page_key(0, 0), page_key(pages_before, 0), self._handle)
        self._write(batch, self._pages)

    def remove_pages_from(self, position: int, end: int | None = None) -> None:
        """Of blocks that begin there or behind, but before `end`."""
        if not any(self._items(self._pages.iter(), page_key(position, 0), b"")):
            return
        batch = new_batch()
        behind = page_key((1 << 64) - 1, (1 << 32) - 1) if end is None else page_key(end, 0)
        batch.delete_range(page_key(position, 0), behind, self._handle)
        self._write(batch, self._pages)

    def page(self, first: int, page: int) -> bytes | None:
        return self._read(self._pages, page_key(first, page))

    def scan(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All records of a kind, in the order of keys."""
        self._check_open()
        return self._items(self._db.iter(), kind, kind)

    def scan_from(self, kind: bytes, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The same, from a key on."""
        self._check_open()
        return self._items(self._db.iter(), key, kind)

    def is_empty(self) -> bool:
        self._check_open()
        return not any(any(self._items(each.iter(), b"", b"")) for each in (self._db, self._pages))

    def pages(self, first: int) -> list[bytes]:
        """Of a block, in order."""
        self._check_open()
        start = _POSITION.pack(first)
        return [value for _, value in self._items(self._pages.iter(), start, start)]

    def all_pages(self) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        return self._items(self._pages.iter(), b"", b"")

    def flush(self) -> None:
        """What is in memory goes to sorted files."""
        self._check()
        with self._explaining("copy"):
            self._pages.flush()
            self._db.flush()

    def give_back(self, position: int) -> None:
        """The room of pages of blocks that began before a position: files that hold nothing else are deleted."""
        self._check()
        with self._explaining("compact"):
            self._pages.flush()
            self._pages.compact_range(page_key(0, 0), page_key(position, 0))

    def merge_files(self, first: int, end: int) -> None:
        """What was written over or deleted of the pages of blocks that begin in [first, end), and of all records, is
        nowhere in files any more."""
        self._check()
        with self._explaining("compact"):
            self._pages.flush()
            self._pages.compact_range(page_key(first, 0), page_key(end, 0))
            self._db.flush()
            self._db.compact_range(None, None)

    def compact(self) -> None:
        self._check()
        with self._explaining("compact"):
            for each in (self._db, self._pages):
                each.flush()
                each.compact_range(None, None)

    def checkpoint(self, path: Path) -> None:
        """Make `path`, which does not exist, a copy as of now; files are shared where that is possible."""
        self._check()
        with self._explaining("copy"):
            self._pages.flush()
            make_checkpoint(self._db, path)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._error is None:
                self._db.flush_wal(True)
        except Exception as error:
            raise self._failed("sync", error) from None
        finally:
            self._handle = None
            self._pages.close()
            self._db.close()


class Before:
    """Records as they were at a moment, whatever has happened since."""

    def __init__(self, cursor: RdictIter) -> None:
        self._cursor = cursor

    def get(self, key: bytes) -> bytes | None:
        self._cursor.seek(key)
        if self._cursor.valid() and self._cursor.key() == key:
            value: bytes = self._cursor.value()
            return value
        return None


class FollowedShelf(Shelf):
    """The records that another process writes, as of the last `catch_up`; some may be missing until the next one
    (disk/rocks.py). Nothing can be written. `own` is a folder for its log."""

    def __init__(self, path: Path, own: Path, cache: int) -> None:
        self._own = own
        self._cache = cache
        self.path = path
        RocksKeys.__init__(self, path, self._opened())
        self._pages = self._db.get_column_family(PAGES)
        self._handle = None

    def _opened(self) -> Rdict:
        cache = self._cache
        options = rocks_options(write_buffer=BUFFER, cache=cache // 4)
        pages = rocks_options(write_buffer=BUFFER, cache=cache - cache // 4, compression="none")
        return follow_rocks(self.path, self._own, options, {PAGES: pages})

    def reopen(self) -> None:
        """See what records are now that were written over: of those that it has in memory, one that follows goes on
        seeing what they were. Who is reading meanwhile reads on in the old ones."""
        self._check_open()
        db = self._opened()
        self._db, self._pages = db, db.get_column_family(PAGES)

    def catch_up(self) -> None:
        self._check_open()
        with self._explaining("follow"):
            self._db.try_catch_up_with_primary()

    def before(self) -> Before:
        """The records as they are now."""
        self._check_open()
        return Before(self._db.iter())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pages.close()
            self._db.close()
