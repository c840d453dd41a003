"""The spool: what came from the broker and Spark has not committed, on disk, in order, numbered for ever.

Theory. Three numbers say everything:

    first kept  ≤  released  ≤  next
                   │            └─ the number that the next message will get; all before it are synced
                   └─ Spark has committed all before it

An offset is `next` at some moment, so it names only what is on disk: a range that Spark has logged can be read again
with the same rows after any crash, until it is released. `released` is on disk before anybody is told of it, in
particular before the broker is: hence a record from `released` on has never been acknowledged, which `redelivery`
relies on.
Numbers are not used twice: the newest segment stays, even when all in it is released, and its name says where to go on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from headwater.pipeline.mqtt.progress import Progress
from headwater.pipeline.mqtt.record import Arrival, encode
from headwater.pipeline.mqtt.segment import Segment, Slice, segment_paths

SEGMENT_BYTES: Final = 8 << 20


class DamagedSpool(Exception):
    """Files are missing or changed that a crash cannot have touched."""


class Released(Exception):
    """A range that Spark has committed before: it is not kept."""


class Unknown(Exception):
    """A range that was never written here."""


class Spool:
    """One process uses it at a time. `append` is for one caller at a time; the rest may be called by any thread.

    It is full when the records that are not released have `most_bytes`, or are `most_messages`. A message that does not
    fit is refused to nobody: who fills the spool asks `room` first, and takes at most one message too many."""

    def __init__(self, folder: Path, most_bytes: int, most_messages: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_messages = most_messages
        self._segment_bytes = segment_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._progress = Progress.open(folder)
        self._changed = threading.Condition()
        self.unreleased_at_start: list[tuple[int, Arrival]] = []
        """What was here and not committed when it was opened, with its numbers."""
        self._segments = self._recover()
        self._bytes = self._size_of(self.released, self.next)

    # ---- what is here ------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._progress.id

    @property
    def released(self) -> int:
        return self._progress.released

    @property
    def next(self) -> int:
        return self._segments[-1].next

    @property
    def first(self) -> int:
        return self._segments[0].first

    @property
    def bytes(self) -> int:
        """Of records that are not released."""
        return self._bytes

    @property
    def room(self) -> tuple[int, int]:
        """Messages and bytes that it takes before it is full; with a byte left, one message more of any size."""
        return self._most_messages - (self.next - self.released), self._most_bytes - self._bytes

    @property
    def is_full(self) -> bool:
        return min(self.room) <= 0

    def slices(self, first: int, next: int) -> list[Slice]:
        """Where the records `first` to before `next` are; raises Released or Unknown if they are not here."""
        with self._changed:
            if first < self.released:
                raise Released(f"messages before {self.released} of this spool were committed and are not kept")
            if next > self.next:
                raise Unknown(f"this spool has messages up to {self.next}, not {next}")
            return [each.slice(first, next) for each in self._segments if each.first < next and first < each.next]

    def wait_beyond(self, number: int, seconds: float) -> None:
        """Until there is a record of this number, but not longer."""
        with self._changed:
            self._changed.wait_for(lambda: self.next > number, seconds)

    # ---- changes -----------------------------------------------------------------------------------------------

    def append(self, arrivals: Sequence[Arrival]) -> int:
        """The number of the first; all are on disk when this returns."""
        active = self._segments[-1]
        if active.size >= self._segment_bytes:
            active = Segment.create(self._folder, active.next)
            with self._changed:
                self._segments.append(active)
        first = active.next
        records = [encode(each) for each in arrivals]
        active.write(records)
        with self._changed:
            active.count(records)
            self._bytes += sum(len(each) for each in records)
            self._changed.notify_all()
        return first

    def release(self, next: int) -> None:
        """Spark has committed all before `next`, which is on disk when this returns; older news are no news."""
        with self._changed:
            if next > self.next:
                raise Unknown(f"this spool has messages up to {self.next}, not {next}")
            if next <= self.released:
                return
            self._bytes -= self._size_of(self.released, next)
            self._save(replace(self._progress, released=next))
            while len(self._segments) > 1 and self._segments[0].next <= next:
                self._segments.pop(0).path.unlink()

    def session_of(self, connection: int) -> int:
        return self._progress.sessions.get(str(connection), 0)

    def new_session(self, connection: int) -> None:
        """The broker knows nothing of this connection's former messages; on disk when this returns."""
        with self._changed:
            number = self.session_of(connection) + 1
            self._save(replace(self._progress, sessions={**self._progress.sessions, str(connection): number}))

    @property
    def connections(self) -> int:
        """How many have had a session."""
        return len(self._progress.sessions)

    @property
    def filters(self) -> list[str]:
        return self._progress.filters

    def remember_filters(self, filters: Sequence[str]) -> None:
        """What the sessions are subscribed to; on disk when this returns."""
        with self._changed:
            if self.filters != list(filters):
                self._save(replace(self._progress, filters=list(filters)))

    # ---- on disk -----------------------------------------------------------------------------------------------

    def _save(self, progress: Progress) -> None:
        """First the disk knows, then those who ask."""
        progress.save(self._folder)
        self._progress = progress

    def _recover(self) -> list[Segment]:
        found: list[Segment] = []
        for path in segment_paths(self._folder):
            segment, numbered = Segment.read(path)
            if found:
                self._check_joint(found[-1], segment)
            found.append(segment)
            self.unreleased_at_start += [each for each in numbered if each[0] >= self.released]
        if found and found[-1].whole_behind is not None:
            raise self._damaged(found[-1])
        if found and found[-1].is_torn:
            found[-1].cut_tail()
        if found and found[0].first > self.released:
            raise DamagedSpool(
                f"{self._folder}: messages from {self.released} to {found[0].first} are missing, which were not "
                f"committed. {WHAT_TO_DO}"
            )
        if not found or found[-1].next < self.released:
            for stale in found:
                stale.path.unlink()
            found = [Segment.create(self._folder, self.released)]
        return found

    def _check_joint(self, former: Segment, segment: Segment) -> None:
        if former.next != segment.first or former.is_torn:
            raise self._damaged(former)

    def _damaged(self, segment: Segment) -> DamagedSpool:
        behind = "" if segment.whole_behind is None else f"; whole records follow from byte {segment.whole_behind} on"
        return DamagedSpool(
            f"{segment.path} is damaged at byte {segment.size}, at message {segment.next}{behind}. {WHAT_TO_DO}"
        )

    def _size_of(self, first: int, next: int) -> int:
        pieces = (each.slice(first, next) for each in self._segments if each.first < next and first < each.next)
        return sum(piece.end - piece.begin for piece in pieces)


WHAT_TO_DO: Final = (
    "Move the folder away, and start the query with failOnSpoolLoss=false: what Spark has not committed was not "
    "acknowledged, and the broker sends it again (QoS 1 and 2)"
)
