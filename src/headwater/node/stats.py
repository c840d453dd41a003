"""Counters of one broker. They only grow; rates and averages are made from differences."""

from __future__ import annotations


class Stats:
    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.publish_received = 0
        self.publish_sent = 0
        self.publish_dropped = 0
        self.connections_opened = 0
        self.connects_refused = 0
        self.protocol_errors = 0
        self.failures = 0
        self.sessions_expired = 0
        self.sessions_maximum = 0
        self.connections_maximum = 0
        self.reports_received = 0
        self.reports_bad = 0
        self.reports_early = 0
