"""What a broker says about itself at one moment. Counts that only grow since the start, unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from typing import TYPE_CHECKING, Final

from headwater.metric import counter, gauge, metrics_of, read_all
from headwater.node.plane.counters import DROP_REASONS, Counters, no_drops

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server


REASONS: Final = ", ".join(f"`{name}`" + (f" ({text})" if text else "") for name, text in DROP_REASONS.items())


def has_disk(server: Server) -> bool:
    return server.room is not None


if TYPE_CHECKING:
    _Copy = Counters
else:
    # Declared there, and a class of its own: counting is slower in a compiled class that others inherit from.
    _Copy = make_dataclass("_Copy", [(each.name, each.type, each) for each in fields(Counters)])


@dataclass
class Statistics(_Copy):
    """A copy of the counters, and what is read from the parts of a server. A figure of a part is one line here."""

    uptime: float = gauge("Seconds since the broker started.", name="uptime_seconds", default=0.0, together="most")
    connections: int = gauge(
        "Clients connected now.",
        lambda server: server.attaching.connected,
        topics=("clients/connected", "clients/active"),
        in_top=True,
    )
    sessions: int = gauge(
        "Sessions now, with or without a connection.",
        lambda server: len(server.sessions),
        topics=("clients/total",),
        in_top=True,
    )
    subscriptions: int = gauge(
        "Subscriptions now.",
        lambda server: server.subscribing.count,
        topics=("subscriptions/count",),
        in_top=True,
    )
    shared_groups: int = gauge(
        "Shared groups now.", lambda server: len(server.router.groups), topics=("shared_subscriptions/count",)
    )
    retained: int = gauge(
        "Retained messages now.",
        lambda server: len(server.router.retained),
        name="retained_messages",
        topics=("retained messages/count",),
        together="most",
        in_top=True,
    )
    queued: int = gauge(
        "Messages that wait in sessions and shared groups now.",
        lambda server: server.budget.messages,
        name="queued_messages",
        in_top=True,
    )
    queued_bytes: int = gauge(
        "Bytes that wait in sessions and for sockets now.",
        lambda server: server.budget.used,
        topics=("store/messages/bytes",),
    )
    dropped: int = counter(
        "Messages that were not delivered.",
        lambda server: server.stats.publish_dropped,
        name="",
        topics=("publish/messages/dropped",),
        loads=("publish/dropped",),
        in_top=True,
    )
    drops: dict[str, int] = counter(
        "Messages that were not delivered.",
        lambda server: dict(server.stats.drops),
        default=no_drops,
        name="messages_dropped",
        labels=("reason",),
        doc=f"By reason: {REASONS}.",
    )
    conditions: int = gauge(
        "Different conditions that subscriptions have now.", lambda server: len(server.conditions.by_text)
    )
    conditions_evaluated: int = counter(
        "Evaluations of conditions: once for each message and different one.",
        lambda server: server.conditions.tally.evaluated,
    )
    condition_passed: int = counter(
        "Times that a condition let a message through to a subscriber or group.",
        lambda server: server.conditions.tally.passed,
        name="condition_messages",
        labels=("outcome",),
        samples=lambda now: {("passed",): now.condition_passed},
    )
    condition_suppressed: int = counter(
        "Times that a condition held a message back.",
        lambda server: server.conditions.tally.suppressed,
        name="condition_messages",
        labels=("outcome",),
        samples=lambda now: {("suppressed",): now.condition_suppressed},
    )
    conditions_refused: int = counter(
        "Subscriptions refused because of their condition.", lambda server: server.conditions.tally.refused
    )
    conditions_unread: int = counter(
        "Payloads that were longer than conditions look into.",
        lambda server: server.conditions.tally.unread,
        doc="Setting `conditions.max_payload`.",
    )
    conditions_not_sent: int = counter(
        "Messages that were not sent to another node, because nobody's condition there holds.",
        lambda server: server.conditions.tally.not_sent,
    )
    conditions_memory: int = gauge(
        "Bytes of what subscriptions remember for `changed` and `limit`.",
        lambda server: server.conditions.budget.used,
        name="conditions_memory_bytes",
    )
    conditions_forgotten: int = counter(
        "Topics that were forgotten for want of room.",
        lambda server: server.conditions.budget.forgotten,
        doc="Setting `conditions.max_memory`; their next message is let through.",
    )
    messages_refused: int = counter(
        "Messages whose publisher may not publish there.", lambda server: server.access.refused_publishes
    )
    commits: int = counter(
        "Commits to the data folder.", lambda server: 0 if server.journal is None else server.journal.commits
    )
    commit_seconds: float = counter(
        "Time that commits have taken, from the first write to the end of the sync.",
        lambda server: 0.0 if server.journal is None else server.journal.seconds,
        default=0.0,
    )
    disk_free: int = gauge(
        "Bytes that are free on the disk of the data folder.",
        lambda server: 0 if server.room is None else server.room.seen,
        name="disk_free_bytes",
        together="least",
        topics=("disk/free",),
        has_topics=has_disk,
    )
    disk_reserve: int = gauge(
        "Bytes of it below which publishers are paused.",
        lambda server: 0 if server.room is None else server.room.reserve,
        name="disk_reserve_bytes",
        together="most",
        topics=("disk/reserve",),
        has_topics=has_disk,
    )
    disk_paused: bool = gauge(
        "Whether publishers are paused, because the disk has too little room.",
        lambda server: server.hot.no_room,
        default=False,
        topics=("disk/paused",),
        has_topics=has_disk,
    )
    publishers_paused: int = gauge(
        "Clients that are not read from, because they publish and the disk does not keep up.",
        lambda server: len(server.outrunners),
        topics=("clients/paused",),
        has_topics=has_disk,
    )
    failures: int = counter(
        "Packets and timers whose handling raised: always a bug.",
        lambda server: server.stats.failures + server.timers.failures + server.background.failures,
    )
    hook_failures: int = counter("Hooks that raised.", lambda server: sum(server.hooks.failures.values()))


def statistics_of(server: Server, uptime: float) -> Statistics:
    """Of a server that has been up for so many seconds. Costs the same however many sessions there are."""
    counted = {name: getattr(server.stats, name) for name in metrics_of(Counters)}
    return Statistics(uptime=uptime, **{**counted, **read_all(Statistics, server)})
