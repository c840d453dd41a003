"""The messages that are in no block yet, in memory as on disk.

Each commit brings a part. A slow fleet makes thousands of parts of one message each, and each question would look at
all of them; so parts are joined, eight of about one size at a time, which copies a message a few times at most and
leaves few dozens of parts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy

from headwater.store.chunk import Chunk

JOINED: Final = 8
LARGE: Final = 1024
"""Messages of a part that is not joined any more."""


class Part(NamedTuple):
    """`keys` are those of its records on disk, `size` their bytes."""

    chunk: Chunk
    keys: list[bytes]
    size: int


class Tail:
    """Whoever uses it holds the store's lock; a list of parts that was taken from it does not change."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.messages = 0
        self.size = 0
        self.payload_size = 0

    def add(self, part: Part) -> None:
        self.messages += len(part.chunk)
        self.size += part.size
        self.payload_size += len(part.chunk.payload.data)
        parts = [*self.parts, part]
        while len(parts) >= JOINED and _alike(parts[-JOINED:]):
            parts[-JOINED:] = [_joined(parts[-JOINED:])]
        self.parts = parts

    def first_parts(self, messages: int, size: int) -> list[Part]:
        """The first ones that together have at least so many messages or so many bytes, or all."""
        count = total = bytes_ = 0
        for part in self.parts:
            count += 1
            total += len(part.chunk)
            bytes_ += part.size
            if total >= messages or bytes_ >= size:
                break
        return self.parts[:count]

    def drop(self, parts: list[Part]) -> None:
        """The first parts, or what they have become part of: these go on without their messages."""
        for part in parts:
            self.messages -= len(part.chunk)
            self.size -= part.size
            self.payload_size -= len(part.chunk.payload.data)
        end = int(parts[-1].chunk.position[-1])
        left = [part for part in self.parts if int(part.chunk.position[-1]) > end]
        if left and int(left[0].chunk.position[0]) <= end:
            chunk = left[0].chunk
            rest = chunk.slice(int(numpy.searchsorted(chunk.position, end, "right")), len(chunk))
            gone = {key for part in parts for key in part.keys}
            size = left[0].size - sum(part.size for part in parts if part.keys[0] in left[0].keys)
            left[0] = Part(rest, [key for key in left[0].keys if key not in gone], size)
        self.parts = left

    def drop_before(self, position: int) -> list[Chunk]:
        """The same for who does not know the parts of the other, nor their bytes: all messages before a position.
        Returns them."""
        gone: list[Chunk] = []
        left: list[Part] = []
        for part in self.parts:
            chunk = part.chunk
            at = int(numpy.searchsorted(chunk.position, position, "left"))
            if at:
                gone.append(chunk.slice(0, at))
            if at < len(chunk):
                left.append(part if not at else Part(chunk.slice(at, len(chunk)), [], part.size))
        self.messages -= sum(len(chunk) for chunk in gone)
        self.payload_size -= sum(len(chunk.payload.data) for chunk in gone)
        self.parts = left
        return gone


def _alike(parts: list[Part]) -> bool:
    oldest, newest = len(parts[0].chunk), len(parts[-1].chunk)
    return oldest <= LARGE and _magnitude(oldest) <= _magnitude(newest)


def _magnitude(messages: int) -> int:
    return (messages.bit_length() - 1) // 3


def _joined(parts: list[Part]) -> Part:
    return Part(
        Chunk.joined([part.chunk for part in parts]),
        [key for part in parts for key in part.keys],
        sum(part.size for part in parts),
    )
