"""One stored message, as a person or a program looks at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = -62135596800_000_000
"""The first and the last microsecond that a calendar of four digits has; other times are no times."""
LATEST: Final = 253402300799_999_999


class Entry(NamedTuple):
    """Times are microseconds since 1970. `properties` is JSON, or empty: those of MQTT 5 that travel with a message.
    `value` is None if the payload has no number where one was looked for."""

    position: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    time: int
    arrival: int
    value: float | None
    properties: bytes = b""


OPTIONAL: Final = tuple(Entry._field_defaults)
"""Names of the optional columns (columns.py), which are here as they are stored."""


def iso(microseconds: int) -> str:
    """A time as text, with microseconds, in UTC."""
    return (EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def microseconds(moment: datetime) -> int:
    """A time without a zone is in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
