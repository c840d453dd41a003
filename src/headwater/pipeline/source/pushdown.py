"""Conditions of a query that the stores can answer themselves, so that what is not asked for does not travel.

Equality and prefixes of topics become topic filters; bounds of `time` become `from` and `to`; `store` chooses stores;
bounds of `position`, and of `arrival`, which never goes back, narrow the range of positions. Where a condition of ours
lets more through than Spark's (the filter `a/#` for the prefix `a/`), Spark is asked to look again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

TICK: Final = timedelta(microseconds=1)


@dataclass
class Pushed:
    """Bounds are closed below and open above."""

    topic: str | None = None
    store: str | None = None
    nothing: bool = False
    """Two conditions contradict each other."""
    time: list[datetime | None] = field(default_factory=lambda: [None, None])
    arrival: list[datetime | None] = field(default_factory=lambda: [None, None])
    position: list[int | None] = field(default_factory=lambda: [None, None])

    def push(self, filters: list[Filter]) -> Iterator[Filter]:
        """Takes what it can; gives back what Spark has to look at."""
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, condition: Filter) -> bool:
        """Whether nothing is left to do for Spark."""
        column = ".".join(getattr(condition, "attribute", ()))
        value = getattr(condition, "value", None)
        if isinstance(condition, EqualTo) and column in ("topic", "store"):
            return self._equal(column, str(value))
        if isinstance(condition, StringStartsWith) and column == "topic":
            self._prefix(str(value))
            return False
        if column in ("time", "arrival", "position") and not isinstance(condition, StringStartsWith):
            return self._bound(column, condition, value)
        return False

    def _equal(self, column: str, value: str) -> bool:
        if column == "topic" and (not value or "+" in value or "#" in value):
            return False  # no topic is called that; Spark will find none
        known = getattr(self, column)
        if known is not None and known != value:
            if column == "topic" and known.endswith("/#"):
                self.topic = value  # the prefix is looked at by Spark
                return True
            self.nothing = True
        setattr(self, column, value)
        return True

    def _prefix(self, value: str) -> None:
        whole, slash, _ = value.rpartition("/")
        if slash and self.topic is None and "+" not in whole and "#" not in whole:
            self.topic = f"{whole}/#"

    def _bound(self, column: str, condition: Filter, value: Any) -> bool:
        value = _in_utc(value)
        if value is None or isinstance(value, bool):
            return False
        above = value + (1 if column == "position" else TICK)
        bounds = getattr(self, column)
        if isinstance(condition, (GreaterThanOrEqual, GreaterThan, EqualTo)):
            low = above if isinstance(condition, GreaterThan) else value
            bounds[0] = low if bounds[0] is None else max(bounds[0], low)
        if isinstance(condition, (LessThan, LessThanOrEqual, EqualTo)):
            high = value if isinstance(condition, LessThan) else above
            bounds[1] = high if bounds[1] is None else min(bounds[1], high)
        return isinstance(condition, (GreaterThanOrEqual, GreaterThan, LessThan, LessThanOrEqual, EqualTo))


def _in_utc(value: Any) -> Any:
    """Spark gives times without a zone in the session's zone, which is UTC in ours; else Spark has to look itself."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return value if isinstance(value, int) else None
