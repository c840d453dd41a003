"""The blocks of a store that another process writes, for whoever takes them to object storage.

A look at a database that another process writes may miss something for a moment (store/following.py); what is missing
is noticed, and looked for again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError
from headwater.store.block import Summary
from headwater.store.block_reader import BlockReader
from headwater.store.chunk import Chunk
from headwater.store.query import Query
from headwater.store.shelf import BLOCK, LOST, TOPIC, FollowedShelf, lost_ranges, position_key, topic_in, topic_key
from headwater.store.topic_table import TopicTable

ATTEMPTS: Final = 60
LONGEST_WAIT: Final = 0.1
CACHE: Final = 1 << 20


class SealedBlocks:
    """`path` is the store's database, `own` a folder for RocksDB's log of this process."""

    def __init__(self, path: Path, own: Path) -> None:
        self._shelf = FollowedShelf(path, own, CACHE)
        self._topics = TopicTable()
        self._reader = BlockReader(self._shelf, self._topics, CACHE)
        self._lost = lost_ranges(self._shelf.get(LOST))

    def look(self) -> None:
        """What has been written since the last time is seen from now on."""
        self._shelf.catch_up()

    def behind(self, position: int) -> list[Summary]:
        """The blocks with positions from there on."""
        found = (Summary.unpack(record) for _, record in self._shelf.scan_from(BLOCK, position_key(BLOCK, 0)))
        return [block for block in found if block.end > position]

    def chunk(self, block: Summary) -> Chunk | None:
        """Its messages; None: it has been removed. Raises StorageError."""
        self._shelf.reopen()  # messages may have been erased from it: what is gone must not come to history
        self._reader.forget_changed(block)
        for attempt in range(ATTEMPTS):
            for key, name in self._shelf.scan_from(TOPIC, topic_key(len(self._topics.names))):
                self._topics.restore(topic_in(key), name)
            try:
                found = self._reader.select(block, Query(), None)
                if all(found.names[number] for number in set(found.topic.tolist())):
                    return found
            except (StorageError, IndexError):
                if attempt == ATTEMPTS - 1:
                    raise
            time.sleep(min(LONGEST_WAIT, 0.001 * 2 ** min(attempt, 10)))
            self._shelf.catch_up()
            if self._shelf.get(position_key(BLOCK, block.first)) is None:
                return None
        raise StorageError(f"the topics of messages from position {block.first} on are not known")

    def begins(self, position: int) -> int:
        """Where a block begins that follows what ends before `position`, if what is between was lost by damage."""
        return next((end for first, end in self._lost if first == position), position)

    def close(self) -> None:
        self._shelf.close()
