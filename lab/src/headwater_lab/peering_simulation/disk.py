"""A disk that takes its time: what is written is there when the commit that it is part of is done, or never.

One commit is under way at a time; what is written meanwhile is for the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.peering.spool import Block, MemoryStorage


class Disk:
    """What survives a crash of its node."""

    def __init__(self) -> None:
        self.boot = 0
        self.members: set[str] = set()
        self.spools = MemoryStorage()
        self.applied: dict[str, tuple[int, int]] = {}
        self.chunks: dict[tuple[str, int, int], bytes] = {}


class Batch:
    """Changes of one commit, and what is to happen when it is done."""

    def __init__(self) -> None:
        self.changes: list[Callable[[Disk], None]] = []
        self.then: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self.changes or self.then)


class JournaledSpools:
    """Spools as a node sees them while it lives: what is on disk, and what is on its way there."""

    def __init__(self, disk: Disk) -> None:
        self.batch = Batch()
        self._view = MemoryStorage()
        self._view.data = dict(disk.spools.data)

    def put(self, peer: str, block: Block, data: bytes) -> None:
        self._view.put(peer, block, data)
        self.batch.changes.append(lambda disk: disk.spools.put(peer, block, data))

    def get(self, peer: str, first: int) -> bytes:
        return self._view.get(peer, first)

    def drop(self, peer: str, first: int) -> None:
        self._view.drop(peer, first)
        self.batch.changes.append(lambda disk: disk.spools.drop(peer, first))

    def blocks(self, peer: str) -> list[Block]:
        return self._view.blocks(peer)
