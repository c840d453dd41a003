"""Conditions on the content of stored messages, as subscriptions have them (routing/conditions)."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import numpy

from headwater.message import UserProperties
from headwater.routing.conditions.condition import Sieve
from headwater.store.chunk import Chunk
from headwater.store.entry import microseconds
from headwater.store.portions import portions

ROWS: Final = 200
"""Messages that are looked at in one go, and bytes of them: a millisecond or two."""
SIZE: Final = 1 << 20


class Where:
    """For one question: what `changed` and `limit` remember is what was found for it. Time is that of arrival."""

    def __init__(self, text: str) -> None:
        """Raises ConditionError."""
        self._sieve = Sieve(text)

    def parts(self, chunk: Chunk) -> list[Chunk]:
        return list(portions(chunk, ROWS, SIZE))

    def of(self, chunk: Chunk) -> Chunk:
        """The messages for which it holds."""
        names = chunk.names
        properties = chunk.optional.get("properties")
        found: list[int] = []
        rows = zip(chunk.topic.tolist(), chunk.payload.rows(), chunk.arrival.tolist(), strict=True)
        for row, (topic, payload, arrival) in enumerate(rows):
            pairs, kind = (None, None) if properties is None else _properties(properties[row])
            if self._sieve.passes(names[topic], payload, pairs, kind, arrival / 1e6):
                found.append(row)
        return chunk if len(found) == len(chunk) else chunk.take(numpy.array(found, numpy.intp))

    def holds_for(self, row: Mapping[str, Any]) -> bool:
        """Of a message as JSON has it, read."""
        encoded = row.get("payload_base64")
        payload = b64decode(encoded) if encoded is not None else (row["payload"] or "").encode()
        pairs, kind = _fields(row["properties"]) if row["properties"] else (None, None)
        arrival = microseconds(datetime.fromisoformat(row["arrival"])) / 1e6
        return self._sieve.passes(row["topic"], payload, pairs, kind, arrival)


def _properties(record: bytes) -> tuple[UserProperties | None, str | None]:
    """User properties and content type, as they are stored (node/delivery/properties.py)."""
    if not record:
        return None, None
    return _fields(json.loads(record))


def _fields(fields: Mapping[str, Any]) -> tuple[UserProperties | None, str | None]:
    return [(name, value) for name, value in fields.get("user") or []], fields.get("content_type")
