"""Bytes in which a filter travels: numbers of seven bits a byte, as MQTT writes lengths; a head says what it is.

    "HWI", version, name of the method, what the method writes …, CRC-32 of everything before

Versions are frozen once released: a new form gets a new number, and what is not known is refused.
"""

from __future__ import annotations

import zlib
from typing import Final

from headwater.interest.filter import Incompatible

MAGIC: Final = b"HWI"
VERSION: Final = 1
_CHECK: Final = 4


class Writing:
    """Append, then `done`."""

    def __init__(self, kind: str) -> None:
        self._data = bytearray(MAGIC)
        self.number(VERSION)
        self.block(kind.encode())

    def number(self, value: int) -> None:
        """Not negative."""
        while value > 0x7F:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)

    def block(self, value: bytes) -> None:
        self.number(len(value))
        self._data += value

    def runs(self, value: bytes) -> None:
        """Bytes of which neighbours are often equal."""
        found: list[tuple[int, int]] = []
        for each in value:
            if found and found[-1][0] == each:
                found[-1] = (each, found[-1][1] + 1)
            else:
                found.append((each, 1))
        self.number(len(found))
        for each, count in found:
            self.number(each)
            self.number(count)

    def done(self) -> bytes:
        data = bytes(self._data)
        return data + zlib.crc32(data).to_bytes(_CHECK, "little")


class Reading:
    """From the first byte on, in the order of writing. Raises Incompatible."""

    def __init__(self, data: bytes) -> None:
        body, check = data[:-_CHECK], data[-_CHECK:]
        if not body.startswith(MAGIC):
            raise Incompatible("these bytes are not an interest filter")
        if zlib.crc32(body).to_bytes(_CHECK, "little") != check:
            raise Incompatible("the bytes of an interest filter are damaged")
        self._data = body
        self._at = len(MAGIC)
        version = self.number()
        if version != VERSION:
            raise Incompatible(f"an interest filter of version {version} is not known here; this is version {VERSION}")
        self.kind = self.block().decode("utf-8", "replace")

    def number(self) -> int:
        value = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise Incompatible("an interest filter ends too early")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def block(self) -> bytes:
        size = self.number()
        if size > len(self._data) - self._at:
            raise Incompatible("an interest filter ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def runs(self, most: int) -> bytes:
        """Not more bytes than that."""
        parts = []
        total = 0
        for _ in range(self.number()):
            each, count = self.number(), self.number()
            total += count
            if each > 0xFF or total > most:
                raise Incompatible("malformed interest filter")
            parts.append(bytes((each,)) * count)
        return b"".join(parts)

    def end(self) -> None:
        if self._at != len(self._data):
            raise Incompatible("an interest filter has something behind its end")
