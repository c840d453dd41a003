"""A byte stream cut into packets: first byte and body, without looking into the body.

While a packet is incomplete nothing is parsed again: the reader knows how many bytes it wants before the next look and
gathers what arrives in one growing buffer, so the cost is linear in the bytes fed, whatever the sizes of the pieces.
Complete packets in one piece are cut out of that piece directly.
"""

from __future__ import annotations

from collections.abc import Iterator

from .errors import RemoteProtocolError
from .primitives import VARINT_MAX
from .reasons import MALFORMED_PACKET, PACKET_TOO_LARGE


class PacketReader:
    """Feed bytes, then iterate over the (first byte, body) of the packets that are complete.

    A packet longer than `max_packet_size`, counted with its header as in 3.1.2.11.4, is refused when its header is
    complete. After an error the stream has no packet boundaries any more: every further look raises the same error.
    """

    def __init__(self, max_packet_size: int = VARINT_MAX + 5) -> None:
        self.max_packet_size = max_packet_size
        self._data = b""
        self._pos = 0
        self._later = bytearray()
        self._unread = 0
        self._wanted = 2
        self._error: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> None:
        if self._unread == 0:
            self._data = data
            self._pos = 0
        else:
            self._later += data
        self._unread += len(data)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        # A generator, since a compiled __next__ cannot return a tuple.
        while (frame := self.next_frame()) is not None:
            yield frame

    def next_frame(self) -> tuple[int, bytes] | None:
        """The next complete packet, or None until more is fed."""
        if self._error is not None:
            raise self._error
        if self._unread < self._wanted:
            self._forget_read()
            return None
        if self._later:
            self._data = self._data[self._pos :] + self._later
            self._pos = 0
            self._later = bytearray()
        start = self._pos
        body_start = self._body_start(start)
        if body_start == 0 or self._unread < self._wanted:
            self._forget_read()
            return None
        end = start + self._wanted
        self._unread -= self._wanted
        self._wanted = 2
        self._pos = end
        return self._data[start], self._data[body_start:end]

    def _body_start(self, start: int) -> int:
        """Parse the remaining length, set `_wanted` and return where the body starts, 0 if that is not known yet."""
        data = self._data
        size = len(data)
        pos = start + 1
        remaining = 0
        shift = 0
        while True:
            if pos >= size:
                self._wanted = pos - start + 1
                return 0
            byte = data[pos]
            pos += 1
            remaining |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise self._fail(MALFORMED_PACKET, "remaining length longer than four bytes")
        if byte == 0 and shift > 0:  # [MQTT-1.5.5-1]
            raise self._fail(MALFORMED_PACKET, "remaining length longer than needed")
        self._wanted = pos - start + remaining
        if self._wanted > self.max_packet_size:  # [MQTT-3.1.2-24] [MQTT-3.2.2-15]
            raise self._fail(PACKET_TOO_LARGE, f"packet of {self._wanted} bytes, at most {self.max_packet_size}")
        return pos

    def _fail(self, reason: int, text: str) -> RemoteProtocolError:
        self._error = RemoteProtocolError(reason, text)
        return self._error

    def _forget_read(self) -> None:
        # A few unread bytes must not keep the whole piece alive that they came with.
        if self._pos > 0:
            self._data = self._data[self._pos :]
            self._pos = 0
