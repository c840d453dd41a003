"""Stored messages as columns: what is written to disk, selected from, and handed to readers.

A column is one array, however many messages there are, so that choosing among thousands of messages costs a few steps
of numpy rather than a few steps each. Texts and bytes are one piece with offsets between them, as Arrow has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from headwater.store.entry import OPTIONAL, Entry
from headwater.store.intake import RETAIN, Taken

Integers = NDArray[numpy.int64]
Indices = NDArray[numpy.int32]
Floats = NDArray[numpy.float64]
Flags = NDArray[numpy.uint8]
Choice = NDArray[numpy.intp]

QOS: Final = 3
MANY: Final = 1024
FEW: Final = 32
"""So many rows with so few lengths are moved by numpy."""
NONE: Final = numpy.zeros(1, numpy.int64)


class Pieces:
    """Byte strings of many rows: row i is `data[offsets[i]:offsets[i + 1]]`."""

    __slots__ = ("data", "offsets")

    def __init__(self, offsets: Integers, data: bytes) -> None:
        self.offsets = offsets
        self.data = data

    @staticmethod
    def of(rows: Sequence[bytes]) -> Pieces:
        offsets = numpy.zeros(len(rows) + 1, numpy.int64)
        numpy.cumsum(numpy.fromiter(map(len, rows), numpy.int64, len(rows)), out=offsets[1:])
        return Pieces(offsets, b"".join(rows))

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.offsets[index] : self.offsets[index + 1]]

    def rows(self) -> list[bytes]:
        data = self.data
        ends = self.offsets.tolist()
        return [data[start:end] for start, end in pairwise(ends)]

    def take(self, choice: Choice) -> Pieces:
        starts = self.offsets[:-1][choice]
        lengths = self.offsets[1:][choice] - starts
        offsets = numpy.zeros(len(choice) + 1, numpy.int64)
        numpy.cumsum(lengths, out=offsets[1:])
        if len(choice) >= MANY:
            alike = numpy.unique(lengths)
            if len(alike) <= FEW:
                return Pieces(offsets, self._by_length(starts, lengths, offsets, alike))
        data = self.data
        ends = starts + lengths
        chosen = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return Pieces(offsets, b"".join(chosen))

    def _by_length(self, starts: Integers, lengths: Integers, offsets: Integers, alike: Integers) -> bytes:
        """Rows from `starts` to `offsets`. Those of one length are moved together, which takes a quarter of the time:
        devices send payloads of few lengths."""
        source = numpy.frombuffer(self.data, numpy.uint8)
        target = numpy.empty(int(offsets[-1]), numpy.uint8)
        for length in alike[alike > 0].tolist():
            rows = numpy.flatnonzero(lengths == length)
            there = sliding_window_view(target, length, writeable=True)
            there[offsets[rows]] = sliding_window_view(source, length)[starts[rows]]
        return target.tobytes()

    def slice(self, start: int, end: int) -> Pieces:
        first, last = int(self.offsets[start]), int(self.offsets[end])
        return Pieces(self.offsets[start : end + 1] - first, self.data[first:last])

    @staticmethod
    def joined(parts: Sequence[Pieces]) -> Pieces:
        offsets = [NONE]
        behind = 0
        for part in parts:
            offsets.append(part.offsets[1:] + behind)
            behind += len(part.data)
        return Pieces(numpy.concatenate(offsets), b"".join(part.data for part in parts))


class Chunk:
    """Messages in the order of their positions, which may have gaps between them.

    `topic` are indices into `names`, which may be a whole store's and grows at its end only; `publisher` into
    `publishers`. `value` is NaN where there is none. `optional` are the optional columns that any message has, by name;
    the piece of a message that has none is empty.
    """

    __slots__ = (
        *("position", "topic", "names", "time", "arrival", "value", "flags", "publisher", "publishers"),
        *("payload", "optional"),
    )

    def __init__(
        self,
        position: Integers,
        topic: Indices,
        names: Sequence[str],
        time: Integers,
        arrival: Integers,
        value: Floats,
        flags: Flags,
        publisher: Indices,
        publishers: Sequence[str],
        payload: Pieces,
        optional: Mapping[str, Pieces],
    ) -> None:
        self.position = position
        self.topic = topic
        self.names = names
        self.time = time
        self.arrival = arrival
        self.value = value
        self.flags = flags
        self.publisher = publisher
        self.publishers = publishers
        self.payload = payload
        self.optional = optional

    @property
    def qos(self) -> NDArray[numpy.int8]:
        return (self.flags & QOS).view(numpy.int8)

    @property
    def retain(self) -> NDArray[Any]:
        """Not 0 where the message was to be retained."""
        return self.flags & RETAIN

    @property
    def last_arrival(self) -> int:
        """Of the last message; there is one. In plain terms for compiled modules, which know no numpy."""
        return int(self.arrival[-1])

    def __len__(self) -> int:
        return len(self.position)

    @staticmethod
    def of(entries: Sequence[Entry]) -> Chunk:
        topics: dict[str, int] = {}
        publishers: dict[str, int] = {}
        topic = [topics.setdefault(entry.topic, len(topics)) for entry in entries]
        publisher = [publishers.setdefault(entry.publisher, len(publishers)) for entry in entries]
        return Chunk(
            numpy.array([entry.position for entry in entries], numpy.int64),
            numpy.array(topic, numpy.int32),
            list(topics),
            numpy.array([entry.time for entry in entries], numpy.int64),
            numpy.array([entry.arrival for entry in entries], numpy.int64),
            numpy.array([float("nan") if entry.value is None else entry.value for entry in entries], numpy.float64),
            numpy.array([entry.qos | (RETAIN if entry.retain else 0) for entry in entries], numpy.uint8),
            numpy.array(publisher, numpy.int32),
            list(publishers),
            Pieces.of([entry.payload for entry in entries]),
            _optional({name: [getattr(entry, name) for entry in entries] for name in OPTIONAL}),
        )

    @staticmethod
    def taken(
        taken: Taken, topic: Indices, names: Sequence[str], times: Sequence[int], values: Sequence[float]
    ) -> Chunk:
        """Messages as they came; times and values are those that were found in their payloads."""
        publishers: dict[str, int] = {}
        publisher = [publishers.setdefault(name, len(publishers)) for name in taken.publishers]
        rows = len(taken)
        return Chunk(
            numpy.arange(taken.first, taken.first + rows, dtype=numpy.int64),
            topic,
            names,
            numpy.array(times, numpy.int64),
            numpy.array(taken.arrivals, numpy.int64),
            numpy.array(values, numpy.float64),
            numpy.array(taken.flags, numpy.uint8),
            numpy.array(publisher, numpy.int32),
            list(publishers),
            Pieces.of(taken.payloads),
            _optional({name: [has.get(row, b"") for row in range(rows)] for name, has in taken.optional.items()}),
        )

    def take(self, choice: Choice) -> Chunk:
        """The messages with these indices, in this order."""
        return Chunk(
            self.position[choice],
            self.topic[choice],
            self.names,
            self.time[choice],
            self.arrival[choice],
            self.value[choice],
            self.flags[choice],
            self.publisher[choice],
            self.publishers,
            self.payload.take(choice),
            {name: pieces.take(choice) for name, pieces in self.optional.items()},
        )

    def slice(self, start: int, end: int) -> Chunk:
        end = min(end, len(self))
        if start == 0 and end == len(self):
            return self
        return Chunk(
            self.position[start:end],
            self.topic[start:end],
            self.names,
            self.time[start:end],
            self.arrival[start:end],
            self.value[start:end],
            self.flags[start:end],
            self.publisher[start:end],
            self.publishers,
            self.payload.slice(start, end),
            {name: pieces.slice(start, end) for name, pieces in self.optional.items()},
        )

    @staticmethod
    def gathered(chunks: Sequence[Chunk]) -> Chunk:
        """As `joined`, of chunks that may have other `names` each: topics are numbered anew then."""
        if all(chunk.names is chunks[0].names for chunk in chunks):
            return Chunk.joined(chunks)
        numbers: dict[str, int] = {}
        topics: list[Indices] = []
        for chunk in chunks:
            used, places = distinct(chunk.topic)
            known = [numbers.setdefault(chunk.names[number], len(numbers)) for number in used.tolist()]
            topics.append(numpy.array(known, numpy.int32)[places])
        found = Chunk.joined(chunks)
        found.topic, found.names = numpy.concatenate(topics), list(numbers)
        return found

    @staticmethod
    def joined(chunks: Sequence[Chunk]) -> Chunk:
        """One behind the other; the `names` of the last one hold for all."""
        if len(chunks) == 1:
            return chunks[0]
        publishers: dict[str, int] = {}
        publisher: list[Indices] = []
        for chunk in chunks:
            known = [publishers.setdefault(name, len(publishers)) for name in chunk.publishers]
            publisher.append(numpy.array(known, numpy.int32)[chunk.publisher])
        return Chunk(
            numpy.concatenate([chunk.position for chunk in chunks]),
            numpy.concatenate([chunk.topic for chunk in chunks]),
            chunks[-1].names,
            numpy.concatenate([chunk.time for chunk in chunks]),
            numpy.concatenate([chunk.arrival for chunk in chunks]),
            numpy.concatenate([chunk.value for chunk in chunks]),
            numpy.concatenate([chunk.flags for chunk in chunks]),
            numpy.concatenate(publisher),
            list(publishers),
            Pieces.joined([chunk.payload for chunk in chunks]),
            _joined([chunk.optional for chunk in chunks], [len(chunk) for chunk in chunks]),
        )

    def entries(self) -> Iterator[Entry]:
        names = self.names
        publishers = self.publishers
        none = [b""] * len(self)
        optional = [self.optional[name].rows() if name in self.optional else none for name in OPTIONAL]
        columns: Any = zip(
            *(self.position.tolist(), self.topic.tolist(), self.payload.rows(), self.flags.tolist()),
            *(self.publisher.tolist(), self.time.tolist(), self.arrival.tolist(), self.value.tolist(), *optional),
            strict=True,
        )
        for position, topic, payload, flags, publisher, time, arrival, value, *pieces in columns:
            yield Entry(
                *(position, names[topic], payload, flags & QOS, bool(flags & RETAIN), publishers[publisher]),
                *(time, arrival, None if value != value else value, *pieces),
            )


def distinct(numbers: Indices) -> tuple[Choice, Indices]:
    """The numbers that occur, in order, and of each of `numbers` the place among them; none is below 0."""
    if len(numbers) == 1:
        return numbers.astype(numpy.intp), numpy.zeros(1, numpy.int32)
    end = int(numbers.max()) + 1 if len(numbers) else 0
    if end > 4 * len(numbers):
        used, places = numpy.unique(numbers, return_inverse=True)
        return used.astype(numpy.intp), places.astype(numpy.int32)
    occurs = numpy.zeros(end, numpy.bool_)
    occurs[numbers] = True
    found = numpy.flatnonzero(occurs)
    place = numpy.empty(end, numpy.int32)
    place[found] = numpy.arange(len(found))
    return found, place[numbers]


def _optional(columns: Mapping[str, Sequence[bytes]]) -> dict[str, Pieces]:
    """Those of the columns that any message has."""
    return {name: Pieces.of(rows) for name, rows in columns.items() if any(rows)}


def _joined(parts: Sequence[Mapping[str, Pieces]], rows: Sequence[int]) -> dict[str, Pieces]:
    """Optional columns of chunks with so many rows."""
    nothing = [Pieces(numpy.zeros(count + 1, numpy.int64), b"") for count in rows]
    return {
        name: Pieces.joined([part.get(name, none) for part, none in zip(parts, nothing, strict=True)])
        for name in {name: None for part in parts for name in part}
    }
