"""Batches on their way to the disk: a thread that writes and syncs while the loop goes on.

The loop hands over one batch at a time and is woken through a descriptor when it is on disk. Messages for the delivery
store come first, so that no session has been given one that the store does not have. A write or sync that fails ends
the broker: nobody can say what the disk has then, so no promise can be made any more. What was promised is kept.
`between` is held while a batch is written: who holds it finds store and backend as of the same commit.

A disk that is full is not one that fails: the batch waits, nothing of it is promised, and it goes on with the step that
failed when there is room. So that this is rare, a part of the disk is reserved (disk/room.py): `is_paused` says that
who publishes has to wait, and `room_changed` is called on the loop's thread when that changes.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import DiskFull, StorageError
from headwater.disk.room import Room
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.batch import Batch, Committer
from headwater.node.persistence.journal import Journal
from headwater.node.persistence.notes import Notes
from headwater.node.protocol.server import Server
from headwater.store.store import Store

log = logging.getLogger("headwater.persistence")

LOOK: Final = Batch(0)
"""In place of one: look how much room there is."""
AGAIN: Final = 0.25
"""Seconds between two attempts to write to a disk that is full."""
MOST_ATTEMPTS: Final = 240
"""With room and without success: then RocksDB will not go on by itself, and a start has to mend it."""


class ThreadCommitter(Committer):
    """`failed` is called once, on the loop's thread, when the disk has failed."""

    def __init__(
        self,
        server: Server,
        backend: Backend,
        failed: Callable[[StorageError], None],
        store: Store | None = None,
        room: Room | None = None,
    ) -> None:
        self.server = server
        self.room = room
        self.room_changed: Callable[[], None] | None = None
        self.full: DiskFull | None = None
        """Why a batch waits for room."""
        self._was_paused = False
        self._waiting: Batch | None = None
        self._attempts = 0
        self._closing = threading.Event()
        self.backend = backend
        self.store = store
        self.notes = Notes(backend, store)
        self.failed = failed
        self.journal: Journal | None = None
        self.error: StorageError | None = None
        self._error_told = False
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._done: Batch | None = None
        self._idle = threading.Event()
        self._idle.set()
        self.between = threading.Lock()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="headwater-commit", daemon=True)
        self._thread.start()

    def start(self, batch: Batch) -> None:
        if self.error is None:
            self._idle.clear()
            self._batches.put(batch)

    def read(self, key: bytes) -> bytes | None:
        while not self._idle.wait(0.02):  # what is asked for may be in the batch that is being written
            waiting = self._waiting
            if waiting is not None:  # for room, perhaps for hours
                value = next((value for found, value in waiting.puts if found == key), None)
                return self.backend.get(key) if value is None else value
        return self.backend.get(key)

    @property
    def is_paused(self) -> bool:
        """Who publishes has to wait: there is too little room."""
        return self.full is not None or (self.room is not None and self.room.is_low)

    def look(self) -> None:
        """See how much room there is, soon."""
        self._batches.put(LOOK)

    def get(self, key: bytes) -> bytes | None:
        return self.backend.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.backend.scan(prefix)

    def has(self, key: bytes) -> bool:
        return self.backend.get(key) is not None

    def later(self, seconds: float) -> None:
        journal = self.journal
        assert journal is not None
        self.server.timers.at(self.server.hot.now + seconds, journal.begin)

    def give_up(self, error: Exception) -> None:
        log.error("a commit cannot be written", exc_info=error)
        self.error = StorageError(f"a commit cannot be written: {error!r}")
        os.eventfd_write(self.descriptor, 1)

    def ready(self) -> None:
        """On the loop's thread: a batch is done."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return
        self._finish()
        self.server.plane.wake()

    def _finish(self) -> None:
        if self.is_paused != self._was_paused:
            self._was_paused = not self._was_paused
            if self.room_changed is not None:
                self.room_changed()
        batch, self._done = self._done, None
        if self.error is not None:
            if not self._error_told:
                self._error_told = True
                self.failed(self.error)
                if self.journal is not None:
                    self.journal.failed()
        elif batch is not None and self.journal is not None:
            self.server.hot.now = time.monotonic()
            crash_point("before-acknowledge")
            self.journal.finished(batch)
            crash_point("after-acknowledge")

    def settle(self) -> None:
        """Wait until all that has changed is on disk and acknowledged. For the end, and nothing else is served."""
        journal = self.journal
        assert journal is not None
        hot = self.server.hot
        while True:
            while not self._idle.wait(0.1):
                if self._waiting is not None:
                    self._closing.set()  # nobody was promised anything of it
            self._finish()
            if self.error is not None:
                return
            if hot.changed:
                hot.flush()
            journal.begin()
            if not journal.running:
                return

    def close(self) -> None:
        """End the thread and let go of the folders; what has not been committed is not there any more."""
        self._batches.put(None)
        self._thread.join()
        os.close(self.descriptor)
        try:
            try:
                if self.store is not None:
                    self.store.close()
            finally:
                self.backend.close()
        except StorageError as error:
            if self.error is None:
                raise
            log.debug("closing after a failure: %s", error)

    def _run(self) -> None:
        while True:
            batch = self._batches.get()
            if batch is None:
                return
            if batch is LOOK:
                self._look()
                continue
            try:
                started = time.monotonic()
                self._commit(batch)
                if self.journal is not None:
                    self.journal.seconds += time.monotonic() - started
            except StorageError as error:
                self.error = error
            except Exception as error:
                log.exception("a commit failed")
                self.error = StorageError(f"a commit failed: {error!r}")
            self._waiting = None
            self._done = batch
            del batch  # not to be held until the next one comes
            self._idle.set()
            os.eventfd_write(self.descriptor, 1)

    def _commit(self, batch: Batch) -> None:
        self._look()
        if self.room is not None:
            while self.room.look() < self.room.floor:
                self._wait_for_room(batch, DiskFull(f"the disk of {self.room.path} is full; make room"))
        steps = self._steps(batch)
        at = 0
        while at < len(steps):
            try:
                with self.between:
                    while at < len(steps):
                        steps[at]()
                        at += 1
            except DiskFull as error:
                self._wait_for_room(batch, error)
        if self.full is not None:
            self._waiting = self.full = None
            self._attempts = 0
            self._look()

    def _steps(self, batch: Batch) -> list[Callable[[], None]]:
        """What has to be done, one after the other; a step that finds the disk full has done nothing."""
        steps: list[Callable[[], None]] = []
        store, taken = self.store, batch.taken
        if taken is not None and store is not None:
            steps.append(self._timed(lambda: store.append(taken, self.notes.note_for(batch))))
            steps.append(self._timed(store.sync))
        if batch.puts or batch.deletes:
            puts: list[tuple[bytes, bytes]] = []

            def write() -> None:
                if not puts:
                    puts.extend(self.notes.numbered(batch))
                crash_point("before-write")
                self.backend.write(puts, batch.deletes)
                crash_point("after-write")

            steps.append(write)
            if batch.promises:
                steps.append(self._sync)
        return steps

    def _sync(self) -> None:
        self.backend.sync()
        crash_point("after-sync")

    def _timed(self, step: Callable[[], None]) -> Callable[[], None]:
        def timed() -> None:
            started = time.monotonic()
            step()
            if self.server.coordinator is not None:
                self.server.coordinator.seconds += time.monotonic() - started

        return timed

    def _look(self) -> None:
        """Tell the loop if it matters how much room there is."""
        if self.room is not None:
            self.room.look()
        if self.is_paused != self._was_paused:
            os.eventfd_write(self.descriptor, 1)

    def _wait_for_room(self, batch: Batch, error: DiskFull) -> None:
        """Return when it is worth another attempt. Raises StorageError when the broker stops, or attempts have failed
        for too long though there is room."""
        self._waiting, self.full = batch, error
        self._look()
        if self._closing.wait(AGAIN):
            raise error
        if self.room is None or not self.room.is_low:
            self._attempts += 1
            if self._attempts > MOST_ATTEMPTS:
                raise StorageError(f"there is room, and writing fails all the same; start again: {error}")
