"""A figure of the broker, declared once: at the field that holds it.

Theory. A figure is told in many forms: a metric of Prometheus, topics below `$SYS`, JSON, `headwater top`, a page of
the documentation. Each form knows what a `Metric` is; which metrics there are, only the dataclasses below know, whose
fields `counter` and `gauge` make. So a new figure is one field there, and the line that counts it. Counting is an
addition to a plain attribute of a compiled class: what is declared beside it is looked at when somebody asks.

    figures                             where they are declared
    what the broker counts              node/plane/counters.py
    what is read from its parts         node/protocol/statistics.py, which adds the former: `GET /v1/statistics`
    the store, advice, the process      node/delivery/figures.py, node/operations/seen.py
    shared groups, bridges, clusters    node/protocol/group_view.py, node/bridge/view.py, node/links/figures.py

    form                                where a metric becomes it
    Prometheus                          node/operations/metrics.py
    `$SYS`                              node/protocol/sys_topics.py
    JSON, the description of the API    the field itself, by its name and `help`
    `headwater top`                     live.py, cli/top.py
    docs/metrics.md                     scripts/metrics_page.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    help: str
    """A sentence, for all forms."""
    is_counter: bool
    """It only grows. Else it is a gauge."""
    read: Callable[[Any], Any] | None = None
    """Gives its value, of a server or another part; None: whoever makes the dataclass sets the field. mypy cannot check
    it, because it stands outside of functions in a cycle of imports; but all of them run whenever figures are made."""
    name: str | None = None
    """For Prometheus, without `headwater_` and `_total`; None: as the field, "": it is not told there. Fields of the
    same name are one metric, each with samples of its own."""
    labels: Labels = ()
    samples: Callable[[Any], Mapping[Labels, float]] | None = None
    """Numbers by values of the labels, given the dataclass. None: the field is the number, or, if there is a label, a
    dict by its values."""
    topics: tuple[str, ...] = ()
    """Below `$SYS/broker/`; with a label, `{}` is its value."""
    has_topics: Callable[[Any], bool] | None = None
    """Whether there are any, of this server."""
    loads: tuple[str, ...] = ()
    """Below `$SYS/broker/load/`: its rates."""
    in_top: bool = False
    """`headwater top` shows it among what the broker holds."""
    flow: tuple[str, str] | None = None
    """`headwater top` shows its rate and total: the row, and the column, messages or bytes."""
    doc: str = ""
    """What else there is to know of it, for docs/metrics.md."""

    def samples_of(self, view: object, field_name: str) -> Mapping[Labels, float]:
        if self.samples is not None:
            return self.samples(view)
        value = getattr(view, field_name)
        return {(key,): number for key, number in value.items()} if self.labels else {(): value}


def counter(help: str, read: Callable[[Any], Any] | None = None, *, default: Any = 0, **how: Any) -> Any:
    """A field of a dataclass that is a counter. `default` is its default, a factory of it, or MISSING; `how` are
    attributes of `Metric`."""
    return _declared(Metric(help, True, read, **how), default)


def gauge(help: str, read: Callable[[Any], Any] | None = None, *, default: Any = 0, **how: Any) -> Any:
    """The same for what comes and goes."""
    return _declared(Metric(help, False, read, **how), default)


def _declared(metric: Metric, default: Any) -> Any:
    metadata = {"metric": metric, "description": metric.help}  # pydantic knows the second
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def metrics_of(kind: type) -> dict[str, Metric]:
    """By the names of their fields."""
    return {each.name: each.metadata["metric"] for each in fields(kind) if "metric" in each.metadata}


def read_all(kind: type, source: object) -> dict[str, Any]:
    """The values of those that say how to read them."""
    return {name: metric.read(source) for name, metric in metrics_of(kind).items() if metric.read is not None}
