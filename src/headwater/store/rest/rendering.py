"""A stream of chunks as a stream of bytes: lines of JSON, CSV or Arrow, perhaps compressed.

All of it goes on in a thread, one step at a time: a step makes bytes of a few hundred messages of text, or of a batch
of Arrow. So nobody else waits for long, what is made waits for the caller's socket, and no answer needs more memory
than two steps do.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from headwater.store.chunk import Chunk
from headwater.store.columns import NAMES
from headwater.store.portions import portions
from headwater.store.query import Query
from headwater.store.rest.formats import csv_head, csv_lines, json_lines
from headwater.store.rest.gate import Refused
from headwater.store.rest.negotiation import ARROW, CSV
from headwater.store.rest.scanning import scanned
from headwater.store.store import Store

Piece = bytes | memoryview
Step = list[Piece]
Note = Callable[[int], None]

ROWS: Final = 200
"""Messages of a step that makes text: less than a millisecond, during which no other thread may run."""
BATCH: Final = 1 << 16
"""Messages of a batch of Arrow."""
SIZE: Final = 4 << 20
BATCH_SIZE: Final = 4 << 20
"""Bytes of payloads in one step, unless a single message has more."""
LEVEL: Final = 4
GZIP: Final = 31
"""What zlib calls a window with gzip's head and tail."""


class Arrow(NamedTuple):
    """What is wanted of an Arrow stream."""

    compression: str | None = None
    columns: tuple[str, ...] = NAMES


def steps(
    store: Store, query: Query, form: str, gzip: bool, arrow: Arrow, note: Note | None = None
) -> Generator[Step, None, None]:
    """Nothing is done before the first step is asked for. Raises what `Store.select` does. `note` is told how many
    bytes of messages are held for the steps to come."""
    if form == ARROW:
        return _arrow(store, query, arrow, note)
    head, lines = (csv_head(), csv_lines) if form == CSV else (b"", json_lines)
    text = _text(store, query, head, lines, note)
    return _gzipped(text) if gzip else text


def parts(
    store: Store, query: Query, rows: int = ROWS, size: int = SIZE, note: Note | None = None
) -> Generator[Chunk | None, None, None]:
    """What is dealt with in one step each; None: nothing was found in a while."""
    for chunk in scanned(store, query):
        if note is not None:
            note(0 if chunk is None else len(chunk.payload.data))
        if chunk is None:
            yield None
        else:
            yield from portions(chunk, rows, size)


def _text(
    store: Store, query: Query, head: bytes, lines: Callable[[Chunk], bytes], note: Note | None
) -> Generator[Step, None, None]:
    """The head comes with the first messages: before they are there, it may turn out that they cannot be had."""
    for part in parts(store, query, note=note):
        if part is None:
            yield []
        else:
            yield [head, lines(part)]
            head = b""
    yield [head]


def _gzipped(text: Generator[Step, None, None]) -> Generator[Step, None, None]:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    with contextlib.closing(text):
        for step in text:
            yield [compressor.compress(piece) for piece in step]
    yield [compressor.flush()]


def gzipped(body: bytes) -> bytes:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    return compressor.compress(body) + compressor.flush()


def _arrow(store: Store, query: Query, wanted: Arrow, note: Note | None) -> Generator[Step, None, None]:
    from headwater.store.arrow import StreamWriter

    writer = StreamWriter(wanted.compression, wanted.columns)
    for part in parts(store, query, BATCH, BATCH_SIZE, note):
        yield [] if part is None else writer.write(part)
    yield writer.end()


def check_arrow() -> None:
    """Raises Refused (406) where there is no pyarrow."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise Refused(406, "not_acceptable", "this node has no Arrow: pip install 'headwater[store]' there")
