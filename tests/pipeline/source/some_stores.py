"""Stores for tests of the source: served by REST in this process, with messages whose times and arrivals are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headwater.pipeline.source.datasource import PushingReader, Reader, StreamReader
from headwater.pipeline.source.reading import SCHEMA
from headwater.pipeline.source.settings import Settings, read_settings
from headwater.pipeline.source.shape import Shape
from headwater.store.chunk import Chunk
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.retention import Retention
from tests.store.messages import MICROSECONDS, NOON, SECOND, payload
from tests.store.rest.served import EVERYTHING, Served

EXPIRED = NOON + 1_000_000 * SECOND
"""A time at which retention removes everything that it may."""


class WatchedStore(MemoryStore):
    """Remembers what it was asked for. Retention removes what is older than an hour, if nobody has to read it yet."""

    def __init__(self, id: str) -> None:
        super().__init__(id, MICROSECONDS, Retention(age=3600 * SECOND))
        self.asked: list[Query] = []

    def select(self, query: Query) -> Iterator[Chunk]:
        self.asked.append(query)
        return super().select(query)


def fill(served: Served, count: int, topic: str = "a/{}", topics: int = 3) -> None:
    """So many messages, a second between two arrivals; measured a minute before, their values are their positions."""
    for _ in range(count):
        position = served.writer.next
        arrival = NOON + position * SECOND
        body = payload(arrival - 60 * SECOND, float(position))
        served.writer.take(topic.format(position % topics), body, arrival=arrival)
    served.writer.sync()


def settings(*servers: Served, **options: Any) -> Settings:
    """A store that does not answer is not waited for, unless a test says so."""
    given = {"token": EVERYTHING, "waitForStore": "0", **{name: str(value) for name, value in options.items()}}
    if servers:
        given["url"] = ",".join(each.url for each in servers)
    return read_settings(given)


def stream(*servers: Served, **options: Any) -> StreamReader:
    return StreamReader(settings(*servers, **options), Shape(SCHEMA))


def batch(*servers: Served, **options: Any) -> PushingReader:
    return PushingReader(settings(*servers, **options), Shape(SCHEMA))


def rows(reader: Reader | StreamReader, partitions: list[InputPartition]) -> list[dict[str, Any]]:
    """All rows, by store and position, as tasks would read them."""
    tables = [pa.Table.from_batches(reader.read(each), reader.shape.schema) for each in partitions]
    found: list[dict[str, Any]] = [row for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row.get("store", ""), row["position"]))


def names(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["store"], row["position"]) for row in found]


def span(store: str, first: int, last: int) -> list[tuple[str, int]]:
    return [(store, position) for position in range(first, last + 1)]
