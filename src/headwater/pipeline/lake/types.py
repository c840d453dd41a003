"""Spark's names of types, and Arrow's types: those that tables have."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headwater.pipeline.tables import Table

ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
SPARK: Final = {type: name for name, type in ARROW.items()}


def arrow_schema(table: Table) -> pa.Schema:
    return pa.schema([pa.field(each.name, ARROW[each.type], each.nullable) for each in table.columns])


def ddl_of(schema: pa.Schema) -> str:
    """For Spark. ValueError: a type that no table has."""
    for each in schema:
        if each.type not in SPARK:
            raise ValueError(f"the column {each.name} is of type {each.type}, which no table of the lake has")
    return ", ".join(f"`{each.name}` {SPARK[each.type]}" for each in schema)
