"""Two disks, one truth: a commit whose messages went to the delivery store, and whose changes did not come to the
backend.

Theory. Messages go to the store first, then changes to the backend, and a crash may come between the two. Mostly that
does no harm: the publisher was not acknowledged and sends again, which QoS 1 allows. But that a QoS 2 message has been
received, or a will published, must be known if the message is in the store, or it would be there twice. So a commit
with such changes leaves a note of all its changes in the store, in the same write as its messages. Commits have
numbers, and the backend knows the number of its last one. Who starts finds a note with the next number only if there
was such a crash, and writes down what the note says.

A note with any other number is of no use: the backend has its changes, or was restored from a backup since. The next
numbers are above it, so that it never will be.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Final

from headwater.disk.errors import StorageError
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.batch import Batch
from headwater.store.store import Store

log = logging.getLogger("headwater.persistence")

NUMBER: Final = b"n"
"""The key in the backend."""

_HEAD: Final = struct.Struct(">QII")
_LENGTH: Final = struct.Struct(">I")

Puts = list[tuple[bytes, bytes]]


class Notes:
    """Made when backend and store have been opened and nothing of them was read: a note may still have to be written
    down. Without a store, commits have no numbers."""

    def __init__(self, backend: Backend, store: Store | None) -> None:
        self._backend = backend
        self._store = store
        known = backend.get(NUMBER)
        self._number = 0 if known is None else int(known)
        self._is_unsynced = False
        if store is not None:
            self._look_for_note(store.note())
        elif known is not None:
            backend.write([(NUMBER, str(self._number + 1).encode())], [])  # a note that is left is out of date now
            backend.sync()

    def _look_for_note(self, note: bytes) -> None:
        if not note:
            return
        try:
            number, puts, deletes = unpacked(note)
        except (struct.error, ValueError) as error:
            raise StorageError(f"a note in the delivery store cannot be understood ({error!r})") from error
        if number == self._number + 1:
            log.info("the last commit before a crash is written down: %d changes", len(puts) + len(deletes))
            self._backend.write([*puts, (NUMBER, str(number).encode())], deletes)
            self._backend.sync()
        self._number = max(self._number, number)

    def note_for(self, batch: Batch) -> bytes:
        """What goes to the store with the batch's messages; empty if nothing has to. A note is of use only behind the
        commit before, which is on disk for good when this returns."""
        if not batch.together:
            return b""
        if self._is_unsynced:
            self._backend.sync()
            self._is_unsynced = False
        return packed(self._number + 1, batch.puts, batch.deletes)

    def numbered(self, batch: Batch) -> Puts:
        """What goes to the backend then; each batch is asked for once."""
        if self._store is None:
            return batch.puts
        self._is_unsynced = not batch.promises
        self._number += 1
        return [*batch.puts, (NUMBER, str(self._number).encode())]


def packed(number: int, puts: Puts, deletes: list[bytes]) -> bytes:
    pieces = [_HEAD.pack(number, len(puts), len(deletes))]
    for each in (*(part for put in puts for part in put), *deletes):
        pieces.append(_LENGTH.pack(len(each)))
        pieces.append(each)
    return b"".join(pieces)


def unpacked(note: bytes) -> tuple[int, Puts, list[bytes]]:
    """Number, puts and deletes. Raises struct.error or ValueError if it is damaged."""
    number, put_count, delete_count = _HEAD.unpack_from(note)
    pieces = _pieces(note)
    puts = [(next(pieces), next(pieces)) for _ in range(put_count)]
    deletes = [next(pieces) for _ in range(delete_count)]
    if next(pieces, None) is not None:
        raise ValueError("more than it says")
    return number, puts, deletes


def _pieces(note: bytes) -> Iterator[bytes]:
    at = _HEAD.size
    while at < len(note):
        (length,) = _LENGTH.unpack_from(note, at)
        at += _LENGTH.size
        if at + length > len(note):
            raise ValueError("cut off")
        yield note[at : at + length]
        at += length
