"""Declared figures as metric families of Prometheus: what the pages of a node and of a pipeline have in common.

Names are those of the field: `_total` for what only grows, base units (bytes, seconds), labels only where their values
are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from headwater.metric import metrics_of


def families(kind: type, views: Sequence[Any], label: str = "", prefix: str = "headwater") -> Iterator[Family]:
    """The metrics of dataclasses of a kind: of many, with a label whose value is their `name`; or of one, which is None
    if there is no such part."""
    made: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    if None in views:
        return
    for field, metric in metrics_of(kind).items():
        name = field if metric.name is None else metric.name
        if not name:
            continue
        if name not in made:
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            made[name] = family(f"{prefix}_{name}", metric.help, labels=[*filter(None, [label]), *metric.labels])
        for view in views:
            who = [view.name] if label else []
            for labels, number in metric.samples_of(view, field).items():
                made[name].add_metric([*who, *labels], number)
    yield from made.values()
