"""Figures for Prometheus, read from the broker when they are asked for: counting them costs nothing anywhere else.

Names are those of the field: `_total` for what only grows, base units (bytes, seconds), labels only where their values
are few. Shared groups are the one label that clients choose; no more than `MOST_GROUPS` are shown one by one.

Lag is how late a timer of the data plane is called. A look every `LAG_EVERY` seconds is enough to see a loop that is
kept from its work, and costs nothing that could be measured.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater import __version__
from headwater.build_info import describe, module_states
from headwater.node.advice.metrics import AdviceCollector
from headwater.node.bridge.metrics import BridgeCollector
from headwater.node.bridge.view import BridgeView
from headwater.node.broker import Broker
from headwater.node.delivery.metrics import StoreCollector
from headwater.node.group_view import GroupView
from headwater.node.statistics import Statistics

MOST_GROUPS: Final = 100
LAG_EVERY: Final = 0.1
LAG_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

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
    """What should not grow while the load stays the same."""

    def __init__(self, timers: Callable[[], int], tasks: Callable[[], int]) -> None:
        self._timers = timers
        self._tasks = tasks

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        tasks = self._tasks()
        blocks = sys.getallocatedblocks()
        yield GaugeMetricFamily("headwater_timers", "Deadlines that are waited for.", value=self._timers())
        yield GaugeMetricFamily("headwater_tasks", "Tasks of the broker's event loop.", value=tasks)
        yield GaugeMetricFamily("headwater_memory_blocks", "Blocks of memory that Python has in use.", value=blocks)


class Lag:
    """Measures how late the data plane's timers are, as long as it runs."""

    def __init__(self, broker: Broker, registry: CollectorRegistry) -> None:
        self._broker = broker
        self._due = 0.0
        self._stopped = False
        self._histogram = Histogram(
            "headwater_loop_lag_seconds",
            "How late a timer was called, looked at ten times a second.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )

    def start(self) -> None:
        now = time.monotonic()
        self._due = now + LAG_EVERY
        self._broker.server.timers.at(self._due, self._look)
        self._broker.server.plane.wake()

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        self._histogram.observe(max(0.0, time.monotonic() - self._due))
        if not self._stopped:
            self.start()


@dataclass
class Seen:
    """What was seen of a broker on its own loop, to be told by another thread."""

    statistics: Statistics
    groups: list[GroupView]
    bridges: list[BridgeView]
    advice: list[Metric]
    tasks: int


class _AdviceSeen(Collector):
    def __init__(self, seen: Callable[[], Seen]) -> None:
        self._seen = seen

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._seen().advice


def see(broker: Broker, groups: list[GroupView]) -> Seen:
    """On the broker's loop."""
    try:
        tasks = len(asyncio.all_tasks())
    except RuntimeError:  # there is no loop
        tasks = 0
    advice = list(AdviceCollector(lambda: broker.server.advising).collect())
    return Seen(broker.statistics(), groups, broker.bridges(), advice, tasks)


def registry_of(broker: Broker, last_seen: Callable[[], Seen] | None = None) -> CollectorRegistry:
    """A registry of its own, so that two brokers in one process do not meet. Where somebody else looks at the broker
    (`last_seen`), any thread may ask it; else only the broker's."""
    registry = CollectorRegistry()
    seen = last_seen or (lambda: see(broker, broker.shared_groups()))
    registry.register(BrokerCollector(lambda: seen().statistics, lambda: seen().groups))
    registry.register(BridgeCollector(lambda: seen().bridges))
    registry.register(StoreCollector(lambda: broker.server.coordinator))
    registry.register(_AdviceSeen(seen))
    registry.register(InsideCollector(lambda: len(broker.server.timers), lambda: seen().tasks))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
