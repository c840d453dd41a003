"""Figures for Prometheus, read from the broker when they are asked for: counting them costs nothing anywhere else.

`headwater/prometheus.py` names them. Shared groups are the one label that clients choose; no more than `MOST_GROUPS`
are shown one by one. Peers are bounded by what a node knows of nodes (docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from headwater import __version__
from headwater.build_info import describe, module_states
from headwater.node.advice.figures import AdviceSeen
from headwater.node.bridge.view import BridgeView
from headwater.node.delivery.figures import StoreSeen, see_store
from headwater.node.forwarding.view import ForwardView
from headwater.node.links.figures import ClusterSeen, EdgeSeen, LinkSeen
from headwater.node.operations.seen import LAG_BUCKETS, LagSeen, Seen, see
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics
from headwater.node.proxy.figures import ProxySeen
from headwater.prometheus import families

if TYPE_CHECKING:
    from headwater.node.broker import Broker

MOST_GROUPS: Final = 100


class BrokerCollector(Collector):
    """What is seen of a broker, as metrics."""

    def __init__(self, seen: Callable[[], Seen]) -> None:
        self._seen = seen
        self._build = describe(module_states().values())

    def describe(self) -> list[Family]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Family]:
        now = self._seen()
        yield from families(Statistics, [now.statistics])
        yield from families(GroupView, now.groups[:MOST_GROUPS], "group")
        yield from families(BridgeView, now.bridges, "bridge")
        yield from families(ForwardView, now.forwards, "forward")
        yield from families(StoreSeen, [now.store])
        yield from families(AdviceSeen, [now.advice])
        yield from families(ClusterSeen, [now.cluster])
        yield from families(ProxySeen, [now.proxy])
        yield from families(EdgeSeen, [now.edge])
        yield from families(LinkSeen, [] if now.cluster is None else now.cluster.links, "peer")
        yield from families(WorkerSeen, now.workers, "worker")
        yield from families(Seen, [now])
        yield _build(self._build)
        if now.lag is not None:
            yield _lag(now.lag)


def _build(build: str) -> Family:
    text = "Version, and whether it is compiled."
    family = GaugeMetricFamily("headwater_build_info", text, labels=["version", "build"])
    family.add_metric([__version__, build], 1)
    return family


def _lag(lag: LagSeen) -> Family:
    bounds = [*map(str, LAG_BUCKETS), "+Inf"]
    buckets = list(zip(bounds, map(float, accumulate(lag.counts)), strict=True))
    text = "How late a timer was called, looked at ten times a second."
    return HistogramMetricFamily("headwater_loop_lag_seconds", text, buckets, lag.seconds)


def registry_of(seen: Callable[[], Seen]) -> CollectorRegistry:
    """Tells what was seen last. A registry of its own, so that two brokers in one process do not meet."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(seen))
    ProcessCollector(pid=lambda: seen().process, registry=registry)
    PlatformCollector(registry=registry)
    return registry


def registry_of_broker(broker: Broker) -> CollectorRegistry:
    """The same for a program of one's own, which asks on the broker's loop."""

    def seen() -> Seen:
        coordinator, history = broker.server.coordinator, broker.history
        moved = None if history is None else history.seen
        return see(broker, broker.shared_groups(), None if coordinator is None else see_store(coordinator, moved))

    return registry_of(seen)
