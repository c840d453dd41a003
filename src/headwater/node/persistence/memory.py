"""A store that is gone with the process: for tests, simulations and brokers to be thrown away.

It knows what was synced, so that a test can ask what a power cut would leave.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from headwater.disk.errors import StorageError
from headwater.node.persistence.backend import Backend


class MemoryBackend(Backend):
    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._unsynced: list[dict[bytes, bytes | None]] = []
        """For each batch after the last sync, what was there before it; None where there was nothing."""
        self._lock = threading.Lock()  # a batch is seen whole by the other thread
        self._closed = False

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        with self._lock:
            self._check_open()
            before: dict[bytes, bytes | None] = {}
            for key in deletes:
                before.setdefault(key, self._values.pop(key, None))
            for key, value in puts:
                before.setdefault(key, self._values.get(key))
                self._values[key] = value
            self._unsynced.append(before)

    def sync(self) -> None:
        with self._lock:
            self._check_open()
            self._unsynced.clear()

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            self._check_open()
            return self._values.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._lock:
            self._check_open()
            return iter(sorted(item for item in self._values.items() if item[0].startswith(prefix)))

    def close(self) -> None:
        with self._lock:
            self._unsynced.clear()
            self._closed = True

    def crashed(self, keep: int | None = 0) -> MemoryBackend:
        """What a power cut leaves: all that was synced, and the first `keep` batches after it; None is all of them."""
        left = MemoryBackend()
        with self._lock:
            left._values = dict(self._values)
            lost = [] if keep is None else self._unsynced[keep:]
            for before in reversed(lost):
                for key, value in before.items():
                    if value is None:
                        left._values.pop(key, None)
                    else:
                        left._values[key] = value
        return left

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the store has been closed")
