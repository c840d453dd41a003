"""Every fact that a summary stores, once, with how many filters it is of.

Theory. Bits of a Bloom filter are shared, so none can be cleared without knowing who else needs it. Counting filters
count for each bit, cannot grow, and go wrong for good when something is removed that was never there, or a counter
overflows. Here the facts themselves are counted, by their hashes of 62 bits: 16 bytes a fact, in a bucket for each line
of the filter. A line is a function of its bucket: it is made again when a fact goes, and all of them when the filter
grows, without a filter's text being kept. Two facts with the same hash are counted together, which can keep bits set
too long, and never clears one too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from headwater.interest.lines import line_of, set_positions
from headwater.interest.sizing import LINE_BYTES

KEY: Final = 12
RECORD: Final = 16
MOST: Final = (1 << 32) - 1
"""Filters of one fact that are counted; a fact that more have had stays for good."""


def _key(home: int, fact: int) -> bytes:
    return home.to_bytes(4, "little") + fact.to_bytes(8, "little")


def _number(data: bytes, at: i64, size: i64) -> i64:
    found: i64 = 0
    shift: i64 = 0
    end = at + size
    while at < end:
        found |= data[at] << shift
        shift += 8
        at += 1
    return found


class Ledger:
    """Facts by the number of their line."""

    def __init__(self, lines: int) -> None:
        self.buckets: list[bytes] = [b""] * lines

    def count(self, line: int, home: int, fact: int) -> int:
        bucket = self.buckets[line]
        at = self._find(bucket, _key(home, fact))
        return 0 if at < 0 else int(_number(bucket, at + KEY, 4))

    def change(self, line: int, home: int, fact: int, by: int) -> int:
        """Count so many more, or less; how many there are then. KeyError: there are not so many."""
        bucket = self.buckets[line]
        key = _key(home, fact)
        at = self._find(bucket, key)
        if at < 0:
            if by < 0:
                raise KeyError("that has not been added")
            self.buckets[line] = bucket + key + by.to_bytes(4, "little")
            return by
        before = int(_number(bucket, at + KEY, 4))
        count = before if before == MOST else min(MOST, before + by)
        if count < 0:
            raise KeyError("that has not been added so often")
        record = key + count.to_bytes(4, "little") if count else b""
        self.buckets[line] = bucket[:at] + record + bucket[at + RECORD :]
        return count

    def _find(self, bucket: bytes, key: bytes) -> int:
        at = bucket.find(key)
        while at >= 0 and at % RECORD:
            at = bucket.find(key, at + 1)
        return at

    def line(self, number: int, inner: int, terminal: int) -> bytes:
        """What the line is, if facts that lead on and those that end a search have so many positions."""
        bucket = self.buckets[number]
        line = bytearray(LINE_BYTES)
        at: i64 = 0
        while at < len(bucket):
            fact = _number(bucket, at + 4, 8)
            set_positions(line, fact, terminal if fact & 1 else inner)
            at += RECORD
        return bytes(line)

    def resized(self, lines: int) -> Ledger:
        """The same facts for so many lines."""
        made = Ledger(lines)
        buckets = made.buckets
        for bucket in self.buckets:
            at: i64 = 0
            while at < len(bucket):
                line = line_of(_number(bucket, at, 4), lines)
                buckets[line] += bucket[at : at + RECORD]
                at += RECORD
        return made

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Home, fact and count of each."""
        for bucket in self.buckets:
            for at in range(0, len(bucket), RECORD):
                yield int(_number(bucket, at, 4)), int(_number(bucket, at + 4, 8)), int(_number(bucket, at + KEY, 4))
