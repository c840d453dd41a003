"""Conditions of a query that the stores can answer themselves, so that what is not asked for does not travel.

Equality and prefixes of topics become topic filters; bounds of `time` become `from` and `to`; `store` chooses stores;
bounds of `position`, and of `arrival`, which never goes back, narrow the range of positions. Where a condition of ours
lets more through than Spark's (the filter `a/#` for the prefix `a/`), Spark is asked to look again. The source's own
options hold besides: a condition can only narrow what they leave.
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

from headwater.routing.topics import InvalidTopicName, check_name, matches

TICK: Final = timedelta(microseconds=1)
MOST_LEVELS: Final = 100
LONGEST: Final = 1000
"""Characters of a topic that is asked for; longer ones might not fit into an address."""
ABOVE: Final = (GreaterThan, GreaterThanOrEqual, EqualTo)
BELOW: Final = (LessThan, LessThanOrEqual, EqualTo)


@dataclass
class Pushed:
    """Begins with what the options say, `within` being the topic filter among them. Bounds are closed below and open
    above."""

    within: str | None = None
    store: str | None = None
    time: list[datetime | None] = field(default_factory=lambda: [None, None])
    arrival: list[datetime | None] = field(default_factory=lambda: [None, None])
    position: list[int | None] = field(default_factory=lambda: [None, None])
    topic: str | None = None
    prefix: str | None = None
    """A filter that matches all topics of a prefix, and perhaps others."""
    _contradicts: bool = False

    @property
    def filter(self) -> str | None:
        """The one filter that a store can be asked for. Prefixes give way to the option: Spark looks at them."""
        return self.topic or self.within or self.prefix

    @property
    def is_contradiction(self) -> bool:
        """Nothing can meet all conditions."""
        return self._contradicts or any(_is_empty(each) for each in (self.time, self.arrival, self.position))

    def push(self, filters: list[Filter]) -> Iterator[Filter]:
        """Takes what it can; gives back what Spark has to look at."""
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, condition: Filter) -> bool:
        """Whether nothing is left to do for Spark."""
        column = ".".join(getattr(condition, "attribute", ()))
        value = getattr(condition, "value", None)
        if isinstance(condition, EqualTo) and column == "topic":
            return self._equal_topic(str(value))
        if isinstance(condition, EqualTo) and column == "store":
            self._contradicts |= self.store not in (None, value)
            self.store = str(value)
            return True
        if isinstance(condition, StringStartsWith) and column == "topic":
            self._prefix(str(value))
            return False
        if column in ("time", "arrival", "position") and isinstance(condition, (*ABOVE, *BELOW)):
            return self._bound(column, condition, value)
        return False

    def _equal_topic(self, value: str) -> bool:
        if not _can_be_asked(value):
            return False
        self._contradicts |= self.topic not in (None, value)
        self._contradicts |= self.within is not None and not matches(self.within, value)
        self.topic = value
        return True

    def _prefix(self, value: str) -> None:
        whole, slash, _ = value.rpartition("/")
        if slash and _can_be_asked(whole or "/"):
            self.prefix = f"{whole}/#"

    def _bound(self, column: str, condition: Filter, value: Any) -> bool:
        if not isinstance(value, int if column == "position" else datetime):
            return False
        value = _in_utc(value)
        try:
            above = value + (1 if column == "position" else TICK)
        except OverflowError:  # the last time that there is
            return False
        bounds = getattr(self, column)
        if isinstance(condition, ABOVE):
            low = above if isinstance(condition, GreaterThan) else value
            bounds[0] = low if bounds[0] is None else max(bounds[0], low)
        if isinstance(condition, BELOW):
            high = value if isinstance(condition, LessThan) else above
            bounds[1] = high if bounds[1] is None else min(bounds[1], high)
        return True


def _can_be_asked(topic: str) -> bool:
    """Other topics there are none, or they are left to Spark."""
    try:
        check_name(topic, MOST_LEVELS)
    except InvalidTopicName:
        return False
    return len(topic) <= LONGEST


def _in_utc(value: Any) -> Any:
    """Spark gives times without a zone in UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _is_empty(bounds: list[Any]) -> bool:
    low, high = bounds
    return low is not None and high is not None and low >= high
