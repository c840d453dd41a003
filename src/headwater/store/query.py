"""What is asked of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


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
