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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, TypeVar

Labels = tuple[str, ...]
View = TypeVar("View")


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
    together: Literal["sum", "most", "least"] = "sum"
    """What it is of several processes that are one node (node/workers): `least` of those that are not 0. A dict is so
    by its keys."""
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


def added(views: Sequence[View]) -> View:
    """What dataclasses of a kind say together, of several processes that are one node; there is one at least."""
    metrics = metrics_of(_kind(views[0]))
    found = {name: _together(metric, [getattr(view, name) for view in views]) for name, metric in metrics.items()}
    return replace(views[0], **found)  # type: ignore[type-var]


def _together(metric: Metric, values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _together(metric, [value[key] for value in values if key in value]) for key in keys}
    if metric.together == "sum" and not isinstance(values[0], bool):
        return sum(values)
    return max(values) if metric.together != "least" else min(filter(None, values), default=values[0])


def plus_counters(view: View, gone: View) -> View:
    """A dataclass with what another one had counted, whose process has ended."""
    counters = {name: metric for name, metric in metrics_of(_kind(view)).items() if metric.is_counter}
    found = {name: _together(each, [getattr(view, name), getattr(gone, name)]) for name, each in counters.items()}
    return replace(view, **found)  # type: ignore[type-var]


def _kind(view: object) -> type:
    return type(view)
