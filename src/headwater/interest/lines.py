"""Lines of 512 bits: a Bloom filter in which all that is stored about one prefix lies together.

Theory. A classical Bloom filter reads k places of memory to find one element. Here the hash of a prefix chooses a line,
and every fact about the prefix (`Kind`) has its k bits in that line, so that one place of memory says whether the
prefix ends a filter, and what may follow it (blocked Bloom filters: Putze, Sanders and Singler, 2007). The price is
that lines are not equally full (`sizing`).

Lines are kept in pages of immutable bytes, because compiled code reads bytes twenty times as fast as what can change;
changing a line makes a new page.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headwater.interest.hashing import BITS, MASK, mixed
from headwater.interest.sizing import LINE_BYTES

PAGE_LINES: Final = 64
PAGE_BYTES: Final = PAGE_LINES * LINE_BYTES
FACT_BITS: Final = 48
AT_ONCE: Final[i64] = 5
"""Positions that one hash gives."""
_STEP: Final[i64] = 0x2545_F491_4F6C_DD1D
_APART: Final[i64] = 0x9E_3779_B97F

# What may be known of a prefix. Two of them end a search.
LITERAL: Final = 1  # some name follows
PLUS: Final = 2  # `+` follows
REST: Final = 4  # `#` follows
END: Final = 8  # a filter ends here
TERMINAL: Final = REST | END


def fact_hash(prefix: i64, kind: i64) -> i64:
    """Its lowest bit says whether the fact is a terminal one, so that the hash is all that has to be kept of it."""
    found = mixed((prefix + kind * _APART) & MASK) >> (BITS - FACT_BITS)
    return (found & ~1) | (1 if kind & TERMINAL else 0)


def line_of(home: i64, lines: i64) -> i64:
    """Of a prefix whose line is chosen by the upper 32 bits `home` of a hash."""
    return home * lines >> 32


def has(page: bytes, base: i64, fact: i64, count: i64) -> bool:
    """Whether all positions of a fact are set in the line that begins there."""
    left = count
    pieces = fact >> 1
    given = AT_ONCE
    while left > 0:
        if given == 0:
            fact = mixed(fact + _STEP)
            pieces = fact >> 1
            given = AT_ONCE
        if not (page[base + (pieces >> 3 & 63)] >> (pieces & 7)) & 1:
            return False
        pieces >>= 9
        given -= 1
        left -= 1
    return True


def set_positions(line: list[int], fact: i64, count: i64) -> None:
    """Of a fact, in a line's bytes: in a list, as compiled code changes one ten times as fast as a bytearray. It walks
    as `has` does; a walk for both would cost a call or a list in each."""
    left = count
    pieces = fact >> 1
    given = AT_ONCE
    while left > 0:
        if given == 0:
            fact = mixed(fact + _STEP)
            pieces = fact >> 1
            given = AT_ONCE
        at = pieces >> 3 & 63
        line[at] |= 1 << (pieces & 7)
        pieces >>= 9
        given -= 1
        left -= 1


class Lines:
    """So many lines, at first all zeros."""

    def __init__(self, count: int) -> None:
        self.count = count
        whole, rest = divmod(count, PAGE_LINES)
        self.pages: list[bytes] = [bytes(PAGE_BYTES)] * whole
        if rest:
            self.pages.append(bytes(rest * LINE_BYTES))

    def line(self, number: int) -> bytes:
        base = number % PAGE_LINES * LINE_BYTES
        return self.pages[number // PAGE_LINES][base : base + LINE_BYTES]

    def put(self, number: int, line: bytes) -> None:
        page = self.pages[number // PAGE_LINES]
        base = number % PAGE_LINES * LINE_BYTES
        self.pages[number // PAGE_LINES] = page[:base] + line + page[base + LINE_BYTES :]

    def fill(self, lines: list[bytes]) -> None:
        """All of them, as many as there are."""
        self.count = len(lines)
        self.pages = [b"".join(lines[at : at + PAGE_LINES]) for at in range(0, len(lines), PAGE_LINES)]

    def whole(self) -> bytes:
        return b"".join(self.pages)

    def read(self, data: bytes) -> None:
        """Take what `whole` has given."""
        self.pages = [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]

    def merge(self, other: Lines) -> None:
        """Bits of either; both have the same count."""
        for number, page in enumerate(other.pages):
            both = int.from_bytes(self.pages[number], "little") | int.from_bytes(page, "little")
            self.pages[number] = both.to_bytes(len(page), "little")
