"""What every store of the broker promises: order, whole batches, and what a crash leaves."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.persistence.schema import open_folder
from tests.disk.killed import copy_as_killed

Batch = tuple[list[tuple[bytes, bytes]], list[bytes]]
Values = dict[bytes, bytes]

KEYS = st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"a", b"a\x00", b"a\xff", b"b"])
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, st.binary(max_size=40)), max_size=4), st.lists(KEYS, max_size=3)), max_size=8
)


class Memory:
    def __init__(self, folder: Path) -> None:
        self.backend = MemoryBackend()

    def reopened(self) -> Backend:
        self.backend.close()
        self.backend = self.backend.crashed(0)
        return self.backend

    def killed(self) -> Backend:
        """A second one, as it would be after kill -9."""
        return self.backend.crashed(None)


class Rocks:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = open_folder(folder / "data")

    def reopened(self) -> Backend:
        self.backend.close()
        self.backend = open_folder(self.folder / "data")
        return self.backend

    def killed(self) -> Backend:
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / "copy"
        return open_folder(copy_as_killed(self.folder / "data", copy))


KINDS = {"memory": Memory, "rocks": Rocks}
Kind = type[Memory] | type[Rocks]

every_backend = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


@contextmanager
def a_store(kind: Kind) -> Iterator[Memory | Rocks]:
    with tempfile.TemporaryDirectory() as folder:
        store = kind(Path(folder))
        try:
            yield store
        finally:
            store.backend.close()


def applied(batches: list[Batch]) -> Values:
    values: Values = {}
    for puts, deletes in batches:
        for key in deletes:
            values.pop(key, None)
        values.update(puts)
    return values


def content(backend: Backend, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
    return list(backend.scan(prefix))


@every_backend
@settings(max_examples=30, deadline=None)
@given(batches=BATCHES, prefix=KEYS, absent=KEYS)
def test_it_is_a_map_ordered_by_key(kind: Kind, batches: list[Batch], prefix: bytes, absent: bytes) -> None:
    with a_store(kind) as store:
        for puts, deletes in batches:
            store.backend.write(puts, deletes)
        expected = applied(batches)
        for how in ("as it is", "killed", "reopened"):
            backend = {"as it is": lambda: store.backend, "killed": store.killed, "reopened": store.reopened}[how]()
            assert content(backend) == sorted(expected.items())
            assert content(backend, prefix) == sorted(item for item in expected.items() if item[0].startswith(prefix))
            assert [backend.get(key) for key in expected] == list(expected.values())
            assert backend.get(absent) == expected.get(absent)
            if how == "killed":
                backend.close()


@every_backend
def test_deletes_of_a_batch_come_before_its_puts(kind: Kind) -> None:
    with a_store(kind) as store:
        store.backend.write([(b"a", b"1")], [])
        store.backend.write([(b"a", b"2"), (b"b", b"1"), (b"b", b"2")], [b"a", b"b", b"never"])
        assert content(store.backend) == [(b"a", b"2"), (b"b", b"2")]


@every_backend
def test_a_scan_is_of_the_moment_when_it_began(kind: Kind) -> None:
    with a_store(kind) as store:
        store.backend.write([(b"a", b"1"), (b"c", b"1")], [])
        scan = store.backend.scan(b"")
        store.backend.write([(b"b", b"2"), (b"c", b"2")], [b"a"])
        assert list(scan) == [(b"a", b"1"), (b"c", b"1")]


@every_backend
def test_large_values_and_batches(kind: Kind) -> None:
    with a_store(kind) as store:
        puts = [(b"%06d" % number, bytes([number % 256]) * 200) for number in range(5000)]
        store.backend.write([*puts, (b"large", bytes(range(256)) * 8192)], [])
        store.backend.sync()
        backend = store.reopened()
        assert content(backend, b"0") == puts
        assert backend.get(b"large") == bytes(range(256)) * 8192


@every_backend
def test_one_thread_reads_while_another_writes(kind: Kind) -> None:
    """Each batch changes both keys, so a reader of one scan always sees them the same."""
    with a_store(kind) as store:
        backend = store.backend
        backend.write([(b"a", b"0"), (b"z", b"0")], [])

        asked, looked = threading.Event(), threading.Event()

        def write() -> None:
            for number in range(300):
                value = b"%d" % number
                backend.write([(b"a", value), (b"z", value)], [])
                backend.sync()
                if number % 30 == 0:  # so that the reader is there in between
                    asked.set()
                    looked.wait(10)
                    looked.clear()

        writer = threading.Thread(target=write)
        writer.start()
        seen = set()
        while writer.is_alive():
            waits = asked.is_set()
            (_, first), (_, last) = content(backend)
            assert first == last
            assert backend.get(b"a") is not None
            seen.add(first)
            if waits:
                asked.clear()
                looked.set()
        assert content(backend) == [(b"a", b"299"), (b"z", b"299")]
        assert len(seen) >= 10


@every_backend
def test_a_closed_one_says_so(kind: Kind) -> None:
    with a_store(kind) as store:
        backend = store.backend
        backend.write([(b"a", b"1")], [])
        scan = backend.scan(b"")
        backend.close()
        backend.close()
        for use in (
            lambda: backend.write([], []),
            backend.sync,
            lambda: backend.get(b"a"),
            lambda: backend.scan(b"a"),
        ):
            with pytest.raises(StorageError, match="has been closed"):
                use()
        assert content(store.reopened()) == [(b"a", b"1")]  # also while somebody holds a scan that was not finished
        del scan


@settings(max_examples=50, deadline=None)
@given(before=BATCHES, after=BATCHES, keep=st.integers(0, 9))
def test_what_a_power_cut_leaves_in_memory(before: list[Batch], after: list[Batch], keep: int) -> None:
    backend = MemoryBackend()
    for puts, deletes in before:
        backend.write(puts, deletes)
    backend.sync()
    for puts, deletes in after:
        backend.write(puts, deletes)
    assert content(backend.crashed()) == sorted(applied(before).items())
    assert content(backend.crashed(keep)) == sorted(applied(before + after[:keep]).items())
    assert content(backend.crashed(None)) == content(backend) == sorted(applied(before + after).items())
