"""The order in which a commit comes to two disks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headwater.node.persistence.batch import Batch
from headwater.node.persistence.committing import ThreadCommitter
from headwater.node.persistence.memory import MemoryBackend
from headwater.store.intake import Intake, Taken
from headwater.store.memory import MemoryStore


class Disks:
    """What was done to a backend and a store, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.backend = RecordingBackend(self)
        self.store = RecordingStore(self)
        server: Any = SimpleNamespace(coordinator=None)
        self.committer = ThreadCommitter(server, self.backend, lambda error: None, self.store)

    def commit(self, *batches: Batch) -> list[str]:
        for batch in batches:
            self.committer.start(batch)
        self.committer.close()
        assert self.committer.error is None
        return self.done


class RecordingBackend(MemoryBackend):
    def __init__(self, disks: Disks) -> None:
        super().__init__()
        self.disks = disks

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        self.disks.done.append("write")
        super().write(puts, deletes)

    def sync(self) -> None:
        self.disks.done.append("sync")
        super().sync()


class RecordingStore(MemoryStore):
    def __init__(self, disks: Disks) -> None:
        super().__init__()
        self.disks = disks

    def append(self, taken: Taken, note: bytes = b"") -> None:
        self.disks.done.append("append with a note" if note else "append")
        super().append(taken, note)

    def sync(self) -> None:
        self.disks.done.append("sync store")
        super().sync()


def batch(put: bytes = b"", *, taken: int = 0, promises: bool = True, together: bool = False) -> Batch:
    """With a message at position `taken`."""
    made = Batch(1)
    if put:
        made.puts.append((put, b""))
    if taken:
        intake = Intake(taken)
        intake.take(b"t", b"", 0, "", 0)
        made.taken = intake.hand_over()
    made.promises = promises
    made.together = together
    return made


def test_messages_come_first_and_are_synced_before_changes_are_written() -> None:
    done = Disks().commit(batch(b"s1", taken=1), batch(taken=2), batch(b"s2"))
    assert done[:4] == ["append", "sync store", "write", "sync"]
    assert done[4:6] == ["append", "sync store"]
    assert done[6:8] == ["write", "sync"]


def test_a_note_is_left_behind_all_that_was_written_before() -> None:
    """A power cut must not take a commit that nobody waited for from before one that has a note."""
    disks = Disks()
    disks.commit(
        batch(b"s1", taken=1, together=True),
        batch(b"s2", promises=False),
        batch(b"s3", taken=2, together=True),
    )
    assert disks.done[:10] == [
        *("append with a note", "sync store", "write", "sync", "write"),
        *("sync", "append with a note", "sync store", "write", "sync"),
    ]
