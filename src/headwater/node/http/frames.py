"""What node and HTTP process say to each other, as bytes: a head in JSON, and a body that is any bytes.

    bytes of the head (4) | bytes of the body (4) | head | body

Strangers talk to the HTTP process, so the node takes nothing from it but values of JSON. No sockets here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import from_json, to_json

LARGEST_HEAD: Final = 4 << 20
"""Bytes: what is longest is the rules of a caller, or the headers of a request."""
_SIZES: Final = struct.Struct("<II")

Head = dict[str, Any]


class BadFrame(Exception):
    """Nothing that follows can be understood."""


def encoded(head: Head, body: bytes = b"") -> list[bytes]:
    """A frame, in pieces."""
    text = to_json(head)
    return [_SIZES.pack(len(text), len(body)), text, body] if body else [_SIZES.pack(len(text), 0), text]


class Frames:
    """Bytes as they come, and the frames in them; no frame has a body of more than `largest` bytes."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Head, bytes]]:
        """Raises BadFrame."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _SIZES.size:
            head, body = _SIZES.unpack_from(buffer)
            if head > LARGEST_HEAD or body > self.largest:
                raise BadFrame(f"a frame of {head} and {body} bytes")
            end = _SIZES.size + head + body
            if len(buffer) < end:
                return
            text = bytes(buffer[_SIZES.size : _SIZES.size + head])
            rest = bytes(buffer[_SIZES.size + head : end])
            del buffer[:end]
            try:
                found = from_json(text)
            except ValueError as error:
                raise BadFrame(f"a head that is no JSON: {error}") from None
            if not isinstance(found, dict):
                raise BadFrame("a head that is no object")
            yield found, rest
