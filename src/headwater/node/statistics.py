"""What a broker says about itself at one moment. Counts that only grow since the start, unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistics:
    uptime: float = 0.0
    """Seconds since the broker started."""
    connections: int = 0
    """Clients connected now."""
    connections_maximum: int = 0
    """Most clients connected at the same time."""
    sockets_opened: int = 0
    sessions: int = 0
    """Sessions now, with or without a connection."""
    expired: int = 0
    """Sessions that ended by their expiry interval."""
    subscriptions: int = 0
    """Subscriptions now."""
    shared_groups: int = 0
    """Shared groups now."""
    retained: int = 0
    """Retained messages now."""
    queued: int = 0
    """Messages that wait in sessions now."""
    queued_bytes: int = 0
    """Bytes that wait in sessions and for sockets now."""
    received: int = 0
    """Packets of any kind."""
    sent: int = 0
    messages_received: int = 0
    """PUBLISH packets from clients."""
    messages_sent: int = 0
    dropped: int = 0
    """Messages that were not delivered: full queue, too large, expired."""
    bytes_received: int = 0
    bytes_sent: int = 0
    refused: int = 0
    """CONNECTs that were refused."""
    messages_refused: int = 0
    """Messages whose publisher may not publish there, by the rules of `access`."""
    reports: int = 0
    """Status reports from clients."""
    reports_bad: int = 0
    """Of these, reports that could not be believed and were ignored."""
    reports_early: int = 0
    """Of these, reports that came earlier than allowed and were ignored."""
    protocol_errors: int = 0
    commits: int = 0
    """Commits to the data folder."""
    commit_seconds: float = 0.0
    """Time that they have taken."""
    failures: int = 0
    """Packets whose handling raised: always a bug, please report."""
    hook_failures: int = 0
