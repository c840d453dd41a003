"""Retention of the delivery store, looked after once a minute by a thread of its own: removing takes as long as it
takes, and nobody waits for it. While the disk has too little room, it is looked after at once and more often, and what
was removed is given back to the file system without delay."""

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
LEAST: Final = 0.5
HURRY: Final = 5.0


class Trimming:
    """`removed` is called by the thread after messages have been removed; `is_low` says that there is too little
    room."""

    def __init__(
        self,
        store: Store,
        removed: Callable[[], object],
        every: float = EVERY,
        is_low: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._removed = removed
        self._every = every
        self._is_low = is_low
        self._stop = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-trim", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when it is not at work any more; also if it never was."""
        self._stop.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wanted.clear()
            self._trim()
            self._wanted.wait(min(self._every, HURRY) if self._is_low() else self._every)

    def hurry(self) -> None:
        """There is too little room: do it now."""
        self._wanted.set()

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
        if self._is_low():
            self._give_back()

    def _give_back(self) -> None:
        try:
            self._store.give_back()
        except StorageError as error:
            log.warning("the room of removed messages cannot be given back yet: %s", error)
