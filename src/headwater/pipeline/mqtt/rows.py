"""Records as rows: the columns of the source, and Arrow batches of them. What executors import; needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headwater.pipeline.mqtt.record import NO_POSITION, Arrival


class Column(NamedTuple):
    """`kind` is Spark's name of the type; `of` finds the value, which is None only if it may be null."""

    kind: str
    type: pa.DataType
    is_nullable: bool
    of: Callable[[Arrival], Any]


COLUMNS: Final = {
    "topic": Column("string", pa.string(), False, lambda each: each.topic),
    "payload": Column("binary", pa.binary(), False, lambda each: each.payload),
    "qos": Column("tinyint", pa.int8(), False, lambda each: each.qos),
    "retain": Column("boolean", pa.bool_(), False, lambda each: each.retain),
    "properties": Column("string", pa.string(), True, lambda each: each.properties or None),
    "received": Column("timestamp", pa.timestamp("us", "UTC"), False, lambda each: each.received),
    "store": Column("string", pa.string(), True, lambda each: each.store or None),
    "position": Column(
        "bigint", pa.int64(), True, lambda each: None if each.position == NO_POSITION else each.position
    ),
}
POSITIONS: Final = ("store", "position")
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16 << 20


def names(with_positions: bool) -> list[str]:
    return [name for name in COLUMNS if with_positions or name not in POSITIONS]


def ddl(columns: Sequence[str]) -> str:
    """For Spark."""
    return ", ".join(
        f"{name} {COLUMNS[name].kind}{'' if COLUMNS[name].is_nullable else ' NOT NULL'}" for name in columns
    )


def shape(columns: Mapping[str, bool]) -> pa.Schema:
    """Of rows with these columns; what they say is whether Spark takes each for nullable."""
    return pa.schema([pa.field(name, COLUMNS[name].type, nullable) for name, nullable in columns.items()])


def batches(arrivals: Iterator[Arrival], shape: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Of at most BATCH_ROWS rows, and about BATCH_BYTES of payloads."""
    gathered: list[Arrival] = []
    size = 0
    for arrival in arrivals:
        gathered.append(arrival)
        size += len(arrival.payload)
        if len(gathered) == BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(gathered, shape)
            gathered, size = [], 0
    if gathered:
        yield _batch(gathered, shape)


def _batch(arrivals: list[Arrival], shape: pa.Schema) -> pa.RecordBatch:
    wanted = [COLUMNS[name] for name in shape.names]
    arrays = [pa.array([each.of(arrival) for arrival in arrivals], each.type) for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)
