"""A store whose blocks go to object storage, when a test says so; and what is seen of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.objects import open_place
from headwater.store.disk_store import DiskStore
from headwater.store.history.manifest import Catalog, Manifest
from headwater.store.history.mover import Mover, Progress
from headwater.store.history.reading import History
from headwater.store.history.sealed import SealedBlocks
from headwater.store.history.tiered import TieredStore
from headwater.store.retention import Retention
from tests.store.messages import MICROSECONDS, NOON, SECOND

LATE = NOON + 1_000_000 * SECOND
"""When everything is old."""


class Moving:
    """`store` is written to, `tiered` has all of it; `place` is a URL."""

    def __init__(
        self, folder: Path, place: str, options: dict[str, str] | None = None, keep: int | None = None, **store: Any
    ) -> None:
        store.setdefault("retention", Retention(age=SECOND))
        made: dict[str, Any] = {"id": "s1", "extraction": MICROSECONDS, "cache": 1 << 20, "seal_in_background": False}
        self.store = DiskStore(folder / "messages", has_history=True, **(made | store))
        self.blocks = SealedBlocks(folder / "messages" / "db", folder / "mover")
        self.catalog = Catalog(open_place(place, options), self.store.id)
        self.keep = keep
        self.begin()
        self.extent = (0, 0)
        self.history = History(place, self.store.id, options)
        self.tiered = TieredStore(self.store, self.history, lambda: self.extent)

    def begin(self) -> None:
        """As a mover does that has just been started."""
        self.mover = Mover(self.catalog, self.blocks, 0, self.keep)

    @property
    def manifest(self) -> Manifest:
        return self.catalog.load()

    def move(self, now: int = LATE, seal: bool = True) -> list[Progress]:
        """What is in the store goes to history, and stays on disk."""
        if seal:
            self.store.seal(everything=True)
        steps = []
        for step in self.mover.run(now, self.store.next, 0.0):
            self.told(step.first, step.end)
            steps.append(step)
        return steps

    def told(self, first: int, end: int) -> None:
        self.extent = first, end
        self.store.moved(first, end)

    def drop(self, now: int = LATE) -> None:
        """What is in history leaves the disk."""
        self.store.trim(now)

    def close(self) -> None:
        self.blocks.close()
        self.store.close()
