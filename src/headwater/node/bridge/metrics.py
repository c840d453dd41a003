"""Figures of bridges for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.node.bridge.view import BridgeView


class BridgeCollector(Collector):
    def __init__(self, bridges: Callable[[], list[BridgeView]]) -> None:
        self._bridges = bridges

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("headwater_bridge_up", "Whether the bridge is up.", labels=["bridge"])
        waiting = GaugeMetricFamily(
            "headwater_bridge_waiting_messages", "Messages that the remote has not acknowledged.", labels=["bridge"]
        )
        messages = CounterMetricFamily(
            "headwater_bridge_messages",
            "Messages by what became of them: forwarded, dropped, or rejected by the other side.",
            labels=["bridge", "direction", "outcome"],
        )
        for bridge in self._bridges():
            up.add_metric([bridge.name], bridge.up)
            waiting.add_metric([bridge.name], bridge.waiting)
            for direction, traffic in (("out", bridge.sent), ("in", bridge.received)):
                for outcome in ("forwarded", "dropped", "rejected"):
                    messages.add_metric([bridge.name, direction, outcome], getattr(traffic, outcome))
        yield from (up, waiting, messages)
