"""What is asked of a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.routing.topics import has_wildcard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headwater.store.chunk import Chunk
    from headwater.store.where import Where


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
    do not meet. `after` < position < `before`. `may_read` says of a topic whether the asker may know of it. `where` is
    a condition on the content, which no store knows: `rest/scanning.py` asks it of what a store has found.
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
    where: Where | None = None

    def met_by(self, chunk: Chunk) -> list[NDArray[Any]]:
        """For each condition that a message meets by itself, which messages of a chunk do; `filter` and `may_read` are
        asked once for each topic, elsewhere. A new condition is a field above and a test here."""
        tests: list[NDArray[Any]] = []
        if self.after is not None:
            tests.append(chunk.position > self.after)
        if self.before is not None:
            tests.append(chunk.position < self.before)
        if self.start is not None:
            tests.append(chunk.time >= self.start)
        if self.end is not None:
            tests.append(chunk.time < self.end)
        if self.low is not None:
            tests.append(chunk.value >= self.low)
        if self.high is not None:
            tests.append(chunk.value <= self.high)
        return tests


def beginning(filter: str) -> str:
    """What all topics begin with that match."""
    if not has_wildcard(filter):
        return filter
    literal = re.split(r"(?:^|/)[+#](?:/|$)", filter, maxsplit=1)[0]
    return literal  # without the slash: `a/#` matches `a`, too
