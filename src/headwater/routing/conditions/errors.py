"""What is wrong with the text of a condition."""

from __future__ import annotations

from typing import Final

SHOWN: Final = 24
"""Characters of what a client wrote that are repeated to it."""


class ConditionError(ValueError):
    """`place` counts characters from 1; one more than there are is the end."""

    def __init__(self, problem: str, place: int) -> None:
        super().__init__(f"{problem} at character {place}")
        self.problem = problem
        self.place = place


def shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
