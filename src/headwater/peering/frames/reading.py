"""A stream of bytes cut into frames: the Hello first, then frames of the version that was agreed on.

As `wire.framing` does for packets: while a frame is not complete nothing is looked at again, and its size is known to
be allowed before its bytes are kept. No more is kept than one frame and what one read brought. What comes out does not
depend on how the bytes were cut; after an error nothing comes any more but the same error.
"""

from __future__ import annotations

from typing import Final

from headwater.peering.frames import v1
from headwater.peering.frames.fields import u32_at
from headwater.peering.frames.frame import Frame, Hello, MalformedFrame
from headwater.peering.frames.hello import MAX_HELLO, decode_hello, hello_size

VERSIONS: Final = (v1.VERSION,)
"""Of frames that this release speaks."""


class FrameReader:
    """`largest_run`: bytes of packets that a run may have, `max_packet_size` at least."""

    def __init__(self, largest_run: int) -> None:
        self.largest_run = largest_run
        self.frames = 0
        """Read until now, the Hello not counted: what a Heartbeat says of them."""
        self._data = b""
        self._at = 0
        self._later: list[bytes] = []
        self._unread = 0
        self._wanted = 1
        self._error: MalformedFrame | None = None

    def feed(self, data: bytes) -> None:
        if self._unread:
            self._later.append(data)
        else:
            self._data = data
            self._at = 0
        self._unread += len(data)

    def next_hello(self) -> Hello | None:
        """The first thing to ask for; None until there is more. Raises MalformedFrame."""
        if not self._is_there():
            return None
        data = self._data
        try:
            size = hello_size(data[: MAX_HELLO * 2])
            if not size or self._unread < size:
                self._wanted = size or self._unread + 1
                return None
            hello = decode_hello(data[:size])
        except MalformedFrame as error:
            self._error = error
            raise
        self._advance(size)
        return hello

    def next_frame(self) -> Frame | None:
        """None until there is more. Raises MalformedFrame."""
        if not self._is_there():
            return None
        data, at = self._data, self._at
        start = at + v1.HEAD_SIZE
        if self._unread < v1.HEAD_SIZE:
            self._wanted = v1.HEAD_SIZE
            return None
        kind, size = data[at], u32_at(data, at + 1)
        try:
            if size > v1.largest_body(kind, self.largest_run):
                raise MalformedFrame(f"a frame of kind {kind} with {size} bytes")
            if self._unread < v1.HEAD_SIZE + size:
                self._wanted = v1.HEAD_SIZE + size
                return None
            if kind == v1.RUN0 or kind == v1.RUN1:
                frame: Frame = v1.read_run(kind, data, start, start + size)
            else:
                frame = v1.decode(kind, data[start : start + size])
        except MalformedFrame as error:
            self._error = error
            raise
        self._advance(v1.HEAD_SIZE + size)
        self.frames += 1
        return frame

    @property
    def kept(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._unread

    def _is_there(self) -> bool:
        if self._error is not None:
            raise self._error
        if self._unread < self._wanted:
            return False
        if self._later:
            self._data = b"".join([self._data[self._at :], *self._later])
            self._at = 0
            self._later = []
        return True

    def _advance(self, size: int) -> None:
        self._at += size
        self._unread -= size
        self._wanted = 1
        if not self._unread:
            self._data = b""
            self._at = 0
