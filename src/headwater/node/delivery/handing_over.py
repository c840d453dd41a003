"""The source's side of handing a delivery store to another node while this one runs (store/hand_over.py).

    begin     a hand-over has an id; an earlier one that came to nothing is forgotten
    copy      a consistent copy of what is on disk; the target fetches its files, and again what has changed, in rounds
    freeze    nothing is taken any more: whoever is connected is not read from, until the hand-over is done, or
              `seconds` are over. Nothing is refused, but what comes by REST, which is told to try again
    copy      the last, small difference
    fence     the right to the store goes to the target, if that has all of it; this node stores nothing from then on
    release   who waits is read from again. Before, somebody has to say where messages of these topics go now; in an
              edge the nodes do that by themselves (node/links/yielding.py)

Theory. The copy is RocksDB's checkpoint, whose sorted files never change and are linked, so a round costs what has come
since the last. Not all can be held back: a will is published, and who has just connected is read from once. So the
fence holds for the position that the target has got, and is refused if more has been taken since: then there is another
round. Between looking at the position and the fence nothing else has its turn, as both are done by the loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import StorageError
from headwater.node.persistence.folder import MESSAGES, unused_name
from headwater.store.hand_over import Fence

if TYPE_CHECKING:
    from headwater.node.persistence.committing import ThreadCommitter
    from headwater.node.protocol.server import Server
    from headwater.store.disk_store import DiskStore

log = logging.getLogger("headwater.edge")

LONGEST_FREEZE: Final = 60.0
LOOK: Final = 0.002
"""Seconds between two looks whether all that was taken is on disk."""
IDLE: Final = 600.0
"""Seconds after which a copy that nobody asks for any more is deleted: it keeps files from being removed."""


class HandOverRefused(ValueError):
    """Not now, or not so; the text says why."""


class PartInEdge(Protocol):
    """Of the node: its topics go where its store goes (node/links/yielding.py)."""

    def may_hand_over(self) -> None:
        """Raises ValueError."""

    def handed_over(self, fence: Fence, done: Callable[[], None]) -> None:
        """In a turn; `done` is told when the topics have gone, too."""


class HandingOver:
    """Used by the broker's loop."""

    def __init__(self, server: Server, store: DiskStore, committer: ThreadCommitter, data: Path) -> None:
        self._server = server
        self._store = store
        self._committer = committer
        self._data = data
        self._id = ""
        self._to = ""
        self._copy: Path | None = None
        self._is_copying = False
        self._forgetting: asyncio.TimerHandle | None = None
        self._removing: asyncio.Future[None] | None = None
        self._sums: dict[tuple[str, int], str] = {}
        """SHA-256 of sorted files, by name and size: they never change."""
        self._frozen_at: float | None = None
        self._thawing: asyncio.TimerHandle | None = None
        self._fence: Fence | None = None
        self.owning: PartInEdge | None = None
        """None: the node has none."""

    def state(self) -> dict[str, Any]:
        frozen = None if self._frozen_at is None else time.monotonic() - self._frozen_at
        fence = None if self._fence is None else self._fence._asdict()
        return {"store": self._store.id, "hand_over": self._id, "to": self._to, "frozen": frozen, "fence": fence}

    def begin(self, to: str) -> dict[str, Any]:
        """Raises HandOverRefused."""
        if self._fence is not None:
            raise HandOverRefused(f"the store was handed over to {self._fence.to} at position {self._fence.position}")
        if self._frozen_at is not None:
            if to != self._to:
                raise HandOverRefused(f"the store is going to {self._to} at this moment")
            self._thaw()  # it was killed in between, and begins anew
        self._check_edge()
        self._id, self._to = uuid.uuid4().hex, to
        log.info("handing the store %s over to %s", self._store.id, to)
        return self.state()

    async def copy(self, hand_over: str) -> dict[str, Any]:
        """What the copy is made of. Raises HandOverRefused, StorageError."""
        self._check(hand_over)
        if self._is_copying:
            raise HandOverRefused("a copy is being made already")
        self._is_copying = True
        try:
            copied = await asyncio.to_thread(self._copied)
            await self._remove_copy()
        finally:
            self._is_copying = False
        self._copy, files, first, next = copied
        self._forget_later()
        return {"files": files, "first": first, "next": next}

    async def _remove_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            await asyncio.to_thread(shutil.rmtree, copy, True)

    def _forget_later(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        loop = asyncio.get_running_loop()
        self._forgetting = loop.call_later(IDLE, self._forget_copy)

    def _copied(self) -> tuple[Path, list[dict[str, Any]], int, int]:
        path = self._data / unused_name(self._data, "snapshot")
        store = self._store
        try:
            path.mkdir(mode=0o700)
            store.prepare_checkpoint()
            with self._committer.between:
                first, next = store.first, store.next
                store.checkpoint(path / MESSAGES)
            found = [each for each in (path / MESSAGES).rglob("*") if each.is_file()]
            return path, [self._described(each, path / MESSAGES) for each in sorted(found)], first, next
        except BaseException as error:
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                raise StorageError(f"cannot copy {store.path}: {error.strerror or error}") from None
            raise

    def _forget_copy(self) -> None:
        self._removing = asyncio.ensure_future(self._remove_copy())

    def _described(self, path: Path, within: Path) -> dict[str, Any]:
        name, size = str(path.relative_to(within)), path.stat().st_size
        known = self._sums.get((name, size)) if path.suffix == ".sst" else None
        if known is None:
            with open(path, "rb") as file:
                known = hashlib.file_digest(file, "sha256").hexdigest()
            if path.suffix == ".sst":
                self._sums[name, size] = known
        return {"name": name, "size": size, "sha256": known}

    def file(self, hand_over: str, name: str) -> str:
        """Where a file of the last copy is. Raises HandOverRefused."""
        self._check(hand_over)
        folder = None if self._copy is None else self._copy / MESSAGES
        path = None if folder is None or "\0" in name else (folder / name).resolve()
        if folder is None or path is None or not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise HandOverRefused(f"the copy has no file {name!r}")
        self._forget_later()
        return str(path)

    async def freeze(self, hand_over: str, seconds: float) -> dict[str, Any]:
        """All that was taken is on disk when this returns. Raises HandOverRefused."""
        self._check(hand_over)
        server = self._server
        if self._frozen_at is None:
            self._frozen_at = time.monotonic()
            server.hot.no_room = True
            for channel in list(server.channels):
                server.outruns_store(channel)
            loop = asyncio.get_running_loop()
            self._thawing = loop.call_later(min(seconds, LONGEST_FREEZE), self._thaw_in_time, hand_over)
        while self._is_behind():
            if self._frozen_at is None:
                raise HandOverRefused("what was taken did not come to disk in time")
            server.plane.wake()
            await asyncio.sleep(LOOK)
        crash_point("hand-over-frozen")
        return self.state()

    def _is_behind(self) -> bool:
        coordinator = self._server.coordinator
        assert coordinator is not None
        return coordinator.pending > 0 or coordinator.intake.next != self._store.next

    def fence(self, hand_over: str, position: int) -> dict[str, Any]:
        """The target has all up to the position. Raises HandOverRefused if there is more by now, or StorageError."""
        self._check(hand_over)
        coordinator = self._server.coordinator
        assert coordinator is not None
        if self._fence is not None:
            return self.state()
        if self._frozen_at is None:
            raise HandOverRefused("messages are taken again: the time of the freeze is over")
        if self._is_behind() or self._store.next - 1 != position:
            raise HandOverRefused(f"more was taken: up to {coordinator.intake.next - 1}, not {position}")
        self._check_edge()
        crash_point("hand-over-before-fence")
        filters, coordinator.filters = coordinator.filters, []
        try:
            self._fence = self._store.hand_over(hand_over, self._to)
        except StorageError:
            coordinator.filters = filters
            raise
        coordinator.removed()  # fan-outs forget that topics are stored here
        if self._thawing is not None:
            self._thawing.cancel()
        crash_point("hand-over-fenced")
        log.warning(
            "the store %s is %s's from position %d on; publishers wait until it is said who has their topics",
            *(self._store.id, self._to, position + 1),
        )
        if self.owning is not None:
            with self._server.turn():
                self.owning.handed_over(self._fence, self._thaw)
        return self.state()

    def _check_edge(self) -> None:
        try:
            if self.owning is not None:
                self.owning.may_hand_over()
        except ValueError as error:
            raise HandOverRefused(str(error)) from None

    async def release(self, hand_over: str) -> dict[str, Any]:
        """Who waits is read from. Before the fence, this ends the hand-over; after it, publishers at a node of an edge
        wait until the topics have gone, too. Raises HandOverRefused."""
        self._check(hand_over)
        if self._fence is None or self.owning is None:
            self._thaw()
        if self._fence is None:
            self._id = ""
        await self._remove_copy()
        return self.state()

    def _thaw_in_time(self, hand_over: str) -> None:
        if self._id == hand_over and self._fence is None and self._frozen_at is not None:
            log.warning("%s did not take the store over in time: messages are taken again", self._to)
            self._thaw()

    def _thaw(self) -> None:
        if self._thawing is not None:
            self._thawing.cancel()
        if self._frozen_at is None:
            return
        self._frozen_at = None
        hot = self._server.hot
        hot.no_room = self._committer.is_paused
        self._server.store_keeps_up()

    def _check(self, hand_over: str) -> None:
        if not hand_over or hand_over != self._id:
            raise HandOverRefused("this hand-over has ended, or another one has begun")
