"""When nothing was disturbed."""

from __future__ import annotations

from typing import Final

from headwater_lab.check_broker.history import Fault, History

MARGIN: Final = 2.0
"""Seconds before and after a fault that are not calm either: a node notices late, and starts slowly."""


class Calm:
    def __init__(self, history: History) -> None:
        self._spans = [
            (fault.began - MARGIN, float("inf") if fault.ended is None else fault.ended + MARGIN)
            for fault in history.of(Fault)
        ]

    def at(self, begin: float, end: float) -> bool:
        """Whether no fault overlaps this span of seconds."""
        return not any(first <= end and begin <= last for first, last in self._spans)
