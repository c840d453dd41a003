"""Stored messages in Arrow: the names and types of the columns. Needs nothing but pyarrow."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

NAMES: Final = pa.dictionary(pa.int32(), pa.string())
TIME: Final = pa.timestamp("us", "UTC")
SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("topic", NAMES, nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("publisher", NAMES, nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("arrival", TIME, nullable=False),
        pa.field("value", pa.float64()),
        pa.field("properties", pa.string()),
    ]
)
PLAIN: Final = pa.schema(
    [pa.field(each.name, pa.string(), each.nullable) if each.type == NAMES else each for each in SCHEMA]
)
"""The same without dictionaries, for those that do not know them."""
