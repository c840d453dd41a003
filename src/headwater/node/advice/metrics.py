"""Figures of advice for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.node.advice.advising import Advising


class AdviceCollector(Collector):
    """Nothing as long as `advising` gives None: no advice is taken."""

    def __init__(self, advising: Callable[[], Advising | None]) -> None:
        self._advising = advising

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Metric]:
        advising = self._advising()
        if advising is None:
            return
        messages = CounterMetricFamily("headwater_advice", "Messages with advice.", labels=["outcome"])
        for outcome, count in advising.counts.items():
            messages.add_metric([outcome], count)
        yield messages
        in_force = len(advising.in_force())
        yield GaugeMetricFamily("headwater_advice_in_force", "Subjects on which advice is in force.", value=in_force)
