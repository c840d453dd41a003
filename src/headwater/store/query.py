"""What is asked of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Judge:
    """`may_read` of somebody who is judged elsewhere, where many questions at once cost little more than one."""

    def __init__(self, one: Callable[[str], bool], each: Callable[[Sequence[str]], list[bool]]) -> None:
        self._one = one
        self.each = each

    def __call__(self, topic: str) -> bool:
        return self._one(topic)


def judged(may_read: Callable[[str], bool], topics: Sequence[str]) -> list[bool]:
    """Of each topic, whether it may be read."""
    return may_read.each(topics) if isinstance(may_read, Judge) else [may_read(topic) for topic in topics]


class Query(NamedTuple):
    """Which messages, always in the order of their positions. None is no condition.

    `filter` is a topic filter, with the meaning it has in a subscription: `#` does not match topics that begin with
    `$`. `start` ≤ time of measurement < `end`, in microseconds; `low` ≤ value ≤ `high`, which messages without a value
    do not meet. `after` < position < `before`. `may_read` says of a topic whether the asker may know of it.
    """

    filter: str | None = None
    start: int | None = None
    end: int | None = None
    low: float | None = None
    high: float | None = None
    after: int | None = None
    before: int | None = None
    limit: int | None = None
    may_read: Callable[[str], bool] | None = None
