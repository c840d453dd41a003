"""The classical Bloom filter, and one that counts, so that elements can go again.

Theory. An element has k positions among b bits (Bloom, 1970; the paper's section 2.2). They are a + i·s for two hashes
a and s (Kirsch and Mitzenmacher, 2006). To remove elements, the elements at each position are counted (Fan et al.,
2000). A count that has reached 255 is not known any more, and stays: bits may be set too long, never cleared too early.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from mypy_extensions import i64
from xxhash import xxh3_64_intdigest

from headwater.interest import sizing
from headwater.interest.filter import Incompatible
from headwater.interest.hashing import mixed
from headwater.interest.written import Reading, Writing

MOST: Final = 255


class Bloom:
    """Can be asked, and put together with others of its size."""

    def __init__(self, bits: int, positions: int, seed: int) -> None:
        self.bits = bits
        self.positions = positions
        self.seed = seed
        self.ones = bytes((bits + 7) // 8)

    def has(self, element: bytes) -> bool:
        ones = self.ones
        bits: i64 = self.bits
        hash: i64 = xxh3_64_intdigest(element, self.seed) >> 2
        at: i64 = hash % bits
        step: i64 = mixed(hash) % bits
        left: i64 = self.positions
        while left > 0:
            if not (ones[at >> 3] >> (at & 7)) & 1:
                return False
            at += step
            if at >= bits:
                at -= bits
            left -= 1
        return True

    def merge(self, other: Bloom) -> None:
        if (self.bits, self.positions, self.seed) != (other.bits, other.positions, other.seed):
            raise Incompatible("these filters have different sizes or seeds")
        both = int.from_bytes(self.ones, "little") | int.from_bytes(other.ones, "little")
        self.ones = both.to_bytes(len(self.ones), "little")

    def write(self, made: Writing) -> None:
        for number in (self.bits, self.positions, self.seed):
            made.number(number)
        made.block(self.ones)

    def kept_bytes(self) -> int:
        return getsizeof(self.ones)


def read_bloom(data: Reading) -> Bloom:
    """Raises Incompatible."""
    bits, positions, seed = data.number(), data.number(), data.number()
    content = data.block()
    if not bits or not positions or len(content) != (bits + 7) // 8:
        raise Incompatible("malformed Bloom filter")
    made = Bloom(bits, positions, seed)
    made.ones = content
    return made


def filled_bloom(elements: Iterable[bytes], size: sizing.Bloom, seed: int) -> Bloom:
    """For content that does not change."""
    made = Bloom(size.bits, size.positions, seed)
    bits: i64 = size.bits
    positions: i64 = size.positions
    ones = [0] * len(made.ones)  # compiled code changes a list ten times as fast as a bytearray
    for element in elements:
        hash: i64 = xxh3_64_intdigest(element, seed) >> 2
        at: i64 = hash % bits
        step: i64 = mixed(hash) % bits
        left: i64 = positions
        while left > 0:
            ones[at >> 3] |= 1 << (at & 7)
            at += step
            if at >= bits:
                at -= bits
            left -= 1
    made.ones = bytes(ones)
    return made


class CountingBloom(Bloom):
    """For so many elements with a rate of false positives of p for each question; more make it err more often."""

    def __init__(self, elements: int, p: float, seed: int) -> None:
        bits, positions = sizing.bloom(elements, p)
        super().__init__(bits, positions, seed)
        self._counts = bytearray(bits)
        self._ones = bytearray(len(self.ones))
        self._is_changed = False

    def add(self, element: bytes) -> None:
        for at in self._places(element):
            count = self._counts[at]
            if count < MOST:
                self._counts[at] = count + 1
            if not count:
                self._ones[at >> 3] |= 1 << (at & 7)
                self._is_changed = True

    def remove(self, element: bytes) -> None:
        """KeyError: it is not there."""
        places = self._places(element)
        if any(not self._counts[at] for at in places):
            raise KeyError(element)
        for at in places:
            count = self._counts[at]
            if 0 < count < MOST:
                self._counts[at] = count - 1
                if count == 1:
                    self._ones[at >> 3] &= ~(1 << (at & 7))
                    self._is_changed = True

    def settle(self) -> None:
        """What was changed can be asked for; to be called before asking."""
        if self._is_changed:
            self.ones = bytes(self._ones)
            self._is_changed = False

    def merge(self, other: Bloom) -> None:
        """Of another that counts; this one then has the elements of both."""
        if not isinstance(other, CountingBloom):
            raise Incompatible("a filter that counts takes only what another has counted")
        self.settle()
        other.settle()
        super().merge(other)
        self._ones = bytearray(self.ones)
        self._counts = bytearray(min(MOST, one + two) for one, two in zip(self._counts, other._counts, strict=True))

    def _places(self, element: bytes) -> list[int]:
        hash = xxh3_64_intdigest(element, self.seed) >> 2
        at, step = hash % self.bits, int(mixed(hash)) % self.bits
        return [(at + number * step) % self.bits for number in range(self.positions)]

    def kept_bytes(self) -> int:
        return super().kept_bytes() + getsizeof(self._counts) + getsizeof(self._ones)
