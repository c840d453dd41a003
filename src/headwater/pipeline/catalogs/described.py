"""A table of the lake as catalogs want to hear of it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.types import ddl_of
from headwater.pipeline.tables import named


class CatalogError(Exception):
    """A catalog did not take a table; the text says why."""


@dataclass(frozen=True)
class Described:
    """`columns` are names and Spark's types of them; `location` is a URL."""

    name: str
    doc: str
    location: str
    columns: tuple[tuple[str, str], ...]
    partition: str | None


def describe(lake: Lake, name: str, snapshot: Snapshot) -> Described:
    table = named(name)
    columns = tuple((each.name, type_of(each)) for each in snapshot.schema)
    return Described(name, table.doc, lake.reading(table).place.url, columns, table.partition)


def type_of(column: pa.Field) -> str:
    """In Spark's words."""
    ddl = ddl_of(pa.schema([pa.field("c", column.type)]))
    return ddl.strip("`").removeprefix("c`").removeprefix("c").strip().lower()
