"""Every store there is, for tests of what all of them promise."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.store.disk_store import BEHIND, DiskStore
from headwater.store.extract import Extraction
from headwater.store.memory import MemoryStore
from headwater.store.retention import Retention
from headwater.store.store import Store
from tests.store.followed import Followed

COMMIT = 10
"""Messages that a test may write together, if it asks how many are removed together."""


class Kind(NamedTuple):
    """A store on disk has blocks of about `block` messages, one in memory has none. `by_hand`: blocks are made when the
    test says so."""

    name: str
    block: int = 0
    by_hand: bool = False
    followed: bool = False
    """Whether what is written by one is read by another."""

    @property
    def on_disk(self) -> bool:
        return self.block > 0

    @property
    def grain(self) -> int:
        """More messages than this are not removed together. A block is made of whole commits, and of those that have
        come while the one before it was made."""
        return BEHIND * self.block + COMMIT if self.on_disk else 1

    def open(
        self,
        folder: Path,
        *,
        id: str | None = None,
        extraction: Extraction | None = None,
        retention: Retention | None = None,
    ) -> Store:
        if not self.on_disk:
            return MemoryStore(id, extraction, retention)
        return (Followed if self.followed else DiskStore)(
            folder,
            id=id,
            extraction=extraction,
            retention=retention,
            cache=1 << 20,
            block_messages=self.block,
            seal_in_background=not self.by_hand,
        )


MEMORY = Kind("memory")
ON_DISK = [Kind(f"disk-{block}", block) for block in (7, 64, 65536)]
"""Tests fill many blocks, some, and none."""
FOLLOWED = [Kind(f"followed-{block}", block, followed=True) for block in (7, 65536)]
KINDS = [MEMORY, *ON_DISK, *FOLLOWED]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
every_kind_on_disk = pytest.mark.parametrize("kind", ON_DISK, ids=lambda kind: kind.name)
