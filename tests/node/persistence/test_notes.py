"""Notes in the delivery store: written down when that is needed, and never otherwise."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.node.persistence.batch import Batch
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.persistence.notes import NUMBER, Notes, packed, unpacked
from headwater.store.intake import Intake
from headwater.store.memory import MemoryStore


def batch(value: bytes, together: bool = True) -> Batch:
    made = Batch(1)
    made.puts.append((b"sk", value))
    made.deletes.append(b"sd")
    made.together = together
    return made


def store(target: MemoryStore, note: bytes) -> None:
    intake = Intake(target.next)
    intake.take(b"t", b"", 0, "", 0)
    taken = intake.hand_over()
    assert taken is not None
    target.append(taken, note)
    target.sync()


@given(st.integers(0, 1 << 60), st.lists(st.tuples(st.binary(), st.binary())), st.lists(st.binary()))
def test_there_and_back(number: int, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
    assert unpacked(packed(number, puts, deletes)) == (number, puts, deletes)


@given(st.binary(), st.integers(0, 60))
def test_damage_is_seen(rest: bytes, at: int) -> None:
    whole = packed(7, [(b"key", b"value")], [b"deleted"])
    if at < len(whole):
        with pytest.raises((struct.error, ValueError, RuntimeError, StopIteration)):
            unpacked(whole[:at])
    with pytest.raises(StorageError):
        damaged = MemoryStore()
        store(damaged, whole + b"\x00" + rest[:3])
        Notes(MemoryBackend(), damaged)


def test_a_commit_that_did_not_come_to_the_backend_is_written_down() -> None:
    backend, messages = MemoryBackend(), MemoryStore()
    notes = Notes(backend, messages)
    first = batch(b"1")
    store(messages, notes.note_for(first))
    backend.write(notes.numbered(first), [])
    second = batch(b"2")
    backend.write([(b"sd", b"")], [])
    store(messages, notes.note_for(second))
    Notes(backend, messages)  # after a crash
    assert backend.get(b"sk") == b"2"
    assert backend.get(b"sd") is None


def test_one_that_did_is_not_written_again() -> None:
    backend, messages = MemoryBackend(), MemoryStore()
    notes = Notes(backend, messages)
    first, second = batch(b"1"), batch(b"2", together=False)
    store(messages, notes.note_for(first))
    backend.write(notes.numbered(first), [])
    assert notes.note_for(second) == b""
    backend.write(notes.numbered(second), [])
    Notes(backend, messages)
    assert backend.get(b"sk") == b"2"


def test_a_note_is_not_for_a_backend_that_was_restored_from_a_backup() -> None:
    backend, messages = MemoryBackend(), MemoryStore()
    notes = Notes(backend, messages)
    for value in (b"1", b"2"):
        made = batch(value)
        store(messages, notes.note_for(made))
    for value in (b"3", b"4", b"5"):
        made = batch(value)
        store(messages, notes.note_for(made))
        backend.write(notes.numbered(made), [])
    older = MemoryBackend()
    older.write([(b"sk", b"0"), (NUMBER, b"1")], [])
    notes = Notes(older, messages)
    assert older.get(b"sk") == b"0"
    for _ in range(3):  # nor when it has as many commits again
        older.write(notes.numbered(batch(b"new", together=False)), [])
        Notes(older, messages)
        assert older.get(b"sk") == b"new"


def test_nor_for_one_that_went_on_without_the_store() -> None:
    backend, messages = MemoryBackend(), MemoryStore()
    notes = Notes(backend, messages)
    first = batch(b"1")
    backend.write(notes.numbered(first), [])
    store(messages, notes.note_for(batch(b"2")))
    alone = Notes(backend, None)
    backend.write(alone.numbered(batch(b"alone")), [])
    Notes(backend, messages)
    assert backend.get(b"sk") == b"alone"


def test_without_a_store_nothing_is_numbered() -> None:
    backend = MemoryBackend()
    made = batch(b"1")
    assert Notes(backend, None).numbered(made) is made.puts
    assert backend.get(NUMBER) is None
