"""Time as whole microseconds since 1970, in Python and in Spark's columns.

Theory. Spark's functions of calendars ask the session for its time zone; whole numbers do not. Windows and minutes are
multiples of their length since 1970, the years before included, so everybody finds the same ones without asking.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def exact(moment: datetime) -> int:
    """Microseconds since 1970 of a moment that says its time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; say it, such as datetime(2026, 1, 31, tzinfo=UTC)")
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    return EPOCH + timedelta(microseconds=at)


def beginnings(start: datetime, end: datetime, length: int) -> tuple[int, int]:
    """Where the first window of `length` that begins at `start` or later begins, and where the last one that begins
    before `end` ends: from the first to before the second lies all that belongs to windows which begin in the range."""
    first, last = (-(-exact(each) // length) * length for each in (start, end))
    if last < first:
        raise ValueError(f"the range ends before it starts: {start.isoformat()} to {end.isoformat()}")
    return first, last


def final_until(clock: datetime, window: float, lateness: float = 0.0) -> datetime:
    """Windows that begin before this are final when the slowest store's clock is at `clock`: all that ever belongs to
    them has arrived. Minutes are windows of 60 seconds without lateness."""
    length = microseconds(window)
    return moment((exact(clock) - microseconds(lateness)) // length * length)


def at(column: str | Column) -> Column:
    """A timestamp as microseconds."""
    return F.unix_micros(column)


def timestamp(micros: int | Column) -> Column:
    return F.timestamp_micros(F.lit(micros))


def begin_of(micros: Column, length: int) -> Column:
    return micros - F.pmod(micros, F.lit(length))


def day_of(micros: Column) -> Column:
    """The date in UTC, whatever the session's time zone."""
    return F.date_from_unix_date((begin_of(micros, DAY) / DAY).cast("int"))


def within(column: str, first: int, last: int) -> Column:
    """first ≤ timestamp < last, in a form that Spark hands on to readers of Parquet."""
    return (F.col(column) >= timestamp(first)) & (F.col(column) < timestamp(last))
