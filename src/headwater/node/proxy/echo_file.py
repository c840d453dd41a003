"""What is outstanding as echoes, and outlives the process: the home broker keeps the own client's session while the
proxy is away, and echoes in it.

Theory. The file is a row of records of one size, each the change of `Outstanding` that it was written for, so reading
them one after the other makes the same state again. A record is written with the change, and nothing that is written
to a channel leaves before the turn ends: what was handed over is noted before the home broker has it, and what was
swallowed before it is acknowledged. So a kill at any point leaves nothing unknown. It is not synced: a machine that
loses power may bring echoes through once more, and costs no message.

When the file has grown to four times of what it began with, it is written anew with the state as it is.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import Final

from headwater.node.proxy.echo import DIGEST, Notes, Outstanding

log = logging.getLogger("headwater.proxy")

FILE: Final = "home-echoes"
LEAST: Final = 1 << 16
"""Bytes below which it is not written anew."""
GROWTH: Final = 4
RECORD: Final = 1 + DIGEST


class EchoFile(Notes):
    """Opened with the first record. A file that cannot be written is given up, with what it says."""

    def __init__(self, path: Path, echoes: Outstanding) -> None:
        """`echoes` has what the file says from now on, and tells it of changes."""
        self._path = path
        self._echoes = echoes
        self._fd = -1
        self._size = 0
        self._limit = 0
        self._is_given_up = False
        if path.exists():
            self._read()
        echoes.notes = self

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except OSError as error:
            log.warning("cannot read %s: %s; what was handed over before may come to other nodes again", FILE, error)
            return
        for at in range(0, len(data) - RECORD + 1, RECORD):
            self._echoes.again(data[at], data[at + 1 : at + RECORD])

    def note(self, what: int, key: bytes) -> None:
        if self._is_given_up:
            return
        try:
            if self._fd < 0 or self._size >= self._limit:
                self._write_anew()  # with this change
            else:
                self._append(bytes((what,)) + key)
        except OSError as error:
            log.warning("cannot write %s: %s; after the next start, echoes may come to other nodes", FILE, error)
            self.remove()

    def _append(self, record: bytes) -> None:
        written = os.write(self._fd, record)
        if written != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written

    def _write_anew(self) -> None:
        self.close()
        new = self._path.with_suffix(".new")
        data = b"".join(bytes((what,)) + key for what, key in self._echoes.notes_of_all())
        new.write_bytes(data)
        os.replace(new, self._path)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(data)
        self._limit = max(LEAST, GROWTH * self._size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Nothing is told any more, and nothing is found by the next process."""
        self._is_given_up = True
        self._echoes.notes = None
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
