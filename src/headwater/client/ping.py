"""What a client tells with its pings: the ping sender that applications subclass, and a ready one.

MQTT's PINGREQ is empty. A server that agrees to it takes a report in it (see wire.status): this is how a shared
subscription learns how its members are doing. The client asks in CONNECT only if it has a ping sender, and reports only
if CONNACK grants it; otherwise, and always in MQTT 3.1.1, the pings are ordinary ones.
"""

from __future__ import annotations

import json
from typing import Final

MUCH: Final = 2
"""Messages by which the queue has to change for an early report."""
FACTOR: Final = 2.0
"""By which the processing time has to change for one."""


class PingSender:
    """Subclass it and say what `payload` is.

    The client keeps `waiting` up to date, the messages received and not yet taken by the application, and calls
    `processed` for each message that the application is done with. After either it asks `is_due`. A report is sent
    every `interval` seconds (or keep alive, if that is shorter), and as soon as `is_due` says so, but never more often
    than the server allows. All calls come from the event loop's thread. One sender belongs to one client.
    """

    def __init__(self, interval: float = 1.0) -> None:
        if interval <= 0:
            raise ValueError("the interval between reports must be longer than 0 seconds")
        self.interval = interval
        self.waiting = 0

    def payload(self) -> bytes:
        """What the next report says; called once for each report, right before it is sent."""
        raise NotImplementedError

    def user_properties(self) -> list[tuple[str, str]]:
        """What is said about the payload."""
        return []

    def is_due(self) -> bool:
        """Whether a report should go out before its time."""
        return False

    def processed(self, seconds: float) -> None:
        """The application is done with a message that it took so many seconds ago."""


class StatusPingSender(PingSender):
    """Reports the messages that wait and the mean time to process one since the last report, in milliseconds; 0 if
    none was processed. Early, when the queue has changed by 2 or more since the last report, when the processing time
    is known for the first time, or when it has changed by a factor of 2."""

    def __init__(self, interval: float = 1.0) -> None:
        super().__init__(interval)
        self._count = 0
        self._seconds = 0.0
        self._reported_waiting = 0
        self._reported_mean = 0.0
        """The last one that was above 0."""

    def processed(self, seconds: float) -> None:
        self._count += 1
        self._seconds += seconds

    def payload(self) -> bytes:
        mean = self._mean()
        self._reported_waiting = self.waiting
        self._reported_mean = mean or self._reported_mean
        self._count = 0
        self._seconds = 0.0
        milliseconds = round(mean * 1000, 3)
        return json.dumps({"msgsInQueue": self.waiting, "processingTimePerMsg": milliseconds}).encode()

    def is_due(self) -> bool:
        if abs(self.waiting - self._reported_waiting) >= MUCH:
            return True
        mean = self._mean()
        if mean == 0.0:
            return False
        reported = self._reported_mean
        return reported == 0.0 or mean >= reported * FACTOR or mean * FACTOR <= reported

    def _mean(self) -> float:
        return self._seconds / self._count if self._count else 0.0
