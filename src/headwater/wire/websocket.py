"""WebSocket frames (RFC 6455, section 5) as MQTT uses them: a stream of bytes in binary frames.

Theory. A packet may span frames, and a frame may hold several packets [MQTT-6.0.0-2]. So the payload of data frames is
handed on as it arrives, and nothing but a frame's header or a control frame (at most 139 bytes) is ever kept. Frames of
any length, and fragments of any number, cost no memory.

The mask of a client's frames is taken off a piece at a time by one exclusive or of two long numbers.
"""

from __future__ import annotations

from typing import Final

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
CONTROL: Final = 0x8
FINAL: Final = 0x80
RESERVED: Final = 0x70

NORMAL: Final = 1000
BROKEN: Final = 1002
UNACCEPTABLE: Final = 1003

LARGEST_CONTROL: Final = 125
SIZE_IN_2: Final = 126
SIZE_IN_8: Final = 127


class FrameError(Exception):
    """The peer's frames break RFC 6455, or are not binary; `code` is for our Close frame."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def frame_head(opcode: int, size: int) -> bytes:
    """The head of an unmasked, unfragmented frame."""
    if size <= LARGEST_CONTROL:
        return bytes((FINAL | opcode, size))
    if size <= 0xFFFF:
        return bytes((FINAL | opcode, SIZE_IN_2)) + size.to_bytes(2, "big")
    return bytes((FINAL | opcode, SIZE_IN_8)) + size.to_bytes(8, "big")


def masked_frame(opcode: int, payload: bytes, mask: bytes) -> bytes:
    """A whole frame as a client sends it; the mask is four bytes that nobody can foresee."""
    head = bytearray(frame_head(opcode, len(payload)))
    head[1] |= 0x80
    return bytes(head) + mask + exclusive_or(payload, mask)


def close_payload(code: int) -> bytes:
    return code.to_bytes(2, "big")


def exclusive_or(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


class FrameReader:
    """Takes what arrives apart. `masked` says what the peer's frames must be: True for clients', False for servers'.

    `ping` is the payload of the last Ping that was not answered yet; the one who reads sets it to None. `closed` is the
    payload of the peer's Close frame; nothing behind that is looked at.
    """

    def __init__(self, masked: bool) -> None:
        self._masked = masked
        self._head = b""
        self._left = 0
        self._mask = b""
        self._fragmented = False
        self.ping: bytes | None = None
        self.closed: bytes | None = None

    def feed(self, data: bytes) -> bytes:
        """The payload of data frames in what arrived; raises FrameError."""
        if self._head:
            data = self._head + data
            self._head = b""
        payload: list[bytes] = []
        pos = 0
        end = len(data)
        while pos < end and self.closed is None:
            left = self._left
            if left:
                piece = data[pos : pos + left]
                pos += len(piece)
                self._left = left - len(piece)
                payload.append(self._unmasked(piece))
                continue
            behind = self._start(data, pos)
            if behind == 0:
                self._head = data[pos:]
                break
            pos = behind
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _unmasked(self, piece: bytes) -> bytes:
        if not self._masked:
            return piece
        mask = self._mask
        turned = len(piece) & 3
        if turned and self._left:
            self._mask = mask[turned:] + mask[:turned]
        return exclusive_or(piece, mask)

    def _start(self, data: bytes, pos: int) -> int:
        """Begin with the frame at `pos`; returns where its payload begins, or behind it if it is a control frame. 0: it
        is not here yet, or not all of it if it is a control frame."""
        at = pos + 2
        if at > len(data):
            return 0
        first = data[pos]
        second = data[pos + 1]
        size = second & 0x7F
        opcode = first & 0x0F
        self._check(first, second, opcode)
        if size >= SIZE_IN_2:
            width = 2 if size == SIZE_IN_2 else 8
            if at + width > len(data):
                return 0
            size = int.from_bytes(data[at : at + width], "big")
            at += width
            if size <= (LARGEST_CONTROL if width == 2 else 0xFFFF) or size >> 63:
                raise FrameError(BROKEN, "a length that is not written as it should be")
        mask = b""
        if self._masked:
            mask = data[at : at + 4]
            at += 4
            if at > len(data):
                return 0
        if opcode & CONTROL:
            if at + size > len(data):
                return 0
            self._control(opcode, data[at : at + size], mask)
            return at + size
        self._fragmented = first & FINAL == 0
        self._mask = mask
        self._left = size
        return at

    def _check(self, first: int, second: int, opcode: int) -> None:
        if first & RESERVED:
            raise FrameError(BROKEN, "reserved bits are set, and no extension was agreed on")
        if (second & 0x80 != 0) != self._masked:
            raise FrameError(BROKEN, "a frame that is not masked" if self._masked else "a frame that is masked")
        if opcode & CONTROL:
            if opcode > PONG:
                raise FrameError(BROKEN, f"a frame of unknown kind {opcode}")
            if first & FINAL == 0 or second & 0x7F > LARGEST_CONTROL:
                raise FrameError(BROKEN, "a control frame in fragments, or too long")
        elif opcode == TEXT:
            raise FrameError(UNACCEPTABLE, "a text frame; MQTT needs binary ones")  # [MQTT-6.0.0-1]
        elif opcode > BINARY:
            raise FrameError(BROKEN, f"a frame of unknown kind {opcode}")
        elif (opcode == CONTINUATION) != self._fragmented:
            raise FrameError(BROKEN, "a fragment out of place")

    def _control(self, opcode: int, payload: bytes, mask: bytes) -> None:
        if mask:
            payload = exclusive_or(payload, mask)
        if opcode == PING:
            self.ping = payload
        elif opcode == CLOSE:
            if len(payload) == 1:
                raise FrameError(BROKEN, "a Close frame with half a code")
            self.closed = payload
