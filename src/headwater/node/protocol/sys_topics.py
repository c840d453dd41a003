"""The `$SYS` tree, with the names that people know from Mosquitto.

Load figures are averages over 1, 5 and 15 minutes of counts per minute: exponentially weighted, as of a system's load.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headwater import __version__
from headwater.message import Message
from headwater.metric import Metric, added, metrics_of, read_all
from headwater.node.advice.figures import AdviceSeen, see_advice
from headwater.node.delivery.figures import StoreSeen
from headwater.node.protocol.group_view import GroupView, merged_groups, view_groups
from headwater.node.protocol.statistics import Statistics, statistics_of

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server

MOST_GROUPS = 100
MOST_MEMBERS = 100
"""The first groups, and the first members of each, that are shown one by one."""
MINUTES = (1, 5, 15)


@dataclass
class Others:
    """What other processes of the same node have counted (node/workers)."""

    statistics: Statistics | None = None
    store: StoreSeen | None = None
    groups: list[GroupView] = field(default_factory=list)
    without: Callable[[Statistics], Statistics] | None = None
    """Takes what came from them off the figures of this process: they have counted it."""


class SysTopics:
    def __init__(self, server: Server, started_at: float, others: Others | None = None) -> None:
        self._server = server
        self._others = others or Others()
        self._started_at = started_at
        self._last: Statistics | None = None
        self._last_at = started_at
        self._averages: dict[str, float] = {}
        self._shown: dict[str, str] = {}

    def publish(self, now: float) -> None:
        """Publish every figure that changed, retained."""
        others = self._others
        statistics = statistics_of(self._server, now - self._started_at)
        if others.without is not None:
            statistics = others.without(statistics)
        if others.statistics is not None:
            statistics = added([statistics, others.statistics])
        self._server.hooks.tell("sys_info_tick", statistics)
        figures = self._figures(statistics, now)
        groups = merged_groups([*view_groups(self._server, MOST_MEMBERS)[:MOST_GROUPS], *others.groups])
        figures.update(_group_figures(groups[:MOST_GROUPS]))
        for name in self._shown.keys() - figures.keys():
            figures[name] = ""  # a group or member that is there no longer
        for name, text in figures.items():
            if self._shown.get(name) != text:
                self._shown[name] = text
                topic = "$SYS/broker/" + name
                self._server.publishing.announce(Message(topic, text.encode(), 0, True))
            if not text:
                del self._shown[name]

    def _figures(self, now: Statistics, time: float) -> dict[str, str]:
        waiting = str(now.retained + now.queued)
        disconnected = str(now.sessions - now.connections)
        return {
            "version": f"headwater version {__version__}",
            "uptime": f"{int(now.uptime)} seconds",
            "clients/disconnected": disconnected,
            "clients/inactive": disconnected,
            "messages/stored": waiting,
            "store/messages/count": waiting,
            **_topics(Statistics, self._server, lambda field, metric: getattr(now, field)),
            **_store_figures(self._server, self._others.store),
            **_advice_figures(self._server),
            **self._loads(now, time),
        }

    def _loads(self, now: Statistics, time: float) -> dict[str, str]:
        elapsed = time - self._last_at
        last = self._last or Statistics()
        self._last, self._last_at = now, time
        shown = {}
        for name, metric in metrics_of(Statistics).items():
            if not metric.loads:
                continue
            per_minute = (getattr(now, name) - getattr(last, name)) * 60 / elapsed if elapsed > 0 else 0.0
            for load, minutes in product(metric.loads, MINUTES):
                key = f"load/{load}/{minutes}min"
                weight = math.exp(-elapsed / (60 * minutes))
                average = per_minute + weight * (self._averages.get(key, 0.0) - per_minute)
                self._averages[key] = average
                shown[key] = f"{average:.2f}"
        return shown


def _topics(kind: type, server: Server, read: Callable[[str, Metric], Any]) -> dict[str, str]:
    """Those that the metrics of `kind` have, with what `read` gives for each: only these are read. Truth is 1 or 0."""
    figures: dict[str, str] = {}
    for name, metric in metrics_of(kind).items():
        if metric.topics and (metric.has_topics is None or metric.has_topics(server)):
            value = read(name, metric)
            parts = value if metric.labels and isinstance(value, dict) else {"": value}
            figures |= {topic.format(key): str(+part) for key, part in parts.items() for topic in metric.topics}
    return figures


def _store_figures(server: Server, others: StoreSeen | None) -> dict[str, str]:
    """Of the delivery store, if there is one."""
    coordinator = server.coordinator
    if coordinator is None:
        return {}
    if others is not None:
        seen = added([StoreSeen(**read_all(StoreSeen, coordinator)), others])
        return _topics(StoreSeen, server, lambda field, _: getattr(seen, field))
    return _topics(StoreSeen, server, lambda _, metric: metric.read and metric.read(coordinator))


def _advice_figures(server: Server) -> dict[str, str]:
    """Of advice, if any is taken: what is in force, and what became of the messages."""
    advising = server.advising
    if advising is None:
        return {}
    seen = see_advice(advising)
    figures = _topics(AdviceSeen, server, lambda field, _: getattr(seen, field))
    for advice in advising.in_force()[:MOST_GROUPS]:
        figures[f"advice/{advice.kind}/{quote(advice.subject, safe='')}"] = json.dumps(asdict(advice))
    return figures


def _group_figures(groups: list[GroupView]) -> dict[str, str]:
    """Under `shared/`, the group's name and its filter, each one level (`/`, `+` and `#` as %2F, %2B and %23)."""
    figures: dict[str, str] = {}
    for group in groups:
        _, share, filter = group.name.split("/", 2)
        place = f"shared/{quote(share, safe='')}/{quote(filter, safe='')}"
        figures[f"{place}/dispatcher"] = group.dispatcher
        figures[f"{place}/messages/sent"] = str(group.sent)
        figures[f"{place}/messages/waiting"] = str(group.waiting)
        for member in group.members:
            seen = asdict(member)
            believed = {name: float(f"{value:.4g}") for name, value in seen.pop("believed").items()}
            figures[f"{place}/member/{quote(member.client_id, safe='')}"] = json.dumps({**seen, **believed})
    return figures
