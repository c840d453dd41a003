"""Lines of the log about strangers, who can come as often as they like: the first one, then how many there were."""

from __future__ import annotations

import logging
from typing import Final

from headwater.message import NEVER

TELL_AGAIN: Final = 10.0
"""Seconds between two lines."""


class TurnedAway:
    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        """Connections that were told of here, in a line or as one of those that a line counts."""
        self._log = log
        self._untold = 0
        self._next = -NEVER

    def tell(self, now: float, text: str, level: int = logging.INFO) -> None:
        self.count += 1
        self._untold += 1
        if now >= self._next:
            others = f" (and {self._untold - 1} others since the last such line)" if self._untold > 1 else ""
            self._log.log(level, "%s%s", text, others)
            self._next, self._untold = now + TELL_AGAIN, 0
