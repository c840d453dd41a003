"""How well this node itself is, and how much patience follows.

Theory: Dadgar, Phillips, Currey: "Lifeguard: Local Health Awareness for More Accurate Failure Detection" (DSN-W 2018).
Most false alarms of a failure detector come from members that are slow themselves: they handle answers late and take
the others for dead. A member that has reason to doubt itself multiplies its time-outs by 1 + score.

Here the score grows by one with each tick that comes late, and with each tick at which more than half of those asked
lately have not answered (of at least `MANY`: where one of two is dead, that tells nothing about us). It shrinks by one
with each tick of neither. Besides, time in which we did not run counts against nobody: a node that was stopped for a
minute has heard nothing in that minute because it did not listen.
"""

from __future__ import annotations

from typing import Final

MAX_SCORE: Final = 2
MANY: Final = 3
LATE: Final = 2.0
"""A tick that comes later than this, in intervals, is late."""
ANSWER_TIME: Final = 2.0
"""Intervals after which a question is taken for unanswered."""


class LocalHealth:
    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last_tick: float | None = None
        self._asked: dict[str, float] = {}
        self._answered: dict[str, bool] = {}
        self.score = 0

    @property
    def patience(self) -> int:
        """What time-outs are multiplied by, 1 to 1 + MAX_SCORE."""
        return 1 + self.score

    def tick(self, now: float) -> float:
        """The time that was missed because we did not run, in seconds."""
        passed = self._interval if self._last_tick is None else max(0.0, now - self._last_tick)
        self._last_tick = now
        missed = passed - self._interval if passed > LATE * self._interval else 0.0
        self._asked = {node: at + missed for node, at in self._asked.items()}
        for node, at in list(self._asked.items()):
            if now - at > ANSWER_TIME * self._interval:
                del self._asked[node]
                self._answered[node] = False
        silent = sum(not each for each in self._answered.values())
        worse = missed > 0.0 or (len(self._answered) >= MANY and 2 * silent > len(self._answered))
        self.score = min(self.score + 1, MAX_SCORE) if worse else max(self.score - 1, 0)
        return missed

    def asked(self, node: str, now: float) -> None:
        self._asked.setdefault(node, now)

    def answered(self, node: str) -> None:
        """Only an answer to a question counts."""
        if self._asked.pop(node, None) is not None:
            self._answered[node] = True

    def dismiss(self, node: str) -> None:
        """It is dead or gone: its silence says nothing about us any more."""
        self._asked.pop(node, None)
        self._answered.pop(node, None)
