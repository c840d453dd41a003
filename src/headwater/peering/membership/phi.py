"""How improbable a node's silence is: the φ accrual failure detector.

Theory: Hayashibara, Défago, Yared, Katayama: "The φ Accrual Failure Detector" (SRDS 2004). Instead of alive or not, a
detector says how much it doubts: φ(t) = -log10 P(the next sign of life comes later than t), with P a normal
distribution of the mean and variance of the last intervals. φ = 8 is an error once in 10^8 decisions if the estimate
is right. A node whose signs come slowly or irregularly is given more time without any setting.

Two departures. With few samples the estimate is a guess, so a prior takes part as if it were `PRIOR_WEIGHT` samples.
And signs that come by gossip skip rounds, so their tail is heavier than a normal one: the deviation has a floor, and
for any history there is a longest silence, after which doubt is certainty; so the time of detection has a bound
whatever was measured before.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

SAMPLES: Final = 100
PRIOR_WEIGHT: Final = 5
PRIOR_MEAN: Final = 2.0
PRIOR_DEVIATION: Final = 1.0
LEAST_DEVIATION: Final = 0.5
LONGEST_SILENCE: Final = 15.0
"""Of these four, one unit is the time between two heartbeats."""
CERTAIN: Final = 300.0
"""φ of a silence whose probability is no longer a number."""


class Arrivals:
    """The last intervals between signs of life of one node, in units of the heartbeat's interval."""

    def __init__(self) -> None:
        self._window: deque[float] = deque()
        self._sum = 0.0
        self._squares = 0.0

    def add(self, interval: float) -> None:
        """A sample, unless it tells of an outage and not of the rhythm."""
        if interval > LONGEST_SILENCE:
            return
        if len(self._window) == SAMPLES:
            gone = self._window.popleft()
            self._sum -= gone
            self._squares -= gone * gone
        self._window.append(interval)
        self._sum += interval
        self._squares += interval * interval

    def mean(self) -> float:
        return (self._sum + PRIOR_WEIGHT * PRIOR_MEAN) / (len(self._window) + PRIOR_WEIGHT)

    def deviation(self) -> float:
        prior = PRIOR_WEIGHT * (PRIOR_MEAN * PRIOR_MEAN + PRIOR_DEVIATION * PRIOR_DEVIATION)
        mean = self.mean()
        variance = (self._squares + prior) / (len(self._window) + PRIOR_WEIGHT) - mean * mean
        return max(LEAST_DEVIATION, math.sqrt(max(variance, 0.0)))

    def phi(self, silence: float) -> float:
        if silence >= LONGEST_SILENCE:
            return CERTAIN
        later = 0.5 * math.erfc((silence - self.mean()) / (self.deviation() * math.sqrt(2.0)))
        return -math.log10(later) if later > 0.0 else CERTAIN
