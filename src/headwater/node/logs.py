"""Log lines written by a thread of their own.

Whoever reads our standard error may stop reading: a full pipe, a paused terminal. A write would then block, and with it
all clients; so lines wait in a bounded queue, and when that is full, further ones are counted and left out.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Final, TextIO

MAX_WAITING: Final = 10_000
FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class BackgroundHandler(logging.Handler):
    """Hands formatted lines to a thread that writes them."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._left_out and self._lines.qsize() < MAX_WAITING // 2:
                left_out, self._left_out = self._left_out, 0
                self._lines.put_nowait(f"({left_out} log lines were left out: nobody read them)")
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._left_out += 1
        except Exception:
            self.handleError(record)

    def finish(self, patience: float = 1.0) -> None:
        """Wait until all lines are written, but not for ever."""
        try:
            self._lines.put(None, timeout=patience)
        except queue.Full:
            return
        self._thread.join(patience)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                pass  # nobody can be told
