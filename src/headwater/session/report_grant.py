"""What a connection was granted that asked to send status reports (wire/status.py), and how fast they may come.

The rate is kept by a bucket: one report more may come every `shortest` seconds, and BURST of them at once, so that
reports which are sent in time are not refused because the way brought two of them together.
"""

from __future__ import annotations

from typing import Final

BURST: Final = 3


class ReportGrant:
    """`longest` and `shortest` are the seconds between two reports that the client named and that we allow."""

    def __init__(self, longest: float, shortest: float) -> None:
        self.longest = longest
        self.shortest = shortest
        self.complained = False  # whether the log tells already that its reports are wrong
        self._full_at = 0.0  # when BURST reports may come at once again

    def may_come(self, now: float) -> bool:
        """Whether a report that comes now is in time; one that is counts, one that is too early does not."""
        full_at = self._full_at
        if full_at < now:
            full_at = now
        if full_at - now > (BURST - 1) * self.shortest:
            return False
        self._full_at = full_at + self.shortest
        return True
