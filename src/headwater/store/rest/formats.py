"""Messages as text: JSON objects, lines of JSON, CSV. Rows are dealt with many at a time, and never by pydantic.

A payload is text where it is UTF-8; where it is not, the text is missing and `payload_base64` has its bytes.
"""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

import numpy
import orjson

from headwater.store.chunk import QOS, Chunk, Integers
from headwater.store.intake import RETAIN

COLUMNS: Final = (
    *("position", "topic", "payload", "payload_base64", "qos", "retain", "publisher", "time", "arrival", "value"),
    "properties",
)
LINE: Final = b"\n"


def objects(chunk: Chunk) -> list[dict[str, Any]]:
    """Each message as what becomes a JSON object."""
    return [_object(*row) for row in _rows(chunk)]


def json_lines(chunk: Chunk) -> bytes:
    return b"".join([orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in objects(chunk)])


def csv_lines(chunk: Chunk) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([_line(*row) for row in _rows(chunk)])
    return text.getvalue().encode()


def csv_head() -> bytes:
    return (",".join(COLUMNS) + "\r\n").encode()


def iso_column(times: Integers) -> list[str]:
    """As `entry.iso`, for many."""
    found: list[str] = numpy.datetime_as_string(times.view("datetime64[us]"), unit="us", timezone="UTC").tolist()
    return found


def _rows(chunk: Chunk) -> Iterator[Any]:
    names, publishers = chunk.names, chunk.publishers
    properties: list[bytes] = [b""] * len(chunk) if chunk.properties is None else chunk.properties.rows()
    return zip(
        chunk.position.tolist(),
        [names[index] for index in chunk.topic.tolist()],
        chunk.payload.rows(),
        chunk.flags.tolist(),
        [publishers[index] for index in chunk.publisher.tolist()],
        iso_column(chunk.time),
        iso_column(chunk.arrival),
        chunk.value.tolist(),
        properties,
        strict=True,
    )


def _object(
    position: int,
    topic: str,
    payload: bytes,
    flags: int,
    publisher: str,
    time: str,
    arrival: str,
    value: float,
    properties: bytes,
) -> dict[str, Any]:
    text, encoded = _payload(payload)
    found = {
        "position": position,
        "topic": topic,
        "payload": text,
        "qos": flags & QOS,
        "retain": bool(flags & RETAIN),
        "publisher": publisher,
        "time": time,
        "arrival": arrival,
        "value": None if value != value else value,
        "properties": orjson.Fragment(properties) if properties else None,
    }
    if encoded is not None:
        found["payload_base64"] = encoded
    return found


def _line(
    position: int,
    topic: str,
    payload: bytes,
    flags: int,
    publisher: str,
    time: str,
    arrival: str,
    value: float,
    properties: bytes,
) -> tuple[Any, ...]:
    text, encoded = _payload(payload)
    retain = "true" if flags & RETAIN else "false"
    number = None if value != value else value
    return position, topic, text, encoded, flags & QOS, retain, publisher, time, arrival, number, properties.decode()


def _payload(payload: bytes) -> tuple[str | None, str | None]:
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(payload).decode()
