"""What keeps bytes on disk: the seam between the journal and a store of ordered keys.

A backend is a map from keys to values, ordered by key. Writes are batches: all of a batch is there after a crash, or
nothing of it, and no batch without those before it. `write` hands a batch to the operating system, `sync` returns when
all that was written before is on the disk for good. Both are called by one thread at a time, which is not the one that
serves clients; `get`, `scan` and `delete_range` are called by the latter.
"""

from __future__ import annotations

from collections.abc import Iterator


class Backend:
    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """One batch; deletes come before puts. Raises StorageError: nothing of it, or of a later one, will be there."""
        raise NotImplementedError

    def sync(self) -> None:
        """Until now is for ever. Raises StorageError: nobody knows what is there of what was not synced."""
        raise NotImplementedError

    def get(self, key: bytes) -> bytes | None:
        raise NotImplementedError

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, in order, as they are at this moment."""
        raise NotImplementedError

    def close(self) -> None:
        """Sync and let go of the folder; twice is fine."""
        raise NotImplementedError
