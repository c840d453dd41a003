"""One file of the spool: records one behind the other, and where each begins.

The file's name is the number of its first record. Records are added at its end and synced; the file is never changed
otherwise, and is deleted as a whole. A process that was killed, or a power cut, may leave a torn record at its end:
nobody was told of it, and it is cut off when the file is opened. Whole records behind a torn one are another matter:
the file was damaged later, and cutting would give their numbers to other messages.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headwater.pipeline.mqtt.record import HEAD, Arrival, next_record, whole_records

SUFFIX: Final = ".spool"


class Slice(NamedTuple):
    """Bytes `begin` to before `end` of a file."""

    path: Path
    begin: int
    end: int


class Segment:
    """`first` is the number of its first record, `next` that behind its last, `size` its bytes."""

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = first
        self.size = 0
        self._begins = array("Q")
        self.whole_behind: int | None = None
        """Where behind damage there is a whole record."""

    @classmethod
    def create(cls, folder: Path, first: int) -> Segment:
        """A new, empty file; on disk by name when this returns."""
        path = folder / f"{first:020}{SUFFIX}"
        path.touch(exist_ok=False)
        sync_folder(folder)
        return cls(path, first)

    @classmethod
    def read(cls, path: Path) -> tuple[Segment, list[tuple[int, Arrival]]]:
        """A file that is there, with its numbered records; what is torn at its end is not counted."""
        segment = cls(path, int(path.name.removesuffix(SUFFIX)))
        data = path.read_bytes()
        found = list(whole_records(data))
        segment._begins.extend(at for at, _ in found)
        segment.size = _end_of(data, found[-1][0]) if found else 0
        if segment.size < len(data):
            segment.whole_behind = next_record(data, segment.size)
        return segment, [(segment.first + number, arrival) for number, (_, arrival) in enumerate(found)]

    @property
    def next(self) -> int:
        return self.first + len(self._begins)

    @property
    def is_torn(self) -> bool:
        return self.path.stat().st_size != self.size

    def cut_tail(self) -> None:
        with self.path.open("r+b") as file:
            file.truncate(self.size)
            os.fsync(file.fileno())

    def write(self, records: Sequence[bytes]) -> None:
        """On disk when this returns, and there for readers when they are counted. If it raises, the file must be read
        anew."""
        with self.path.open("ab") as file:
            file.write(b"".join(records))
            file.flush()
            os.fsync(file.fileno())

    def count(self, records: Sequence[bytes]) -> None:
        for record in records:
            self._begins.append(self.size)
            self.size += len(record)

    def slice(self, first: int, next: int) -> Slice:
        """Of the records `first` to before `next`, as far as they are here."""
        low, high = max(first, self.first), min(next, self.next)
        return Slice(self.path, self._at(low), self._at(high))

    def _at(self, number: int) -> int:
        return self.size if number >= self.next else self._begins[number - self.first]


def segment_paths(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob(f"*{SUFFIX}"))


def sync_folder(folder: Path) -> None:
    """Names of new files are on disk when this returns."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Replace a file: after a crash it has the old text or the new one. Only its owner may read it."""
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(path.parent)


def _end_of(data: bytes, begin: int) -> int:
    size: int = HEAD.unpack_from(data, begin)[0]
    return begin + HEAD.size + size
