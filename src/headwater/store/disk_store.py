"""A store on disk: commits go to a log, and from there, some hundred thousand messages at a time, into blocks.

Theory. What publishers wait for has to be written at once and in the order of arrival; what readers ask for should lie
together by topic and be small. So messages are written twice. A commit is one record (page.py), synced with all that
waits (the caller's group commit); its messages stay in memory, too (tail.py), and questions are answered from there.
When enough have come, another thread makes a block of them (block.py): first the pages, then, in one batch with the
block's summary and index, the log's records are deleted. A crash at any moment leaves the messages in the log or in
the block, never in both or in neither; pages without a block are removed when the store is opened.

    DIR/messages.json    {"format": "headwater-messages", "schema": 1, "id": …}
    DIR/lock             held while a process uses the folder
    DIR/db/              RocksDB (shelf.py)
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

import numpy

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import DiskFull, StorageError
from headwater.disk.repair import DamagedLog
from headwater.store.block import Summary, sealed
from headwater.store.chunk import Chunk
from headwater.store.disk_erasing import DiskErasing
from headwater.store.extract import Extraction
from headwater.store.hand_over import Fence, check_own, read_fence, write_fence
from headwater.store.intake import Taken
from headwater.store.mending import damaged
from headwater.store.messages_folder import MessagesFolder
from headwater.store.page import decode, encode
from headwater.store.retention import Extent, Retention, holding, inside, trimmed, without
from headwater.store.shelf import (
    BLOCK,
    ERASED,
    ERASURES,
    EXTENT,
    INDEX,
    LOG,
    LOST,
    META,
    NEXT,
    READER,
    TOPIC,
    Records,
    Shelf,
    lost_ranges,
    page_key,
    position_in,
    position_key,
    topic_in,
    topic_key,
)
from headwater.store.store import Trimmed
from headwater.store.tail import Part

log = logging.getLogger("headwater.store")

BLOCK_MESSAGES: Final = 131072
BLOCK_BYTES: Final = 32 * 1024 * 1024
"""A block is made of so many messages, or of fewer if they have so many bytes."""
CACHE: Final = 32 * 1024 * 1024
BEHIND: Final = 2
"""So many blocks may wait for being made; above, commits wait."""
AGAIN: Final = 1.0
"""Seconds after which a block is tried again, if the disk was full."""
PAGES_AT_ONCE: Final = 8
"""Pages of one write, during which no other thread runs."""
NOTE: Final = META + b"note"


class DiskStore(DiskErasing):
    """The store in a folder, which is made unless `create` is false. `seal_in_background` false leaves the making of
    blocks to whoever calls `seal`. One that `has_history` keeps its blocks until it is told that they are there."""

    def __init__(
        self,
        path: Path,
        *,
        id: str | None = None,
        extraction: Extraction | None = None,
        retention: Retention | None = None,
        cache: int = CACHE,
        block_messages: int = BLOCK_MESSAGES,
        create: bool = True,
        seal_in_background: bool = True,
        is_taker: bool = False,
        has_history: bool = False,
    ) -> None:
        self._folder = MessagesFolder(path, id, create, is_taker)
        try:
            shelf = _opened(self._folder, cache // 2)
        except BaseException:
            self._folder.release()
            raise
        super().__init__(self._folder.id, shelf, cache // 2)
        self.extraction = extraction or Extraction()
        self.retention = retention or Retention()
        self.block_messages = block_messages
        self._unsynced: list[Part] = []
        self._coming: set[int] = set()
        self._unwritten: Records = []
        """Names of topics that have a number, but no record: the disk was full."""
        self._is_full = False
        """The disk is, for who makes blocks."""
        self._appended = 1
        self._sealing = threading.Lock()
        self.erasures = 0
        self._more = threading.Condition(self._lock)
        self._closing = False
        self._error: StorageError | None = None
        self._fence: Fence | None = None
        self._in_history = (0, 0) if has_history else None
        try:
            self._load()
        except BaseException:
            self._shelf.close()
            self._folder.release()
            raise
        self._sealer: threading.Thread | None = None
        if seal_in_background:
            self._sealer = threading.Thread(target=self._seal_again_and_again, name="headwater-seal", daemon=True)
            self._sealer.start()

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    # ---- opening -----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        shelf = self._shelf
        if self._folder.is_new:
            self._folder.made(shelf.is_empty())
        for key, name in shelf.scan(TOPIC):
            self._topics.restore(topic_in(key), name)
        lost = lost_ranges(shelf.get(LOST))
        if lost:
            told = ", ".join(f"{first} to {end - 1}" for first, end in lost[-10:])
            log.warning("%s: messages were lost by damage, and repaired without them: %s", self._folder.path, told)
        for _, record in shelf.scan(BLOCK):
            block = Summary.unpack(record)
            if self._blocks:
                self._check_follows(self._blocks[-1].end, block.first, lost)
            self._blocks.append(block)
            self._topics.add_extent(self._shelved.extent(block))
        for _, record in shelf.scan(READER):
            self._readers.restore(record)
        known = shelf.get(NEXT)
        behind = self._blocks[-1].end if self._blocks else int(known or b"1")
        self.first = self._blocks[0].first if self._blocks else behind
        shelf.remove_pages_from(behind)
        for key, record in shelf.scan(LOG):
            self._check_follows(behind, position_in(key), lost)
            chunk = decode(record, self._topics.names, None)
            self._tail.add(Part(chunk, [key], len(record)))
            self._topics.add(chunk)
            behind = position_in(key) + len(chunk)
        behind = next((end for first, end in lost if first == behind), behind)
        self.next = self._appended = behind
        self.erasures = int(shelf.get(ERASURES) or b"0")
        unused = self._topics.unused(self._topics.numbers.values())
        shelf.write([], [topic_key(number) for number in unused])
        self._topics.drop(unused)

    def _check_follows(self, behind: int, first: int, lost: list[tuple[int, int]]) -> None:
        if first != behind and (behind, first) not in lost:
            raise StorageError(
                f"in {self._folder.path} position {first} follows {behind - 1}: messages are missing or doubled; "
                "restore a backup, or let `headwater repair` keep what is whole"
            )

    # ---- writing -----------------------------------------------------------------------------------------------

    def append(self, taken: Taken, note: bytes = b"") -> None:
        if self._fence is not None:
            check_own(self._folder.path)
        if taken.first != self._appended:
            raise ValueError(f"position {taken.first} does not follow {self._appended - 1}")
        chunk, named = self._chunk(taken)
        self._unwritten += named
        key = position_key(LOG, taken.first)
        record = encode(chunk, taken.first, topics=True, compress=False)
        crash_point("store-before-append")
        self._shelf.write([*self._unwritten, (key, record), *([(NOTE, note)] if note else [])])
        crash_point("store-after-append")
        self._unwritten = []
        self._unsynced.append(Part(chunk, [key], len(record)))
        self._appended += len(chunk)

    def note(self) -> bytes:
        return self._shelf.get(NOTE) or b""

    def forget_note(self) -> None:
        """What it says is of the sessions of another node."""
        self._shelf.write([], [NOTE])
        self._shelf.sync()

    def hand_over(self, hand_over: str, to: str) -> Fence:
        """From now on nothing can be appended here, or after any start; readers go on. Nothing may be unsynced."""
        if self._unsynced or self._appended != self.next:
            raise StorageError("messages are on their way to the disk")
        self._fence = Fence(self.id, hand_over, to, self.next - 1)
        try:
            write_fence(self._folder.path, self._fence)
        except StorageError:
            if read_fence(self._folder.path) is None:
                self._fence = None
            raise
        return self._fence

    def _chunk(self, taken: Taken) -> tuple[Chunk, Records]:
        """Messages as columns, and the records of topics that are new."""
        table = self._topics
        with self._lock:
            known = len(table.names)
            numbers = [table.number(name) for name in taken.topics]
            self._coming.update(numbers)
            named = [(topic_key(number), table.names[number].encode()) for number in range(known, len(table.names))]
        times, values = self.extraction.columns(taken)
        chunk = Chunk.taken(taken, numpy.array(numbers, numpy.int32), table.names, times, values)
        return chunk, named

    def sync(self) -> None:
        if not self._unsynced:
            return
        self._shelf.sync()
        crash_point("store-after-sync")
        with self._lock:
            for part in self._unsynced:
                self._tail.add(part)
                self._topics.add(part.chunk)
            self._unsynced = []
            self._coming.clear()
            self.next = self._appended
            if self._enough():
                self._more.notify_all()
            while self._sealer is not None and self._enough(BEHIND) and not self._gives_up_waiting():
                self._more.wait()
            if self._error is not None:
                raise self._error
        self.tell_watchers()

    def _gives_up_waiting(self) -> bool:
        """No block will be made, or not soon. With a full disk, who publishes has to wait already."""
        return self._error is not None or self._closing or self._is_full

    # ---- blocks ------------------------------------------------------------------------------------------------

    def _enough(self, blocks: int = 1) -> bool:
        """Whether so many blocks can be made of what waits for it."""
        return self._tail.messages >= blocks * self.block_messages or self._tail.size >= blocks * BLOCK_BYTES

    def seal(self, everything: bool = False) -> int:
        """Make blocks of what waits for it; also of fewer messages than a block should have, if `everything`, but not
        of what comes meanwhile. Returns how many."""
        made = 0
        end = self.next if everything else 0
        with self._sealing:
            while True:
                with self._lock:
                    parts = self._tail.parts
                    if not parts or not (self._enough() or int(parts[0].chunk.position[0]) < end):
                        return made
                    parts = self._tail.first_parts(self.block_messages, BLOCK_BYTES)
                self._seal(parts)
                made += 1

    def _seal(self, parts: list[Part]) -> None:
        image = sealed(Chunk.joined([part.chunk for part in parts]))
        summary = image.summary
        first = summary.first
        shelf = self._shelf
        for start in range(0, len(image.pages), PAGES_AT_ONCE):
            pages = image.pages[start : start + PAGES_AT_ONCE]
            shelf.write([], [], [(page_key(first, start + at), page) for at, page in enumerate(pages)])
        crash_point("store-in-seal")
        extent = image.extent.pack()
        summary = summary._replace(size=summary.size + len(extent))
        shelf.write(
            [
                (position_key(BLOCK, first), summary.pack()),
                (position_key(INDEX, first), image.places),
                (position_key(EXTENT, first), extent),
            ],
            [key for part in parts for key in part.keys],
        )
        crash_point("store-after-seal")
        with self._lock:
            self._blocks = [*self._blocks, summary]
            self._tail.drop(parts)
            self._more.notify_all()
        self.tell_watchers()

    def _seal_again_and_again(self) -> None:
        while True:
            with self._lock:
                while not self._closing and not self._enough():
                    self._more.wait()
                if self._closing:
                    return
            try:
                self.seal()
                self._is_full = False
            except DiskFull as error:
                if not self._is_full:
                    log.warning("messages cannot be put into a block until there is room: %s", error)
                with self._lock:
                    self._is_full = True
                    self._more.notify_all()
                    self._more.wait_for(lambda: self._closing, AGAIN)
            except Exception as error:
                log.exception("messages cannot be put into a block")
                with self._lock:
                    failed = error if isinstance(error, StorageError) else StorageError(f"no block: {error!r}")
                    self._error = failed
                    self._more.notify_all()
                return

    # ---- keeping -----------------------------------------------------------------------------------------------

    def trim(self, now: int) -> Trimmed:
        self._seal_what_is_due(now)
        with self._sealing, self._readers.lock:
            with self._lock:
                blocks, tail = self._blocks, self._tail.size
            extents = [Extent(block.first, block.end, block.size, block.newest) for block in blocks]
            size = sum(block.size for block in blocks) + tail
            history, readers = self._in_history, self._readers.all()
            waiting = readers if history is None else holding(readers, history[1])
            gone, held_by = trimmed(extents, size, waiting, self.retention, now)
            if gone:
                crash_point("store-before-trim")
                self._remove(blocks[:gone])
                crash_point("store-after-trim")
            removed = sum(extent.size for extent in extents[:gone])
            messages = sum(extent.end - extent.first for extent in extents[:gone])
        if gone:
            self.tell_watchers()
        return Trimmed(self.first, messages, removed, held_by)

    def _seal_what_is_due(self, now: int) -> None:
        """Messages that are in no block yet may be too old, or too many, too."""
        with self._lock:
            parts = self._tail.parts
            ages = [each for each in (self.retention.age, self.retention.seal_age) if each is not None]
            age, most = min(ages, default=None), self.retention.size
            due = bool(parts) and (
                (age is not None and int(parts[0].chunk.arrival[0]) < now - age)
                or (most is not None and self._tail.size > most)
            )
        if due:
            self.seal(everything=True)

    def _remove(self, blocks: list[Summary]) -> None:
        """The first blocks, for good; the readers that have not read them are told when they come."""
        end = blocks[-1].end
        extents = [self._shelved.extent(block) for block in blocks]
        readers = self._readers.all()
        self._readers.overtaken(without(readers if self._in_history is None else inside(readers), end))
        keys = [position_key(kind, block.first) for block in blocks for kind in (BLOCK, INDEX, EXTENT, ERASED)]
        with self._lock:
            self.first = end
            self._blocks = self._blocks[len(blocks) :]
            self._shelved.forget(blocks)
            for extent in extents:
                self._topics.remove_extent(extent)
            gone = {int(number) for extent in extents for number in extent.topic}
            unused = self._topics.unused(gone - self._coming)
            # With the lock: a topic that comes again has another number, whose record is written after this. And before
            # its name is forgotten: who still finds the pages still finds the name.
            self._shelf.remove(
                [*keys, *(topic_key(number) for number in unused)], [(NEXT, str(end).encode())], pages_before=end
            )
            self._topics.drop(unused)
        self._shelf.sync()

    def moved(self, first: int, end: int) -> None:
        """All positions of [first, end) that have a message are in object storage, and can be read there; what was
        before `first` is gone. Readers that had not come to that are told when they come."""
        with self._readers.lock:
            self._in_history = first, end
            self._readers.overtaken(without(self._readers.all(), self.reachable))
        self.tell_watchers()

    @property
    def in_history(self) -> tuple[int, int]:
        """As it was told last; (0, 0): it has not been."""
        return self._in_history or (0, 0)

    @property
    def reachable(self) -> int:
        first, end = self._in_history or (0, 0)
        return min(first, self.first) if first < end else self.first

    def compact(self) -> None:
        self._shelf.compact()

    def give_back(self) -> None:
        self._shelf.give_back(self.first)

    def prepare_checkpoint(self) -> None:
        """Leave little to do for one that follows: what was written goes to sorted files."""
        self._shelf.flush()

    def checkpoint(self, path: Path) -> None:
        """Make `path`, which does not exist, a store with all that was synced."""
        self._folder.copy(path, self._shelf.checkpoint)

    def check_readable(self) -> None:
        """Read everything once. Raises StorageError if some of it is damaged."""
        for kind in (BLOCK, INDEX, EXTENT):
            for _ in self._shelf.scan(kind):
                pass
        for _ in self._shelf.all_pages():
            pass

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._more.notify_all()
        if self._sealer is not None:
            self._sealer.join()
        try:
            self._shelf.close()
        finally:
            self._folder.release()


def _opened(folder: MessagesFolder, cache: int) -> Shelf:
    try:
        return Shelf(folder.database, cache, folder.is_new)
    except DamagedLog as error:
        raise damaged(folder.database) from error
