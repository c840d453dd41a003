"""What `trigger(availableNow=True)` means for a broker, which cannot say what it has.

Theory. What a broker has for us is known only by its coming, and it sends no more than a window of unacknowledged
messages: the rest comes when Spark has committed those. So a run is made of rounds. The first is what has come when
nothing came for `settle` seconds. When Spark has committed all of a round, its last batch is acknowledged: if there is
a backlog, the broker sends as many at once, one for one, then pauses, and there is another round. If fewer come before
a short pause, or there is no pause soon, it is the last round. So a flow of new messages does not look like a backlog:
what comes right behind a batch is less than what came during it, or does not pause. A run takes the whole backlog and
ends, at the latest after LONGEST_RUN. What was published meanwhile may be in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

LONGEST_FIRST: Final = 20
"""Times `settle`: how long the first round waits for a pause."""
SHORT: Final = 0.25
"""Times `settle`: the pause that ends a further round."""
SLOWEST: Final = 1000
"""Messages in a second that a backlog brings at least."""
LONGEST_RUN: Final = 3600.0

Status = dict[str, Any]


class Ask(Protocol):
    """Tell up to which offset Spark has committed, and hear how things are, after up to `wait` seconds if there is
    nothing behind the number `beyond`."""

    def __call__(
        self, released: dict[str, Any] | None = None, beyond: int | None = None, wait: float = 0.0
    ) -> Status: ...


class Available:
    """`target` is where the present round ends."""

    def __init__(self, ask: Ask, settle: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._settle = settle
        self._clock = clock
        self._until = clock() + LONGEST_RUN
        self._is_last = False
        self.target, _ = self._settled(settle, settle * LONGEST_FIRST)

    def committed(self, end: dict[str, Any]) -> None:
        """Spark has committed all up to `end`, which is the target or beyond: there may be another target."""
        before = self._ask()
        self._ask(released=end)
        count = end["next"] - before["released"]
        if count <= 0 or self._is_last:
            return
        after, has_paused = self._settled(self._settle * SHORT, self._settle + count / SLOWEST)
        self.target = max(self.target, after)
        self._is_last = after - before["next"] < count or not has_paused or self._clock() > self._until

    def _settled(self, pause: float, longest: float) -> tuple[int, bool]:
        """How far it goes when nothing has come for a while, or there is no more room; or it takes too long (False)."""
        since = self._clock()
        status = self._ask()
        while self._clock() - since < longest and not status["is_full"]:
            quiet = min(status["quiet"], self._clock() - since)
            if quiet >= pause:
                return status["next"], True
            status = self._ask(beyond=status["next"], wait=pause - quiet)
        return status["next"], bool(status["is_full"])
