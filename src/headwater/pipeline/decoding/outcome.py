"""What a decoder gets and gives, in columns: messages of one rule in, readings and refusals out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.decoding.reading import Checked
from headwater.pipeline.decoding.schemas import ARROW

OWN: Final = {
    "value": "double",
    "text": "string",
    "data": "string",
    "raw": "binary",
    "time": "timestamp",
    "device": "string",
    "metric": "string",
}
"""Columns that decoders fill, in the order of Checked."""


class Messages:
    """Columns of the messages of one rule: topic, publisher, payload, time, arrival and value, without dictionaries."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns["payload"])

    def __getitem__(self, name: str) -> pa.Array:
        return self._columns[name]

    @cached_property
    def payloads(self) -> list[bytes]:
        found: list[bytes] = self._columns["payload"].to_pylist()
        return found


@dataclass
class Outcome:
    """`rows` are numbers of messages, one for each reading and growing; None: each message has one. `columns` are
    some of OWN; null in time, device and metric is that the message's own stands. `fields` are what becomes further
    columns, values that `fit` already if they are declared. Messages without readings are in `refused`, with the
    reason."""

    rows: pa.Array | None = None
    parts: pa.Array | None = None
    columns: dict[str, pa.Array] = field(default_factory=dict)
    fields: list[Mapping[str, Any]] | None = None
    fitting: bool = False
    refused: dict[int, str] = field(default_factory=dict)


class Decoder(Protocol):
    """No payload makes it raise."""

    def decode(self, messages: Messages) -> Outcome: ...


class Collector:
    """Gathers readings one by one."""

    def __init__(self, has_fields: bool, fitting: bool) -> None:
        self._rows: list[int] = []
        self._parts: list[int] = []
        self._readings: list[tuple[Any, ...]] = []
        self._fields: list[Mapping[str, Any]] | None = [] if has_fields else None
        self._fitting = fitting
        self._refused: dict[int, str] = {}

    def refuse(self, row: int, reason: str) -> None:
        self._refused[row] = reason

    def add(self, row: int, readings: list[Checked], fields: list[Mapping[str, Any]]) -> None:
        for part, each in enumerate(readings):
            self._rows.append(row)
            self._parts.append(part)
            # Without its document, which nobody needs any longer and Python's collector would walk through.
            self._readings.append(each[:-1])
        if self._fields is not None:
            self._fields.extend(fields)

    def outcome(self) -> Outcome:
        columns = {}
        if self._readings:
            made = zip(OWN.items(), zip(*self._readings, strict=True), strict=True)
            columns = {name: pa.array(column, ARROW[type]) for (name, type), column in made}
        rows, parts = pa.array(self._rows, pa.int64()), pa.array(self._parts, pa.int32())
        return Outcome(rows, parts, columns, self._fields, self._fitting, self._refused)


def mask_of(length: int, rows: Mapping[int, Any]) -> pa.Array:
    """True where `rows` has something."""
    flags = bytearray(length)
    for row in rows:
        flags[row] = 1
    return flags_of(flags)


def flags_of(flags: bytearray) -> pa.Array:
    """An array of booleans from bytes 0 and 1."""
    return pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)]).cast(pa.bool_())


def patched(column: pa.Array, others: Mapping[int, Any]) -> pa.Array:
    """The column with some values replaced; rows in `others` grow."""
    if not others:
        return column
    if len(others) == len(column):
        return pa.array(others.values(), column.type)
    return pc.replace_with_mask(column, mask_of(len(column), others), pa.array(others.values(), column.type))
