"""A forked process that tells something on a pipe, line by line."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headwater_lab.chaos.lives import KEPT, Process, fork

PATIENCE: Final = 60.0


def tell(text: str) -> None:
    """In the process."""
    line = f"{text}\n".encode()
    while line:
        line = line[os.write(KEPT, line) :]


class Listened:
    def __init__(self, run: Callable[[], int], log: Path, crash_at: str = "") -> None:
        self._reader, writer = os.pipe()
        self.process: Process = fork(run, log, crash_at, writer)
        os.close(writer)
        self._rest = b""
        self.over = False
        """It has ended."""

    def lines(self, until: float) -> list[str] | None:
        """What it told next; None if it has ended, or if it is late."""
        ready, _, _ = select.select([self._reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        told = os.read(self._reader, 1 << 16)
        if not told:
            self.over = True
            return None
        *lines, self._rest = (self._rest + told).split(b"\n")
        return [line.decode() for line in lines]

    def end(self) -> list[str]:
        """Kill it if it lives; what it told until then."""
        self.process.kill()
        return self.all()

    def all(self) -> list[str]:
        """What it tells until it ends."""
        told: list[str] = []
        while (lines := self.lines(time.monotonic() + PATIENCE)) is not None:
            told += lines
        self.process.kill()
        os.close(self._reader)
        return told
