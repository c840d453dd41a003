"""The node's side of the process that brings blocks to object storage: starts it, hears it, starts it again if it ends.

What it says is what the store may drop: it has read the manifest, or written it. Until it has spoken, nothing is.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from typing import Any, Final

from headwater.node.delivery.figures import HistorySeen
from headwater.node.delivery.history_settings import HistorySettings
from headwater.store.disk_store import DiskStore

log = logging.getLogger("headwater.history")

PROGRAM: Final = "from headwater.node.delivery.history_child import main; main()"
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
STEADY: Final = 60.0
"""Seconds after which a process that ends is started again as if it were the first time."""
FAREWELL: Final = 5.0


class HistoryProcess:
    """`start` it when the store is open, and `stop` it before that is closed."""

    def __init__(self, store: DiskStore, settings: HistorySettings) -> None:
        self._store = store
        self._settings = settings
        self.seen = HistorySeen(settings.url)
        self._process: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-history", daemon=True)

    @property
    def options(self) -> dict[str, str]:
        """How the place is reached, credentials with it: for other processes of this node."""
        return self._settings.revealed()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when its process has ended; what is under way is begun again at the next start."""
        self._stopped.set()
        process = self._process
        if process is not None:
            process.terminate()
        if self._thread.is_alive():
            self._thread.join()

    def view(self) -> dict[str, Any]:
        return asdict(self.seen)

    # ---- the process -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            ended = self._live()
            if self._stopped.is_set():
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY else pause
            log.error("the history process ended (%s); it is started again in %g s", ended, pause)
            self._stopped.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _live(self) -> str:
        path = os.pathsep.join(each for each in sys.path if each)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            return f"it could not be started: {error}"
        with process:
            self._process = process
            try:
                self._talk(process)
            finally:
                self._process = None
                process.terminate()
                try:
                    process.wait(FAREWELL)
                except subprocess.TimeoutExpired:
                    process.kill()
        return f"exit code {process.returncode}"

    def _talk(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        settings = self._settings
        begin = {
            "store": self._store.id,
            "folder": str(self._store.path.absolute()),
            "next": self._store.next,
            "url": settings.url,
            "after": round(settings.after * 1e6),
            "keep": round(settings.keep_for * 1e6) or None,
            "options": self.options,
        }
        try:
            if self._stopped.is_set():
                return
            process.stdin.write(f"{json.dumps(begin)}\n")
            process.stdin.flush()
            for line in process.stdout:
                self._heard(json.loads(line))
        except (OSError, ValueError) as error:
            log.debug("the history process: %s", error)

    def _heard(self, said: dict[str, Any]) -> None:
        if "failure" in said:
            self._failed(said["failure"], said["for_good"])
            return
        seen = self.seen
        if seen.failure:
            log.warning("object storage at %s answers again", seen.url)
        moved = time.time() if said["end"] > seen.end > 0 else seen.moved_at
        self.seen = replace(seen, failure="", failed_since=None, moved_at=moved, **said)
        if (said["first"], said["end"]) != (seen.first, seen.end):
            self._store.moved(said["first"], said["end"])

    def _failed(self, failure: str, for_good: bool) -> None:
        seen = self.seen
        if for_good:
            log.error("no messages go to object storage: %s", failure)
        elif not seen.failure:
            log.warning("object storage is away, blocks stay on the disk until it is back: %s", failure)
        since = seen.failed_since if seen.failure else time.time()
        self.seen = replace(seen, failure=failure, failed_since=since, failures=seen.failures + 1)
