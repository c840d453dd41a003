"""What a broker says about itself at one moment. Counts that only grow since the start, unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.node.plane.stats import DROP_REASONS

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server


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
    """Messages that were not delivered."""
    drops: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DROP_REASONS, 0))
    """The same by reason: queue_full, slow_reader (QoS 0), expired, too_large, not_authorized, session_ended,
    too_many_topics (of the delivery store)."""
    bytes_received: int = 0
    bytes_sent: int = 0
    refused: int = 0
    """CONNECTs that were refused."""
    messages_refused: int = 0
    """Messages whose publisher may not publish there, by the rules of `access`."""
    retained_refused: int = 0
    """Retained messages for which there was no room."""
    no_room: int = 0
    """Messages of QoS 1 and 2 that were refused, or had to wait, for lack of room in queues."""
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
    disk_free: int = 0
    """Bytes that are free on the disk of the data folder."""
    disk_reserve: int = 0
    """Bytes of it below which publishers are paused."""
    disk_paused: bool = False
    """Publishers are paused now, because the disk has too little room."""
    publishers_paused: int = 0
    """Clients that are not read from now, because they publish and the disk does not keep up or has no room."""
    failures: int = 0
    """Packets whose handling raised: always a bug, please report."""
    hook_failures: int = 0


def statistics_of(server: Server, uptime: float) -> Statistics:
    """Of a server that has been up for so many seconds. Costs the same however many sessions there are."""
    stats = server.stats
    return Statistics(
        uptime=uptime,
        connections=server.connecting.connected,
        connections_maximum=stats.connections_maximum,
        sockets_opened=stats.connections_opened,
        sessions=len(server.sessions),
        expired=stats.sessions_expired,
        subscriptions=server.subscribing.count,
        shared_groups=len(server.router.groups),
        retained=len(server.router.retained),
        queued=server.budget.messages,
        queued_bytes=server.budget.used,
        received=stats.received,
        sent=stats.sent,
        messages_received=stats.publish_received,
        messages_sent=stats.publish_sent,
        dropped=stats.publish_dropped,
        drops=dict(zip(DROP_REASONS, stats.drops, strict=True)),
        bytes_received=stats.bytes_received,
        bytes_sent=stats.bytes_sent,
        refused=stats.connects_refused,
        messages_refused=server.access.refused_publishes,
        retained_refused=stats.retained_refused,
        no_room=stats.publish_refused,
        protocol_errors=stats.protocol_errors,
        reports=stats.reports_received,
        reports_bad=stats.reports_bad,
        reports_early=stats.reports_early,
        commits=0 if server.journal is None else server.journal.commits,
        commit_seconds=0.0 if server.journal is None else server.journal.seconds,
        disk_free=0 if server.room is None else server.room.seen,
        disk_reserve=0 if server.room is None else server.room.reserve,
        disk_paused=server.hot.no_room,
        publishers_paused=len(server.outrunners),
        failures=stats.failures + server.timers.failures + server.background.failures,
        hook_failures=sum(server.hooks.failures.values()),
    )
