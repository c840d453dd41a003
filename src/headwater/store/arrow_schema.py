"""Stored messages in Arrow: the names and types of the columns. Needs nothing but pyarrow."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headwater.store.columns import COLUMNS, Kind

DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
TYPES: Final[dict[Kind, pa.DataType]] = {
    Kind.WHOLE: pa.int64(),
    Kind.SMALL: pa.int8(),
    Kind.TRUTH: pa.bool_(),
    Kind.NUMBER: pa.float64(),
    Kind.TIME: pa.timestamp("us", "UTC"),
    Kind.NAME: DICTIONARY,
    Kind.BYTES: pa.binary(),
    Kind.DOCUMENT: pa.string(),
}
SCHEMA: Final = pa.schema([pa.field(each.name, TYPES[each.kind], each.nullable) for each in COLUMNS])
PLAIN: Final = pa.schema(
    [pa.field(each.name, pa.string(), each.nullable) if each.type == DICTIONARY else each for each in SCHEMA]
)
"""The same without dictionaries, for those that do not know them."""
