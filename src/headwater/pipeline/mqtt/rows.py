"""Records as rows: the columns of the source, and Arrow batches of them. What executors import; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from headwater.pipeline.mqtt.record import NO_POSITION, Arrival

DDL: Final = (
    "topic string NOT NULL, payload binary NOT NULL, qos tinyint NOT NULL, retain boolean NOT NULL, "
    "properties string, received timestamp NOT NULL"
)
POSITIONS_DDL: Final = f"{DDL}, store string, position bigint"
SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("properties", pa.string()),
        pa.field("received", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
POSITIONS_SCHEMA: Final = SCHEMA.append(pa.field("store", pa.string())).append(pa.field("position", pa.int64()))
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16 << 20


def batches(arrivals: Iterator[Arrival], with_positions: bool) -> Iterator[pa.RecordBatch]:
    """Of at most BATCH_ROWS rows, and about BATCH_BYTES of payloads."""
    gathered: list[Arrival] = []
    size = 0
    for arrival in arrivals:
        gathered.append(arrival)
        size += len(arrival.payload)
        if len(gathered) == BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(gathered, with_positions)
            gathered, size = [], 0
    if gathered:
        yield _batch(gathered, with_positions)


def _batch(arrivals: list[Arrival], with_positions: bool) -> pa.RecordBatch:
    columns: list[list[object]] = [
        [each.topic for each in arrivals],
        [each.payload for each in arrivals],
        [each.qos for each in arrivals],
        [each.retain for each in arrivals],
        [each.properties or None for each in arrivals],
        [each.received for each in arrivals],
    ]
    if with_positions:
        columns.append([each.store or None for each in arrivals])
        columns.append([None if each.position == NO_POSITION else each.position for each in arrivals])
    schema = POSITIONS_SCHEMA if with_positions else SCHEMA
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
