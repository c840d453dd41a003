"""Proof that a store has what was sent: every message, each once, none changed, in the order of its publisher.

Theory. Only the order of one publisher's messages is known beforehand, so each publisher has a digest of all that it
sent, column by column, and another is made of what is read back. A digest does not depend on the pieces in which the
rows come, so ten million rows are compared without having them in memory. Positions have to count from 1 without gaps.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from headwater_lab.store_messages import DEVICES, PUBLISHERS, Readings, publisher_of, topic_of


class Digest:
    """Of rows in an order, however they are divided."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns = [blake2b(digest_size=16) for _ in range(5)]

    def add(self, device: Any, time: Any, value: Any, lengths: Any, payloads: bytes) -> None:
        """Rows as columns; the payloads are one piece, `lengths` are theirs."""
        self.rows += len(device)
        kinds = (numpy.int32, numpy.int64, numpy.float64, numpy.int32)
        for digest, column, kind in zip(self._columns, (device, time, value, lengths), kinds, strict=False):
            digest.update(numpy.ascontiguousarray(column, kind).data)
        self._columns[4].update(payloads)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digest):
            return NotImplemented
        mine, theirs = ([column.digest() for column in each._columns] for each in (self, other))
        return self.rows == other.rows and mine == theirs

    __hash__ = None  # type: ignore[assignment]  # it changes


class Proof:
    """What was sent, and what a store gives back of it."""

    def __init__(self) -> None:
        self.sent: dict[str, Digest] = {}
        self.messages = 0
        self.payload_bytes = 0

    def add(self, round_of_all: Readings) -> None:
        """Messages are sent, each by the publisher of its device; all devices are there, in turn, beginning with 0."""
        lengths = numpy.fromiter(map(len, round_of_all.payload), numpy.int64, len(round_of_all.payload))
        self.messages += len(lengths)
        self.payload_bytes += int(lengths.sum())
        for part in range(PUBLISHERS):
            device, time, value = (column[part::PUBLISHERS] for column in round_of_all[:3])
            payloads = b"".join(round_of_all.payload[part::PUBLISHERS])
            self.sent.setdefault(publisher_of(part), Digest()).add(
                *(device, time, value, lengths[part::PUBLISHERS], payloads)
            )

    def returned(self) -> Returned:
        """To compare with what is read."""
        return Returned(self)


class Returned:
    """Batches are added in the order in which a store gives them."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._found: dict[str, Digest] = {}
        self._next = 1
        self._gaps = 0
        self._devices = {topic_of(device): device for device in range(DEVICES)}

    def add(self, batch: pa.RecordBatch) -> None:
        position = batch.column("position").to_numpy(zero_copy_only=False)
        if len(position):
            self._gaps += int(numpy.count_nonzero(numpy.diff(position, prepend=self._next - 1) != 1))
            self._next = int(position[-1]) + 1
        device = _translated(batch.column("topic"), self._devices)
        publisher, names = _dictionary(batch.column("publisher"))
        time = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        value = batch.column("value").to_numpy(zero_copy_only=False)
        order = numpy.argsort(publisher, kind="stable")
        ends = numpy.searchsorted(publisher[order], numpy.arange(len(names) + 1))
        payload = batch.column("payload")
        for number, name in enumerate(names):
            rows = order[ends[number] : ends[number + 1]]
            lengths, joined = _pieces(payload.take(pa.array(rows)))
            self._found.setdefault(name, Digest()).add(device[rows], time[rows], value[rows], lengths, joined)

    def differences(self) -> list[str]:
        """What is wrong, in words; nothing if all is there as it was sent."""
        said = []
        if self._gaps:
            said.append(f"{self._gaps} gaps in positions")
        if self._next != self._proof.messages + 1:
            said.append(f"{self._next - 1:,} messages instead of {self._proof.messages:,}")
        sent, found = self._proof.sent, self._found
        wrong = [name for name in sorted({*sent, *found}) if sent.get(name, Digest()) != found.get(name, Digest())]
        if wrong:
            said.append(
                f"messages of {len(wrong)} publishers are not those that were sent, such as those of {wrong[0]}"
            )
        return said


def _dictionary(column: pa.Array) -> tuple[NDArray[numpy.int64], list[str]]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.indices.to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def _translated(column: pa.Array, numbers: dict[str, int]) -> NDArray[numpy.int64]:
    """-1 for what has no number."""
    indices, names = _dictionary(column)
    return numpy.array([numbers.get(name, -1) for name in names], numpy.int64)[indices]


def _pieces(payload: pa.Array) -> tuple[NDArray[numpy.int32], bytes]:
    """The lengths of byte strings, and all of them in one piece."""
    offsets = numpy.frombuffer(payload.buffers()[1], numpy.int32)[payload.offset : payload.offset + len(payload) + 1]
    data = payload.buffers()[2]
    joined = b"" if data is None else data[int(offsets[0]) : int(offsets[-1])].to_pybytes()
    return numpy.diff(offsets), joined
