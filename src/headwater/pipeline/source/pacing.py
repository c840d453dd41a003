"""Whether a batch waits for more messages, as Kafka's source has it: until `minOffsetsPerTrigger` are there, or
`maxTriggerDelay` has passed since the batch before. The first batch waits for nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) *([a-z]*)")
DELAY: Final = 900.0
"""Seconds, if nothing is said: that of Kafka's source."""


def seconds(text: str) -> float | None:
    """Of a time such as 30s, 15m or 1h; a bare number is in milliseconds, as for Kafka. None: it is none."""
    found = DURATION.fullmatch(text.strip().lower())
    if found is None or (found[2] or "ms") not in UNITS:
        return None
    return float(found[1]) * UNITS[found[2] or "ms"]


@dataclass
class Pace:
    """Of one query. `clock` gives seconds, from anywhere."""

    least: int | None
    delay: float = DELAY
    clock: Callable[[], float] = field(default=time.monotonic)
    _last: float | None = None

    def waits(self, there: int) -> bool:
        """With so many messages there. If not, a batch is made now."""
        now = self.clock()
        is_due = self._last is None or now - self._last >= self.delay
        if self.least is not None and there < self.least and not is_due:
            return True
        self._last = now
        return False
