"""Batches on their way to the disk: a thread that writes and syncs while the loop goes on.

The loop hands over one batch at a time and is woken through a descriptor when it is on disk. Messages for the delivery
store come first, so that no session has been given one that the store does not have. A write or sync that fails ends
the broker: nobody can say what the disk has then, so no promise can be made any more. What was promised is kept.
`between` is held while a batch is written: who holds it finds store and backend as of the same commit.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable

from headwater.disk.crash_points import crash_point
from headwater.disk.errors import StorageError
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.batch import Batch, Committer
from headwater.node.persistence.journal import Journal
from headwater.node.persistence.notes import Notes
from headwater.node.server import Server
from headwater.store.intake import Taken
from headwater.store.store import Store

log = logging.getLogger("headwater.persistence")


class ThreadCommitter(Committer):
    """`failed` is called once, on the loop's thread, when the disk has failed."""

    def __init__(
        self,
        server: Server,
        backend: Backend,
        failed: Callable[[StorageError], None],
        store: Store | None = None,
    ) -> None:
        self.server = server
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
        self._idle.wait()  # what is asked for may be in the batch that is being written
        return self.backend.get(key)

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
            self._idle.wait()
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
            try:
                started = time.monotonic()
                with self.between:
                    if batch.taken is not None and self.store is not None:
                        self._store(self.store, batch.taken, self.notes.note_for(batch))
                    if batch.puts or batch.deletes:
                        self._write(batch)
                if self.journal is not None:
                    self.journal.seconds += time.monotonic() - started
            except StorageError as error:
                self.error = error
            except Exception as error:
                log.exception("a commit failed")
                self.error = StorageError(f"a commit failed: {error!r}")
            self._done = batch
            del batch  # not to be held until the next one comes
            self._idle.set()
            os.eventfd_write(self.descriptor, 1)

    def _store(self, store: Store, taken: Taken, note: bytes) -> None:
        started = time.monotonic()
        store.append(taken, note)
        store.sync()
        if self.server.coordinator is not None:
            self.server.coordinator.seconds += time.monotonic() - started

    def _write(self, batch: Batch) -> None:
        crash_point("before-write")
        self.backend.write(self.notes.numbered(batch), batch.deletes)
        crash_point("after-write")
        if batch.promises:
            self.backend.sync()
            crash_point("after-sync")
