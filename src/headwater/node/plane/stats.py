"""Counters of one broker. They only grow; rates and averages are made from differences."""

from __future__ import annotations

from typing import Final

# Why a message was not delivered.
QUEUE_FULL: Final = 0
SLOW_READER: Final = 1
EXPIRED: Final = 2
TOO_LARGE: Final = 3
NOT_AUTHORIZED: Final = 4
SESSION_ENDED: Final = 5
TOO_MANY_TOPICS: Final = 6
DROP_REASONS: Final = (
    *("queue_full", "slow_reader", "expired", "too_large", "not_authorized", "session_ended", "too_many_topics"),
)


class Stats:
    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.publish_received = 0
        self.publish_sent = 0
        self.publish_refused = 0
        """Of QoS 1 and 2: for lack of room, with 0x97 or by letting the publisher wait."""
        self.retained_refused = 0
        """Retained messages for which there was no room."""
        self.drops = [0] * len(DROP_REASONS)
        self.connections_opened = 0
        self.connects_refused = 0
        self.strangers_cut_off = 0
        """Connections that were not connected yet and gave way to newer ones."""
        self.protocol_errors = 0
        self.failures = 0
        self.sessions_expired = 0
        self.sessions_maximum = 0
        self.connections_maximum = 0
        self.reports_received = 0
        self.reports_bad = 0
        self.reports_early = 0

    @property
    def publish_dropped(self) -> int:
        return sum(self.drops)
