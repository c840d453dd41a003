"""What is where in a document: `ts`, `data.temp`, `values.0`, as in the settings of the store. `$.` before it is
allowed.

A time is a text in ISO 8601 (UTC if it names no zone) or a number since 1970 in a unit that is told, or guessed from
its size: up to 1e11 are seconds, up to 1e14 milliseconds, up to 1e17 microseconds, then nanoseconds. Times are
microseconds since 1970 here. There is none outside the years 1 to 9999.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
EARLIEST: Final = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST: Final = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - EPOCH) // MICROSECOND
UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "auto": 0}
"""In nanoseconds; 0: by size."""
FARTHEST: Final = 1 << 70
"""In nanoseconds, beyond all calendars."""
LONGEST_TIME: Final = 64

Path = tuple[str, ...]


def path(text: str) -> Path:
    """Raises ValueError if a name in it is empty."""
    found = tuple(text.removeprefix("$.").split("."))
    if not all(found):
        raise ValueError(f"{text!r} is no path such as data.temp")
    return found


def at(document: Any, path: Path) -> Any:
    """None if there is nothing."""
    for name in path:
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and len(name) < 10 and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def number(found: Any) -> float | None:
    """A finite number, else None; true and false are none."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        exact = float(found)
    except OverflowError:
        return None
    return exact if isfinite(exact) else None


def moment(found: Any, unit: int = 0) -> int | None:
    """Microseconds since 1970 of what a document says; None if that is no time."""
    if isinstance(found, str):
        return _written(found)
    if isinstance(found, bool) or not isinstance(found, int | float) or not -FARTHEST < found < FARTHEST:
        return None  # NaN compares false
    if not unit:
        size = abs(found)
        unit = UNITS["s" if size < 1e11 else "ms" if size < 1e14 else "us" if size < 1e17 else "ns"]
    # Whole numbers stay exact; a double has no more than its 53 bits.
    exact = found * unit // 1000 if isinstance(found, int) else round(found * (unit / 1000))
    return exact if EARLIEST <= exact <= LATEST else None


def _written(text: str) -> int | None:
    if len(text) > LONGEST_TIME:
        return None
    try:
        return microseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def microseconds(moment: datetime) -> int | None:
    """None if UTC has no such year, or its zone does not know."""
    try:
        exact = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
    except (ValueError, OverflowError, TypeError):
        return None
    return exact if EARLIEST <= exact <= LATEST else None
