"""What the journal hands over to whoever writes it: the seam between the loop and the thread of the disk."""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import mypyc_attr

from headwater.session.journaled import DurableDelivery
from headwater.store.intake import Taken


class Batch:
    """The changes of one commit. `promises`: something may wait for it, so it has to be synced."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.puts: list[tuple[bytes, bytes]] = []
        self.deletes: list[bytes] = []
        self.promises = False
        self.waiting: list[DurableDelivery] = []
        """Deliveries of it that wait in a queue: their content may be put away when it is on disk."""
        self.taken: Taken | None = None
        """What goes to the delivery store, before the changes: who finds one of those finds the message, too."""
        self.together = False
        """Some of the changes must not be missing where the messages are (notes.py)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Contributor:
    """Somebody beside the journal whose changes belong to the same commits."""

    def is_owed(self) -> bool:
        """Whether a commit should begin now, whatever `interval` says."""
        raise NotImplementedError

    def fill(self, batch: Batch) -> None:
        """Add all that has changed until now."""
        raise NotImplementedError

    def on_disk(self, sequence: int) -> None:
        """The batches up to this one are on disk."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Committer:
    """Brings batches to the disk, one at a time, and calls `Journal.finished` on the loop's thread after each."""

    def start(self, batch: Batch) -> None:
        raise RuntimeError("not connected")

    def read(self, key: bytes) -> bytes | None:
        """A value that has been written."""
        raise RuntimeError("not connected")

    def get(self, key: bytes) -> bytes | None:
        """The same, of a commit that is on disk."""
        raise RuntimeError("not connected")

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What is on disk at this moment with keys that begin so, in their order."""
        raise RuntimeError("not connected")

    def has(self, key: bytes) -> bool:
        """Whether there is a value, but for what is being written at this moment."""
        raise RuntimeError("not connected")

    def later(self, seconds: float) -> None:
        """Call `Journal.begin` in so many seconds."""
        raise RuntimeError("not connected")

    def give_up(self, error: Exception) -> None:
        """There is a change that cannot be written: no batch can follow."""
        raise RuntimeError("not connected")
