"""The tables that decoding reads and writes, in Arrow, and the types that further columns of silver may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from headwater.pipeline.tables import QUARANTINE, SILVER, Table

ARROW: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
"""Arrow's types by Spark's names of them."""
FURTHER: Final = ("double", "bigint", "boolean", "string", "timestamp")
"""What a column that a payload brings may be."""
FIXED: Final = frozenset(SILVER.names)


def arrow_schema(table: Table, further: Mapping[str, str] | None = None) -> pa.Schema:
    """Of a table, with further columns behind its own."""
    own = [pa.field(each.name, ARROW[each.type], each.nullable) for each in table.columns]
    return pa.schema(own + [pa.field(name, ARROW[type]) for name, type in (further or {}).items()])


QUARANTINED: Final = arrow_schema(QUARANTINE)
