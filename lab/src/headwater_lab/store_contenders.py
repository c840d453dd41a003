"""Three ways of keeping messages, fed in this process with the same groups: the store, SQLite, a plain file.

What is compared. All three get a group of messages as columns and have it on disk, synced, when `write` returns; time
and value are taken from the payloads where they are kept. None of them has a network or a broker in front of it, which
favours SQLite and the file beside the figures of a whole node.

- The store: as a node uses it, its blocks made by a thread meanwhile.
- SQLite: write-ahead log, `synchronous=FULL` (a sync for each transaction), one transaction for each group, a table by
  position with indexes on (topic, time) and on value.
- The file: a line of JSON for each message, one sync for each group. Nothing is found in it without reading all of it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy
import orjson
import pyarrow as pa

from headwater.store.arrow import record_batch
from headwater.store.disk_store import DiskStore
from headwater.store.extract import Extraction
from headwater.store.intake import Taken
from headwater.store.query import Query

CACHE: Final = 32 * 1024 * 1024
"""Bytes of memory that the store and SQLite may use for what they read; the file has the system's."""
AT_ONCE: Final = 65536
"""Rows of a batch."""

_TABLE: Final = """
CREATE TABLE messages (
    position INTEGER PRIMARY KEY, topic TEXT NOT NULL, time INTEGER NOT NULL, arrival INTEGER NOT NULL, value REAL,
    flags INTEGER NOT NULL, publisher TEXT NOT NULL, payload BLOB NOT NULL
);
CREATE INDEX by_topic ON messages (topic, time);
CREATE INDEX by_value ON messages (value);
"""
_COLUMNS: Final = "position, topic, time, arrival, value, flags, publisher, payload"
_SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("arrival", pa.timestamp("us", "UTC")),
        pa.field("value", pa.float64()),
        pa.field("flags", pa.int8()),
        pa.field("publisher", pa.string()),
        pa.field("payload", pa.binary()),
    ]
)


class Contender:
    """A folder full of messages. One thread uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, taken: Taken) -> None:
        """The messages are on disk when this returns."""
        raise NotImplementedError

    def catch_up(self) -> None:
        """Do what is behind with."""

    def finish(self) -> None:
        """Nothing more will be written: do what was put off."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """All messages in the order of positions."""
        raise NotImplementedError

    def ask(self, topic: str, start: int, end: int) -> list[tuple[int, int, float, bytes]]:
        """Position, time, value and payload of the messages of a topic between two times."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class OurStore(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = DiskStore(folder, cache=CACHE)

    def write(self, taken: Taken) -> None:
        self._store.append(taken)
        self._store.sync()

    def catch_up(self) -> None:
        self._store.seal()

    def finish(self) -> None:
        self._store.seal(everything=True)

    def read(self) -> Iterator[pa.RecordBatch]:
        return map(record_batch, self._store.select(Query()))

    def ask(self, topic: str, start: int, end: int) -> list[tuple[int, int, float, bytes]]:
        found: list[tuple[int, int, float, bytes]] = []
        for chunk in self._store.select(Query(filter=topic, start=start, end=end)):
            columns = chunk.position.tolist(), chunk.time.tolist(), chunk.value.tolist(), chunk.payload.rows()
            found += zip(*columns, strict=True)
        return found

    def close(self) -> None:
        self._store.close()


class SqliteTable(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir()
        self._extraction = Extraction()
        self._database = sqlite3.connect(folder / "messages.sqlite", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{CACHE // 1024}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.executescript(_TABLE)

    def write(self, taken: Taken) -> None:
        times, values = self._extraction.columns(taken)
        rows = zip(
            range(taken.first, taken.first + len(taken)),
            map(bytes.decode, taken.topics),
            *(times, taken.arrivals, values, taken.flags, taken.publishers, taken.payloads),
            strict=True,
        )
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO messages ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", rows)
        self._database.execute("COMMIT")

    def read(self) -> Iterator[pa.RecordBatch]:
        cursor = self._database.execute(f"SELECT {_COLUMNS} FROM messages ORDER BY position")
        while rows := cursor.fetchmany(AT_ONCE):
            yield _batch(rows)

    def ask(self, topic: str, start: int, end: int) -> list[tuple[int, int, float, bytes]]:
        asked = "SELECT position, time, value, payload FROM messages WHERE topic = ? AND time >= ? AND time < ?"
        return self._database.execute(f"{asked} ORDER BY position", (topic, start, end)).fetchall()

    def close(self) -> None:
        self._database.close()


class PlainFile(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir()
        self._path = folder / "messages.ndjson"
        self._extraction = Extraction()
        self._file = self._path.open("ab", buffering=0)

    def write(self, taken: Taken) -> None:
        rows = zip(
            range(taken.first, taken.first + len(taken)),
            map(bytes.decode, taken.topics),
            *(taken.arrivals, taken.flags, taken.publishers, map(bytes.decode, taken.payloads)),
            strict=True,
        )
        self._file.write(b"".join([orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows]))
        os.fdatasync(self._file.fileno())

    def read(self) -> Iterator[pa.RecordBatch]:
        with self._path.open("rb") as lines:
            while some := lines.readlines(AT_ONCE * 200):
                yield _batch([self._row(line) for line in some])

    def ask(self, topic: str, start: int, end: int) -> list[tuple[int, int, float, bytes]]:
        wanted = b'"%s"' % topic.encode()
        found = []
        with self._path.open("rb") as lines:
            for line in lines:
                if wanted in line:
                    position, _, time, _, value, _, _, payload = self._row(line)
                    if start <= time < end:
                        found.append((position, time, value, payload))
        return found

    def _row(self, line: bytes) -> tuple[Any, ...]:
        position, topic, arrival, flags, publisher, text = orjson.loads(line)
        taken = Taken(position)
        taken.payloads, taken.arrivals = [text.encode()], [arrival]
        (time,), (value,) = self._extraction.columns(taken)
        return position, topic, time, arrival, value, flags, publisher, taken.payloads[0]

    def close(self) -> None:
        self._file.close()


CONTENDERS: Final[dict[str, Callable[[Path], Contender]]] = {
    "store": OurStore,
    "sqlite": SqliteTable,
    "file": PlainFile,
}


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    times = [numpy.array(column, numpy.int64) for column in (columns[2], columns[3])]
    arrays = [
        pa.array(times.pop(0)).cast(field.type) if field.name in ("time", "arrival") else pa.array(column, field.type)
        for field, column in zip(_SCHEMA, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
