"""Every fact that a summary stores, once, with how many filters it is of.

Theory. Bits of a Bloom filter are shared, so none can be cleared without knowing who else needs it. Counting filters
count for each bit, cannot grow, and go wrong for good when something is removed that was never there, or a counter
overflows. Here the facts themselves are counted: 12 bytes a fact (32 bits that choose its line, 48 of its hash, a
count), in a bucket for each line of the filter. A line is a function of its bucket: it is made again when a fact goes,
and all of them when the filter grows, without a filter's text being kept. Two facts with the same hash are counted
together, which can keep bits set too long, and never clears one too early.

Lines are chosen by the upper bits of a hash, so buckets are in the order of those, whatever their number is: a resized
ledger is filled from the first bucket to the last, and each old one is let go as soon as it has been read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from headwater.interest.lines import FACT_BITS, line_of, set_positions
from headwater.interest.sizing import LINE_BYTES

HOME: Final = 4
KEY: Final = HOME + FACT_BITS // 8
RECORD: Final = KEY + 2
MANY: Final = 0xFFFF
"""A count that does not fit beside its fact, and is kept apart."""


def _key(home: int, fact: int) -> bytes:
    return home.to_bytes(HOME, "little") + fact.to_bytes(KEY - HOME, "little")


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
        self._many: dict[bytes, int] = {}

    def count(self, line: int, home: int, fact: int) -> int:
        key = _key(home, fact)
        return self._count(self.buckets[line], key, self._find(self.buckets[line], key))

    def change(self, line: int, home: int, fact: int, by: int) -> int:
        """Count so many more, or less; how many there are then. KeyError: there are not so many."""
        bucket = self.buckets[line]
        key = _key(home, fact)
        at = self._find(bucket, key)
        before = self._count(bucket, key, at)
        count = before + by
        if count < 0:
            raise KeyError("that has not been added so often")
        record = key + min(count, MANY).to_bytes(RECORD - KEY, "little") if count else b""
        if count >= MANY:
            self._many[key] = count
        elif before >= MANY:
            del self._many[key]
        if at < 0:
            self.buckets[line] = bucket + record
        elif before < MANY or count < MANY:
            self.buckets[line] = bucket[:at] + record + bucket[at + RECORD :]
        return count

    def _find(self, bucket: bytes, key: bytes) -> int:
        at = bucket.find(key)
        while at >= 0 and at % RECORD:
            at = bucket.find(key, at + 1)
        return at

    def _count(self, bucket: bytes, key: bytes, at: int) -> int:
        if at < 0:
            return 0
        count = int(_number(bucket, at + KEY, RECORD - KEY))
        return self._many[key] if count == MANY else count

    def line(self, number: int, inner: int, terminal: int) -> bytes:
        """What the line is, if facts that lead on and those that end a search have so many positions."""
        bucket = self.buckets[number]
        line = [0] * LINE_BYTES
        at: i64 = 0
        while at < len(bucket):
            fact = _number(bucket, at + HOME, KEY - HOME)
            set_positions(line, fact, terminal if fact & 1 else inner)
            at += RECORD
        return bytes(line)

    def resize(self, lines: int) -> None:
        """The same facts for so many lines."""
        old, before = self.buckets, len(self.buckets)
        self.buckets = [b""] * lines
        waiting: dict[int, bytearray] = {}
        for number in range(before):
            bucket = old[number]
            old[number] = b""
            at: i64 = 0
            while at < len(bucket):
                line = int(line_of(_number(bucket, at, HOME), lines))
                if line in waiting:
                    waiting[line] += bucket[at : at + RECORD]
                else:
                    waiting[line] = bytearray(bucket[at : at + RECORD])
                at += RECORD
            next_home = -(-((number + 1) << 32) // before)
            done = (next_home * lines >> 32) if number + 1 < before else lines
            for line in [each for each in waiting if each < done]:
                self.buckets[line] = bytes(waiting.pop(line))

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Home, fact and count of each."""
        for bucket in self.buckets:
            for at in range(0, len(bucket), RECORD):
                key = bucket[at : at + KEY]
                fact = int(_number(bucket, at + HOME, KEY - HOME))
                yield int(_number(bucket, at, HOME)), fact, self._count(bucket, key, at)
