"""A store whose log was damaged: what was lost, and a store again of what is whole.

Theory. After `salvage` (disk/repair.py) some batches are missing in the middle. What that means depends on what they
were:

    messages of a commit       their positions are a gap, which is recorded: they are never given again. If no later
                               commit says how many they were, as many positions are left out as can have been there
    the first of a topic       its name is lost with it; its later messages are kept under `$lost/NUMBER`
    pages of a block           the batch that makes the block visible is left out, too, so that the messages stay in the
                               log: nothing is lost
    a block becoming visible   the same; if later blocks are there, it is made again, since the log is behind all blocks
    removal by retention       what is before the position that it left is removed; else it happens again
    a reader's commit          it is as it was before
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from headwater.disk.errors import StorageError
from headwater.disk.repair import Damage, DamagedLog, examine, salvage
from headwater.disk.wal import Batch, Change, changes_of
from headwater.store.block import Summary, TopicExtent, sealed
from headwater.store.chunk import Chunk
from headwater.store.messages_folder import MessagesFolder
from headwater.store.page import decode, rows_in
from headwater.store.shelf import (
    BLOCK,
    EXTENT,
    INDEX,
    LOG,
    LOST,
    NEXT,
    TOPIC,
    Shelf,
    lost_ranges,
    page_key,
    page_place,
    position_in,
    position_key,
    topic_in,
    topic_key,
)

NAMELESS: Final = "$lost/"
LEAST_BYTES: Final = 45
"""Of a message in a commit: its columns (page.py)."""
MOST_MESSAGES: Final = 1 << 21
"""Of a commit: what `store.max_pending` allows is less."""
CACHE: Final = 8 * 1024 * 1024
Ranges = list[tuple[int, int]]
_ANY_NAMES: Final = cast(Sequence[str], range(1 << 31))
"""For who wants to know the numbers."""


class Mended(NamedTuple):
    """`lost` are positions, each range with the one behind its last; `nameless` topics whose names are not known."""

    lost: Ranges
    nameless: int
    blocks: int
    """That were made again."""

    def __str__(self) -> str:
        if not any(self):
            return "all messages are there"
        ranges = ", ".join(f"{first} to {end - 1}" for first, end in self.lost) or "none"
        return (
            f"positions lost: {ranges}; topics whose names are lost: {self.nameless}; blocks made again: {self.blocks}"
        )


class LostPositions:
    """Which positions are missing between the commits in whole batches of the logs, and in no block that was made."""

    def __init__(self) -> None:
        self._gaps: Ranges = []
        self._blocks: Ranges = []
        self._next = 0
        self._since = 0
        """Batches since the last commit of messages."""

    def see(self, batch: Batch) -> None:
        self._since += 1
        for change in _changes(batch):
            if change.family or change.value is None:
                continue
            if change.key.startswith(LOG):
                position = position_in(change.key)
                if self._next and position > self._next:
                    self._gaps.append((self._next, position))
                self._next = position + rows_in(change.value)
                self._since = 0
            elif change.key.startswith(BLOCK):
                self._blocks.append(Summary.unpack(change.value)[:2])

    def behind(self, damages: list[Damage]) -> int:
        """How many messages at most were lost behind the last commit that is whole."""
        return sum(
            (each.end - each.begin) // LEAST_BYTES if each.end > each.begin else (each.lost or 0) * MOST_MESSAGES
            for each in damages
            if each.batches <= self._since
        )

    def __str__(self) -> str:
        lost = [gap for gap in self._gaps if not any(first <= gap[0] < end for first, end in self._blocks)]
        return " and ".join(f"messages {first} to {end - 1}" for first, end in lost)


def examine_messages(database: Path) -> tuple[list[Damage], str]:
    """All damage of its logs, and which messages are lost, as far as they know."""
    lost = LostPositions()
    damages = examine(database, lost.see)
    return damages, str(lost)


def damaged(database: Path) -> DamagedLog:
    """Of a log that is damaged in the middle, with which messages are lost."""
    damages, lost = examine_messages(database)
    return DamagedLog(database, [each for each in damages if each.batches], f"lost: {lost}" if lost else "")


def repair_messages(path: Path, kept: Path) -> Mended:
    """The store of messages in a folder that nobody uses; damaged logs go to `kept`, a folder that is made if there are
    some. Raises StorageError."""
    folder = MessagesFolder(path, None, create=False)
    try:
        lost, pages = LostPositions(), _Pages()

        def see(batch: Batch) -> None:
            lost.see(batch)
            pages.see(batch)

        damages = examine(folder.database, see)
        if damages:
            salvage(folder.database, kept, pages.keeps)
        shelf = Shelf(folder.database, CACHE, False, repaired=True)
        try:
            return _mended(shelf, lost.behind(damages))
        finally:
            shelf.close()
    finally:
        folder.release()


class _Pages:
    """Whether all pages of a block are in whole batches of the logs, so that it may become visible."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def see(self, batch: Batch) -> None:
        for change in _changes(batch):
            if change.family != 0 and change.value is not None and not change.is_range:
                first = page_place(change.key)[0]
                self._known[first] = self._known.get(first, 0) + 1

    def keeps(self, batch: Batch) -> bool:
        return all(
            self._known.get(position_in(change.key), 0) >= Summary.unpack(change.value).pages
            for change in _changes(batch)
            if change.family == 0 and change.value is not None and change.key.startswith(BLOCK)
        )


