"""CBOR (RFC 8949) as a document, within bounds: what a condition can look at of it.

Names of a map are texts; values under other keys are passed over, so that nobody can choose keys that fall on one place
of a table. Tags say how something is meant and are passed over, but for whole numbers of many bytes. Each value takes
at least a byte and one of `MOST_VALUES`, and values are nested at most `DEEPEST` deep: time and memory are bounded.
"""

from __future__ import annotations

import struct
from typing import Final

from headwater.routing.conditions.values import ABSENT

MOST_VALUES: Final = 4096
DEEPEST: Final = 32
LONGEST_WHOLE: Final = 128
"""Bytes of a whole number."""

_HALF: Final = struct.Struct(">e")
_SINGLE: Final = struct.Struct(">f")
_DOUBLE: Final = struct.Struct(">d")
BREAK: Final = 0xFF
INDEFINITE: Final = 31


class NotCbor(ValueError):
    """The bytes are not one document of CBOR, or a larger one than we look at."""


def read_cbor(data: bytes) -> object:
    """Raises NotCbor."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise NotCbor
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.count = 0

    def value(self, depth: int) -> object:
        self.count += 1
        if depth > DEEPEST or self.count > MOST_VALUES:
            raise NotCbor
        first = self._byte()
        major = first >> 5
        short = first & 31
        if major == 7:
            return self._simple(short)
        if major == 6:
            return self._tagged(self._argument(short), depth)
        if short == INDEFINITE:
            return self._indefinite(major, depth)
        size = self._argument(short)
        if major == 0:
            return size
        if major == 1:
            return -1 - size
        if major == 2:
            return self._bytes(size)
        if major == 3:
            return self._text(self._bytes(size))
        if size > MOST_VALUES:
            raise NotCbor
        if major == 4:
            return [self.value(depth + 1) for _ in range(size)]
        found: dict[str, object] = {}
        for _ in range(size):
            self._pair(found, depth)
        return found

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise NotCbor
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise NotCbor
        found = self.data[self.at : end]
        self.at = end
        return found

    def _argument(self, short: int) -> int:
        if short < 24:
            return short
        if short > 27:
            raise NotCbor
        return int.from_bytes(self._bytes(1 << (short - 24)), "big")

    def _text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise NotCbor from None

    def _pair(self, found: dict[str, object], depth: int) -> None:
        name = self.value(depth + 1)
        value = self.value(depth + 1)
        if isinstance(name, str) and value is not ABSENT:
            found[name] = value

    def _is_end(self) -> bool:
        if self.at >= len(self.data):
            raise NotCbor
        if self.data[self.at] != BREAK:
            return False
        self.at += 1
        return True

    def _indefinite(self, major: int, depth: int) -> object:
        if major == 4:
            items: list[object] = []
            while not self._is_end():
                items.append(self.value(depth + 1))
            return items
        if major == 5:
            found: dict[str, object] = {}
            while not self._is_end():
                self._pair(found, depth)
            return found
        if major not in (2, 3):
            raise NotCbor
        parts: list[bytes] = []
        while not self._is_end():
            self.count += 1
            first = self._byte()
            if first >> 5 != major or first & 31 == INDEFINITE or self.count > MOST_VALUES:
                raise NotCbor
            parts.append(self._bytes(self._argument(first & 31)))
        whole = b"".join(parts)
        return self._text(whole) if major == 3 else whole

    def _tagged(self, tag: int, depth: int) -> object:
        value = self.value(depth + 1)
        if tag in (2, 3) and isinstance(value, bytes) and len(value) <= LONGEST_WHOLE:
            whole = int.from_bytes(value, "big")
            return whole if tag == 2 else -1 - whole
        return value

    def _simple(self, short: int) -> object:
        if short == 20:
            return False
        if short == 21:
            return True
        if short == 22:
            return None
        if short == 25:
            half: float = _HALF.unpack(self._bytes(2))[0]
            return half
        if short == 26:
            single: float = _SINGLE.unpack(self._bytes(4))[0]
            return single
        if short == 27:
            double: float = _DOUBLE.unpack(self._bytes(8))[0]
            return double
        if short == 24:
            self._byte()
        elif short > 24:
            raise NotCbor
        return ABSENT  # undefined, and values that nobody has given a meaning
