"""Packets in one direction of one connection, of which only a few matter: their boundaries, and the bodies of those.

Theory. Bytes pass through unchanged, and the relay looks at them on their way: at the first byte and the length of each
packet, and from there it is one addition to the next packet, however many bytes the body has. A packet that matters is
copied out; one that comes in parts is collected while its bytes pass on. Between two calls nothing is kept but how many
bytes of a packet are still to come (`_skip`), a header that is cut (four bytes at most), and what is collected.

What is kept has a bound, `most` bytes of body: of a larger packet the beginning is kept and `is_whole` is false.
Whatever bytes come, nothing is raised. A length of more than four bytes is no MQTT: from there on there are no
boundaries (`is_lost`), and nothing more is found; the bytes pass all the same, and the broker decides what they are.
"""

from __future__ import annotations

from typing import Final

RETAINED_PUBLISH: Final = 0x31
"""A first byte without DUP and QoS."""
PUBLISH_FLAGS: Final = 0xF1
NOTHING: Final = -1


class Found:
    """A packet that matters, and where it stands in the bytes that were just scanned."""

    def __init__(self, first_byte: int, body: bytes, start: int, end: int, is_whole: bool) -> None:
        self.first_byte = first_byte
        self.body = body
        self.start = start
        """0 also if it began in earlier bytes."""
        self.end = end
        self.is_whole = is_whole
        """Else `body` is its beginning."""


class Scanner:
    """`types`: bits of the packet types that matter (`1 << SUBSCRIBE`); `finds_retained`: so does a PUBLISH with the
    retain flag."""

    def __init__(self, types: int, finds_retained: bool, most: int) -> None:
        self.types = types
        self.finds_retained = finds_retained
        self.most = most
        self.packets = 0
        """How many have begun."""
        self.kept = 0
        """Bytes of packets that are not whole."""
        self.is_lost = False
        self._skip = 0
        """Bytes that are still to come of the packet that was last."""
        self._head = b""
        """Of a header that is cut."""
        self._parts: list[bytes] | None = None
        """What was collected of a packet that matters."""
        self._first_byte = 0
        self._is_whole = True
        self._missing = 0
        """Bytes that are still to be collected."""

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a packet, as far as can be said."""
        return not (self._skip or self._head or self.is_lost)

    def scan(self, data: bytes) -> list[Found] | None:
        """Look at the bytes that come next. None, which is usual: nothing that matters ends in them."""
        if self.is_lost:
            return None
        size = len(data)
        pos = 0
        shift = 0
        found: list[Found] | None = None
        if self._skip:
            if self._parts is not None:
                found = self._collect(data)
            if self._skip >= size:
                self._skip -= size
                return found
            pos = self._skip
            self._skip = 0
        elif self._head:
            shift = len(self._head)
            data = self._head + data
            size += shift
            self._head = b""
        types = self.types
        retained = RETAINED_PUBLISH if self.finds_retained else NOTHING
        count = 0
        while pos < size:
            first_byte = data[pos]
            at = pos + 1
            if at == size:
                self._head = data[pos:]
                break
            remaining = data[at]
            at += 1
            if remaining >= 0x80:
                at = self._body_start(data, pos)
                if at == 0:
                    break
                remaining = self._skip
            end = at + remaining
            count += 1
            if types >> (first_byte >> 4) & 1 or first_byte & PUBLISH_FLAGS == retained:
                if found is None:
                    found = []
                self._take(found, data, pos, at, end, shift)
            pos = end
        self._skip = pos - size if pos > size else 0
        self.packets += count
        return found if found else None

    @property
    def simple_skip(self) -> int:
        """Bytes that are to be skipped before the next header, where nothing else is kept; -1: something is."""
        return -1 if self._head or self._parts is not None or self.is_lost else self._skip

    def skipped(self, packets: int, skip: int) -> None:
        """Somebody else has scanned bytes from there (passing.c), in which so many packets begin, and nothing that
        matters."""
        self.packets += packets
        self._skip = skip

    def _body_start(self, data: bytes, start: int) -> int:
        """Where the body begins of a packet whose length has more than one byte, and the length as `_skip`. 0: nothing
        more can be said of these bytes."""
        size = len(data)
        at = start + 1
        length = 0
        shift = 0
        while at < size:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._skip = length
                return at
            shift += 7
            if shift > 21:
                self._lose()
                return 0
        self._head = data[start:]
        return 0

    def _take(self, found: list[Found], data: bytes, start: int, body: int, end: int, shift: int) -> None:
        """A packet that matters begins at `start`."""
        size = len(data)
        length = end - body
        is_whole = length <= self.most
        kept = length if is_whole else self.most
        if end <= size or body + kept <= size:
            shown = end if end <= size else size
            found.append(Found(data[start], data[body : body + kept], max(0, start - shift), shown - shift, is_whole))
            return
        self._first_byte = data[start]
        self._is_whole = is_whole
        self._parts = [data[body:]]
        self.kept = size - body
        self._missing = kept - self.kept

    def _collect(self, data: bytes) -> list[Found] | None:
        """More bytes of the packet that is being collected."""
        parts = self._parts
        assert parts is not None
        size = len(data)
        if size < self._missing:
            parts.append(data)
            self.kept += size
            self._missing -= size
            return None
        parts.append(data[: self._missing])
        self._parts = None
        self.kept = 0
        end = self._skip if self._skip < size else size
        return [Found(self._first_byte, b"".join(parts), 0, end, self._is_whole)]

    def _lose(self) -> None:
        """What comes is no MQTT."""
        self.is_lost = True
        self._head = b""
        self._skip = 0
