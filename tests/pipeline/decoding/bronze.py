"""Batches of bronze for tests, and what became of one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.pipeline.decoding import Decoded, Rules, decode

SECOND = 1_000_000
NOON = 1_789_000_000 * SECOND
TIME = pa.timestamp("us", "UTC")


def bronze(
    payloads: Sequence[bytes],
    topics: str | Sequence[str] = "plant/line1/press7/temp",
    *,
    publishers: str | Sequence[str] = "client-1",
    times: int | Sequence[int] = NOON,
    arrivals: int | Sequence[int] = NOON,
    values: Sequence[float | None] | None = None,
    first: int = 1,
    dictionaries: bool = True,
) -> pa.RecordBatch:
    count = len(payloads)
    names = pa.dictionary(pa.int32(), pa.string()) if dictionaries else pa.string()
    arrival = pa.array(_all(arrivals, count), pa.int64()).cast(TIME)
    columns = {
        "store": pa.array(["s1"] * count, pa.string()),
        "position": pa.array(range(first, first + count), pa.int64()),
        "topic": pa.array(_all(topics, count), pa.string()).cast(names),
        "payload": pa.array(payloads, pa.binary()),
        "qos": pa.array([1] * count, pa.int8()),
        "retain": pa.array([False] * count, pa.bool_()),
        "publisher": pa.array(_all(publishers, count), pa.string()).cast(names),
        "time": pa.array(_all(times, count), pa.int64()).cast(TIME),
        "arrival": arrival,
        "value": pa.array(values or [None] * count, pa.float64()),
        "properties": pa.nulls(count, pa.string()),
        "day": arrival.cast(pa.date32(), safe=False),
    }
    return pa.RecordBatch.from_pydict(columns)


def _all(found: Any, count: int) -> list[Any]:
    return [found] * count if isinstance(found, str | int) else list(found)


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Times as microseconds, since Python's calendar is smaller than Arrow's."""
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    found: list[dict[str, Any]] = pa.RecordBatch.from_arrays(plain, names=batch.schema.names).to_pylist()
    return found


def rules_of(**settings: Any) -> Rules:
    return Rules.from_settings([{"filter": "#", **settings}])


def reading(payload: bytes, rules: Rules | None = None, **about: Any) -> dict[str, Any]:
    """The one reading of a message."""
    readings, quarantined = decoded(payload, rules, **about)
    assert quarantined == []
    [only] = readings
    return only


def refusal(payload: bytes, rules: Rules | None = None, **about: Any) -> str:
    """Why a message was refused."""
    readings, quarantined = decoded(payload, rules, **about)
    assert readings == []
    [only] = quarantined
    assert only["payload"] == payload
    reason: str = only["reason"]
    return reason


def decoded(
    payload: bytes, rules: Rules | None = None, **about: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    found: Decoded = decode(bronze([payload], **about), rules or Rules())
    return rows(found.readings), rows(found.quarantined)
