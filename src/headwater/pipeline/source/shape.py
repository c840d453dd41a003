"""Which columns come out of the source, and which of a stored message are needed for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from headwater.pipeline.lake.types import SPARK
from headwater.pipeline.options import OptionError
from headwater.pipeline.source.payload import (
    HEADERS,
    HEADERS_DDL,
    HEADERS_TYPE,
    PayloadColumns,
    Undeclarable,
    headers,
)
from headwater.pipeline.source.reading import DDL, SCHEMA
from headwater.pipeline.source.settings import FORMAT, Settings
from headwater.suggestion import unknown

PAYLOAD: Final = "payload"
PROPERTIES: Final = "properties"


def ddl(settings: Settings) -> str:
    """All columns, in Spark's words."""
    declared = settings.payload_schema
    if declared is not None and settings.payload_column is not None:
        declared = f"`{settings.payload_column}` STRUCT<{declared}>"
    return ", ".join(filter(None, [DDL, HEADERS_DDL if settings.headers else None, declared]))


@dataclass(frozen=True)
class Shape:
    """`schema` is what comes out: columns of stored messages, headers if they are asked for, and others, which are
    declared ones of the payload. Picklable."""

    schema: pa.Schema
    payload_column: str | None = None

    @classmethod
    def of(cls, schema: StructType, settings: Settings) -> Shape:
        """All columns, or those that the user has named. Raises OptionError."""
        lower = [each.name.lower() for each in schema.fields]
        twice = next((name for name in lower if lower.count(name) > 1), None)
        if twice is not None:
            raise OptionError(
                f"format({FORMAT!r}): payloadSchema names {twice!r}, which is a column of messages; "
                "payloadColumn='data' puts the payload's columns into a struct data"
            )
        found = pa.schema([_field(each, settings) for each in schema.fields])
        shape = cls(found, settings.payload_column)
        try:
            shape.payload_columns()
        except Undeclarable as error:
            raise OptionError(f"format({FORMAT!r}): the option 'payloadSchema': {error}") from None
        return shape

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns of stored messages that are needed."""
        needed = [each for each in self.schema.names if each in SCHEMA.names]
        needed += [PROPERTIES] if HEADERS in self.schema.names and PROPERTIES not in needed else []
        needed += [PAYLOAD] if len(self.declared) and PAYLOAD not in needed else []
        return tuple(needed)

    @property
    def declared(self) -> pa.Schema:
        return pa.schema([each for each in self.schema if each.name not in SCHEMA.names and each.name != HEADERS])

    def payload_columns(self) -> PayloadColumns:
        """Raises Undeclarable."""
        declared = self.declared
        if self.payload_column is not None and len(declared):
            return PayloadColumns(pa.schema(list(declared.field(0).type)))
        return PayloadColumns(declared)

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of stored messages, with the columns `stored`."""
        known: dict[str, Any] = dict(zip(self.stored, batch.columns, strict=True))
        if HEADERS in self.schema.names:
            known[HEADERS] = headers(known[PROPERTIES].to_pylist()).cast(self.schema.field(HEADERS).type)
        declared = self.declared
        if len(declared):
            columns = self.payload_columns().of(known[PAYLOAD])
            if self.payload_column is not None:
                [inner] = declared
                columns = [pa.StructArray.from_arrays(columns, fields=list(inner.type))]
            known |= dict(zip(declared.names, columns, strict=True))
        return pa.RecordBatch.from_arrays([known[name] for name in self.schema.names], schema=self.schema)


def _field(wanted: StructField, settings: Settings) -> pa.Field:
    [field] = to_arrow_schema(StructType([wanted]), timezone="UTC")
    if wanted.name == HEADERS and settings.headers:
        if field.type != HEADERS_TYPE:
            raise OptionError(f"format({FORMAT!r}): the column 'headers' is {HEADERS_DDL.partition(' ')[2]}")
        return field
    if wanted.name in SCHEMA.names:
        expected, said = SPARK[SCHEMA.field(wanted.name).type], wanted.dataType.simpleString()
        if said != expected:
            raise OptionError(
                f"format({FORMAT!r}): the column {wanted.name!r} is {expected}, not {said}; cast it later"
            )
        return SCHEMA.field(wanted.name).with_nullable(wanted.nullable)
    is_declared = settings.payload_schema is not None and settings.payload_column in (None, wanted.name)
    if not is_declared or wanted.name == HEADERS:
        raise OptionError(unknown("column", wanted.name, SCHEMA.names, f" of format({FORMAT!r})"))
    return field.with_nullable(wanted.nullable)
