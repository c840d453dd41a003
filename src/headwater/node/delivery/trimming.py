"""Retention of the delivery store, looked after once a minute by a thread of its own: removing takes as long as it
takes, and nobody waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from headwater.disk.errors import StorageError
from headwater.store.store import Store

log = logging.getLogger("headwater.store")

EVERY: Final = 60.0


class Trimming:
    """`removed` is called by the thread after messages have been removed."""

    def __init__(self, store: Store, removed: Callable[[], object], every: float = EVERY) -> None:
        self._store = store
        self._removed = removed
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-trim", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when it is not at work any more; also if it never was."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._trim()
            self._stop.wait(self._every)

    def _trim(self) -> None:
        try:
            trimmed = self._store.trim(time.time_ns() // 1000)
        except StorageError as error:
            log.error("old messages cannot be removed: %s", error)  # if the disk has failed, the next commit says so
            return
        except Exception:
            log.exception("removing old messages failed")
            return
        if trimmed.messages:
            log.info("removed %d old messages, %d bytes; the first is %d", *trimmed[1:3], trimmed.first)
            self._removed()
