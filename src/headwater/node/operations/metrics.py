"""Figures for Prometheus, read from the broker when they are asked for: counting them costs nothing anywhere else.

Names are those of the field: `_total` for what only grows, base units (bytes, seconds), labels only where their values
are few. Shared groups are the one label that clients choose; no more than `MOST_GROUPS` are shown one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater import __version__
from headwater.build_info import describe, module_states
from headwater.node.advice.metrics import AdviceCollector
from headwater.node.bridge.metrics import BridgeCollector
from headwater.node.delivery.metrics import StoreCollector
from headwater.node.operations.seen import LAG_BUCKETS, Seen, see, see_store
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics

if TYPE_CHECKING:
    from headwater.node.broker import Broker

MOST_GROUPS: Final = 100

GAUGES: Final = {
    "connections": "Clients connected now.",
    "connections_maximum": "Most clients connected at the same time since the start.",
    "sessions": "Sessions now, with or without a connection.",
    "subscriptions": "Subscriptions now.",
    "retained": "Retained messages now.",
    "queued": "Messages that wait in sessions and shared groups now.",
    "queued_bytes": "Bytes that wait in sessions and for sockets now.",
    "shared_groups": "Shared groups now.",
    "disk_free": "Bytes that are free on the disk of the data folder.",
    "disk_reserve": "Bytes of it below which publishers are paused.",
    "disk_paused": "Whether publishers are paused, because the disk has too little room.",
    "publishers_paused": "Clients that are not read from, because they publish and the disk does not keep up.",
}
GAUGE_NAMES: Final = {
    "retained": "retained_messages",
    "queued": "queued_messages",
    "disk_free": "disk_free_bytes",
    "disk_reserve": "disk_reserve_bytes",
}
COUNTERS: Final = {
    "messages_received": ("messages_received", "PUBLISH packets from clients."),
    "messages_sent": ("messages_sent", "PUBLISH packets to clients."),
    "received": ("packets_received", "Packets of any kind from clients."),
    "sent": ("packets_sent", "Packets of any kind to clients."),
    "bytes_received": ("received_bytes", "Bytes from clients."),
    "bytes_sent": ("sent_bytes", "Bytes to clients."),
    "sockets_opened": ("sockets_opened", "Connections of sockets, with or without a CONNECT."),
    "refused": ("connects_refused", "CONNECTs that were refused."),
    "messages_refused": ("messages_refused", "Messages whose publisher may not publish there."),
    "retained_refused": ("retained_refused", "Retained messages for which there was no room."),
    "no_room": ("messages_no_room", "Messages of QoS 1 and 2 refused or made to wait for lack of room in queues."),
    "expired": ("sessions_expired", "Sessions that ended by their expiry interval."),
    "protocol_errors": ("protocol_errors", "Connections that ended because the client broke the protocol."),
    "commits": ("commits", "Commits to the data folder."),
    "commit_seconds": ("commit_seconds", "Time that commits have taken, from the first write to the end of the sync."),
    "failures": ("failures", "Packets and timers whose handling raised: always a bug."),
    "hook_failures": ("hook_failures", "Hooks that raised."),
}


class BrokerCollector(Collector):
    """What a broker says about itself, as metrics."""

    def __init__(self, statistics: Callable[[], Statistics], groups: Callable[[], list[GroupView]]) -> None:
        self._statistics = statistics
        self._groups = groups
        self._build = describe(module_states().values())

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Metric]:
        now = self._statistics()
        for field, text in GAUGES.items():
            name = GAUGE_NAMES.get(field, field)
            yield GaugeMetricFamily(f"headwater_{name}", text, value=getattr(now, field))
        yield GaugeMetricFamily("headwater_uptime_seconds", "Seconds since the broker started.", value=now.uptime)
        for field, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(f"headwater_{name}", text, value=getattr(now, field))
        yield _drops(now)
        yield _reports(now)
        yield _build(self._build)
        yield from _group_metrics(self._groups()[:MOST_GROUPS])


def _drops(now: Statistics) -> Metric:
    family = CounterMetricFamily("headwater_messages_dropped", "Messages that were not delivered.", labels=["reason"])
    for reason, count in now.drops.items():
        family.add_metric([reason], count)
    return family


def _reports(now: Statistics) -> Metric:
    family = CounterMetricFamily("headwater_reports", "Status reports from clients.", labels=["outcome"])
    family.add_metric(["used"], now.reports - now.reports_bad - now.reports_early)
    family.add_metric(["bad"], now.reports_bad)
    family.add_metric(["early"], now.reports_early)
    return family


def _build(build: str) -> Metric:
    text = "Version, and whether it is compiled."
    family = GaugeMetricFamily("headwater_build_info", text, labels=["version", "build"])
    family.add_metric([__version__, build], 1)
    return family


def _group_metrics(groups: list[GroupView]) -> Iterator[Metric]:
    sent = CounterMetricFamily("headwater_shared_group_messages_sent", "Messages given to members.", labels=["group"])
    waiting = GaugeMetricFamily(
        "headwater_shared_group_waiting_messages", "Messages that no member has room for.", labels=["group"]
    )
    members = GaugeMetricFamily(
        "headwater_shared_group_members", "Members: with room, without it, and away.", labels=["group", "state"]
    )
    for group in groups:
        sent.add_metric([group.name], group.sent)
        waiting.add_metric([group.name], group.waiting)
        states = Counter("ready" if each.ready else "busy" if each.online else "away" for each in group.members)
        for state in ("ready", "busy", "away"):
            members.add_metric([group.name, state], states[state])
    yield from (sent, waiting, members)


class InsideCollector(Collector):
    """What should not grow while the load stays the same, and how late timers are."""

    def __init__(self, seen: Callable[[], Seen]) -> None:
        self._seen = seen

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        now = self._seen()
        yield GaugeMetricFamily("headwater_timers", "Deadlines that are waited for.", value=now.timers)
        yield GaugeMetricFamily("headwater_tasks", "Tasks of the broker's event loop.", value=now.tasks)
        text = "Blocks of memory that Python has in use."
        yield GaugeMetricFamily("headwater_memory_blocks", text, value=now.memory_blocks)
        if now.lag is not None:
            bounds = [*map(str, LAG_BUCKETS), "+Inf"]
            buckets = list(zip(bounds, map(float, accumulate(now.lag.counts)), strict=True))
            text = "How late a timer was called, looked at ten times a second."
            yield HistogramMetricFamily("headwater_loop_lag_seconds", text, buckets, now.lag.seconds)


def registry_of(seen: Callable[[], Seen]) -> CollectorRegistry:
    """Tells what was seen last. A registry of its own, so that two brokers in one process do not meet."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(lambda: seen().statistics, lambda: seen().groups))
    registry.register(BridgeCollector(lambda: seen().bridges))
    registry.register(StoreCollector(lambda: seen().store))
    registry.register(AdviceCollector(lambda: seen().advice))
    registry.register(InsideCollector(seen))
    ProcessCollector(pid=lambda: seen().process, registry=registry)
    PlatformCollector(registry=registry)
    return registry


def registry_of_broker(broker: Broker) -> CollectorRegistry:
    """The same for a program of one's own, which asks on the broker's loop."""

    def seen() -> Seen:
        coordinator = broker.server.coordinator
        return see(broker, broker.shared_groups(), None if coordinator is None else see_store(coordinator))

    return registry_of(seen)
