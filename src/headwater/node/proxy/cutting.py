"""One direction of a connection, cut where packets of some types begin and end: these come out whole, all else as it
is.

Theory. As in scanner.py, whatever does not matter is skipped by its length. A packet that matters may have to be
changed, so it is kept until it is whole. One of more than `most` bytes comes out in parts: first what is there of it,
at least `LONGEST_HEAD` bytes, from which its packet id can be told, the rest as it comes.
"""

from __future__ import annotations

from typing import Final

RAW: Final = 0
"""In place of a first byte: bytes that pass as they are."""
LONGEST_HEAD: Final = 5 + 2 + 65535 + 2
"""Of a PUBLISH, up to its packet id."""
PUBLISH: Final = 3


class Cutter:
    def __init__(self, most: int) -> None:
        self.most = max(most, LONGEST_HEAD)
        self.is_lost = False
        """What came was no MQTT: all passes from there on."""
        self.skip = 0
        """Bytes of a packet that are still to come and pass."""
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0

    @property
    def kept(self) -> int:
        """Bytes of a packet that is not whole."""
        return self._have

    @property
    def is_between(self) -> bool:
        """Whether what has come out ends with a packet."""
        return self.skip == 0 and not self.is_lost

    def cut(self, data: bytes, types: int) -> list[tuple[int, bytes]]:
        """Pieces of what came, in order, each with the first byte of its packet or RAW. `types`: bits of the packet
        types that matter; of PUBLISH only those with QoS 1 or 2 do."""
        if self.is_lost:
            return [(RAW, data)]
        if self._have:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
            self._have = 0
        size = len(data)
        if self.skip >= size:
            self.skip -= size
            return [(RAW, data)] if data else []
        found: list[tuple[int, bytes]] = []
        begin = 0
        pos = self.skip
        self.skip = 0
        while pos < size:
            first_byte = data[pos]
            body = _body_start(data, pos)
            if body <= 0:
                if body < 0:
                    self.is_lost = True
                    break
                self._keep(found, data, begin, pos, size - pos + 1)
                return found
            end = body + self._length(data, pos, body)
            kind = first_byte >> 4
            if types >> kind & 1 and (kind != PUBLISH or first_byte & 0x06):
                if end > size:
                    wanted = end - pos if end - pos <= self.most else LONGEST_HEAD
                    if size - pos < wanted:
                        self._keep(found, data, begin, pos, wanted)
                        return found
                    self.skip = end - size
                if pos > begin:
                    found.append((RAW, data[begin:pos]))
                found.append((first_byte, data[pos:end]))
                begin = min(end, size)
            elif end > size:
                self.skip = end - size
            pos = end
        if begin < size:
            found.append((RAW, data[begin:]))
        return found

    def _keep(self, found: list[tuple[int, bytes]], data: bytes, begin: int, pos: int, need: int) -> None:
        """What begins at `pos` waits until there are so many bytes of it."""
        if pos > begin:
            found.append((RAW, data[begin:pos]))
        self._parts.append(data[pos:])
        self._have = len(data) - pos
        self._need = need

    @staticmethod
    def _length(data: bytes, start: int, body: int) -> int:
        length = 0
        for at in range(body - 1, start, -1):
            length = length << 7 | data[at] & 0x7F
        return length


def _body_start(data: bytes, start: int) -> int:
    """Where the body of the packet begins; 0: its header is not whole; -1: that is none."""
    at = start + 1
    for _ in range(4):
        if at >= len(data):
            return 0
        at += 1
        if data[at - 1] < 0x80:
            return at
    return -1
