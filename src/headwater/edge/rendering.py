"""Copies as text: lines of JSON, or CSV. A payload that is no UTF-8 is in Base64, under a name of its own."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from headwater.edge.copies import Copy

COLUMNS: Final = ("position", "topic", "payload", "payload_base64", "properties")


def as_ndjson(copies: Sequence[Copy]) -> bytes:
    return b"".join(map(_line, copies))


def _line(copy: Copy) -> bytes:
    shown: dict[str, object] = {"position": copy.place, "topic": copy.topic}
    text, encoded = _payload(copy.payload)
    if text is None:
        shown["payload_base64"] = encoded
    else:
        shown["payload"] = text
    if copy.properties:
        shown["properties"] = orjson.Fragment(copy.properties)
    return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)


def as_csv(copies: Sequence[Copy]) -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    writer.writerows((copy.place, copy.topic, *_payload(copy.payload), copy.properties) for copy in copies)
    return sink.getvalue().encode()


def _payload(payload: bytes) -> tuple[str | None, str]:
    try:
        return payload.decode(), ""
    except UnicodeDecodeError:
        return None, base64.b64encode(payload).decode()


FORMATS: Final[dict[str, Callable[[Sequence[Copy]], bytes]]] = {"ndjson": as_ndjson, "csv": as_csv}
HEADS: Final = {"ndjson": b"", "csv": (",".join(COLUMNS) + "\r\n").encode()}
"""What a file begins with."""