def _changes(batch: Batch) -> Iterator[Change]:
    try:
        yield from changes_of(batch)
    except ValueError as error:
        raise StorageError(f"a log has {error}, which this version does not know; restore a backup") from None


def _mended(shelf: Shelf, behind: int) -> Mended:
    begins = int(shelf.get(NEXT) or b"1")
    blocks = _Blocks(shelf, begins)
    nameless = blocks.name_topics()
    made = blocks.bring_in_order()
    lost = blocks.gaps(begins, behind)
    known = lost_ranges(shelf.get(LOST))
    new = [each for each in lost if each not in known]
    if new:
        shelf.write([(LOST, json.dumps([*known, *new]).encode())])
    shelf.sync()
    return Mended(new, nameless, made)


class _Blocks:
    """Blocks and records of the log, as the salvaged batches left them; `begins` is what retention left."""

    def __init__(self, shelf: Shelf, begins: int) -> None:
        self._shelf = shelf
        self.blocks: list[Summary] = []
        self.records: list[tuple[bytes, bytes]] = []
        self.names = {topic_in(key): name for key, name in shelf.scan(TOPIC)}
        stale: list[bytes] = []
        for _, record in shelf.scan(BLOCK):
            block = Summary.unpack(record)
            if block.end <= begins:  # its removal was lost, and a later one took its pages
                stale += [position_key(kind, block.first) for kind in (BLOCK, INDEX, EXTENT)]
            else:
                self.blocks.append(block)
        for key, record in shelf.scan(LOG):
            first, end = position_in(key), position_in(key) + rows_in(record)
            if end <= begins or any(block.first <= first < block.end for block in self.blocks):
                stale.append(key)
            else:
                self.records.append((key, record))
        shelf.write([], stale)

    def name_topics(self) -> int:
        """Give names to the topics that have lost theirs; how many."""
        used: set[int] = set()
        for _, record in self.records:
            used.update(decode(record, _ANY_NAMES, None).topic.tolist())
        for block in self.blocks:
            used.update(TopicExtent.unpack(self._shelf.get(position_key(EXTENT, block.first)) or b"").topic.tolist())
        new = {number: f"{NAMELESS}{number}".encode() for number in sorted(used - self.names.keys())}
        self._shelf.write([(topic_key(number), name) for number, name in new.items()])
        self.names |= new
        return len(new)

    def bring_in_order(self) -> int:
        """Make blocks of the records that are before the last block; how many."""
        made = 0
        for at, block in enumerate(list(self.blocks)):
            behind = self.blocks[at - 1 + made].end if at + made else 0
            between = [each for each in self.records if behind <= position_in(each[0]) < block.first]
            if between:
                self.blocks.insert(at + made, self._block_of(between, block.first))
                self.records = [each for each in self.records if each not in between]
                made += 1
        return made

    def _block_of(self, records: list[tuple[bytes, bytes]], end: int) -> Summary:
        names = [self.names.get(number, b"").decode() for number in range(max(self.names, default=-1) + 1)]
        image = sealed(Chunk.joined([decode(record, names, None) for _, record in records]))
        first = image.summary.first
        self._shelf.remove_pages_from(first, end)
        for at, page in enumerate(image.pages):
            self._shelf.write([], [], [(page_key(first, at), page)])
        extent = image.extent.pack()
        summary = image.summary._replace(size=image.summary.size + len(extent))
        self._shelf.write(
            [
                (position_key(BLOCK, first), summary.pack()),
                (position_key(INDEX, first), image.places),
                (position_key(EXTENT, first), extent),
            ],
            [key for key, _ in records],
        )
        return summary

    def gaps(self, begins: int, more: int) -> Ranges:
        """Between what is there, and `more` behind it. Before the first block nothing is missing: retention took it."""
        pieces = [(block.first, block.end) for block in self.blocks]
        pieces += [(position_in(key), position_in(key) + rows_in(record)) for key, record in self.records]
        behind = self.blocks[0].first if self.blocks else begins
        found: Ranges = []
        for first, end in pieces:
            if first > behind:
                found.append((behind, first))
            behind = end
        return [*found, (behind, behind + more)] if more else found
