"""Chunks in parts of bounded size, for whatever is made of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from headwater.store.chunk import Chunk, Pieces


def portions(chunk: Chunk, rows: int, size: int) -> Iterator[Chunk]:
    """Parts of at most so many rows, and bytes of payloads or an optional column unless one message alone has more."""
    start = 0
    while start < len(chunk):
        ends = [_end(pieces, start, size) for pieces in (chunk.payload, *chunk.optional.values())]
        end = min(start + rows, len(chunk), *ends)
        yield chunk.slice(start, end)
        start = end


def _end(pieces: Pieces, start: int, size: int) -> int:
    """The row, at least one behind `start`, up to which there are no more bytes than this."""
    end = int(numpy.searchsorted(pieces.offsets, pieces.offsets[start] + size, "right")) - 1
    return max(start + 1, end)
