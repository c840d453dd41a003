"""Brings sealed blocks of a store to object storage, one behind the other, and keeps them there as long as is said.

    a block is old enough          by the arrival of its last message
    Parquet, read again here       the same messages, compared column by column
    the object, read again there   the same bytes
    a manifest that names it       from now on it is history
    the node is told               and may drop the block, when its disk is to be freed

Who is killed between two of these begins again with the first block that no manifest names. What was put and is not
named is put again, under the same name if it is the same bytes, or is removed by a later `sweep`. So each position is
in history once, or not yet. Only the node drops blocks, and only what a manifest names, or what its hard limits say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import StorageError
from headwater.store.block import Summary
from headwater.store.history.manifest import ORPHAN_AFTER, Catalog, Conflict, Entry, Manifest
from headwater.store.history.sealed import SealedBlocks
from headwater.store.history.writing import check_same, stored, written

log = logging.getLogger("headwater.history")

NONE: Final = -1


class Progress(NamedTuple):
    """What is in history: [first, end). `waiting` are blocks that are old enough and are not there."""

    first: int
    end: int
    objects: int
    rows: int
    size: int
    waiting: int


class Mover:
    """`after` and `keep` in microseconds since arrival; what is kept for None is kept for ever."""

    def __init__(self, catalog: Catalog, blocks: SealedBlocks, after: int, keep: int | None = None) -> None:
        self._catalog = catalog
        self._blocks = blocks
        self._after = after
        self._keep = keep
        self._manifest: Manifest | None = None
        self._is_swept = False

    def run(self, now: int, next: int, older: float = ORPHAN_AFTER) -> Iterator[Progress]:
        """Bring what is due, and tell after each step how far it is. `next` is the store's. Raises PlaceError, when it
        is to be tried again later, Conflict, when it is to be begun again, and StorageError."""
        try:
            yield from self._run(self._known(next), now, older)
        except Conflict:
            self._manifest = None
            raise

    def _run(self, manifest: Manifest, now: int, older: float) -> Iterator[Progress]:
        self._blocks.look()
        due = [block for block in self._blocks.behind(manifest.end) if block.newest < now - self._after]
        yield _progress(manifest, len(due))
        for at, block in enumerate(due):
            manifest = self._moved(manifest, block)
            yield _progress(manifest, len(due) - at - 1)
        if self._keep is not None:
            changed = self._manifest = self._catalog.drop_before(manifest, now - self._keep)
            if changed is not manifest:
                yield _progress(changed, 0)
                manifest = changed
        if not self._is_swept:
            self._catalog.sweep(manifest, older)
            self._is_swept = True

    def _known(self, next: int) -> Manifest:
        if self._manifest is None:
            found = self._catalog.load()
            if found.end > next:
                raise StorageError(
                    f"the history at {self._catalog.place.url} has the store {found.store} up to {found.end - 1}, and "
                    f"here it ends at {next - 1}: this is an older copy; give the store another id, or the history "
                    "another url"
                )
            self._manifest = found
        return self._manifest

    def _moved(self, manifest: Manifest, block: Summary) -> Manifest:
        chunk = self._blocks.chunk(block)
        if chunk is None:
            return manifest  # retention's hard limits were quicker
        if block.first < manifest.end:
            raise StorageError(f"a block begins at {block.first}, within the history, which goes to {manifest.end - 1}")
        first = manifest.end if self._blocks.begins(manifest.end) == block.first else block.first
        entry = Entry("", first, block.end, len(chunk), 0, "", block.earliest, block.latest, block.newest)
        content = written(chunk)
        check_same(content, chunk, entry)
        crash_point("history-before-put")
        entry = stored(self._catalog, entry, content)
        crash_point("history-after-put")
        self._manifest = self._catalog.add(manifest, entry)
        return self._manifest


def _progress(manifest: Manifest, waiting: int) -> Progress:
    return Progress(manifest.first, manifest.end, manifest.objects, manifest.rows, manifest.size, waiting)
