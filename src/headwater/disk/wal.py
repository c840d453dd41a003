"""RocksDB's log as bytes: read batch by batch with every checksum looked at, also behind damage, and written.

    a log is a row of blocks of 32 KB, a block a row of records, and a record:
    checksum (4 bytes) | length (2 bytes, little-endian) | kind (1 byte: whole, first, middle or last part) | data

    what one or several records hold together is a batch:
    sequence number of its first change (8) | changes (4) | changes, each: kind | family, if not 0 | key | value

Sequence numbers have no gaps, so those of whole batches say exactly how many changes are missing between two of them.

Behind damage the next record has to be found. Where a block begins, a record begins: that is certain. Inside a block
the length of the damaged record says where the next one is, unless it is the length that is damaged; then each byte is
tried. A payload can hold bytes that look like a record, checksum included, so what was found by trying counts only if
whole records lead from there exactly to the end of the block, with sequence numbers that follow each other.

The checksum is CRC-32C, in Python some 10 MB/s: a log is read this way only if something is wrong with it. `walk` looks
at headers alone, and is for every start.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

BLOCK: Final = 32 * 1024
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

_HEADER: Final = struct.Struct("<IHB")
_BATCH: Final = struct.Struct("<QI")
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8
_PUT, _DELETE, _DELETE_RANGE = 0x1, 0x0, 0xF
_PUT_IN, _DELETE_IN, _DELETE_RANGE_IN = 0x5, 0x4, 0xE
"""The same in a family, whose number follows."""


class Batch(NamedTuple):
    """Bytes `begin` to before `end` of a log, which hold changes `sequence` to before `sequence + changes`."""

    begin: int
    end: int
    sequence: int
    changes: int
    data: bytes


class Hole(NamedTuple):
    """Bytes that are no whole batch."""

    begin: int
    end: int


class Change(NamedTuple):
    """`value` is None: the key is deleted; `is_range`: all from `key` to before `value` are."""

    family: int
    key: bytes
    value: bytes | None
    is_range: bool = False


# ---- checksums -------------------------------------------------------------------------------------------------


def _table() -> list[int]:
    table = []
    for byte in range(256):
        number = byte
        for _ in range(8):
            number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
        table.append(number)
    return table


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    table = _TABLE
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _checksum(kind: int, data: bytes) -> int:
    crc = crc32c(bytes([kind]) + data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


# ---- reading ---------------------------------------------------------------------------------------------------


class Walk(NamedTuple):
    """What the headers of a log say. `strange` is where the first record begins that is of no known kind, at which
    RocksDB may not stop; `gap` where the first batch begins whose sequence number does not follow; `next` is the
    sequence number behind the last batch, 0 if there is none."""

    strange: int | None
    gap: int | None
    next: int


def walk(file: Path, next: int = 0) -> Walk:
    """`next` is the sequence number that its first batch should have, 0 if any will do."""
    size = file.stat().st_size
    gap = None
    if size < _HEADER.size:
        return Walk(None, None, next)
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = 0
        while at + _HEADER.size <= size:
            room = BLOCK - at % BLOCK
            if room < _HEADER.size:
                at += room
                continue
            _, length, kind = _HEADER.unpack_from(content, at)
            if not WHOLE <= kind <= LAST:
                return Walk(at if any(content[at:]) else None, gap, next)
            end = at + _HEADER.size + length
            if end > size or _HEADER.size + length > room:
                break  # RocksDB sees that by itself, and stops there
            if kind <= FIRST and length >= _BATCH.size:
                sequence, changes = _BATCH.unpack_from(content, at + _HEADER.size)
                if next and sequence > next and gap is None:
                    gap = at
                next = sequence + changes
            at = end
    return Walk(None, gap, next)


def read_log(file: Path) -> Iterator[Batch | Hole]:
    """All whole batches in order, and what is between and behind them; zeros at the end are nothing."""
    if file.stat().st_size == 0:
        return
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield from _Reader(content).batches()


class _Reader:
    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.size = len(content)
        self.sequence = 0
        """Of the last whole batch."""

    def batches(self) -> Iterator[Batch | Hole]:
        at = hole = 0
        """Up to `hole` everything is told."""
        begin = 0
        pieces: list[bytes] = []
        while self.size - at >= _HEADER.size:
            if BLOCK - at % BLOCK < _HEADER.size:
                if hole == at:
                    hole += BLOCK - at % BLOCK
                at += BLOCK - at % BLOCK
                continue
            found = self._record(at)
            if found is None:
                if not any(self.content[at:]):
                    break
                pieces = []
                at = self._behind_damage(at)
                continue
            kind, data, end = found
            if kind <= FIRST:
                begin, pieces = at, [data]
            elif pieces:
                pieces.append(data)
            at = end
            if kind in (WHOLE, LAST) and pieces:
                whole = b"".join(pieces)
                pieces = []
                if len(whole) >= _BATCH.size:
                    if hole < begin:
                        yield Hole(hole, begin)
                    self.sequence, changes = _BATCH.unpack_from(whole)
                    yield Batch(begin, end, self.sequence, changes, whole)
                    hole = end
        if hole < self.size and any(self.content[hole:]):
            yield Hole(hole, self.size)

    def _header(self, at: int) -> tuple[int, int] | None:
        """Kind and end of the record that seems to begin there."""
        _, length, kind = _HEADER.unpack_from(self.content, at)
        end = at + _HEADER.size + length
        if WHOLE <= kind <= LAST and end <= self.size and at // BLOCK == (end - 1) // BLOCK:
            return kind, end
        return None

    def _record(self, at: int) -> tuple[int, bytes, int] | None:
        header = self._header(at)
        if header is None:
            return None
        kind, end = header
        data = self.content[at + _HEADER.size : end]
        return (kind, data, end) if _checksum(kind, data) == _HEADER.unpack_from(self.content, at)[0] else None

    def _behind_damage(self, at: int) -> int:
        """Where to go on when the record at `at` is damaged."""
        block = min(at - at % BLOCK + BLOCK, self.size)
        told: int = at + _HEADER.size + _HEADER.unpack_from(self.content, at)[1]
        if block - told >= _HEADER.size and self._record(told) is not None and self._follows(told):
            return told
        for each in range(at + 1, block - _HEADER.size + 1):
            if self._leads_to(each, block):
                return each
        return block

    def _follows(self, at: int) -> bool:
        """Whether the sequence number of a record, if it has one, could be the next."""
        _, length, kind = _HEADER.unpack_from(self.content, at)
        if kind > FIRST or length < _BATCH.size:
            return bool(kind > FIRST)
        sequence: int = _BATCH.unpack_from(self.content, at + _HEADER.size)[0]
        return self.sequence < sequence < 1 << 56

    def _leads_to(self, at: int, end: int) -> bool:
        """Whether whole records lead from here to the end of the block or of what was written."""
        places = []
        while end - at >= _HEADER.size:
            header = self._header(at)
            if header is None:
                break
            places.append(at)
            at = header[1]
        if not places or ((end - at >= _HEADER.size or end == self.size) and any(self.content[at:end])):
            return False
        next = 0
        for place in places:
            if self._record(place) is None or not self._follows(place):
                return False
            if _HEADER.unpack_from(self.content, place)[2] <= FIRST:
                sequence, changes = _BATCH.unpack_from(self.content, place + _HEADER.size)
                if next and sequence != next:
                    return False
                next = sequence + changes
        return True


def changes_of(batch: Batch) -> Iterator[Change]:
    """Raises ValueError where there is something that we do not write."""
    data = batch.data
    at = _BATCH.size
    try:
        while at < len(data):
            kind = data[at]
            family = 0
            at += 1
            if kind in (_PUT_IN, _DELETE_IN, _DELETE_RANGE_IN):
                family, at = _number(data, at)
            key, at = _piece(data, at)
            if kind in (_DELETE, _DELETE_IN):
                yield Change(family, key, None)
            elif kind in (_PUT, _PUT_IN, _DELETE_RANGE, _DELETE_RANGE_IN):
                value, at = _piece(data, at)
                yield Change(family, key, value, kind in (_DELETE_RANGE, _DELETE_RANGE_IN))
            else:
                raise ValueError(f"a change of kind {kind}")
    except IndexError:
        raise ValueError("a change that is cut off") from None


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _piece(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    return data[at : at + length], at + length


# ---- writing ---------------------------------------------------------------------------------------------------


def write_log(file: Path, batches: Iterable[Batch]) -> None:
    """On disk when this returns, but for its name."""
    with open(file, "wb") as target:
        for batch in batches:
            for piece in _records(batch.data, target.tell()):
                target.write(piece)
        target.flush()
        os.fsync(target.fileno())


def _records(data: bytes, at: int) -> Iterator[bytes]:
    begin = 0
    while True:
        room = BLOCK - at % BLOCK
        if room < _HEADER.size:
            yield bytes(room)
            at += room
            continue
        end = min(len(data), begin + room - _HEADER.size)
        is_last = end == len(data)
        kind = (WHOLE if is_last else FIRST) if begin == 0 else (LAST if is_last else MIDDLE)
        piece = data[begin:end]
        yield _HEADER.pack(_checksum(kind, piece), len(piece), kind) + piece
        at += _HEADER.size + len(piece)
        begin = end
        if is_last:
            return


# ---- which logs count ------------------------------------------------------------------------------------------

_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, 200, 203, 300})
_PIECES: Final = frozenset({1, 201})
_MAY_BE_SKIPPED: Final = 1 << 13
_LOG_NUMBER, _MIN_LOG, _FAMILY, _DROP, _NEW_FILE = 2, 10, 200, 202, 103


def first_log(manifest: Path) -> int:
    """The number of the oldest log that RocksDB still needs; 0, which is none, if the manifest does not say.

    Older ones may be there: a crash came before they were deleted.
    """
    logs: dict[int, int] = {}
    least = 0
    try:
        for each in read_records(manifest):
            least = max(least, _read_edit(each, logs))
    except (ValueError, IndexError):
        return 0
    return max(least, min(logs.values(), default=0))


def read_records(file: Path) -> Iterator[bytes]:
    """What a file of this form holds, up to the first damage. Checksums are not looked at: RocksDB does."""
    content = file.read_bytes()
    at = 0
    pieces: list[bytes] = []
    while len(content) - at >= _HEADER.size:
        room = BLOCK - at % BLOCK
        if room < _HEADER.size:
            at += room
            continue
        _, length, kind = _HEADER.unpack_from(content, at)
        if not WHOLE <= kind <= LAST:
            return
        pieces.append(content[at + _HEADER.size : at + _HEADER.size + length])
        at += _HEADER.size + length
        if kind in (WHOLE, LAST):
            yield b"".join(pieces)
            pieces = []


def _read_edit(edit: bytes, logs: dict[int, int]) -> int:
    """One record of a manifest: note each family's oldest log, and return the oldest that is kept, if it says so."""
    at = family = least = 0
    log: int | None = None
    dropped = False
    while at < len(edit):
        tag, at = _number(edit, at)
        if tag in _NUMBERS:
            number, at = _number(edit, at)
            if tag == _LOG_NUMBER:
                log = number
            elif tag == _MIN_LOG:
                least = number
            elif tag == _FAMILY:
                family = number
        elif tag in _PIECES or tag & _MAY_BE_SKIPPED:
            _, at = _piece(edit, at)
        elif tag == _DROP:
            dropped = True
        elif tag == 5:  # a compaction's cursor
            _, at = _number(edit, at)
            _, at = _piece(edit, at)
        elif tag == 6:  # a file that is gone
            _, at = _number(edit, at)
            _, at = _number(edit, at)
        elif tag == _NEW_FILE:
            at = _behind_new_file(edit, at)
        else:
            raise ValueError(f"tag {tag}")
    if dropped:
        logs.pop(family, None)
    elif log is not None:
        logs[family] = log
    return least


def _behind_new_file(edit: bytes, at: int) -> int:
    for _ in range(3):
        _, at = _number(edit, at)
    for _ in range(2):
        _, at = _piece(edit, at)
    for _ in range(2):
        _, at = _number(edit, at)
    while True:
        tag, at = _number(edit, at)
        if tag == 1:
            return at
        _, at = _piece(edit, at)
