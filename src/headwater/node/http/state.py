"""What both processes see at once: a few numbers in memory that they share, and a pipe that wakes who waits for them.

The node writes the numbers, from whatever thread changes them, and is not asked for them: neither its loop nor Python's
lock has to do with that. A number of eight bytes is written and read in one piece. `WATCHING` is the one that the HTTP
process writes: whether somebody there waits for messages.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from typing import Final

FIRST: Final = 0
NEXT: Final = 1
"""Of the store: [first, next) is synced."""
GENERATION: Final = 2
"""Another number whenever rights that were given before may not be the same any more."""
BANS: Final = 3
"""Another number whenever somebody is banned."""
READY: Final = 4
LARGEST: Final = 5
"""Bytes of a payload."""
WATCHING: Final = 6
OPEN_METRICS: Final = 7
"""Whether `/metrics` may be read without the token."""
HELD: Final = range(8, 13)
"""What the store holds, as in `Held`."""
HISTORY: Final = range(13, 15)
"""What of the store is in object storage: [first, end)."""
ERASURES: Final = 15
"""How often a block of the store was changed, ever."""
_NUMBERS: Final = 16
_DIGEST: Final = slice(8 * _NUMBERS, 8 * _NUMBERS + 32)
_SIZE: Final = _DIGEST.stop


class SharedState:
    """`file` is what is shared; without one, it is made."""

    def __init__(self, file: int | None = None) -> None:
        self.file = _made() if file is None else file
        self._memory = mmap.mmap(self.file, _SIZE)
        self._numbers = memoryview(self._memory).cast("Q")

    def __getitem__(self, at: int) -> int:
        return self._numbers[at]

    def __setitem__(self, at: int, number: int) -> None:
        self._numbers[at] = number

    @property
    def token_hash(self) -> bytes:
        """Of the admin API's token. One that is read while it is replaced fits no token."""
        return self._memory[_DIGEST]

    @token_hash.setter
    def token_hash(self, digest: bytes) -> None:
        self._memory[_DIGEST] = digest

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()
        os.close(self.file)


def _made() -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("headwater")
        os.ftruncate(file, _SIZE)
        return file
    with tempfile.TemporaryFile() as temporary:
        temporary.truncate(_SIZE)
        return os.dup(temporary.fileno())


class Bell:
    """A pipe with a byte in it when there is something new; any number of rings may be heard as one."""

    def __init__(self) -> None:
        self.heard, self._rung = os.pipe()
        os.set_blocking(self._rung, False)

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # it is full of rings, or has been closed
            os.write(self._rung, b"!")

    def close(self) -> None:
        os.close(self.heard)
        os.close(self._rung)
