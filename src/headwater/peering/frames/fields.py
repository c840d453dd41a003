"""Numbers and texts in a frame's body, with bounds: read in order, and raise MalformedFrame where they are not so."""

from __future__ import annotations

import re
import struct
from typing import Final

from headwater.peering.frames.frame import MAX_NODE_ID, MalformedFrame

_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NODE_ID}}}")
_NAME: Final = re.compile(r"[\x21-\x7e]+")
U16: Final = struct.Struct("!H")
U32: Final = struct.Struct("!I")
U64: Final = struct.Struct("!Q")


def u32_at(data: bytes, at: int) -> int:
    """The four bytes there, which have to be; compiled, a third of what `struct` takes."""
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def is_node_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


class Fields:
    """A body from its first byte on."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def u8(self) -> int:
        if self.at >= len(self.data):
            raise MalformedFrame("the frame ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise MalformedFrame("the frame ends too early")
        found = self.data[self.at : end]
        self.at = end
        return found

    def rest(self) -> bytes:
        found = self.data[self.at :]
        self.at = len(self.data)
        return found

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise MalformedFrame(f"a flag is {value}")
        return value == 1

    def node(self, may_be_empty: bool = False) -> str:
        text = self._short(MAX_NODE_ID)
        if not is_node_id(text) and (text or not may_be_empty):
            raise MalformedFrame("malformed node id")
        return text

    def name(self, most: int) -> str:
        """Visible ASCII, not empty."""
        text = self._short(most)
        if _NAME.fullmatch(text) is None:
            raise MalformedFrame("malformed name")
        return text

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame("a text is not UTF-8") from None

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedFrame("the frame has bytes behind its end")

    def _short(self, most: int) -> str:
        size = self.u8()
        if size > most:
            raise MalformedFrame(f"a name of {size} bytes")
        return self.text(size)


def short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data
