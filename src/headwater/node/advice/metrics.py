"""Figures of advice for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.node.operations.seen import AdviceSeen


class AdviceCollector(Collector):
    """Nothing as long as `seen` gives None: no advice is taken."""

    def __init__(self, seen: Callable[[], AdviceSeen | None]) -> None:
        self._seen = seen

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Metric]:
        seen = self._seen()
        if seen is None:
            return
        messages = CounterMetricFamily("headwater_advice", "Messages with advice.", labels=["outcome"])
        for outcome, count in seen.counts.items():
            messages.add_metric([outcome], count)
        yield messages
        text = "Subjects on which advice is in force."
        yield GaugeMetricFamily("headwater_advice_in_force", text, value=seen.in_force)
